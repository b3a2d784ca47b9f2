"""IndexService: an index in a server. Reads run in several threads, writes in one, so that neither waits long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from mvindex.index.options import as_vectors, asked, check_mode, check_query_text, question_texts
from mvindex.index.results import IndexInfo, ViewScore

from mvindex.errors import LimitExceeded, NoSuchIndex, QueryError, ServerUnavailable, Unsupported
from mvindex.index import Index
from mvindex.ingest import IngestHooks, IngestReport
from mvindex.maintenance.compact import CompactReport
from mvindex.records import Document, Floats, SearchResult
from mvindex.scoring.aggregate import parse_scoring
from mvindex.scoring.fusion import Mode, parse_fusion, parse_mode
from mvindex_connectors.remote.convert import MAX_EXPLAINED
from mvindex_connectors.server.batching import Batcher, BatchObserver, BatchOptions
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.idempotency import IdempotencyCache, chunk_mark, is_chunk_stored, settings_with_mark

T = TypeVar("T")

_LIST_DOCUMENTS = 200
_LIST_CHARS = 500_000


class IndexService:
    """The operations of a server on one index; all coroutines belong to one event loop."""

    def __init__(self, name: str, index: Index, config: ServerConfig, observer: BatchObserver) -> None:
        self.name, self.index = name, index
        self._limits, self._is_read_only = config.limits, config.is_read_only
        self._batcher = Batcher(index, observer, batch=config.batch, queued=config.limits.queued)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._listers: set[ThreadPoolExecutor] = set()
        self._is_closing = False
        self._chunks: IdempotencyCache[IngestReport] = IdempotencyCache()
        self._deletions: IdempotencyCache[int] = IdempotencyCache()

    @property
    def is_read_only(self) -> bool:
        """Whether writes are refused."""
        return self._is_read_only

    @property
    def local_path(self) -> str:
        """The path of the index on the server's disk; empty if it has none."""
        try:
            return str(self.index.path)
        except Unsupported:
            return ""

    @property
    def waiting(self) -> int:
        """Queries waiting to be searched."""
        return self._batcher.waiting

    def close(self) -> None:
        """Finish reads and writes in progress, then close the index."""
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
        """Return a result for each query. QueryError or LimitExceeded before it is queued.

        text: the texts of the lexical part, one for each query, if they are not the queries.
        """
        chosen = self._batch_options(options)
        texts = None
        if text is not None or chosen.mode is not Mode.DENSE:
            texts = self._lexical_texts(queries, text, chosen.mode)
            queries = texts if chosen.mode is Mode.LEXICAL else queries
        if (hits := len(queries) * chosen.options["top_k"]) > self._limits.hits:
            raise LimitExceeded(
                f"{len(queries)} queries with top_k {chosen.options['top_k']} request {hits} documents at once; this "
                f"server returns at most {self._limits.hits} (--max-hits). Send fewer queries at a time"
            )
        return await self._batcher.search(self._checked(queries), chosen, texts)

    def _lexical_texts(self, queries: Sequence[str] | Floats, text: Sequence[str] | None, mode: Mode) -> list[str]:
        """Return the texts of the lexical part, one for each query."""
        if mode is Mode.DENSE:
            raise QueryError("text= does not belong to mode='dense'")
        if text is not None:
            self._check_number(text)
        texts, _ = question_texts(queries, text, mode)
        if mode is Mode.HYBRID and len(texts) != len(queries):
            raise QueryError(f"text: expected a text for each of {len(queries)} query vectors, got {len(texts)}")
        return texts

    def _batch_options(self, options: Mapping[str, Any]) -> BatchOptions:
        condition = options.get("filter")
        plain = {name: value for name, value in options.items() if name != "filter"}
        chosen = _checked_options(self._limits.top_k, **plain)
        if condition is None:
            return chosen
        key = (*chosen.key, ("filter", json.dumps(condition, sort_keys=True)))
        return BatchOptions(key=key, options={**chosen.options, "filter": condition}, mode=chosen.mode)

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
                f"{len(queries)} queries in one request; this server takes {self._limits.queries} (--max-queries). "
                "Send several requests"
            )

    async def explain(self, query: str | Floats, id: str, scoring: str, temperature: float | None) -> list[ViewScore]:
        """Score every view of a document for the query."""
        return await self.read(lambda: self.index.explain(query, id, scoring, temperature=temperature))

    async def explain_all(
        self, query: str | Floats, ids: Sequence[str], scoring: str, temperature: float | None
    ) -> dict[str, list[ViewScore]]:
        """Score every view of the documents that exist, by id, in the order of the ids."""
        if len(ids) > MAX_EXPLAINED:
            raise LimitExceeded(f"{len(ids)} documents to explain in one request; this server takes {MAX_EXPLAINED:,}")
        return await self.read(lambda: self.index.explain_all(query, ids, scoring, temperature=temperature))

    async def encode(self, texts: Sequence[str]) -> Floats:
        """Encode texts as queries, (q, d)."""
        self._checked(texts)
        return await self.read(lambda: self.index.encode_queries(texts))

    async def get(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents of the ids that exist."""
        if len(ids) > self._limits.queries:
            raise LimitExceeded(f"{len(ids)} ids in one request; this server takes {self._limits.queries}")
        found = await self.read(lambda: [self.index.get(doc_id) for doc_id in ids])
        return [document for document in found if document is not None]

    async def info(self) -> IndexInfo:
        """Describe the index."""
        return await self.read(self.index.info)

    async def documents(self) -> AsyncIterator[list[Document]]:
        """Yield all documents in lists, from one snapshot; a separate thread reads them as they are consumed."""
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
            # Without waiting for a read in progress, which would block all other calls.
            thread.shutdown(wait=False)

    async def add(
        self, key: str, chunk: int, documents: Iterable[Document], views: Sequence[Floats] | None
    ) -> IngestReport:
        """Store a chunk durably and return the report; a repeated chunk is not stored again."""
        report = self._chunks.get(f"{chunk} {key}") if key else None
        if report is None:
            report = await self._write(lambda: self._add_once(key, chunk, list(documents), views))
        return report

    def _add_once(
        self, key: str, chunk: int, documents: list[Document], views: Sequence[Floats] | None
    ) -> IngestReport:
        """Store a chunk and cache the report, in the writing thread: the caller may be gone, and may already retry."""
        if not key:
            return self._add(key, chunk, documents, views)
        report = self._chunks.get(f"{chunk} {key}")
        if report is None:
            report = self._add(key, chunk, documents, views)
            self._chunks.put(f"{chunk} {key}", report)
        return report

    def _add(self, key: str, chunk: int, documents: list[Document], views: Sequence[Floats] | None) -> IngestReport:
        mark = chunk_mark(key, chunk) if key else ""
        if mark and is_chunk_stored(self._settings(), mark):
            return IngestReport(unchanged=len(documents))
        hooks = IngestHooks(
            on_progress=self._check_open, note=lambda _: settings_with_mark(self._settings(), mark) if mark else {}
        )
        if views is None:
            return self.index.add(documents, hooks=hooks)
        return self.index.add_views(documents, list(views), hooks=hooks)

    def _settings(self) -> Mapping[str, Any]:
        """Return the settings of the index; empty if it is behind another server."""
        try:
            return self.index.settings
        except Unsupported:
            return {}

    async def delete(self, ids: Sequence[str] | None, condition: Any, key: str) -> int:
        """Delete documents and return how many; a repeated request deletes nothing more."""
        deleted = self._deletions.get(key) if key else None
        if deleted is None:
            deleted = await self._write(lambda: self._delete_once(ids, condition, key))
        return deleted

    def _delete_once(self, ids: Sequence[str] | None, condition: Any, key: str) -> int:
        """Delete and cache the count, in the writing thread as _add_once() does."""
        deleted = self._deletions.get(key) if key else None
        if deleted is None:
            deleted = self.index.delete(ids=ids, filter=condition)
            if key:
                self._deletions.put(key, deleted)
        return deleted

    async def update(self, id: str, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document."""
        await self._write(lambda: self.index.update(id, metadata=metadata))

    async def compact(self) -> CompactReport:
        """Compact the index; reads continue meanwhile, writes wait. ServerUnavailable if it is closed meanwhile."""
        return await self._write(lambda: self.index.compact(self._check_open))

    def _check_open(self, count: int) -> None:
        if self._is_closing:
            raise ServerUnavailable(f"{self.name}: the server shut down before this was done")

    async def read(self, function: Callable[[], T]) -> T:
        """Run the function in a reading thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, function)

    async def _write(self, function: Callable[[], T]) -> T:
        """Run the function in the writing thread. Once begun it is finished, even if the caller is gone."""
        if self._is_read_only:
            raise Unsupported(f"{self.name}: this server was started with --read-only; it takes no writes")
        return await asyncio.get_running_loop().run_in_executor(self._writer, function)


def find_index(services: Mapping[str, IndexService], name: str) -> IndexService:
    """Return the index of that name; NoSuchIndex lists the names that exist."""
    if name not in services:
        raise NoSuchIndex(f"index: expected one of {', '.join(services)}, got {name!r:.120}")
    return services[name]


@lru_cache(1024, typed=True)
def _checked_options(max_top_k: int, **options: Any) -> BatchOptions:
    """Return the checked options of a search, without its filter; cached, since nearly all searches share theirs."""
    chosen = {"top_k": 10, "scoring": "max", **{name: value for name, value in options.items() if value is not None}}
    scoring = parse_scoring(chosen["scoring"], chosen.get("temperature"))
    checked = asked(chosen["top_k"], None, scoring, chosen.get("exact", False), chosen.get("candidates"))
    mode = parse_mode(chosen.get("mode", Mode.DENSE.value))
    check_mode(mode, checked, fusion=chosen.get("fusion"), weights=chosen.get("weights"))
    parse_fusion(chosen.get("fusion"), chosen.get("weights"))
    if chosen["top_k"] > max_top_k:
        raise LimitExceeded(f"top_k: expected at most {max_top_k} on this server (--max-top-k), got {chosen['top_k']}")
    return BatchOptions(key=tuple(sorted(chosen.items())), options=chosen, mode=mode)


def _next(rows: Iterator[Document]) -> list[Document]:
    """Return the next documents, fewer if they are long: they are converted and sent together."""
    some: list[Document] = []
    num_chars = 0
    for document in rows:
        some.append(document)
        num_chars += len(document.text)
        if len(some) == _LIST_DOCUMENTS or num_chars >= _LIST_CHARS:
            break
    return some


def _close(rows: Iterator[Document]) -> None:
    close = getattr(rows, "close", None)
    if close is not None:
        close()
