"""ServedIndex: an index in a server. Reads run in threads of their own, writes in one, so that neither waits long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from mvindex.errors import LimitExceeded, NoSuchIndex, QueryError, ServerUnavailable, Unsupported
from mvindex.index import Index
from mvindex.index.options import as_vectors, asked, check_mode, check_query_text, question_texts
from mvindex.index.results import IndexInfo, ViewScore
from mvindex.ingest import IngestHooks, IngestReport
from mvindex.maintenance.compact import CompactReport
from mvindex.records import Document, Floats, SearchResult
from mvindex.scoring.aggregate import parse_scoring
from mvindex.scoring.fusion import Mode, parse_fusion, parse_mode
from mvindex_connectors.remote.convert import MOST_EXPLAINED
from mvindex_connectors.server.batching import Batcher, Wanted, Watch
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.idempotency import Answers, is_stored, mark_of, with_mark

T = TypeVar("T")

_LISTED = 200
_LISTED_CHARS = 500_000


class ServedIndex:
    """What a server does with one of its indexes; all methods that are awaited belong to one event loop."""

    def __init__(self, name: str, index: Index, config: ServerConfig, watch: Watch) -> None:
        self.name, self.index = name, index
        self._limits, self._is_read_only = config.limits, config.is_read_only
        self._batcher = Batcher(index, watch, batch=config.batch, queued=config.limits.queued)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._listers: set[ThreadPoolExecutor] = set()
        self._is_closing = False
        self._chunks: Answers[IngestReport] = Answers()
        self._deletions: Answers[int] = Answers()

    @property
    def is_read_only(self) -> bool:
        """True where nothing is written."""
        return self._is_read_only

    @property
    def place(self) -> str:
        """Where the index lies on the server's disk; empty where it does not."""
        try:
            return str(self.index.path)
        except Unsupported:
            return ""

    @property
    def waiting(self) -> int:
        """Queries that wait for their turn."""
        return self._batcher.waiting

    def close(self) -> None:
        """Nothing; what is being read or written is finished first, and the index closed."""
        self._is_closing = True
        self._writer.shutdown(wait=True)
        self._batcher.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        for thread in list(self._listers):
            thread.shutdown(wait=True)
        self.index.close()

    async def search(
        self, queries: Sequence[str] | Floats, *, text: Sequence[str] | None = None, **options: Any
    ) -> list[SearchResult]:
        """A result for each query. QueryError, or LimitExceeded, before it waits for its turn.

        text: what the words are, one for each query, where they are not the queries.
        """
        wanted = self._wanted(options)
        words = None
        if text is not None or wanted.mode is not Mode.DENSE:
            words = self._words(queries, text, wanted)
            queries = words if wanted.mode is Mode.LEXICAL else queries
        if (hits := len(queries) * wanted.options["top_k"]) > self._limits.hits:
            raise LimitExceeded(
                f"{len(queries)} queries with top_k {wanted.options['top_k']} ask for {hits} documents at once; this "
                f"server gives {self._limits.hits} (--max-hits): send fewer queries at a time"
            )
        return await self._batcher.search(self._checked(queries), wanted, words)

    def _words(self, queries: Sequence[str] | Floats, text: Sequence[str] | None, wanted: Wanted) -> list[str]:
        """The texts whose words are searched, one for each query."""
        if wanted.mode is Mode.DENSE:
            raise QueryError("text= does not belong to mode='dense'")
        if text is not None:
            self._check_number(text)
        words, _ = question_texts(queries, text, wanted.mode)
        if wanted.mode is Mode.HYBRID and len(words) != len(queries):
            raise QueryError(f"{len(queries)} query vectors and {len(words)} texts; wanted a text for each")
        return words

    def _wanted(self, options: Mapping[str, Any]) -> Wanted:
        condition = options.get("filter")
        plain = {name: value for name, value in options.items() if name != "filter"}
        wanted = _checked_options(self._limits.top_k, **plain)
        if condition is None:
            return wanted
        key = (*wanted.key, ("filter", json.dumps(condition, sort_keys=True)))
        return Wanted(key=key, options={**wanted.options, "filter": condition}, mode=wanted.mode)

    def _checked(self, queries: Sequence[str] | Floats) -> list[str] | Floats:
        self._check_number(queries)
        if not isinstance(queries, Sequence):
            return as_vectors(queries, self.index.dim)
        for number, text in enumerate(queries, start=1):
            check_query_text(text, number, len(queries))
        return list(queries)

    def _check_number(self, queries: Sequence[str] | Floats) -> None:
        if len(queries) > self._limits.queries:
            raise LimitExceeded(
                f"{len(queries)} queries in one request; this server takes {self._limits.queries}: send several"
            )

    async def explain(self, query: str | Floats, id: str, scoring: str, temperature: float | None) -> list[ViewScore]:
        """Every view of a document with its score for the query."""
        return await self.read(lambda: self.index.explain(query, id, scoring, temperature=temperature))

    async def explain_all(
        self, query: str | Floats, ids: Sequence[str], scoring: str, temperature: float | None
    ) -> dict[str, list[ViewScore]]:
        """Every view of each of the documents that exist, by id, in the order of the ids."""
        if len(ids) > MOST_EXPLAINED:
            raise LimitExceeded(f"{len(ids)} documents to explain in one request; this server takes {MOST_EXPLAINED:,}")
        return await self.read(lambda: self.index.explain_all(query, ids, scoring, temperature=temperature))

    async def encode(self, texts: Sequence[str]) -> Floats:
        """The vectors of texts."""
        self._checked(texts)
        return await self.read(lambda: self.index.encode_queries(texts))

    async def get(self, ids: Sequence[str]) -> list[Document]:
        """The documents of the ids that exist."""
        if len(ids) > self._limits.queries:
            raise LimitExceeded(f"{len(ids)} ids in one request; this server takes {self._limits.queries}")
        found = await self.read(lambda: [self.index.get(doc_id) for doc_id in ids])
        return [document for document in found if document is not None]

    async def info(self) -> IndexInfo:
        """What the index is."""
        return await self.read(self.index.info)

    async def documents(self) -> AsyncIterator[list[Document]]:
        """All documents, some at a time, as they are now; read by a thread of their own, as fast as they are taken."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="list")
        self._listers.add(thread)
        try:
            rows = iter(self.index)
            try:
                while some := await loop.run_in_executor(thread, _next, rows):
                    yield some
            finally:
                thread.submit(_close, rows).add_done_callback(lambda _: self._listers.discard(thread))
        finally:
            # What is being read is not waited for: that would hold up all other calls.
            thread.shutdown(wait=False)

    async def add(
        self, key: str, chunk: int, documents: Iterable[Document], views: Sequence[Floats] | None
    ) -> IngestReport:
        """What was done with the documents of a chunk, which is durable then. A chunk that comes again is not."""
        place = f"{chunk} {key}"
        known = self._chunks.get(place) if key else None
        if known is None:
            known = await self._write(lambda: self._added_once(key, chunk, list(documents), views))
        return known

    def _added_once(
        self, key: str, chunk: int, documents: list[Document], views: Sequence[Floats] | None
    ) -> IngestReport:
        """What was done. Kept here, in the thread that writes: who asked may be gone, and may ask again meanwhile."""
        if not key:
            return self._added(key, chunk, documents, views)
        place = f"{chunk} {key}"
        known = self._chunks.get(place)
        if known is None:
            known = self._added(key, chunk, documents, views)
            self._chunks.keep(place, known)
        return known

    def _added(self, key: str, chunk: int, documents: list[Document], views: Sequence[Floats] | None) -> IngestReport:
        mark = mark_of(key, chunk) if key else ""
        if mark and is_stored(self._settings(), mark):
            return IngestReport(unchanged=len(documents))
        hooks = IngestHooks(
            on_progress=self._check_open, note=lambda _: with_mark(self._settings(), mark) if mark else {}
        )
        if views is None:
            return self.index.add(documents, hooks=hooks)
        return self.index.add_views(documents, list(views), hooks=hooks)

    def _settings(self) -> Mapping[str, Any]:
        """What is kept with the index; nothing where that is behind another server."""
        try:
            return self.index.settings
        except Unsupported:
            return {}

    async def delete(self, ids: Sequence[str] | None, condition: Any, key: str) -> int:
        """How many documents were deleted. A request that comes again deletes nothing more."""
        known = self._deletions.get(key) if key else None
        if known is None:
            known = await self._write(lambda: self._deleted_once(ids, condition, key))
        return known

    def _deleted_once(self, ids: Sequence[str] | None, condition: Any, key: str) -> int:
        """How many were deleted; kept as those of _added_once()."""
        known = self._deletions.get(key) if key else None
        if known is None:
            known = self.index.delete(ids=ids, filter=condition)
            if key:
                self._deletions.keep(key, known)
        return known

    async def update(self, id: str, metadata: Mapping[str, Any]) -> None:
        """Nothing; the document has this metadata."""
        await self._write(lambda: self.index.update(id, metadata=metadata))

    async def compact(self) -> CompactReport:
        """What was done; reads go on meanwhile, writes wait. ServerUnavailable, and nothing done, when it is closed."""
        return await self._write(lambda: self.index.compact(self._check_open))

    def _check_open(self, count: int) -> None:
        if self._is_closing:
            raise ServerUnavailable(f"{self.name}: the server ended before this was done")

    async def read(self, ask: Callable[[], T]) -> T:
        """What the function gives, in a thread that reads."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, ask)

    async def _write(self, change: Callable[[], T]) -> T:
        """What the function gives, in the thread that writes. Once begun it is finished, whoever waits for it."""
        if self._is_read_only:
            raise Unsupported(f"{self.name}: this server was started with --read-only; it takes no writes")
        return await asyncio.get_running_loop().run_in_executor(self._writer, change)


