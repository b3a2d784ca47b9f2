"""AsyncIndexClient: IndexProtocol as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.errors import Unsupported
from mvindex.ingest import Entry, IngestHooks, IngestReport, view_entries
from mvindex.ingest.items import Items, item_entries
from mvindex.records import (
    Document,
    Explanation,
    Floats,
    Hit,
    IndexInfo,
    SearchResult,
    ViewScore,
    ViewSpans,
    to_explain,
)
from mvindex.search.request import QueryLike, SearchRequest, Vector, checked_texts, parse_request
from mvindex.store.filters import Filter
from mvindex.store.protocol import Capabilities, Operation
from mvindex.v1 import documents_pb2 as messages
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Access, Reconnecting, parse_address
from mvindex_connectors.remote.client import capabilities_of, check_encodes
from mvindex_connectors.remote.convert import (
    document_from,
    explanations_from,
    info_from,
    result_from,
    vectors_from,
    view_from,
)
from mvindex_connectors.remote.requests import (
    delete_request,
    encode_request,
    explain_request,
    explain_requests,
    get_requests,
    list_request,
    search_messages,
    update_request,
)
from mvindex_connectors.remote.retry import AsyncRetryingChannel, CallSettings
from mvindex_connectors.remote.upload import Upload

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from mvindex.search.request import SearchKeywords


class AsyncIndexClient(Reconnecting):
    """An index behind a server. Create and use it within a running event loop; `async with` closes it.

    Each member of IndexProtocol is a coroutine method of the same name and parameters, its properties too, except
    `where`. len(index) is `await index.count()`, `id in index` is `await index.contains(id)`; scan() and `async for`
    yield documents.
    """

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """Prepare a connection, which is made by the first call.

        Args:
            url: grpc://host:port/name, or grpcs:// for TLS.
            access: Credentials; by default from the environment (docs/how-to/serving.md).
            settings: Timeouts and retries.

        Raises:
            ConfigError: The URL or the credentials are malformed.

        """
        self._address = parse_address(url)
        settings = settings or CallSettings()
        self._channel = AsyncRetryingChannel(self._address, self._remember(url, access, settings=settings), settings)
        # Typed as the blocking stub, whose calls return responses and no awaitables.
        self._stub: Any = MvindexServiceStub(self._channel.grpc_channel)
        self._info: IndexInfo | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Document]:
        return self.scan()

    @property
    def where(self) -> str:
        """The address; it holds no secret."""
        return str(self._address)

    async def capabilities(self) -> Capabilities:
        """Return the operations that the index has here: those of its administration are the server's."""
        return capabilities_of(await self._first_info())

    async def dim(self) -> int | None:
        """Return the dimensions of the views; None while an index with an encoder is empty."""
        info = await self._first_info()
        if info.dim is None:
            info = self._info = await self.info()
        return info.dim

    async def temperature(self) -> float:
        """Return the T of DRPQ scoring that is used when a search gives none."""
        return (await self._first_info()).temperature

    async def missing_shards(self) -> tuple[int, ...]:
        """Return the numbers of the shards that the server does not search."""
        return (await self.info()).missing_shards

    async def count(self) -> int:
        """Return the number of documents."""
        return (await self.info()).documents

    async def contains(self, doc_id: object) -> bool:
        """Return whether there is a document of this id."""
        return isinstance(doc_id, str) and await self.get(doc_id) is not None

    async def close(self) -> None:
        """Close the connection; calls in progress end."""
        await self._channel.close()

    async def refresh(self) -> bool:
        """Return False: every call sees the server's latest state."""
        return False

    async def info(self) -> IndexInfo:
        """Describe the index; its path is the address."""
        response = await self._channel.call(self._stub.Info, service.InfoRequest(index=self._address.name))
        return info_from(response, self.where)

    async def add(
        self,
        documents: Items,
        *,
        text_field: str | None = None,
        hooks: IngestHooks | None = None,
        progress: bool = False,
    ) -> IngestReport:
        """Store documents, which the server encodes; see IndexProtocol.add()."""
        return await self.add_entries(item_entries(documents, text_field=text_field, progress=progress), hooks)

    async def add_entries(self, entries: Iterable[Entry], hooks: IngestHooks | None = None) -> IngestReport:
        """Store documents that know their source location; otherwise as add()."""
        check_encodes(await self._first_info())
        return await self._upload(entries, hooks)

    async def add_views(
        self,
        documents: Iterable[Document],
        views: Vector | Sequence[Vector],
        *,
        spans: ViewSpans | None = None,
        hooks: IngestHooks | None = None,
    ) -> IngestReport:
        """Store documents whose views are given; see IndexProtocol.add_views()."""
        entries = view_entries(documents, views, await self.dim(), spans)
        return await self._upload(entries, hooks)

    async def get(self, ids: str | Iterable[str]) -> Any:
        """Return the document of an id, or those of several, of one state per 4,096; see IndexProtocol.get()."""
        requests = get_requests(self._address.name, ids)
        responses = [await self._channel.call(self._stub.Get, request) for request in requests]
        found = [document_from(message) for response in responses for message in response.documents]
        if isinstance(ids, str):
            return found[0] if found else None
        return found

    def scan(
        self, filter: Filter | None = None, limit: int | None = None, after: str | None = None
    ) -> AsyncIterator[Document]:
        """Yield documents in the order in which they were first added; see IndexProtocol.scan()."""
        return self._documents(list_request(self._address.name, filter, limit, after))

    async def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document. QueryError when there is no such id."""
        await self._channel.call(self._stub.Update, update_request(self._address.name, id, metadata))

    async def delete(
        self, ids: str | Iterable[str] | None = None, *, filter: Filter | None = None, all: bool = False
    ) -> int:
        """Delete documents by id, by a filter, or all, in one step; return how many there were."""
        request = delete_request(self._address.name, ids, filter, all)
        return int((await self._channel.call(self._stub.Delete, request)).deleted)

    async def search(
        self,
        query: QueryLike | None = None,
        top_k: int = 10,
        filter: Filter | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Any:
        """Return the best documents of a query, or of each of several; see IndexProtocol.search().

        Reranking is done here, in a thread, not by the server.
        """
        if options.get("rerank") is None:
            request = parse_request(query, top_k, filter, **options)
            return request.answer(await self.run(request))
        # In a thread: it may load a checkpoint.
        request = await asyncio.to_thread(parse_request, query, top_k, filter, **options)
        return await asyncio.to_thread(request.answer, await self.run(request))

    async def run(self, request: SearchRequest) -> list[SearchResult]:
        """Return the server's result for each query of the request; reranking is done here.

        Queries are sent up to 4,096 at a time, each time to one state of the index.
        """
        messages = search_messages(self._address.name, request)
        responses = [await self._channel.call(self._stub.Search, message) for message in messages]
        return [result_from(each) for response in responses for each in response.results]

    async def warm_up(self) -> bool:
        """Return True: a server loads what searches need when it starts."""
        return True

    async def explain(
        self,
        query: str | Vector | Hit,
        id: str | Hit | None = None,
        scoring: str | None = None,
        *,
        temperature: float | None = None,
    ) -> Explanation:
        """Return every view of a document with its score for one query; see IndexProtocol.explain()."""
        asked = to_explain(query, id, scoring, temperature)
        request = explain_request(self._address.name, asked.query, asked.id, asked.scoring, asked.temperature)
        return Explanation(
            map(view_from, (await self._channel.call(self._stub.Explain, request)).views), asked.document
        )

    async def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """Return what explain() does for each of the documents that exist, by id, in the order of the ids."""
        found: dict[str, list[ViewScore]] = {}
        for request in explain_requests(self._address.name, query, ids, scoring, temperature):
            found |= explanations_from(await self._channel.call(self._stub.Explain, request))
        return found

    async def views(self, ids: str | Iterable[str]) -> Any:
        """Raise Unsupported: no message carries spans and snippets with stored vectors."""
        (await self.capabilities()).check(Operation.TRANSFER, self.where)

    async def to_arrow(self, filter: Filter | None = None, *, views: bool = False) -> Any:
        """Raise Unsupported: Arrow reads a stream without waiting for an event loop; scan() yields documents."""
        raise Unsupported(f"{self.where}: to_arrow() is not supported by an asynchronous client; use scan()")

    async def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one vector per text, (q, dim) float32, by the server's encoder; QueryError for an empty text."""
        texts = checked_texts(texts)
        if not texts:
            return np.empty((0, await self.dim() or 1), dtype=np.float32)
        response = await self._channel.call(self._stub.Encode, encode_request(self._address.name, texts))
        return vectors_from(response.vectors)

    async def _upload(self, entries: Iterable[Entry], hooks: IngestHooks | None) -> IngestReport:
        with self._channel.closed_channel_errors():
            return await Upload(self._channel, hooks or IngestHooks()).run(entries)

    async def _documents(self, request: messages.ListRequest) -> AsyncIterator[Document]:
        async with aclosing(self._channel.stream(self._stub.List, request)) as responses:
            async for response in responses:
                for message in response.documents:
                    yield document_from(message)

    async def _first_info(self) -> IndexInfo:
        """Return the description as of the first call, for what never changes."""
        if self._info is None:
            self._info = await self.info()
        return self._info
