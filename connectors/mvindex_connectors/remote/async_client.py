"""AsyncIndexClient: IndexClient for programs that run an event loop; the same methods, awaited."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import grpc
import numpy as np

from mvindex.errors import EncoderError, MvindexError, QueryError, ServerUnavailable, TimedOut
from mvindex.index.options import Vector, checked_document, checked_id, entry_with_views
from mvindex.index.results import IndexInfo, ViewScore
from mvindex.ingest import Entry, IngestReport, SeenIds, refuse_duplicate
from mvindex.records import Document, Floats, SearchResult, require_text
from mvindex.scoring.rerank import parse_rerank
from mvindex.store.filters import Filter
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Access, access_from_environment, parse_address
from mvindex_connectors.remote.convert import (
    add_counts,
    document_from,
    explanations_from,
    info_from,
    result_from,
    vectors_from,
    view_from,
)
from mvindex_connectors.remote.requests import (
    delete_request,
    explain_request,
    explain_requests,
    num_queries,
    search_request,
    texts_message,
    update_request,
)
from mvindex_connectors.remote.retry import (
    OPTIONS,
    CallSettings,
    Patience,
    as_error,
    call_metadata,
    channel_parts,
    closed_error,
    is_worth_a_retry,
)
from mvindex_connectors.remote.upload import WINDOW, chunk_message, chunks_of


class AsyncIndexClient:
    """An index behind a server. Make and use one within a running event loop; `async with` closes it."""

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """access: by default what the environment says (docs/serving.md). Nothing is sent before the first call."""
        self._address = parse_address(url)
        self._access, self._settings = access or access_from_environment(), settings or CallSettings()
        target, credentials = channel_parts(self._address, self._access)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=OPTIONS)
        self._stub = MvindexServiceStub(self._channel)
        self._is_closed = False

    async def __aenter__(self) -> AsyncIndexClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Document]:
        request = documents.ListRequest(index=self._address.name)
        with self._telling_of_closing():
            responses = self._stub.List(request, metadata=call_metadata(self._access))
        try:
            with self._telling_of_closing():
                async for response in responses:
                    for message in response.documents:
                        yield document_from(message)
        except grpc.RpcError as err:
            raise as_error(self._address, err) from None
        finally:
            # Who stops in the middle must not keep one of the server's places for streams.
            responses.cancel()

    @property
    def url(self) -> str:
        """Where the index is."""
        return str(self._address)

    async def close(self) -> None:
        """Nothing; the connection is closed, and calls under way end."""
        self._is_closed = True
        await self._channel.close()

    async def count(self) -> int:
        """How many documents there are."""
        return (await self.info()).documents

    async def info(self) -> IndexInfo:
        """What the index is; its path is the URL."""
        return info_from(await self._call(self._stub.Info, service.InfoRequest(index=self._address.name)), self.url)

    async def search(
        self,
        query: Any,
        top_k: int = 10,
        *args: Any,
        rerank: Any = None,
        rerank_on: str | None = None,
        rerank_depth: int | None = None,
        **options: Any,
    ) -> Any:
        """The top_k documents of a query, or of each of several; arguments and results are Index.search's.

        What rerank= wants is done here, in a thread, not by the server.
        """
        again = None
        if rerank is not None or rerank_on is not None or rerank_depth is not None:
            again = await asyncio.to_thread(parse_rerank, rerank, rerank_on, rerank_depth, top_k, None)
        if again is not None:
            mode = options.get("mode", "dense")
            questions, options["text"] = again.questions(query, mode, options.get("text"))
            found = await self.search(query, again.depth, *args, **options)
            return await asyncio.to_thread(again.reranked, questions, found, mode)
        request, is_single = search_request(self._address.name, query, top_k, *args, **options)
        if not is_single and not num_queries(request):
            return []
        results: list[SearchResult] = [
            result_from(each) for each in (await self._call(self._stub.Search, request)).results
        ]
        return results[0] if is_single else results

    async def encode_queries(self, texts: Sequence[str]) -> Floats:
        """One vector per text, (q, dim) float32, by the server's encoder; QueryError for an empty text."""
        if not texts:
            return np.empty((0, 1), dtype=np.float32)
        request = search.EncodeRequest(index=self._address.name, texts=texts_message(texts))
        return vectors_from((await self._call(self._stub.Encode, request)).vectors)

    async def explain(
        self, query: str | Vector, id: str, scoring: str = "max", *, temperature: float | None = None
    ) -> list[ViewScore]:
        """Every view of a document with its score for the query, best first. QueryError without such an id."""
        request = explain_request(self._address.name, query, id, scoring, temperature)
        return [view_from(view) for view in (await self._call(self._stub.Explain, request)).views]

    async def explain_all(
        self, query: str | Vector, ids: str | Iterable[str], scoring: str = "max", *, temperature: float | None = None
    ) -> dict[str, list[ViewScore]]:
        """What explain() gives of each of the documents that exist, by id, in the order of the ids."""
        found: dict[str, list[ViewScore]] = {}
        for request in explain_requests(self._address.name, query, ids, scoring, temperature):
            found |= explanations_from(await self._call(self._stub.Explain, request))
        return found

    async def get(self, id: str) -> Document | None:
        """The document of this id, or None."""
        request = documents.GetRequest(index=self._address.name, ids=[checked_id(id)])
        found = (await self._call(self._stub.Get, request)).documents
        return document_from(found[0]) if found else None

    async def delete(self, *, ids: str | Iterable[str] | None = None, filter: Filter | None = None) -> int:
        """How many documents were deleted, in one step: those of the ids that exist, or those the filter matches."""
        request = delete_request(self._address.name, ids, filter, secrets.token_hex(16))
        return int((await self._call(self._stub.Delete, request)).deleted)

    async def update(self, id: str, *, metadata: Mapping[str, Any]) -> None:
        """Nothing; the document has this metadata instead of its old. QueryError when there is no such id."""
        await self._call(self._stub.Update, update_request(self._address.name, id, metadata))

    async def add(
        self, items: Iterable[Document], *, on_progress: Callable[[int], None] = lambda count: None
    ) -> IngestReport:
        """What was done with the documents, which the server encodes; see Index.add()."""
        if (await self.info()).encoder is None:
            raise QueryError(f"{self.url}: this index was made of given vectors; give vectors, not texts")
        numbered = enumerate(items, start=1)
        named = ((f"document {number}", checked_document(item, number)) for number, item in numbered)
        return await self._ingest((Entry(place, require_text(document)) for place, document in named), on_progress)

    async def add_views(
        self,
        items: Sequence[Document],
        views: Vector | Sequence[Vector],
        *,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> IngestReport:
        """What was done with documents whose views are given; see Index.add_views()."""
        if len(items) != len(views):
            raise EncoderError(f"{len(items)} documents and {len(views)} views; wanted one for one")
        pairs = enumerate(zip(items, views, strict=True), start=1)
        entries = (entry_with_views(number, document, rows, None) for number, (document, rows) in pairs)
        return await self._ingest(entries, on_progress)

    async def _ingest(self, entries: Iterable[Entry], on_progress: Callable[[int], None]) -> IngestReport:
        sending = _Sending(self, on_progress)
        try:
            with self._telling_of_closing(), SeenIds() as seen:
                try:
                    for number, chunk in enumerate(chunks_of(entries), start=1):
                        await sending.send(chunk_message(number, seen.first_of(chunk, refuse_duplicate)))
                except MvindexError:
                    # What was sent before a bad document is stored, as it is in an index that is not remote.
                    if not sending.has_failed:
                        await sending.end()
                    raise
                await sending.end()
        finally:
            sending.cancel()
        return sending.report

    @contextmanager
    def _telling_of_closing(self) -> Iterator[None]:
        """Inside it, what gRPC says of a channel that close() has closed is said as the blocking client says it."""
        try:
            yield
        except (grpc.aio.UsageError, asyncio.CancelledError) as err:
            if not self._is_closed:
                raise
            raise closed_error(self._address) from err

    async def _call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        """The response; a server that is away is asked again until retry_s is over."""
        patience = Patience(self._settings)
        while True:
            try:
                with self._telling_of_closing():
                    return await method(request, timeout=patience.left_s, metadata=call_metadata(self._access))
            except grpc.RpcError as err:
                pause = patience.next_pause() if is_worth_a_retry(err) else None
                if pause is None:
                    raise as_error(self._address, err) from None
                await asyncio.sleep(pause)


class _Sending:
    """One run of documents, over one stream after the other."""

    def __init__(self, client: AsyncIndexClient, on_progress: Callable[[int], None]) -> None:
        self._client, self._on_progress = client, on_progress
        self._key = secrets.token_hex(16)
        self._waiting: deque[documents.AddRequest] = deque()
        self._call: Any = None
        self.has_failed = False
        self.report = IngestReport()

    async def send(self, message: documents.AddRequest) -> None:
        """Nothing; the chunk is on its way, and no more than a few before it are not acknowledged."""
        self._waiting.append(message)
        await self._settle(WINDOW - 1, message)

    async def end(self) -> None:
        """Nothing; every chunk is acknowledged, and the stream closed."""
        await self._settle(0, None)
        if self._call is not None:
            await self._call.done_writing()

    def cancel(self) -> None:
        """Nothing; the call has ended."""
        if self._call is not None:
            self._call.cancel()

    async def _settle(self, left: int, fresh: documents.AddRequest | None) -> None:
        patience = Patience(self._client._settings)
        while fresh is not None or len(self._waiting) > left:
            try:
                await self._open(fresh)
                fresh = None
                if len(self._waiting) > left:
                    await self._take()
                    patience = Patience(self._client._settings)
            except grpc.RpcError as err:
                self._call = fresh = None
                pause = patience.next_pause() if is_worth_a_retry(err) else None
                if pause is None:
                    self.has_failed = True
                    raise as_error(self._client._address, err) from None
                await asyncio.sleep(pause)
            except MvindexError:
                self.has_failed = True
                raise

    async def _open(self, fresh: documents.AddRequest | None) -> None:
        """Nothing; the stream is open, and has every chunk that waits."""
        if self._call is not None:
            if fresh is not None:
                await self._write(fresh)
            return
        self._call = self._client._stub.Add(metadata=call_metadata(self._client._access))
        await self._write(documents.AddRequest(index=self._client._address.name, idempotency_key=self._key))
        for message in self._waiting:
            await self._write(message)

    async def _write(self, message: documents.AddRequest) -> None:
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            # The call ended; what it says comes with the next read.
            return

    async def _take(self) -> None:
        timeout_s = self._client._settings.chunk_timeout_s
        try:
            response = await asyncio.wait_for(self._call.read(), timeout_s)
        except asyncio.TimeoutError:
            raise TimedOut(f"{self._client.url}: no acknowledgement within {timeout_s:g} s") from None
        if response is grpc.aio.EOF:
            raise ServerUnavailable(f"{self._client.url}: the server ended the stream early")
        message = self._waiting.popleft()
        add_counts(self.report, response)
        self._on_progress(len(message.documents))
