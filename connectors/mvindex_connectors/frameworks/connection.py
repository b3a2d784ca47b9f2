"""One way to reach an index for sync and async callers: work is written once, awaited or run to its end at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mvindex.errors import ConfigError
from mvindex.index import Index
from mvindex.index.backends import find_backend
from mvindex.index.factory import create, index_exists, open_index
from mvindex.index.options import EncoderLike, as_encoder
from mvindex.index.results import IndexInfo
from mvindex.lexical.tokenizer import parse_lexical
from mvindex.records import Document, Floats, Hit
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.sync_adapter import Blocking

if TYPE_CHECKING:
    from mvindex_connectors.frameworks.async_adapter import Awaiting

T = TypeVar("T")


class Reach(Protocol):
    """An index as frameworks' work sees it: blocking.Blocking, or awaiting.Awaiting of a server."""

    async def search(self, query: Any, *args: Any, **options: Any) -> Any:
        """See Index.search()."""

    async def encode_queries(self, texts: Sequence[str]) -> Floats | None:
        """See Index.encode_queries(); None where there is no index yet."""

    async def get_all(self, ids: Sequence[str]) -> list[Document]:
        """The documents of the ids that exist, in their order."""

    def listed(self, condition: Filter | None = None) -> AsyncIterator[Document]:
        """The documents that match; where the index can only list all, others as well."""

    async def count(self) -> int:
        """How many documents there are."""

    async def info(self) -> IndexInfo | None:
        """See Index.info(); None where there is no index yet."""

    async def add(self, items: Sequence[Document]) -> Any:
        """See Index.add()."""

    async def add_views(self, items: Sequence[Document], views: Sequence[Any]) -> Any:
        """See Index.add_views()."""

    async def delete(self, *, ids: Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """See Index.delete()."""

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """How many of the ids exist; these have this metadata now."""

    async def scores_of_views(self, vector: Floats, hits: Sequence[Hit]) -> list[list[dict[str, Any]]]:
        """Of each hit every view with its score, best first; nothing of one that is gone meanwhile."""


class Place:
    """Where an index is, or will be once something is added; opened when first needed. Safe to use from threads."""

    def __init__(
        self,
        index: Index | str | os.PathLike[str],
        encoder: EncoderLike | None,
        dim: int | None,
        lexical: str | None = None,
        *,
        takes_either: bool = False,
    ) -> None:
        """encoder, dim, lexical: of an index that has yet to be made; no dim where the first vectors tell.

        takes_either: it may be an index of texts or of vectors, whatever encoder says. index: one that is open belongs
        to who opened it: it is never closed here.
        """
        self._given = index if isinstance(index, Index) else None
        self.path = index.where if isinstance(index, Index) else os.fspath(index)
        parse_lexical(lexical)
        self._encoder, self._dim, self._lexical, self._takes_either = encoder, dim, lexical, takes_either
        self._opening, self.writing = Lock(), Lock()
        self._clients: dict[asyncio.AbstractEventLoop, Awaiting] = {}
        self.is_remote = self.path.startswith(("grpc://", "grpcs://"))
        if not self.is_remote and find_backend(self.path) is None:
            self.path = str(Path(self.path).absolute())
        self._index = self._checked(self._given) if self._given is not None else None

    def __deepcopy__(self, memo: Any) -> Place:
        # Copies of a store share the index, and the locks that its writers wait at.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it is opened by its address, also where it was given open.
        settings = (self.path, self._encoder, self._dim, self._lexical)
        return partial(Place, takes_either=self._takes_either), settings

    @property
    def shown(self) -> str:
        """Where it is, without secrets."""
        backend = find_backend(self.path)
        return self.path if backend is None else backend.shown(self.path)

    def now(self, work: Callable[[Reach], Coroutine[Any, Any, T]]) -> T:
        """What the work gives, done in this thread."""
        return finished(work(Blocking(self)))

    async def awaited(self, work: Callable[[Reach], Coroutine[Any, Any, T]]) -> T:
        """What the work gives: awaited where a server has the index, else done in a thread."""
        if self.is_remote:
            return await work(self._client())
        return await asyncio.to_thread(self.now, work)

    def opened(self) -> Index | None:
        """The index, at its latest state; None where none is yet."""
        with self._opening:
            if self._index is None and (self.is_remote or index_exists(self.path)):
                found = open_index(self.path)
                try:
                    self._index = self._checked(found)
                except BaseException:
                    found.close()
                    raise
            index = self._index
        if index is not None:
            index.refresh()
        return index

    def made(self, dim: int | None) -> Index:
        """The index, which is made now where there is none. dim: of given vectors; None where texts are encoded."""
        found = self.opened()
        if found is not None:
            return found
        with self._opening:
            if self._index is None:
                if dim is None:
                    self._index = create(self.path, encoder=self._encoder, lexical=self._lexical)
                else:
                    self._index = create(self.path, dim=self._dim or dim, lexical=self._lexical)
            return self._index

    def compact(self) -> None:
        """Nothing; what deleted documents took up is given back. Unsupported on a server."""
        index = self.opened()
        if index is not None:
            with self.writing:
                index.compact()

    def close(self) -> None:
        """Nothing; the index is closed, to be opened again by the next call. aclose() closes connections as well.

        An index that was given open stays so.
        """
        with self._opening:
            if self._index is not None and self._given is None:
                self._index.close()
                self._index = None

    async def aclose(self) -> None:
        """Nothing; the index is closed, and so is this event loop's connection."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        self.close()

    def _client(self) -> Awaiting:
        """The connection of the running event loop: one cannot be shared with another."""
        from mvindex_connectors.frameworks.async_adapter import Awaiting
        from mvindex_connectors.remote import IndexClient

        loop = asyncio.get_running_loop()
        for ended in [other for other in list(self._clients) if other.is_closed()]:
            self._clients.pop(ended, None)
        if loop not in self._clients:
            given = self._given._caller if isinstance(self._given, IndexClient) else None
            access, settings = (given.access, given.settings) if given is not None else (None, None)
            self._clients[loop] = Awaiting(self.path, access=access, settings=settings)
        return self._clients[loop]

    def _checked(self, index: Index) -> Index:
        """The index, with the encoder that it cannot find by a name; ConfigError where texts meet vectors."""
        encodes = index.info().encoder is not None
        if not self._takes_either:
            if encodes and self._encoder is None:
                raise ConfigError(f"{self.shown}: this index encodes texts itself; give no embeddings or embedding_dim")
            if not encodes and self._encoder is not None:
                raise ConfigError(
                    f"{self.shown}: made of given vectors; say who gives them: embeddings or embedding_dim"
                )
        if encodes and not self.is_remote and not isinstance(self._encoder, str | os.PathLike | None):
            index.use_encoder(as_encoder(self._encoder))
        return index


def finished(work: Awaitable[T]) -> T:
    """What the coroutine returns, run to its end here; it must wait for nothing."""
    coroutine: Any = work
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("work that is done at once waited for something")
