"""AsyncIndexAPI over a server: every call is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mvindex.index import IndexProtocol
from mvindex.records import Document, Hit
from mvindex_connectors.remote import AsyncIndexClient

# Calls in flight at once.
_MAX_CALLS = 16


class AsyncAdapter(AsyncIndexClient):
    """A client, which belongs to one event loop, with the methods that SyncAdapter has beside it."""

    is_blocking = False
    # Several calls to a server are several steps.
    write_lock: AbstractContextManager[None] = nullcontext()

    async def winning_views(self, hits: Sequence[Hit]) -> None:
        """Return None: a server sends no views."""

    async def update_all(self, changes: Mapping[str, Mapping[str, Any]]) -> int:
        """Set keys of the metadata of several documents, by id, one call each; return how many of the ids exist."""
        known = await self.get(list(changes))
        slots = asyncio.Semaphore(_MAX_CALLS)

        async def update(document: Document) -> None:
            async with slots:
                await self.update(document.id, metadata={**document.metadata, **changes[document.id]})

        await asyncio.gather(*map(update, known))
        return len(known)

    async def compact(self) -> None:
        """Do nothing: a server compacts by itself."""


def connect(url: str, client: IndexProtocol | None = None) -> AsyncAdapter:
    """Return a client for the running event loop, with the credentials and timeouts of the blocking one if given."""
    return AsyncAdapter(url, access=getattr(client, "access", None), settings=getattr(client, "call_settings", None))
