"""The gRPC service: a message is converted, the index asked, the answer converted back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc

from mvindex.errors import LimitExceeded, MvindexError, QueryError, TimedOut
from mvindex.ingest import CHUNK_CHARS, CHUNK_DOCUMENTS, Entry, read_chunks
from mvindex.records import Document
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceServicer
from mvindex_connectors.remote.convert import (
    document_from,
    document_message,
    explanations_message,
    filter_from,
    info_message,
    metadata_from,
    mixed_from,
    report_message,
    results_message,
    scoring_from,
    vectors_from,
    vectors_message,
    view_message,
    views_from,
)
from mvindex_connectors.server.admission import Guard
from mvindex_connectors.server.grpc_middleware import CURRENT, NoMessage
from mvindex_connectors.server.idempotency import checked_key
from mvindex_connectors.server.index_service import ServedIndex, named_index

# Hits that are converted in the event loop: about 5 ms of its time.
_HITS_AT_ONCE, _EXPLAINED_AT_ONCE = 1000, 100


class Servicer(MvindexServiceServicer):
    """The service over the indexes of a server."""

    def __init__(self, served: Mapping[str, ServedIndex], guard: Guard) -> None:
        self._served, self._guard = served, guard

    def _index(self, name: str, *, writes: bool = False) -> ServedIndex:
        """The index of that name; errors where there is none, or the caller may not write."""
        call = CURRENT.get()
        call.index = name
        if writes:
            call.caller.check_may_write()
        return named_index(self._served, name)

    async def Search(self, request: search.SearchRequest, context: Any) -> search.SearchResponse:
        """The best documents of one query or of several."""
        index = self._index(request.index)
        kind = request.WhichOneof("queries")
        if kind is None:
            raise QueryError("the request has neither texts nor vectors")
        queries = list(request.texts.values) if kind == "texts" else vectors_from(request.vectors)
        CURRENT.get().fields["queries"] = len(queries)
        with naming(index):
            results = await index.search(
                queries,
                top_k=request.top_k or 10,
                filter=filter_from(request.filter_json) if request.HasField("filter_json") else None,
                scoring=scoring_from(request.scoring),
                temperature=request.temperature if request.HasField("temperature") else None,
                exact=request.exact,
                candidates=request.candidates if request.HasField("candidates") else None,
                **mixed_from(request),
            )
        # Counted once the answer is on its way.
        asyncio.get_running_loop().call_soon(self._guard.metrics.saw_results, index.name, results)
        if len(results) * (request.top_k or 10) > _HITS_AT_ONCE:
            # Others' calls would wait for as long.
            return await index.read(lambda: results_message(results))
        return results_message(results)

    async def Explain(self, request: search.ExplainRequest, context: Any) -> search.ExplainResponse:
        """Every view of a document, or of several, with its score for a query."""
        index = self._index(request.index)
        kind = request.WhichOneof("query")
        if kind is None:
            raise QueryError("the request has neither a text nor a vector")
        query = request.text if kind == "text" else _one(vectors_from(request.vector))
        temperature = request.temperature if request.HasField("temperature") else None
        scoring = scoring_from(request.scoring)
        with naming(index):
            if request.ids and request.id:
                raise QueryError("the request has an id and ids: give one or the other")
            if request.ids:
                found = await index.explain_all(query, list(request.ids), scoring, temperature)
                if len(found) > _EXPLAINED_AT_ONCE:
                    return await index.read(lambda: explanations_message(found))
                return explanations_message(found)
            views = await index.explain(query, request.id, scoring, temperature)
        return search.ExplainResponse(views=[view_message(view) for view in views])

    async def Encode(self, request: search.EncodeRequest, context: Any) -> search.EncodeResponse:
        """Texts as query vectors."""
        index = self._index(request.index)
        with naming(index):
            vectors = await index.encode(list(request.texts.values))
        return search.EncodeResponse(vectors=vectors_message(vectors) if len(vectors) else None)

    async def Add(self, request_iterator: AsyncIterator[documents.AddRequest], context: Any) -> None:
        """Each chunk is stored, and acknowledged when it is durable, before the next is read."""
        with self._guard.streaming():
            first = await self._read(context)
            if first is None:
                return
            index = self._index(first.index, writes=True)
            key = checked_key(first.idempotency_key)
            message: documents.AddRequest | None = first
            last = 0
            while message is not None:
                if message.documents:
                    last = _checked_number(message.chunk, last)
                    self._guard.tokens.check_known(CURRENT.get().caller)
                    await self._stored(index, key, message, context)
                # What was acknowledged is durable; the client goes on with another server, or this one later.
                self._guard.check_running()
                message = await self._read(context)

    async def _stored(self, index: ServedIndex, key: str, message: documents.AddRequest, context: Any) -> None:
        with naming(index):
            given = [document_from(each) for each in message.documents]
            check_chunk(given)
            views = views_from(message.views, len(given)) if message.HasField("views") else None
            report = await index.add(key, message.chunk, given, views)
        for how in ("added", "replaced", "updated", "unchanged"):
            self._guard.metrics.written.labels(index.name, how).inc(getattr(report, how))
        fields = CURRENT.get().fields
        fields["documents"] = fields.get("documents", 0) + len(given)
        await asyncio.wait_for(context.write(report_message(message.chunk, report)), self._guard.limits.idle_s)

    async def _read(self, context: Any) -> documents.AddRequest | None:
        """The next message; None at the end of the stream; TimedOut when none comes, an error when the server ends."""
        reading = asyncio.ensure_future(context.read())
        draining = asyncio.ensure_future(self._guard.draining.wait())
        try:
            await asyncio.wait(
                {reading, draining}, timeout=self._guard.limits.idle_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not reading.done():
                self._guard.check_running()
                raise TimedOut(f"nothing came for {self._guard.limits.idle_s:g} s")
            message = reading.result()
        finally:
            reading.cancel()
            draining.cancel()
        if isinstance(message, NoMessage):
            message.refuse()
        return None if message is grpc.aio.EOF else message

    async def Delete(self, request: documents.DeleteRequest, context: Any) -> documents.DeleteResponse:
        """Documents are deleted, by id or by filter."""
        index = self._index(request.index, writes=True)
        has_filter = request.HasField("filter_json")
        if has_filter and request.ids:
            raise QueryError("delete() takes either ids or a filter")
        condition = filter_from(request.filter_json) if has_filter else None
        key = checked_key(request.idempotency_key)
        with naming(index):
            deleted = await index.delete(None if has_filter else list(request.ids), condition, key)
        return documents.DeleteResponse(deleted=deleted)

    async def Update(self, request: documents.UpdateRequest, context: Any) -> documents.UpdateResponse:
        """A document gets other metadata."""
        index = self._index(request.index, writes=True)
        with naming(index):
            await index.update(request.id, metadata_from(request.metadata_json, request.id))
        return documents.UpdateResponse()

    async def Get(self, request: documents.GetRequest, context: Any) -> documents.GetResponse:
        """Documents by id."""
        index = self._index(request.index)
        with naming(index):
            found = await index.get(list(request.ids))
        return documents.GetResponse(documents=[document_message(each) for each in found])

    async def List(self, request: documents.ListRequest, context: Any) -> None:
        """All documents, as fast as the client takes them."""
        index = self._index(request.index)
        with self._guard.streaming(), naming(index):
            async for some in index.documents():
                self._guard.check_running()
                self._guard.tokens.check_known(CURRENT.get().caller)
                message = documents.ListResponse(documents=[document_message(each) for each in some])
                try:
                    await asyncio.wait_for(context.write(message), self._guard.limits.idle_s)
                except asyncio.TimeoutError as err:
                    raise TimedOut(f"nothing was taken for {self._guard.limits.idle_s:g} s") from err

    async def Info(self, request: service.InfoRequest, context: Any) -> service.InfoResponse:
        """What an index is."""
        index = self._index(request.index)
        with naming(index):
            info = await index.info()
        return info_message(index.name, info, index.is_read_only)

    async def Indexes(self, request: service.IndexesRequest, context: Any) -> service.IndexesResponse:
        """The indexes that this server holds."""
        return service.IndexesResponse(names=list(self._served))


class naming:
    """Inside it, errors call the index by its name, not by where it lies on the server's disk."""

    def __init__(self, index: ServedIndex) -> None:
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, at: Any) -> None:
        if not isinstance(error, MvindexError):
            return
        place = self._index.place
        if place and place in str(error):
            raise type(error)(str(error).replace(place, self._index.name)) from error


def check_chunk(given: list[Document]) -> None:
    """Nothing; LimitExceeded for more documents than are committed at once."""
    if sum(1 for _ in read_chunks(Entry("", document) for document in given)) > 1:
        raise LimitExceeded(
            f"a chunk of {len(given)} documents; one holds at most {CHUNK_DOCUMENTS} documents, and ends with the one "
            f"that brings it to {CHUNK_CHARS} characters: send more chunks"
        )


def _checked_number(number: int, last: int) -> int:
    if number <= last:
        raise QueryError(f"chunk {number} after chunk {last}; chunks are numbered from 1 on, rising")
    return number


def _one(vectors: Any) -> Any:
    if len(vectors) != 1:
        raise QueryError(f"{len(vectors)} vectors; an explanation takes one")
    return vectors[0]
