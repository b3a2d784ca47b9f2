"""The routes: JSON requests and responses, the search page, the metrics."""

from __future__ import annotations

import asyncio
import importlib.resources
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mvindex.errors import LimitExceeded, MvindexError, QueryError, TimedOut
from mvindex.records import Document, SearchResult, ViewScore
from mvindex.search.plan import parse_operators
from mvindex.search.request import SearchRequest
from mvindex_connectors.remote.convert import MAX_EXPLAINED, SCORING_NAMES
from mvindex_connectors.remote.status import REQUEST_ID_KEY
from mvindex_connectors.server.admission import Admission, CallContext, request_id_from
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.http.admin import AdminRoutes
from mvindex_connectors.server.http.openapi import OPERATIONS, openapi
from mvindex_connectors.server.http.requests import (
    RequestT,
    add_call,
    decode,
    document_response,
    info_response,
    list_parameters,
    result_response,
    search_request,
)
from mvindex_connectors.server.http.responses import (
    PartsResponse,
    encoded_parts,
    error_response,
    joined,
    json_response,
)
from mvindex_connectors.server.idempotency import bound_key, check_idempotency_key
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.jobs import Jobs
from mvindex_connectors.server.limits import TooLarge, parse_large
from mvindex_connectors.server.servicer import index_error_context
from mvindex_connectors.server.tenants import ServedIndex, use_index, visible_names

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_PAGE = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "card.js": ("card.js", "text/javascript"),
    "document.js": ("document.js", "text/javascript"),
    "filters.js": ("filters.js", "text/javascript"),
    "keys.js": ("keys.js", "text/javascript"),
    "made.js": ("made.js", "text/javascript"),
    "text.js": ("text.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_BODY_TIMEOUT_S = 30.0
# After so many bytes of a body a request gives way to others.
_PACED_BYTES = 256 << 10

T = TypeVar("T")
Handler = Callable[[Request, CallContext], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class App:
    """The handlers of all routes, and what they share."""

    def __init__(
        self, services: Mapping[str, IndexService], admission: Admission, hosts: frozenset[str] | None, jobs: Jobs
    ) -> None:
        self._services, self._admission, self._hosts = services, admission, hosts
        self._admin = AdminRoutes(jobs, self._request)

    def routes(self) -> list[Route]:
        """Return all routes: those of the OpenAPI description, the description itself, and the page."""
        handlers: dict[str, Handler] = {
            "indexes": self._indexes,
            "info": self._info,
            "search": self._search,
            "delete": self._delete,
            "list": self._list,
            "add": self._add,
            "getMany": self._get_many,
            "get": self._get,
            "deleteOne": self._delete_one,
            "update": self._update,
            "metrics": self._metrics,
            "health": self._health,
            "ready": self._health,
            "live": self._live,
            **self._admin.handlers(),
        }
        endpoints: dict[str, dict[str, Endpoint]] = {}
        for each in OPERATIONS:
            endpoint = self._admitted(each.call, handlers[each.id], is_open=each.is_open)
            endpoints.setdefault(each.path.replace("{id}", "{id:path}"), {})[each.method] = endpoint
        return [
            *(Route(f"/{name}", self._asset(*file)) for name, file in _PAGE.items()),
            Route("/openapi.json", self._admitted("OpenApi", self._openapi, is_open=True)),
            # One route for all methods of a path, so that a 405 response names them all.
            *(Route(path, _by_method(methods), methods=list(methods)) for path, methods in endpoints.items()),
        ]

    def _admitted(self, name: str, handler: Handler, *, is_open: bool = False) -> Endpoint:
        """Return the handler behind admission; errors become JSON of their status."""

        async def endpoint(request: Request) -> Response:
            call = CallContext(
                method=name,
                request_id=request_id_from(request.headers.get(REQUEST_ID_KEY)),
                peer="" if request.client is None else f"{request.client.host}:{request.client.port}",
                protocol="http",
                meter=self._admission.new_meter(),
            )
            try:
                self._check_host(request)
                with self._admission.admit(call, request.headers.get("authorization"), is_open=is_open):
                    response = await handler(request, call)
            except MvindexError as err:
                response = error_response(err, call.request_id)
            except asyncio.CancelledError:
                # The client is gone, so nobody reads this; it only ends the request.
                response = Response(status_code=499)
            if not isinstance(response, PartsResponse):
                call.meter.close()
            response.headers.update({**_HEADERS, REQUEST_ID_KEY: call.request_id})
            return response

        return endpoint

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "").lower()
        if self._hosts is not None and host not in self._hosts:
            raise QueryError(f"host: expected a name of this machine, got {host[:80]!r}. Without tokens the "
                             "server answers to localhost only")  # fmt: skip

    def _index(self, request: Request, call: CallContext, *, writes: bool = False) -> ServedIndex:
        call.index = request.path_params["index"]
        if writes:
            call.caller.check_may_write()
        return use_index(self._services, call)

    async def _request(self, request: Request, kind: type[RequestT], convert: Callable[[RequestT], T]) -> T:
        """Return what the request of a JSON body is converted to; never more than the limit of it is in memory."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # Which also keeps out the forms of other sites' pages.
            raise QueryError("body: expected JSON with the header 'content-type: application/json', got another type")
        # Before its client is told to go on, where it waits for that.
        self._check_body(int(request.headers.get("content-length", "0")))
        try:
            with self._admission.reading():
                content = await asyncio.wait_for(self._read(request), _BODY_TIMEOUT_S)
        except asyncio.TimeoutError as err:
            raise TimedOut(f"body: expected all of it within {_BODY_TIMEOUT_S:g} s") from err
        return await parse_large(lambda: convert(decode(kind, content)), len(content), self._admission.turns)

    def _check_body(self, num_bytes: int) -> None:
        """Raise TooLarge for a body of more bytes than a request may have."""
        limit = self._admission.limits.message_bytes
        if num_bytes > limit:
            raise TooLarge(f"body: expected at most {limit} bytes, got more. Send less at a time, or "
                           "raise --max-message-mb")  # fmt: skip

    async def _read(self, request: Request) -> bytearray:
        # Grown part by part: to join them at the end would hold up all others.
        content, pauses = bytearray(), 0
        try:
            async for part in request.stream():
                self._admission.take_request_bytes(len(part))
                content += part
                if len(content) // _PACED_BYTES > pauses:
                    pauses = len(content) // _PACED_BYTES
                    await self._admission.give_way()
                self._check_body(len(content))
        except ClientDisconnect as err:
            raise asyncio.CancelledError from err
        finally:
            self._admission.take_request_bytes(-len(content))
        return content

    async def _search(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call)
        body, search = await self._request(request, schemas.SearchRequest, lambda body: (body, search_request(body)))
        call.fields["queries"] = search.num_rows
        if body.explain:
            encoded = await self._explained(request, index, search, call)
        else:
            with index_error_context(index):
                found = index.search(search, call.meter, lambda results: self._encoded_results(index, results, call))
                encoded = await _while_connected(request, found)
            call.meter.check(sum(map(len, encoded)))
        return PartsResponse(encoded if search.is_single else joined(b'{"results":[', encoded, b"]}"), call.meter)

    async def _explained(
        self, request: Request, index: ServedIndex, search: SearchRequest, call: CallContext
    ) -> list[bytes]:
        """Return the encoded results of a search with every view of their hits."""
        with index_error_context(index):
            if not search.queries[0].are_encoded:
                search = await _while_connected(request, _encoded(index, search))
            found = index.search(search, call.meter)
            results = await _while_connected(request, found)
            explanations = await self._explanations(index, search, results, call)
        return await index.convert(
            lambda: self._encoded_results(index, results, call, explanations),
            len(results) * search.top_k,
            call.meter,
        )

    def _encoded_results(
        self,
        index: ServedIndex,
        results: list[SearchResult],
        call: CallContext,
        explanations: Sequence[Mapping[str, Sequence[ViewScore]] | None] | None = None,
    ) -> list[bytes]:
        self._admission.metrics.count_results(index.name, results)
        pairs = zip(results, explanations or [None] * len(results), strict=True)
        made = encoded_parts((result_response(*pair) for pair in pairs), call.meter)
        # Here, in the thread: to free many hits takes as long as to make them.
        results.clear()
        return made

    async def _explanations(
        self, index: ServedIndex, search: SearchRequest, results: Sequence[SearchResult], call: CallContext
    ) -> list[dict[str, list[ViewScore]]]:
        if (count := sum(len(result.hits) for result in results)) > MAX_EXPLAINED:
            raise LimitExceeded(f"explain: expected at most {MAX_EXPLAINED:,} hits in one request, got {count:,}. "
                                "Lower top_k or send fewer queries")  # fmt: skip
        scoring = (SCORING_NAMES[search.aggregate], search.temperature)
        return [
            await index.explain_all(query, [hit.id for hit in result.hits], *scoring, call.meter)
            for query, result in zip(search.queries[0].vectors, results, strict=True)
        ]

    async def _add(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call, writes=True)
        added = await self._request(request, schemas.AddRequest, add_call)
        with index_error_context(index):
            report = await index.add(added.key, 1, added.documents, added.views)
        call.fields["documents"] = len(added.documents)
        self._admission.metrics.count_written(index.name, report)
        names = schemas.AddResponse.__struct_fields__
        return json_response(schemas.AddResponse(**{name: getattr(report, name) for name in names}))

    async def _delete(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call, writes=True)
        body = await self._request(request, schemas.DeleteRequest, _same)
        ids = None if body.ids is msgspec.UNSET else body.ids
        condition = None if body.filter is msgspec.UNSET else body.filter
        with index_error_context(index):
            everything = body.all is True
            key = bound_key(check_idempotency_key(body.idempotency_key), ids, condition, everything)
            return json_response(schemas.DeleteResponse(await index.delete(ids, condition, key, everything)))

    async def _delete_one(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call, writes=True)
        with index_error_context(index):
            return json_response(schemas.DeleteResponse(await index.delete([request.path_params["id"]], None, "")))

    async def _update(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call, writes=True)
        body = await self._request(request, schemas.UpdateRequest, _same)
        doc_id = request.path_params["id"]
        with index_error_context(index):
            if not await index.has(doc_id):
                return _missing(doc_id, call)
            key = bound_key(check_idempotency_key(body.idempotency_key), doc_id, body.metadata)
            await index.update(doc_id, body.metadata, key)
        return json_response(schemas.UpdateResponse())

    async def _get(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call)
        doc_id = request.path_params["id"]
        with index_error_context(index):
            found = await index.get([doc_id], call.meter)
        if not found:
            return _missing(doc_id, call)
        return PartsResponse(await index.convert(lambda: _documents(found, call), 1, call.meter), call.meter)

    async def _get_many(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call)
        body = await self._request(request, schemas.GetRequest, _same)
        with index_error_context(index):
            found = await index.get(body.ids, call.meter)
        parts = await index.convert(lambda: _documents(found, call), len(found), call.meter)
        return PartsResponse(joined(b'{"documents":[', parts, b"]}"), call.meter)

    async def _list(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call)
        chosen = list_parameters(request.query_params.multi_items())
        after = None if chosen.after is msgspec.UNSET else chosen.after
        condition = None if chosen.filter is msgspec.UNSET else chosen.filter
        with index_error_context(index):
            if after is not None and not await index.has(after):
                return _missing(after, call)
            page = await index.page(condition, chosen.limit, after)
        parts = await index.convert(lambda: _documents(page.documents, call), len(page.documents), call.meter)
        tail = b'],"next":' + msgspec.json.encode(page.next) + b"}"
        return PartsResponse(joined(b'{"documents":[', parts, tail), call.meter)

    async def _info(self, request: Request, call: CallContext) -> Response:
        index = self._index(request, call)
        with index_error_context(index):
            return json_response(info_response(index.name, await index.info(), index.is_read_only))

    async def _indexes(self, request: Request, call: CallContext) -> Response:
        return json_response(schemas.IndexList(visible_names(self._services, call.caller)))

    async def _metrics(self, request: Request, call: CallContext) -> Response:
        call.caller.check_unbound("the metrics of all indexes")
        return Response(self._admission.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _health(self, request: Request, call: CallContext) -> Response:
        self._admission.check_running()
        return json_response(schemas.Health("serving"))

    async def _live(self, request: Request, call: CallContext) -> Response:
        return json_response(schemas.Alive("alive"))

    async def _openapi(self, request: Request, call: CallContext) -> Response:
        return json_response(openapi(requires_token=self._admission.tokens.are_required))

    def _asset(self, name: str, media_type: str) -> Endpoint:
        content = (importlib.resources.files(__package__) / "page" / name).read_bytes()

        async def endpoint(request: Request) -> Response:
            self._check_host(request)
            return Response(content, headers={**_HEADERS, "cache-control": "no-cache"}, media_type=media_type)

        return endpoint


def make_app(
    services: Mapping[str, IndexService], admission: Admission, hosts: frozenset[str] | None, jobs: Jobs
) -> Starlette:
    """Return the ASGI application. hosts: the names it answers to; None for any."""

    async def wrong_host(request: Request, err: Exception) -> Response:
        return error_response(err, "") if isinstance(err, MvindexError) else Response(status_code=500)

    async def no_route(request: Request, err: Any) -> Response:
        request_id = request_id_from(request.headers.get(REQUEST_ID_KEY))
        response = error_response(QueryError(err.detail), request_id, err.status_code)
        response.headers.update({**_HEADERS, **(err.headers or {}), REQUEST_ID_KEY: request_id})
        return response

    handlers: Any = {MvindexError: wrong_host, 404: no_route, 405: no_route}
    app = Starlette(routes=App(services, admission, hosts, jobs).routes(), exception_handlers=handlers)
    # A redirect would name whatever host the request made up.
    app.router.redirect_slashes = False
    return app


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    """Return the endpoint that passes a request on to that of its method."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _same(body: RequestT) -> RequestT:
    return body


def _documents(found: Sequence[Document], call: CallContext) -> list[bytes]:
    return encoded_parts(map(document_response, found), call.meter)


async def _encoded(index: ServedIndex, search: SearchRequest) -> SearchRequest:
    """Return the search with its texts encoded once: it and every explanation then use the same vectors."""
    [queries] = search.queries
    texts = queries.unencoded
    plain = [parse_operators(text).text for text in texts] if search.operators else texts
    return search.with_queries(replace(queries.encoded(await index.encode(plain)), texts=queries.texts or texts))


async def _while_connected(request: Request, answer: Awaitable[T]) -> T:
    """Return the answer; give it up when the client goes away. Call this after the body was read."""
    task, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise asyncio.CancelledError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _missing(doc_id: str, call: CallContext) -> Response:
    return error_response(QueryError(f"there is no document {doc_id!r:.120}"), call.request_id, 404)
