"""AsyncIndexAPI over an index whose calls block: its coroutines never wait, so that run_to_end() can run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol, cast

import numpy as np

from mvindex.index import Index, IndexProtocol
from mvindex.ingest import IngestHooks
from mvindex.records import CountCallback, Document, Floats, Hit, IndexInfo, SearchResult, ViewScore, no_progress
from mvindex.store.filters import Filter
from mvindex.store.protocol import Operation

_EMPTY = SearchResult(hits=(), exact=True, short_by=0, rounds=0)


class IndexSource(Protocol):
    """Opens an index when it is needed; see connection.IndexHandle."""

    write_lock: Lock

    def open(self) -> IndexProtocol | None:
        """Return the index at its latest state; None where there is none yet."""

    def open_or_create(self, dim: int | None) -> IndexProtocol:
        """Return the index, created now where there is none."""


class SyncAdapter:
    """An index in this process, or a client that blocks, for one piece of work; see AsyncIndexAPI."""

    is_blocking = True

    def __init__(self, handle: IndexSource) -> None:
        self._handle = handle
        self._opened: IndexProtocol | None = None

    @property
    def _index(self) -> IndexProtocol | None:
        """The index, at the state that was the latest when this work first used it; None where there is none yet."""
        if self._opened is None:
            self._opened = self._handle.open()
        return self._opened

    async def search(self, query: Any, *args: Any, **options: Any) -> Any:
        """Return the best documents."""
        index = self._index
        return _EMPTY if index is None else index.search(query, *args, **options)

    async def encode_queries(self, texts: Sequence[str]) -> Floats | None:
        """Return one vector per text; None where there is no index yet."""
        index = self._index
        return None if index is None else index.encode_queries(texts)

    async def explain_all(self, query: Floats, ids: Sequence[str]) -> dict[str, list[ViewScore]]:
        """Return every view of the documents that exist with its score, best first, by id."""
        index = self._index
        return {} if index is None else index.explain_all(query, ids)

    async def winning_views(self, hits: Sequence[Hit]) -> Floats | None:
        """Return the winning view of each hit, (n, d) float32; None where views cannot be read, or not of all hits."""
        index = _supporting(self._index, Operation.TRANSFER)
        if index is None or not hits:
            return None
        views = index.views(hit.id for hit in hits)
        # A document may be gone, or replaced by one of fewer views, since the search.
        if any(hit.id not in views or hit.slot >= len(views[hit.id]) for hit in hits):
            return None
        return np.array([views[hit.id].vectors[hit.slot] for hit in hits], dtype=np.float32)

    async def get(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents of the ids that exist, in the order of the ids."""
        index = self._index
        return [] if index is None else index.get(ids)

    async def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> AsyncIterator[Document]:
        """Yield the documents that match, in the order in which they were first added."""
        index = self._index
        for document in () if index is None else index.scan(filter, limit, after):
            yield document

    async def count(self) -> int:
        """Return the number of documents."""
        index = self._index
        return 0 if index is None else len(index)

    async def info(self) -> IndexInfo | None:
        """Describe the index; None where there is none yet."""
        index = self._index
        return None if index is None else index.info()

    async def add(self, documents: Sequence[Document], on_progress: CountCallback = no_progress) -> Any:
        """Encode and store documents, in an index that is created now where there is none."""
        with self._handle.write_lock:
            return self._handle.open_or_create(None).add(documents, hooks=IngestHooks(on_progress=on_progress))

    async def add_views(self, documents: Sequence[Document], views: Sequence[Any]) -> Any:
        """Store documents whose views are given, in an index that is created now where there is none."""
        with self._handle.write_lock:
            return self._handle.open_or_create(np.shape(views[0])[-1]).add_views(documents, views)

    async def delete(self, *, ids: Iterable[str] | None = None, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all; return how many there were."""
        index = self._index
        with self._handle.write_lock:
            return 0 if index is None else index.delete(ids=ids, filter=filter, all=all)

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """Replace the metadata of several documents; in one step but on a server. Return how many of the ids exist."""
        index = self._index
        if index is None:
            return 0
        with self._handle.write_lock:
            local = _supporting(index, Operation.TRANSFER)
            if local is not None:
                return local.update_all(metadata)
            known = index.get(metadata)
            for document in known:
                index.update(document.id, metadata=metadata[document.id])
            return len(known)

    async def compact(self) -> None:
        """Give back the bytes of deleted documents; do nothing where the index does so itself."""
        index = _supporting(self._index, Operation.COMPACT)
        if index is not None:
            with self._handle.write_lock:
                index.admin.compact()


def _supporting(index: IndexProtocol | None, operation: Operation) -> Index | None:
    """Return the index with its methods beyond IndexProtocol; None where it lacks the operation that stands for them.

    Operation.TRANSFER stands for views() and update_all(): they need the documents as stored.
    """
    if index is None or not index.capabilities.supports(operation):
        return None
    return cast(Index, index)
