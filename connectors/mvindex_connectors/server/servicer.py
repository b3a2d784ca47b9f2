"""The gRPC service: converts requests, calls the index, converts results."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, TypeVar, cast

import grpc

from mvindex.errors import LimitExceeded, MvindexError, QueryError, StoreError, TimedOut
from mvindex.ingest import CHUNK_CHARS, CHUNK_DOCUMENTS, Entry, GivenViews
from mvindex.ingest.pipeline import read_chunks
from mvindex.records import Document, SearchResult
from mvindex.v1 import documents_pb2 as documents
from mvindex.v1 import jobs_pb2 as jobs
from mvindex.v1 import search_pb2 as search
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import MvindexServiceServicer
from mvindex_connectors.remote.admin import status_message
from mvindex_connectors.remote.convert import (
    counts_message,
    document_from,
    document_message,
    explanations_message,
    filter_from,
    info_message,
    metadata_from,
    report_message,
    request_from,
    results_message,
    scoring_from,
    stored_message,
    vectors_from,
    vectors_message,
    view_message,
    views_from,
)
from mvindex_connectors.server.admission import Admission
from mvindex_connectors.server.grpc_middleware import CURRENT_CALL, parsed
from mvindex_connectors.server.idempotency import bound_key, check_idempotency_key
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.jobs import Jobs, work_from
from mvindex_connectors.server.limits import ResponseMeter, check_json_values, parse_large
from mvindex_connectors.server.tenants import ServedIndex, TenantIndex, use_index, visible_names

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Servicer(MvindexServiceServicer):
    """The gRPC service of the indexes of a server."""

    def __init__(self, services: Mapping[str, IndexService], admission: Admission, jobs: Jobs) -> None:
        self._services, self._admission, self._jobs = services, admission, jobs

    def _index(self, name: str, *, writes: bool = False) -> ServedIndex:
        """Return the index of that name; NoSuchIndex if there is none, NotPermitted if the caller may not write."""
        call = CURRENT_CALL.get()
        call.index = name
        if writes:
            call.caller.check_may_write()
        return use_index(self._services, call)

    async def _parse(self, request: Any, text: str, read: Callable[[], T]) -> T:
        """Return what the function reads of a request; TooLarge where its JSON text has too many values."""

        def checked() -> T:
            check_json_values(text.encode())
            return read()

        return await parse_large(checked, request.ByteSize(), self._admission.turns)

    async def _filter(self, request: documents.DeleteRequest | documents.ListRequest) -> Any:
        """Return the filter of a request."""
        return await self._parse(request, request.filter_json, lambda: filter_from(request.filter_json))

    async def Search(self, request: search.SearchRequest, context: Any) -> bytes:
        """Search with one query or several."""
        index = self._index(request.index)
        kind = request.WhichOneof("queries")
        if (kind is None) == (not request.positives):
            got = "neither" if kind is None else "both"
            raise QueryError(f"queries: expected either texts or vectors, or positives, got {got}")
        index.check_number(len(request.texts.values))
        index.check_number(len(request.terms.values))
        parsed = await self._parse(request, request.filter_json, lambda: request_from(request))
        num_queries = CURRENT_CALL.get().fields["queries"] = parsed.num_rows
        meter = CURRENT_CALL.get().meter

        def content(results: list[SearchResult]) -> list[bytes]:
            self._admission.metrics.count_results(index.name, results)
            made = results_bytes(results, meter)
            # Here, in the thread: to free many hits takes as long as to make them.
            results.clear()
            return [made]

        with index_error_context(index):
            parts: list[bytes] = await index.search(parsed, meter, content)
        if len(parts) == 1:
            return parts[0]
        return await index.convert(lambda: _joined(_taken(parts), meter), num_queries * parsed.top_k, meter)

    async def Explain(self, request: search.ExplainRequest, context: Any) -> search.ExplainResponse:
        """Score every view of a document, or of several, for a query."""
        index = self._index(request.index)
        kind = request.WhichOneof("query")
        if kind is None:
            raise QueryError("query: expected a text or a vector, got neither")
        query = request.text if kind == "text" else _single(vectors_from(request.vector))
        temperature = request.temperature if request.HasField("temperature") else None
        scoring = scoring_from(request.scoring)
        with index_error_context(index):
            if request.ids and request.id:
                raise QueryError("ids: expected either id or ids, got both")
            meter, ids = CURRENT_CALL.get().meter, list(request.ids) or [request.id]
            found = await index.explain_all(query, ids, scoring, temperature, meter)
            if request.ids:
                return await index.convert(lambda: explanations_message(found), len(found), meter)
            if request.id not in found:
                raise QueryError(f"{index.name}: there is no document {request.id!r}")
        return search.ExplainResponse(views=[view_message(view) for view in found[request.id]])

    async def Encode(self, request: search.EncodeRequest, context: Any) -> search.EncodeResponse:
        """Encode texts as queries, or return the views of documents."""
        index = self._index(request.index)
        index.check_number(len(request.texts.values))
        with index_error_context(index):
            if request.ids:
                if request.HasField("texts"):
                    raise QueryError("ids: expected either texts or ids, got both")
                meter = CURRENT_CALL.get().meter
                views = await index.views(request.ids, meter)
                return await index.convert(
                    lambda: stored_message(views, request.ids), sum(map(len, views.values())), meter
                )
            vectors = await index.encode(list(request.texts.values))
        return search.EncodeResponse(vectors=vectors_message(vectors) if len(vectors) else None)

    async def Terms(self, request: search.TermsRequest, context: Any) -> search.TermsResponse:
        """Count the terms of texts, for a search of several shards as one index."""
        index = self._index(request.index)
        index.check_number(len(request.texts.values))
        with index_error_context(index):
            counts, info = await index.term_counts(list(request.texts.values))
        return search.TermsResponse(
            counts=counts_message(counts),
            lexical=info.lexical or "",
            fusion_json=None if info.fusion is None else json.dumps(info.fusion),
        )

    async def Add(self, request_iterator: AsyncIterator[documents.AddRequest], context: Any) -> None:
        """Store chunks, acknowledging each when it is durable and before the next is read."""
        with self._admission.streaming():
            first = await self._read(context)
            if first is None:
                return
            index = self._index(first.index, writes=True)
            key = check_idempotency_key(first.idempotency_key)
            message: documents.AddRequest | None = first
            last = 0
            while message is not None:
                if message.documents:
                    last = _check_number(message.chunk, last)
                    self._admission.tokens.check_known(CURRENT_CALL.get().caller)
                    await self._store_chunk(index, key, message, context)
                # What was acknowledged is durable; the client can continue later, or with another server.
                self._admission.check_running()
                message = await self._read(context)

    async def _store_chunk(self, index: ServedIndex, key: str, message: documents.AddRequest, context: Any) -> None:
        def read() -> tuple[list[Document], GivenViews | None]:
            if len(message.documents) > CHUNK_DOCUMENTS:
                raise too_many_documents(len(message.documents))
            for each in message.documents:
                check_json_values(each.metadata_json.encode())
            chunk = [document_from(each) for each in message.documents]
            check_chunk(chunk)
            return chunk, views_from(message.views, len(chunk)) if message.HasField("views") else None

        with index_error_context(index):
            chunk, views = await parse_large(read, message.ByteSize(), self._admission.turns)
            report = await index.add(key, message.chunk, chunk, views)
        self._admission.metrics.count_written(index.name, report)
        fields = CURRENT_CALL.get().fields
        fields["documents"] = fields.get("documents", 0) + len(chunk)
        await self._write(context, report_message(message.chunk, report))

    async def _write(self, context: Any, message: Any) -> None:
        """Send a message of a stream; TimedOut if the client does not read in time."""
        idle_s = self._admission.limits.idle_s
        try:
            await asyncio.wait_for(context.write(message), idle_s)
        except asyncio.TimeoutError as err:
            raise TimedOut(f"expected the client to read within {idle_s:g} s, it did not") from err

    async def _read(self, context: Any) -> documents.AddRequest | None:
        """Return the next message, None at the end of the stream.

        TimedOut if none comes in time, ServerUnavailable if the server shuts down.
        """
        reading = asyncio.ensure_future(context.read())
        draining = asyncio.ensure_future(self._admission.draining.wait())
        try:
            await asyncio.wait(
                {reading, draining}, timeout=self._admission.limits.idle_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not reading.done():
                self._admission.check_running()
                raise TimedOut(f"Add: expected a message within {self._admission.limits.idle_s:g} s, got none")
            message = reading.result()
        finally:
            reading.cancel()
            draining.cancel()
        if message is grpc.aio.EOF:
            return None
        return cast(documents.AddRequest, await parsed(message, self._admission.turns))

    async def Delete(self, request: documents.DeleteRequest, context: Any) -> documents.DeleteResponse:
        """Delete documents, by id, by filter, or all."""
        index = self._index(request.index, writes=True)
        has_filter = request.HasField("filter_json")
        if request.ids and (has_filter or request.all):
            raise QueryError("Delete: expected one of ids, a filter and all, got several")
        condition = await self._filter(request) if has_filter else None
        key = check_idempotency_key(request.idempotency_key)
        with index_error_context(index):
            ids = None if has_filter or request.all else list(request.ids)
            key = bound_key(key, ids, request.filter_json, request.all)
            deleted = await index.delete(ids, condition, key, request.all)
        return documents.DeleteResponse(deleted=deleted)

    async def Update(self, request: documents.UpdateRequest, context: Any) -> documents.UpdateResponse:
        """Replace the metadata of a document."""
        index = self._index(request.index, writes=True)
        with index_error_context(index):
            given = request.metadata_json
            metadata = await self._parse(request, given, lambda: metadata_from(given, request.id))
            key = bound_key(check_idempotency_key(request.idempotency_key), request.id, given)
            await index.update(request.id, metadata, key)
        return documents.UpdateResponse()

    async def Get(self, request: documents.GetRequest, context: Any) -> bytes:
        """Return documents by id."""
        index = self._index(request.index)
        meter = CURRENT_CALL.get().meter
        with index_error_context(index):
            found = await index.get(list(request.ids), meter)
        return await index.convert(lambda: documents_bytes(found, meter), len(found), meter)

    async def List(self, request: documents.ListRequest, context: Any) -> None:
        """Stream documents, as fast as the client reads them."""
        index = self._index(request.index)
        condition = await self._filter(request) if request.HasField("filter_json") else None
        limit = request.limit if request.HasField("limit") else None
        after: str | int | None = request.after if request.HasField("after") else None
        if request.HasField("after_ordinal"):
            if after is not None or not request.with_ordinals:
                raise QueryError("after_ordinal: expected with_ordinals, and no `after`")
            after = request.after_ordinal
        with self._admission.streaming(), index_error_context(index):
            async for some in index.scan(condition, limit, after, with_ordinals=request.with_ordinals):
                self._admission.check_running()
                self._admission.tokens.check_known(CURRENT_CALL.get().caller)
                message = documents.ListResponse(
                    documents=[document_message(each) for _, each in some],
                    ordinals=[ordinal for ordinal, _ in some] if request.with_ordinals else [],
                )
                await self._write(context, message)

    async def Info(self, request: service.InfoRequest, context: Any) -> service.InfoResponse:
        """Describe an index."""
        index = self._index(request.index)
        with index_error_context(index):
            info = await index.info()
        return info_message(index.name, info, index.is_read_only)

    async def Indexes(self, request: service.IndexesRequest, context: Any) -> service.IndexesResponse:
        """List the indexes of this server."""
        return service.IndexesResponse(names=visible_names(self._services, CURRENT_CALL.get().caller))

    async def StartJob(self, request: jobs.StartJobRequest, context: Any) -> jobs.Job:
        """Start a job of administration, and return it at once."""
        call = CURRENT_CALL.get()
        call.index = request.index
        call.caller.check_may_administer()
        key = check_idempotency_key(request.idempotency_key)
        return status_message(self._jobs.start(request.index, work_from(request), call.caller, key).status())

    async def GetJob(self, request: jobs.JobRequest, context: Any) -> jobs.Job:
        """Return a job."""
        return status_message(self._jobs.find(request.id, CURRENT_CALL.get().caller).status())

    async def ListJobs(self, request: jobs.JobsRequest, context: Any) -> jobs.JobsResponse:
        """List jobs."""
        return jobs.JobsResponse(
            jobs=[status_message(job.status()) for job in self._jobs.list(CURRENT_CALL.get().caller)]
        )

    async def CancelJob(self, request: jobs.JobRequest, context: Any) -> jobs.Job:
        """Ask a job to stop, and return it at once."""
        return status_message(self._jobs.cancel(request.id, CURRENT_CALL.get().caller).status())


def results_bytes(results: Sequence[SearchResult], meter: ResponseMeter) -> bytes:
    """Return the serialized message of results, one by one, so that one that is too large is not made in full."""
    return _joined((results_message([result]).SerializeToString() for result in results), meter)


def documents_bytes(found: Sequence[Document], meter: ResponseMeter) -> bytes:
    """Return the serialized message of documents, in the same way."""
    messages = (documents.GetResponse(documents=[document_message(each)]) for each in found)
    return _joined((message.SerializeToString() for message in messages), meter)


def _joined(messages: Iterable[bytes], meter: ResponseMeter) -> bytes:
    """Return one message of the repeated fields of all; concatenation merges messages (protobuf's encoding)."""
    # Grown bit by bit, and not copied at the end: to join a large one at once would hold up all other threads.
    whole = BytesIO()
    for message in messages:
        meter.give_way()
        whole.write(message)
        meter.check(whole.tell())
    return whole.getvalue()


def _taken(parts: list[bytes]) -> Iterator[bytes]:
    """Yield the parts, and forget each, so that they and what is made of them are not both in memory."""
    parts.reverse()
    while parts:
        yield parts.pop()


@contextmanager
def index_error_context(index: ServedIndex) -> Iterator[None]:
    """Name the index in errors, instead of its path on the server's disk; tell tenants nothing of damaged documents."""
    try:
        yield
    except MvindexError as err:
        if isinstance(index, TenantIndex) and isinstance(err, StoreError):
            logger.error("%s: %s", index.name, err)
            raise type(err)(f"{index.name}: the index cannot be read; the server's log says why") from err
        path = index.local_path
        if not path or path not in str(err):
            raise
        raise type(err)(str(err).replace(path, index.name)) from err


def check_chunk(documents: list[Document]) -> None:
    """Check that the documents fit one commit; raise LimitExceeded if not."""
    if sum(1 for _ in read_chunks(Entry("", document) for document in documents)) > 1:
        raise too_many_documents(len(documents))


def too_many_documents(count: int) -> LimitExceeded:
    """Return the error of more documents than are committed at once."""
    return LimitExceeded(
        f"documents: expected one chunk of at most {CHUNK_DOCUMENTS} documents, which ends with the one that brings it "
        f"to {CHUNK_CHARS} characters, got {count} documents. Send several chunks"
    )


def _check_number(number: int, last: int) -> int:
    if number <= last:
        raise QueryError(f"chunk: expected rising numbers from 1, got {number} after {last}")
    return number


def _single(vectors: Any) -> Any:
    if len(vectors) != 1:
        raise QueryError(f"vector: expected one vector, got {len(vectors)}")
    return vectors[0]
