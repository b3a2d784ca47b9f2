"""AsyncIndexAPI over a server: every call is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from mvindex.index import IndexProtocol
from mvindex.ingest import IngestHooks
from mvindex.records import CountCallback, Document, Floats, Hit, IndexInfo, ViewScore, no_progress
from mvindex.store.filters import Filter
from mvindex_connectors.remote import AsyncIndexClient

# Calls in flight at once.
_MAX_CALLS = 16


def connect(url: str, client: IndexProtocol | None = None) -> AsyncIndexClient:
    """Return a client for the running event loop, with the credentials and timeouts of the blocking one if given."""
    return AsyncIndexClient(
        url, access=getattr(client, "access", None), settings=getattr(client, "call_settings", None)
    )


class AsyncAdapter:
    """A client, which belongs to one event loop; see AsyncIndexAPI."""

    is_blocking = False

    def __init__(self, client: AsyncIndexClient) -> None:
        self.client = client

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()

    async def search(self, query: Any, *args: Any, **options: Any) -> Any:
        """Return the best documents."""
        return await self.client.search(query, *args, **options)

    async def encode_queries(self, texts: Sequence[str]) -> Floats | None:
        """Return one vector per text, by the server's encoder."""
        return await self.client.encode_queries(texts)

    async def explain_all(self, query: Floats, ids: Sequence[str]) -> dict[str, list[ViewScore]]:
        """Return every view of the documents that exist with its score, best first, by id."""
        return await self.client.explain_all(query, ids)

    async def winning_views(self, hits: Sequence[Hit]) -> Floats | None:
        """Return None: a server sends no views."""
        return None

    async def get(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents of the ids that exist, in the order of the ids."""
        found: list[Document] = await self.client.get(ids)
        return found

    async def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> AsyncIterator[Document]:
        """Yield the documents that match, in the order in which they were first added."""
        async for document in self.client.scan(filter=filter, limit=limit, after=after):
            yield document

    async def count(self) -> int:
        """Return the number of documents."""
        return await self.client.count()

    async def info(self) -> IndexInfo | None:
        """Describe the index."""
        return await self.client.info()

    async def add(self, documents: Sequence[Document], on_progress: CountCallback = no_progress) -> Any:
        """Store documents, which the server encodes."""
        return await self.client.add(documents, hooks=IngestHooks(on_progress=on_progress))

    async def add_views(self, documents: Sequence[Document], views: Sequence[Any]) -> Any:
        """Store documents whose views are given."""
        return await self.client.add_views(documents, views)

    async def delete(self, *, ids: Iterable[str] | None = None, filter: Filter | None = None, all: bool = False) -> int:
        """Delete documents by id, by a filter, or all; return how many there were."""
        return await self.client.delete(ids=ids, filter=filter, all=all)

    async def update_all(self, metadata: Mapping[str, Mapping[str, Any]]) -> int:
        """Replace the metadata of several documents, one call each; return how many of the ids exist."""
        known = [document.id for document in await self.client.get(list(metadata))]
        slots = asyncio.Semaphore(_MAX_CALLS)

        async def update(doc_id: str) -> None:
            async with slots:
                await self.client.update(doc_id, metadata=metadata[doc_id])

        await asyncio.gather(*map(update, known))
        return len(known)

    async def compact(self) -> None:
        """Do nothing: a server compacts by itself."""
