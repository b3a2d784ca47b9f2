"""Open an index for a framework's store, and run the store's coroutines on it, in this thread or awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from mvindex.encoder import EncoderLike
from mvindex.errors import ConfigError
from mvindex.index import Index, IndexProtocol
from mvindex.index.factory import checked_dim, create, default_lexical, find_backend, index_exists, open_index
from mvindex.ingest import IngestHooks
from mvindex.paths import user_path
from mvindex.records import Document, Floats, Hit, IndexInfo, SearchResult, ViewScore
from mvindex.store.filters import Filter
from mvindex.store.lexical.tokenizer import AUTO, NONE, parse_lexical
from mvindex.store.protocol import Operation
from mvindex_connectors.coroutines import run_to_end

if TYPE_CHECKING:
    from mvindex_connectors.frameworks.async_adapter import AsyncAdapter

_EMPTY = SearchResult(hits=(), exact=True, short_by=0, rounds=0)
T = TypeVar("T")
IndexLike: TypeAlias = "IndexProtocol | str | os.PathLike[str]"
_SERVER_SCHEMES = ("grpc://", "grpcs://")


class SyncAdapter:
    """An index in this process, or a client that blocks, for one piece of work.

    The methods are those of IndexProtocol as coroutines. Where there is no index yet, it is an empty one.

    Attributes:
        is_blocking: Whether the caller's thread does the work, so that nothing may be awaited that waits.
        write_lock: That of the handle, for what reads before it writes.

    """

    is_blocking = True

    def __init__(self, handle: IndexHandle) -> None:
        self._handle = handle
        self._opened: IndexProtocol | None = None
        self.write_lock: AbstractContextManager[Any] = handle.write_lock

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

    async def add(self, documents: Sequence[Document], *, hooks: IngestHooks | None = None) -> Any:
        """Encode and store documents, in an index that is created now where there is none."""
        with self._handle.write_lock:
            return self._handle.open_or_create(None).add(documents, hooks=hooks)

    async def add_views(self, documents: Sequence[Document], views: Sequence[Any]) -> Any:
        """Store documents whose views are given, in an index that is created now where there is none."""
        with self._handle.write_lock:
            return self._handle.open_or_create(np.shape(views[0])[-1]).add_views(documents, views)

    async def delete(self, *, ids: Iterable[str] | None = None, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all; return how many there were."""
        index = self._index
        with self._handle.write_lock:
            return 0 if index is None else index.delete(ids=ids, filter=filter, all=all)

    async def update_all(self, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """Set keys of the metadata of several documents, by id; others stay. Return how many of the ids exist.

        In one step, but on a server.
        """
        index = self._index
        if index is None:
            return 0
        with self.write_lock:
            local = _supporting(index, Operation.TRANSFER)
            if local is not None:
                return local.update_all(changes, keeps_others=True)
            known = index.get(changes)
            for document in known:
                index.update(document.id, metadata={**document.metadata, **changes[document.id]})
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


# An index as a framework's store uses it, blocking or awaited.
AsyncIndexAPI: TypeAlias = "SyncAdapter | AsyncAdapter"
Work: TypeAlias = "Callable[[AsyncIndexAPI], Coroutine[Any, Any, T]]"


class IndexHandle:
    """An index that exists or will be created by the first write; opened when first needed. Thread-safe.

    Attributes:
        path: The directory, or the address, with its secrets.
        is_remote: Whether a server has the index, so that work on it can be awaited.
        write_lock: Held by the thread that writes, so that writers of one store wait for each other; reentrant.

    """

    def __init__(
        self,
        index: IndexLike,
        encoder: EncoderLike | None = None,
        dim: int | None = None,
        lexical: str | None = None,
        *,
        accepts_both: bool = False,
    ) -> None:
        """Prepare a handle; nothing is opened unless the index is given open.

        Args:
            index: A directory, an address, or an open index, which belongs to its opener and is never closed here.
            encoder: The encoder of an index that has yet to be created; for one that exists, an object that it cannot
                load by name.
            dim: Instead of an encoder: the dimensions of given vectors; None takes those of the first ones.
            lexical: Of an index that has yet to be created: see mvindex.create(). Given vectors have texts here, so the
                default is "auto" for them too.
            accepts_both: Accept an index of texts or of vectors, whatever `encoder` says.

        Raises:
            ConfigError: For an unknown tokenizer, or an index of the other kind.

        """
        if lexical not in (None, AUTO, NONE):
            parse_lexical(lexical)
        self._given = None if isinstance(index, str | os.PathLike) else index
        if not isinstance(index, str | os.PathLike) and not hasattr(index, "where"):
            raise ConfigError(f"index: expected a directory, an address or an open index, got {index!r:.60}")
        if dim is not None:
            dim = checked_dim(dim)
        self.path = os.fspath(index) if isinstance(index, str | os.PathLike) else index.where
        self._encoder, self._dim, self._lexical, self._accepts_both = encoder, dim, lexical, accepts_both
        self._open_lock, self.write_lock = Lock(), RLock()
        self._adapters: dict[asyncio.AbstractEventLoop, AsyncAdapter] = {}
        # The client of several servers, which have shards, is not awaited but called in a thread.
        self.is_remote = self.path.startswith(_SERVER_SCHEMES) and "," not in self.path
        if find_backend(self.path) is None:
            self.path = str(user_path(self.path).absolute())
        self._index = None if self._given is None else self._checked(self._given)

    def __deepcopy__(self, memo: Any) -> IndexHandle:
        # Copies of a store share the index, and the locks that its writers wait at.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens it by its address; an index that was given open says itself how it opens again.
        index = self.path if self._given is None else self._given
        settings = (index, self._encoder, self._dim, self._lexical)
        return partial(IndexHandle, accepts_both=self._accepts_both), settings

    @property
    def shown_path(self) -> str:
        """The directory, or the address without secrets."""
        return show_address(self.path)

    def run_sync(self, work: Work[T]) -> T:
        """Return the result of the work, done in this thread."""
        return run_to_end(work(SyncAdapter(self)))

    async def run_async(self, work: Work[T]) -> T:
        """Return the result of the work: awaited where a server has the index, else done in another thread."""
        if self.is_remote:
            return await work(await self._adapter())
        return await asyncio.to_thread(self.run_sync, work)

    def open(self) -> IndexProtocol | None:
        """Return the index at its latest state, opened if needed; None where there is none yet."""
        with self._open_lock:
            if self._index is None and (self.is_remote or index_exists(self.path)):
                opened = open_index(self.path)
                try:
                    self._index = self._checked(opened)
                except BaseException:
                    opened.close()
                    raise
            index = self._index
        if index is not None:
            index.refresh()
        return index

    def open_or_create(self, dim: int | None) -> IndexProtocol:
        """Return the index, created now where there is none.

        Args:
            dim: The dimensions of the vectors to be added; None where texts are to be encoded.

        """
        opened = self.open()
        if opened is not None:
            return opened
        with self._open_lock:
            if self._index is None:
                lexical = self._lexical or default_lexical(self.path, has_texts=True)
                if dim is None:
                    self._index = create(self.path, encoder=self._encoder, lexical=lexical)
                else:
                    self._index = create(self.path, dim=self._dim or dim, lexical=lexical)
            return self._index

    def warm_up(self) -> bool:
        """Load what searches need, the encoder too, so that none waits; return whether all is loaded.

        See IndexProtocol.warm_up(); False where there is no index yet.
        """
        index = self.open()
        return index is not None and index.warm_up()

    def close(self) -> None:
        """Close the index unless it was given open; the next call opens it again. aclose() ends connections too."""
        with self._open_lock:
            if self._index is not None and self._given is None:
                self._index.close()
                self._index = None

    async def aclose(self) -> None:
        """Close the index, and the connection of the running event loop."""
        adapter = self._adapters.pop(asyncio.get_running_loop(), None)
        if adapter is not None:
            await adapter.close()
        self.close()

    async def _adapter(self) -> AsyncAdapter:
        """Return the connection of the running event loop; event loops cannot share one."""
        from mvindex_connectors.frameworks.async_adapter import connect

        loop = asyncio.get_running_loop()
        for ended in [other for other in list(self._adapters) if other.is_closed()]:
            self._adapters.pop(ended, None)
        if loop not in self._adapters:
            adapter = connect(self.path, self._given)
            try:
                self._check_kind(await adapter.info())
            except BaseException:
                await adapter.close()
                raise
            # Another task may have connected meanwhile.
            if self._adapters.setdefault(loop, adapter) is not adapter:
                await adapter.close()
        return self._adapters[loop]

    def _check_kind(self, info: IndexInfo) -> None:
        """Raise ConfigError where texts meet vectors."""
        if self._accepts_both:
            return
        if info.encoder is not None and self._encoder is None:
            raise ConfigError(
                f"{self.shown_path}: expected an index of given vectors, got one that encodes texts itself. "
                "Give no embeddings or embedding_dim"
            )
        if info.encoder is None and self._encoder is not None:
            raise ConfigError(
                f"{self.shown_path}: expected an index that encodes texts, got one made of given vectors. "
                "Give embeddings or embedding_dim"
            )

    def _checked(self, index: IndexProtocol) -> IndexProtocol:
        """Return the index, with the given encoder object in use; ConfigError where texts meet vectors."""
        info = index.info()
        self._check_kind(info)
        if (
            info.encoder is not None
            and not self.path.startswith(_SERVER_SCHEMES)
            and not isinstance(self._encoder, str | os.PathLike | None)
        ):
            # Whatever is not behind a server is worked on by this process.
            cast(Index, index).use_encoder(self._encoder)
        return index


def show_address(path: str) -> str:
    """Return the directory, or the address without secrets."""
    backend = find_backend(path)
    return path if backend is None else backend.shown(path)