def named_index(served: Mapping[str, ServedIndex], name: str) -> ServedIndex:
    """The index of that name; NoSuchIndex names those that there are."""
    if name not in served:
        raise NoSuchIndex(f"there is no index {name!r:.120} here; there are: {', '.join(served)}")
    return served[name]


@lru_cache(1024, typed=True)
def _checked_options(most: int, **options: Any) -> Wanted:
    """What a search asks for, without its filter. QueryError, LimitExceeded; nearly all searches ask for the same."""
    given = {"top_k": 10, "scoring": "max", **{name: value for name, value in options.items() if value is not None}}
    scoring = parse_scoring(given["scoring"], given.get("temperature"))
    wanted = asked(given["top_k"], None, scoring, given.get("exact", False), given.get("candidates"))
    mode = parse_mode(given.get("mode", Mode.DENSE.value))
    check_mode(mode, wanted, fusion=given.get("fusion"), weights=given.get("weights"))
    parse_fusion(given.get("fusion"), given.get("weights"))
    if given["top_k"] > most:
        raise LimitExceeded(f"top_k is {given['top_k']}; this server gives at most {most} (--max-top-k)")
    return Wanted(key=tuple(sorted(given.items())), options=given, mode=mode)


def _next(rows: Iterator[Document]) -> list[Document]:
    """The next documents, fewer where they are long: they are converted and sent at once."""
    some: list[Document] = []
    num_chars = 0
    for document in rows:
        some.append(document)
        num_chars += len(document.text)
        if len(some) == _LISTED or num_chars >= _LISTED_CHARS:
            break
    return some


def _close(rows: Iterator[Document]) -> None:
    close = getattr(rows, "close", None)
    if close is not None:
        close()
