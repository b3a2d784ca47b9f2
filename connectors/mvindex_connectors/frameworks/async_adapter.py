"""An index behind a server with the methods that frameworks' work awaits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from mvindex.records import Document, Floats, Hit
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import scores_by_hit
from mvindex_connectors.remote.async_client import AsyncIndexClient

S = TypeVar("S")
T = TypeVar("T")
# Calls under way at once.
_CALLS = 16


class Awaiting(AsyncIndexClient):
    """A client, which belongs to one event loop."""

    async def get_all(self, ids: Sequence[str]) -> list[Document]:
        """The documents of the ids that exist, in their order."""
        return [document for document in await _each(self.get, ids) if document is not None]

    async def listed(self, condition: Filter | None = None) -> AsyncIterator[Document]:
        """All documents: a server lists no others."""
        async for document in self:
            yield document

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """How many of the ids exist; these have this metadata now, each in a step of its own."""

        async def is_updated(doc_id: str) -> bool:
            if await self.get(doc_id) is None:
                return False
            await self.update(doc_id, metadata=metadata[doc_id])
            return True

        return sum(await _each(is_updated, metadata))

    async def scores_of_views(self, vector: Floats, hits: Sequence[Hit]) -> list[list[dict[str, Any]]]:
        """Of each hit every view with its score, best first; nothing of one that is gone meanwhile."""
        return scores_by_hit(await self.explain_all(vector, [hit.id for hit in hits]), hits)


async def _each(call: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    """What the call gives for each item, some under way at once."""
    places = asyncio.Semaphore(_CALLS)

    async def placed(item: S) -> T:
        async with places:
            return await call(item)

    return list(await asyncio.gather(*map(placed, items)))
