"""IndexService: an index in a server. Reads run in several threads, writes in one, so that neither waits long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from mvindex.errors import LimitExceeded, QueryError, ServerUnavailable, Unsupported
from mvindex.index import Index, IndexProtocol, search_engine_of, store_of
from mvindex.ingest import Encode, GivenViews, IngestReport
from mvindex.maintenance.backups import BackupReport, take_backup
from mvindex.maintenance.compact import CompactReport
from mvindex.records import Document, Floats, IndexInfo, SearchResult, ViewScore, check_ids, dump_metadata
from mvindex.search.hits import document_of
from mvindex.search.like import MAX_LIKE
from mvindex.search.local import LocalSearch
from mvindex.search.request import ScoringName, SearchRequest
from mvindex.search.terms import TermCounts
from mvindex.store.embedded import LocalStore, StorePart
from mvindex.store.filter_reader import FilterReader
from mvindex.store.filters import Filter
from mvindex.store.protocol import Operation
from mvindex_connectors.remote.convert import MAX_EXPLAINED, MAX_IDS
from mvindex_connectors.server.batching import Batcher, BatchObserver
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.fairness import CALLER, FairThread, as_long_work
from mvindex_connectors.server.idempotency import RepeatableWrites
from mvindex_connectors.server.limits import Page, QueryChecks, ResponseMeter, close_rows, next_documents, num_chars_of

T = TypeVar("T")

# The most hits or documents that are converted in the event loop: about a millisecond of its time.
_MAX_INLINE_ITEMS = 100
# Characters of queries that take as long to check as a hit to convert.
_ITEM_CHARS = 2_000
# Characters of a chunk from which on it is encoded before its turn to be written: about a second.
_ENCODED_CHARS = 16_000
# Of the numbers of a view's share in a score.
_VIEW_BYTES = 40
# Characters of texts beyond which a page ends early: it is in memory as a whole.
_PAGE_CHARS = 4_000_000


class IndexService:
    """The operations of a server on one index; all coroutines belong to one event loop."""

    def __init__(self, name: str, index: IndexProtocol, config: ServerConfig, observer: BatchObserver) -> None:
        self.name, self.index = name, index
        # An index behind another server is served too: that server compacts it and keeps its settings.
        self._local = cast(Index, index) if index.capabilities.supports(Operation.COMPACT) else None
        self._limits, self._is_read_only = config.limits, config.is_read_only
        self._batcher = Batcher(index, observer, config.limits, batch=config.batch, state=self._state)
        self._checks = QueryChecks(config.limits, index)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="read")
        # Long documents are encoded before their turn to be written comes, so that no other writer waits for that.
        self._encoder, self._writer = FairThread("encode"), FairThread("write")
        self._listers: set[ThreadPoolExecutor] = set()
        self._is_closing = False
        self._num_calls, self._unused = 0, asyncio.Event()
        self._unused.set()
        store = None if self._local is None else store_of(self._local)
        self._writes = RepeatableWrites(index, store, self.check_open, self._limits.document_chars)

    @property
    def is_read_only(self) -> bool:
        """Whether writes are refused."""
        return self._is_read_only

    @property
    def is_closing(self) -> bool:
        """Whether the index is closed, or will be in a moment."""
        return self._is_closing

    @property
    def local_path(self) -> str:
        """The path of the index on the server's disk; empty if it has none."""
        return self.index.where if self.index.capabilities.supports(Operation.FILES) else ""

    @property
    def store_paths(self) -> list[Path]:
        """The directories of the stores of the index, each with a writer lock; empty if it has none."""
        return [part.store.directory for part in self._parts()]

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the index meanwhile: it is open here, and has no writer lock."""
        return self._local is not None and not self.is_in_directory

    @property
    def is_in_directory(self) -> bool:
        """Whether the index is in a directory of this server, and no other process writes to it."""
        return bool(self._parts())

    @property
    def can_compact(self) -> bool:
        """Whether the index can be compacted here."""
        return self._local is not None

    @property
    def can_snapshot(self) -> bool:
        """Whether snapshots of the index can be made here."""
        return self._local is not None and self._local.capabilities.supports(Operation.SNAPSHOT)

    @property
    def waiting(self) -> int:
        """Queries waiting to be searched."""
        return self._batcher.waiting

    def _state(self) -> Hashable:
        """Return what every commit to the index changes; None where it is not in this process."""
        if self._local is None:
            return None
        return tuple(part.store.snapshot.state for part in self._parts())

    def _parts(self) -> Sequence[StorePart]:
        """Return the embedded stores of the index; none where it has no files here."""
        store = None if self._local is None else store_of(self._local)
        return store.parts() if isinstance(store, LocalStore) else ()

    def enter(self) -> None:
        """Count a call that uses the index, until leave()."""
        self._num_calls += 1
        self._unused.clear()

    def leave(self) -> None:
        """Count the end of a call."""
        self._num_calls -= 1
        if self._num_calls == 0:
            self._unused.set()

    async def wait_unused(self) -> None:
        """Wait until no call uses the index; no new one may begin meanwhile."""
        await self._unused.wait()

    def close(self) -> None:
        """Finish reads and writes in progress, then close the index."""
        self._is_closing = True
        self._encoder.close()
        self._writer.close()
        self._batcher.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        for thread in list(self._listers):
            thread.shutdown(wait=True)
        self.index.close()

    async def search(
        self,
        request: SearchRequest,
        meter: ResponseMeter,
        convert: Callable[[list[SearchResult]], list[Any]] | None = None,
    ) -> list[Any]:
        """Return a result for each query. QueryError or LimitExceeded before it is queued.

        Args:
            request: One kind of queries, or one group, as a message has them.
            meter: Counts the hits.
            convert: What is returned in place of the results, those of a large request part by part; called in the
                thread that has searched. It may empty the list of results that it is given.

        """
        if request.like is not None:
            return await self._search_like(request, meter, convert or list)
        return await self._batcher.search(await self._checked_search(request, meter), meter, convert)

    async def _search_like(
        self, request: SearchRequest, meter: ResponseMeter, convert: Callable[[list[SearchResult]], list[T]]
    ) -> list[T]:
        """Return what the result for documents is converted to. It is searched by itself."""
        self._checks.hits(1, request)

        def found() -> list[T]:
            with meter.limited():
                results = self.index.run(request)
            meter.gather(sum(len(hit.text) + len(hit.title) + len(hit.id) for result in results for hit in result.hits))
            return convert(results)

        return await self.read(found)

    async def _checked_search(self, request: SearchRequest, meter: ResponseMeter) -> SearchRequest:
        """Return the request with its queries as the batcher takes them."""
        [queries] = request.queries
        if request.shard is not None:
            self._shard_parts()
        self._checks.hits(len(queries), request)
        # Long texts take as long as many.
        num_items = max(len(queries.rows), sum(map(len, queries.unencoded)) // _ITEM_CHARS)
        return request.with_queries(
            await self.convert(lambda: self._checks.queries(queries, request), num_items, meter)
        )

    async def explain_all(
        self,
        query: str | Floats,
        ids: Sequence[str],
        scoring: ScoringName,
        temperature: float | None,
        meter: ResponseMeter,
    ) -> dict[str, list[ViewScore]]:
        """Score every view of the documents that exist, by id, in the order of the ids."""
        if len(ids) > MAX_EXPLAINED:
            raise LimitExceeded(f"{len(ids)} documents to explain in one request; this server takes {MAX_EXPLAINED:,}")
        if isinstance(query, str):
            self._checks.text(query)

        def explained() -> dict[str, list[ViewScore]]:
            with meter.limited():
                found = self.index.explain_all(query, ids, scoring, temperature=temperature)
            for views in found.values():
                meter.gather(sum(_VIEW_BYTES + len(view.snippet or "") for view in views))
            return found

        return await self.read(explained)

    def check_number(self, count: int) -> None:
        """Check how many queries there are; raise LimitExceeded for more than are searched at once."""
        self._checks.number(count)

    async def encode(self, texts: Sequence[str]) -> Floats:
        """Encode texts as queries, (q, d)."""
        self._checks.texts(texts)
        return await self.read(lambda: self.index.encode_queries(texts))

    async def views(self, ids: Sequence[str], meter: ResponseMeter) -> dict[str, Floats]:
        """Return the views of the documents that exist, by id; Unsupported unless the index may be a shard.

        A search of the shards stands on them, or compares them.
        """
        if len(ids) > MAX_LIKE:
            raise LimitExceeded(f"{len(ids)} ids in one request; this server returns the views of {MAX_LIKE} documents")
        if len(set(ids)) < len(ids):
            raise QueryError("ids: expected each id once, got one twice")
        store, _ = self._shard_parts()

        def found() -> dict[str, Floats]:
            with meter.limited():
                views = store.vectors(check_ids(list(ids)))
            meter.gather(sum(vectors.nbytes for vectors in views.values()))
            return views

        return await self.read(found)

    async def get(self, ids: Sequence[str], meter: ResponseMeter) -> list[Document]:
        """Return the documents of the ids that exist, in the order of the ids, all of one state."""
        if len(ids) > MAX_IDS:
            raise LimitExceeded(f"{len(ids)} ids in one request; this server takes {MAX_IDS:,}. Send several requests")

        def found() -> list[Document]:
            with meter.limited():
                documents = self.index.get(ids)
            meter.gather(sum(len(document.text) + len(document.title) for document in documents))
            return documents

        return await self.read(found)

    def metadata_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the metadata, in JSON, of the ids that exist; to be called in a thread."""
        if self._local is None or not self._local.capabilities.supports(Operation.FILES):
            return {found.id: dump_metadata(found.metadata, found.id) for found in self.index.get(ids)}
        return {doc_id: known.metadata for doc_id, known in store_of(self._local).known(ids).items()}

    async def has(self, doc_id: str) -> bool:
        """Return whether there is a document of this id."""
        return await self.read(lambda: doc_id in self.index)

    async def page(self, condition: Filter | None, limit: int, after: str | None) -> Page:
        """Return the next documents that match, fewer than the limit if they are long; see Index.scan()."""
        return await self.read(lambda: self._page(condition, limit, after))

    def _page(self, condition: Filter | None, limit: int, after: str | None) -> Page:
        documents: list[Document] = []
        num_chars, most = 0, min(_PAGE_CHARS, self._limits.response_bytes * 3 // 4)
        for document in self.index.scan(condition, limit + 1, after):
            num_chars += num_chars_of(document)
            if documents and (len(documents) == limit or num_chars > most):
                return Page(documents, documents[-1].id)
            documents.append(document)
        return Page(documents, None)

    async def info(self) -> IndexInfo:
        """Describe the index."""
        return await self.read(self.index.info)

    async def count_within(self, condition: Filter) -> tuple[int, int]:
        """Return how many documents match, and how many views they have; Unsupported unless it is in a directory."""
        store = self._shard_parts()[0]

        def count() -> tuple[int, int]:
            documents = views = 0
            for part in store.parts():
                snapshot = part.store.snapshot
                with part.errors(), part.store.reading(snapshot) as reader:
                    matching = FilterReader(reader).matching(condition)
                documents += int(np.count_nonzero(matching))
                views += snapshot.views.count_of(matching)
            return documents, views

        return await self.read(count)

    async def term_counts(self, texts: Sequence[str]) -> tuple[TermCounts, IndexInfo]:
        """Return the counts of the texts' terms in this index, and its description, for a search of several shards."""
        search = self._shard_parts()[1]
        self._checks.texts(texts)
        self.index.capabilities.check(Operation.LEXICAL, self.name)

        def count() -> tuple[TermCounts, IndexInfo]:
            info = self.index.info()
            if info.lexical is None:
                raise Unsupported(f"{self.name}: this index has no lexical side; `mvindex build --lexical` adds one")
            return search.term_counts(texts), info

        return await self.read(count)

    def _shard_parts(self) -> tuple[LocalStore, LocalSearch]:
        """Return store and engine of an index that may be one shard of several; Unsupported for another."""
        store = None if self._local is None else store_of(self._local)
        engine = None if self._local is None else search_engine_of(self._local)
        if not isinstance(store, LocalStore) or not isinstance(engine, LocalSearch):
            raise Unsupported(
                f"{self.name}: expected an index in a directory of this server, to be searched as a shard"
            )
        return store, engine

    async def scan(
        self, condition: Filter | None, limit: int | None, after: str | int | None, *, with_ordinals: bool = False
    ) -> AsyncIterator[list[tuple[int, Document]]]:
        """Yield documents in lists; a separate thread reads them as they are consumed. See Index.scan().

        with_ordinals: each with its ordinal, else with 0; after is then an id or an ordinal.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="list")
        self._listers.add(thread)
        rows: Iterator[tuple[int, Document]] = iter(())
        store = self._shard_parts()[0] if with_ordinals else None

        def read() -> Iterator[tuple[int, Document]]:
            if store is not None:
                stored = islice(store.scan_ordinals(condition, after), limit)
                return ((ordinal, document_of(one)) for ordinal, one in stored)
            return ((0, document) for document in self.index.scan(condition, limit, cast("str | None", after)))

        try:
            rows = await loop.run_in_executor(thread, read)
            while some := await loop.run_in_executor(thread, as_long_work, partial(next_documents, rows)):
                yield some
        finally:
            thread.submit(close_rows, rows).add_done_callback(lambda _: self._listers.discard(thread))
            # Without waiting for a read in progress, which would block all other calls.
            thread.shutdown(wait=False)

    async def add(
        self,
        key: str,
        chunk: int,
        documents: Iterable[Document],
        views: GivenViews | None,
        check: Callable[[Sequence[Document]], None] | None = None,
    ) -> IngestReport:
        """Store a chunk durably and return the report; a repeated chunk is not stored again.

        check: Called with the documents, in the writing thread, before they are stored; it raises to refuse them.
        """
        given, caller = list(documents), CALLER.get()
        cost = 1 + sum(len(each.text) for each in given) // _ENCODED_CHARS

        def written(views: GivenViews | Encode | None) -> Coroutine[Any, Any, IngestReport]:
            return self.write(lambda: self._writes.add(key, chunk, given, views, check), caller, cost)

        if views is not None or self._local is None or cost == 1:
            return await written(views)
        self.check_may_write()
        loop, index = asyncio.get_running_loop(), self._local

        def encode_and_write() -> IngestReport:
            encode = self._writes.encode_ahead(index, key, chunk, given, check)
            # Whether or not the caller is still there: it may send the chunk again, and would wait as long again.
            return asyncio.run_coroutine_threadsafe(written(encode), loop).result()

        return cast(IngestReport, await self._encoder.submit(encode_and_write, caller, cost))

    async def delete(
        self,
        ids: Sequence[str] | Callable[[], Sequence[str]] | None,
        condition: Any,
        key: str,
        everything: bool = False,
    ) -> int:
        """Delete documents and return how many; a repeated request deletes nothing more. key: of bound_key().

        ids: or a function that returns them, called in the writing thread.
        """
        deleted = self._writes.deleted(key)
        if deleted is None:
            deleted = await self.write(lambda: self._writes.delete(ids, condition, key, everything))
        return deleted

    async def update(
        self, id: str, metadata: Mapping[str, Any], key: str, check: Callable[[], None] | None = None
    ) -> None:
        """Replace the metadata of a document; a repeated request changes nothing more. key: of bound_key().

        check: called before, in the writing thread; it raises to refuse.
        """
        if not self._writes.is_updated(key):
            await self.write(lambda: self._writes.update(id, metadata, key, check))

    async def compact(self) -> CompactReport:
        """Compact the index; reads continue meanwhile, writes wait. ServerUnavailable if it is closed meanwhile."""
        index = self.local_index()
        return await self.write(lambda: index.admin.compact(self.check_open))

    def local_index(self) -> Index:
        """Return the index, to be administered in write(); Unsupported for one behind another server."""
        if self._local is None:
            raise Unsupported(f"{self.name}: an index behind another server is administered there")
        return self._local

    async def take_backup(self, place: str, keep: int) -> BackupReport:
        """Add a dated snapshot to a place, and keep so many; neither reads nor writes wait for it."""
        index = self.local_index()

        def taken() -> BackupReport:
            return take_backup(index.admin.snapshot, place, keep, self.check_open, index_id=index.info().index_id)

        return await self.in_background(taken)

    async def in_background(self, function: Callable[[], T]) -> T:
        """Run the function in a thread for which neither reads nor writes wait."""
        return await asyncio.get_running_loop().run_in_executor(None, as_long_work, function)

    def check_may_write(self) -> None:
        """Check that the server writes to its indexes; raise Unsupported if not."""
        if self._is_read_only:
            raise Unsupported(f"{self.name}: this server was started with --read-only; it takes no writes")

    def check_open(self, count: int = 0) -> None:
        """Raise ServerUnavailable if the index is being closed: a callback for long work."""
        if self._is_closing:
            raise ServerUnavailable(f"{self.name}: the server shut down before this was done")

    async def convert(self, function: Callable[[], T], num_items: int, meter: ResponseMeter) -> T:
        """Run the function, which converts so many items, here if it is quick: in a thread, if others would wait."""
        meter.is_in_thread = num_items > _MAX_INLINE_ITEMS or meter.is_large
        if not meter.is_in_thread:
            return function()

        def convert() -> T:
            meter.give_way()
            return function()

        return await self.read(convert)

    async def read(self, function: Callable[[], T]) -> T:
        """Run the function in a reading thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, as_long_work, function)

    async def write(self, function: Callable[[], T], caller: str | None = None, cost: int = 1) -> T:
        """Run the function in the writing thread, in turns of callers by cost.

        Once begun it is finished, even if the caller is gone. caller: by default that of the call in progress.
        """
        self.check_may_write()
        before = self._state()
        done = await self._writer.submit(function, CALLER.get() if caller is None else caller, cost)
        # Behind another write the state is not searched for long.
        if self._local is not None and self._batcher.has_searched(before) and not self._writer:
            self._search_ahead(self._local, before)
        return cast(T, done)

    def _search_ahead(self, index: Index, before: Hashable) -> None:
        """Search the state that a write has made, in the writing thread, so that no caller waits for its new files."""

        def search() -> Hashable:
            now = self._state()
            if now != before and index.dim is not None:
                index.search(np.eye(1, index.dim, dtype=np.float32), 1, mode="dense")
            return now

        def searched(done: asyncio.Future[Hashable]) -> None:
            # What fails is told to the next caller that searches.
            if not done.cancelled() and done.exception() is None:
                self._batcher.moved(before, done.result())

        self._writer.submit(search, "").add_done_callback(searched)
