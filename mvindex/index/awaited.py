"""AsyncIndex: an index as coroutines, for programs with an event loop that search in their own process."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from mvindex.errors import ConfigError, StoreError
from mvindex.index.factory import open_index
from mvindex.index.protocol import IndexProtocol
from mvindex.records import Document, IndexInfo, SearchResult, ViewSpans

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from mvindex.ingest import IngestHooks, IngestReport
    from mvindex.ingest.items import Items
    from mvindex.search.request import QueryLike, SearchKeywords, Vector
    from mvindex.store.filters import Filter

T = TypeVar("T")
MAX_CALLS = 4
# Documents that a scan reads at once.
_SCANNED = 64


class AsyncIndex:
    """An index whose methods are awaited; threads do the work. Make one with open_async(); `async with` closes it.

    At most max_calls reads are carried out at once, and one write; others wait in the order in which they came. A call
    that is cancelled while it waits is not carried out. A read that is carried out goes on, and its result is dropped.
    An add() ends after the documents that it is storing together, and what it has stored stays; others are finished.
    """

    def __init__(self, index: IndexProtocol, *, max_calls: int = MAX_CALLS) -> None:
        """Take an open index, which is closed with this one.

        Args:
            index: The index.
            max_calls: Number of reads at once.

        Raises:
            ConfigError: For another number than a whole one from 1.

        """
        if isinstance(max_calls, bool) or not isinstance(max_calls, int) or max_calls < 1:
            raise ConfigError(f"max_calls: expected a whole number from 1 on, got {max_calls!r:.60}")
        self.index = index
        self._readers = ThreadPoolExecutor(max_calls, thread_name_prefix="read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Document]:
        return self.scan()

    async def close(self) -> None:
        """Close the index once the calls that are carried out have ended; those that wait are cancelled."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for threads in (self._readers, self._writer):
            threads.shutdown(wait=True, cancel_futures=True)
        self.index.close()

    async def search(
        self,
        query: QueryLike | None = None,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Any:
        """Return the best documents of a query, or of each of several; see IndexProtocol.search().

        The citations are chosen, too: reading them takes the event loop no time.
        """

        def searched() -> Any:
            found = self.index.search(query, top_k, filter, **options)
            for result in [found] if isinstance(found, SearchResult) else found:
                for hit in result.hits:
                    _ = hit.citation, hit.citations
            return found

        return await self._read(searched)

    async def get(self, ids: str | Iterable[str]) -> Any:
        """Return the document of an id, or None; or those of several ids that exist, in their order."""
        return await self._read(partial(self.index.get, ids))

    async def count(self) -> int:
        """Return the number of documents."""
        return await self._read(partial(len, self.index))

    async def contains(self, doc_id: object) -> bool:
        """Return whether there is a document of this id."""
        return await self._read(lambda: doc_id in self.index)

    async def info(self) -> IndexInfo:
        """Describe the index: encoder, dimensions, engine, sizes."""
        return await self._read(self.index.info)

    async def refresh(self) -> bool:
        """Move on to the latest committed state; return whether there was a newer one."""
        return await self._read(self.index.refresh)

    async def warm_up(self) -> bool:
        """Load what searches need, so that no later one waits; see IndexProtocol.warm_up()."""
        return await self._read(self.index.warm_up)

    async def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> AsyncIterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan().

        A thread of its own reads them, some at a time: a scan may be left open, and takes no place among the reads.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="scan")
        rows: Any = iter(())
        try:
            rows = await loop.run_in_executor(thread, partial(self.index.scan, filter, limit, after))
            while some := await loop.run_in_executor(thread, lambda: list(islice(rows, _SCANNED))):
                for document in some:
                    yield document
        finally:
            thread.submit(_close_rows, rows)
            # Without waiting for a read in progress, which would hold up the event loop.
            thread.shutdown(wait=False)

    async def add(
        self, documents: Items, *, text_field: str | None = None, hooks: IngestHooks | None = None
    ) -> IngestReport:
        """Encode and store documents; see IndexProtocol.add()."""
        return await self._write(lambda hooks: self.index.add(documents, text_field=text_field, hooks=hooks), hooks)

    async def add_views(
        self,
        documents: Iterable[Document],
        views: Vector | Sequence[Vector],
        *,
        spans: ViewSpans | None = None,
        hooks: IngestHooks | None = None,
    ) -> IngestReport:
        """Store documents whose views are given; see IndexProtocol.add_views()."""
        return await self._write(lambda hooks: self.index.add_views(documents, views, spans=spans, hooks=hooks), hooks)

    async def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document. QueryError when there is no such id."""
        await self._awaited(self._writer, partial(self.index.update, id, metadata=metadata))

    async def delete(
        self, ids: str | Iterable[str] | None = None, *, filter: Filter | None = None, all: bool = False
    ) -> int:
        """Delete documents by id, by a filter, or all, in one step; return how many there were."""
        return await self._awaited(self._writer, partial(self.index.delete, ids=ids, filter=filter, all=all))

    async def _read(self, function: Callable[[], T]) -> T:
        return await self._awaited(self._readers, function)

    async def _write(self, store: Callable[[IngestHooks], IngestReport], hooks: IngestHooks | None) -> IngestReport:
        """Store documents in the writing thread, until the caller is cancelled."""
        from mvindex.ingest import IngestHooks

        given, is_cancelled = hooks or IngestHooks(), Event()
        stopping = replace(given, should_stop=lambda: is_cancelled.is_set() or given.should_stop())
        try:
            return await self._awaited(self._writer, partial(store, stopping))
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    async def _awaited(self, threads: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        """Return what a function returns in one of the threads, with the context variables of the caller."""
        try:
            call = threads.submit(contextvars.copy_context().run, function)
        except RuntimeError as err:
            raise StoreError(f"{self.index.where}: this index was closed; open it again") from err
        return await asyncio.wrap_future(call)


async def open_async(path: str | Path | Sequence[str], *, max_calls: int = MAX_CALLS, **options: Any) -> AsyncIndex:
    """Open an index as coroutines, in this process or behind a server.

    Args:
        path: As of open().
        max_calls: Number of reads at once; others wait. Each scan is a thread of its own.
        **options: The other arguments of open().

    Raises:
        StoreError: When there is no index.
        ConfigError: For a wrong max_calls, and as open() does.

    """
    index = await asyncio.to_thread(open_index, path, **options)
    try:
        return AsyncIndex(index, max_calls=max_calls)
    except ConfigError:
        await asyncio.to_thread(index.close)
        raise


def _close_rows(rows: Any) -> None:
    """End a scan, in the thread that reads it."""
    close = getattr(rows, "close", None)
    if close is not None:
        close()
