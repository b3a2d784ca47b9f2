"""AsyncIndexAPI over a server: every call is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from mvindex.index import IndexProtocol
from mvindex.records import Hit
from mvindex_connectors.remote import AsyncIndexClient

# Calls in flight at once.
_MAX_CALLS = 16


class AsyncAdapter(AsyncIndexClient):
    """A client, which belongs to one event loop, with the methods that SyncAdapter has beside it."""

    is_blocking = False

    async def winning_views(self, hits: Sequence[Hit]) -> None:
        """Return None: a server sends no views."""

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """Replace the metadata of several documents, one call each; return how many of the ids exist."""
        known = [document.id for document in await self.get(list(metadata))]
        slots = asyncio.Semaphore(_MAX_CALLS)

        async def update(doc_id: str) -> None:
            async with slots:
                await self.update(doc_id, metadata=metadata[doc_id])

        await asyncio.gather(*map(update, known))
        return len(known)

    async def compact(self) -> None:
        """Do nothing: a server compacts by itself."""


def connect(url: str, client: IndexProtocol | None = None) -> AsyncAdapter:
    """Return a client for the running event loop, with the credentials and timeouts of the blocking one if given."""
    return AsyncAdapter(url, access=getattr(client, "access", None), settings=getattr(client, "call_settings", None))
