"""The routes: JSON in and out, the page, the metrics."""

from __future__ import annotations

import asyncio
import importlib.resources
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvindex.errors import LimitExceeded, MvindexError, QueryError, TimedOut, Unsupported
from mvindex_connectors.remote.convert import MOST_EXPLAINED
from mvindex_connectors.remote.status import REQUEST_ID_KEY, http_status_of, known_class
from mvindex_connectors.server.admission import Call, Guard, request_id_of
from mvindex_connectors.server.http.openapi import description
from mvindex_connectors.server.http.requests import (
    Body,
    add_arguments,
    delete_arguments,
    document_json,
    result_json,
    search_arguments,
)
from mvindex_connectors.server.index_service import ServedIndex, named_index
from mvindex_connectors.server.servicer import naming

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
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_BODY_S = 30.0

T = TypeVar("T")
Answer = Callable[[Request, Call], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]


class App:
    """What the routes share."""

    def __init__(self, served: Mapping[str, ServedIndex], guard: Guard, hosts: frozenset[str] | None) -> None:
        self._served, self._guard, self._hosts = served, guard, hosts

    def routes(self) -> list[Route]:
        """All routes."""
        one = "/v1/indexes/{index}"
        document = one + "/documents/{id:path}"
        methods = {
            "GET": self._guarded("Get", self._get),
            "DELETE": self._guarded("Delete", self._delete_one),
            "PATCH": self._guarded("Update", self._update),
        }
        kept = {name: self._asset(*file) for name, file in _PAGE.items()}
        return [
            *(Route(f"/{name}", asset) for name, asset in kept.items()),
            Route("/openapi.json", self._guarded("OpenApi", self._openapi, is_open=True)),
            Route("/healthz", self._guarded("Health", self._health, is_open=True)),
            Route("/metrics", self._guarded("Metrics", self._metrics)),
            Route("/v1/indexes", self._guarded("Indexes", self._indexes)),
            Route(one, self._guarded("Info", self._info)),
            Route(f"{one}/search", self._guarded("Search", self._search), methods=["POST"]),
            Route(f"{one}/documents", self._guarded("Add", self._add), methods=["POST"]),
            Route(f"{one}/delete", self._guarded("Delete", self._delete), methods=["POST"]),
            # One route, so that who asks for another method is told of all three.
            Route(document, _by_method(methods), methods=list(methods)),
        ]

    def _guarded(self, method: str, answer: Answer, *, is_open: bool = False) -> Handler:
        """The answer behind the guard; errors become JSON of their status."""

        async def handled(request: Request) -> Response:
            call = Call(
                method=method,
                request_id=request_id_of(request.headers.get(REQUEST_ID_KEY)),
                peer="" if request.client is None else f"{request.client.host}:{request.client.port}",
                protocol="http",
            )
            try:
                self._check_host(request)
                with self._guard.passing(call, request.headers.get("authorization"), is_open=is_open):
                    response = await answer(request, call)
            except MvindexError as err:
                response = _error(err, call.request_id)
            except asyncio.CancelledError:
                # The client is gone, so nobody reads this; it only ends the request.
                response = Response(status_code=499)
            response.headers.update({**_HEADERS, REQUEST_ID_KEY: call.request_id})
            return response

        return handled

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "").lower()
        if self._hosts is not None and host not in self._hosts:
            raise QueryError(f"this server is not called {host[:80]!r}; without tokens it answers to localhost only")

    def _index(self, request: Request, call: Call, *, writes: bool = False) -> ServedIndex:
        call.index = request.path_params["index"]
        if writes:
            call.caller.check_may_write()
        return named_index(self._served, call.index)

    async def _body(self, request: Request) -> Body:
        """The JSON object of a request; never more of it in memory than the limit."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # Which also keeps out the forms of other sites' pages.
            raise QueryError("the body must be JSON: send 'content-type: application/json'")
        try:
            return Body.of(await asyncio.wait_for(self._read(request), _BODY_S))
        except asyncio.TimeoutError as err:
            raise TimedOut(f"the body did not come within {_BODY_S:g} s") from err

    async def _read(self, request: Request) -> bytes:
        parts, size, most = [], 0, self._guard.limits.message_bytes
        try:
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise LimitExceeded(f"a body of more than {most} bytes; send less at a time, or raise "
                                        "--max-message-mb")  # fmt: skip
                parts.append(part)
        except ClientDisconnect as err:
            raise asyncio.CancelledError from err
        return b"".join(parts)

    async def _search(self, request: Request, call: Call) -> Response:
        index = self._index(request, call)
        body = await self._body(request)
        asked = search_arguments(body)
        call.fields["queries"] = len(asked.queries)
        with naming(index):
            if asked.explains and isinstance(asked.queries, list):
                # Encoded once: the search and every explanation then speak of the same vectors.
                texts = asked.queries
                asked = replace(asked, queries=await _while_connected(request, index.encode(texts)))
                if asked.words is None and (asked.options["mode"] or "dense") != "dense":
                    asked = replace(asked, words=texts)
            results = await _while_connected(request, index.search(asked.queries, text=asked.words, **asked.options))
            self._guard.metrics.saw_results(index.name, results)
            explained = await self._explained(index, asked, results) if asked.explains else None
        rows = [result_json(result, None if explained is None else explained[n]) for n, result in enumerate(results)]
        return _json(rows[0] if asked.is_single else {"results": rows})

    async def _explained(self, index: ServedIndex, asked: Any, results: Any) -> list[dict[str, Any]]:
        if sum(len(result.hits) for result in results) > MOST_EXPLAINED:
            raise LimitExceeded(f"explain is for up to {MOST_EXPLAINED:,} hits in one request; ask for fewer")
        how = (asked.options.get("scoring") or "max", asked.options.get("temperature"))
        return [
            await index.explain_all(query, [hit.id for hit in result.hits], *how)
            for query, result in zip(asked.queries, results, strict=True)
        ]

    async def _add(self, request: Request, call: Call) -> Response:
        index = self._index(request, call, writes=True)
        asked = add_arguments(await self._body(request))
        with naming(index):
            report = await index.add(asked.key, 1, asked.documents, asked.views)
        call.fields["documents"] = len(asked.documents)
        row = {name: getattr(report, name) for name in ("added", "replaced", "updated", "unchanged")}
        for how, count in row.items():
            self._guard.metrics.written.labels(index.name, how).inc(count)
        return _json(row)

    async def _delete(self, request: Request, call: Call) -> Response:
        index = self._index(request, call, writes=True)
        ids, condition, key = delete_arguments(await self._body(request))
        with naming(index):
            return _json({"deleted": await index.delete(ids, condition, key)})

    async def _delete_one(self, request: Request, call: Call) -> Response:
        index = self._index(request, call, writes=True)
        with naming(index):
            return _json({"deleted": await index.delete([request.path_params["id"]], None, "")})

    async def _update(self, request: Request, call: Call) -> Response:
        index = self._index(request, call, writes=True)
        body = await self._body(request)
        metadata = body.taken("metadata", dict)
        body.check_empty()
        if metadata is None:
            raise QueryError('"metadata" is missing; wanted an object')
        doc_id = request.path_params["id"]
        with naming(index):
            if not await index.get([doc_id]):
                return _missing(doc_id, call)
            await index.update(doc_id, metadata)
        return _json({})

    async def _get(self, request: Request, call: Call) -> Response:
        index = self._index(request, call)
        doc_id = request.path_params["id"]
        with naming(index):
            found = await index.get([doc_id])
        if not found:
            return _missing(doc_id, call)
        return _json(document_json(found[0]))

    async def _info(self, request: Request, call: Call) -> Response:
        index = self._index(request, call)
        row = asdict(await index.info())
        del row["path"]
        return _json({"name": index.name, "is_read_only": index.is_read_only, **row})

    async def _indexes(self, request: Request, call: Call) -> Response:
        return _json({"indexes": list(self._served)})

    async def _metrics(self, request: Request, call: Call) -> Response:
        return Response(self._guard.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _health(self, request: Request, call: Call) -> Response:
        self._guard.check_running()
        return _json({"status": "serving"})

    async def _openapi(self, request: Request, call: Call) -> Response:
        return _json(description(wants_token=self._guard.tokens.are_wanted))

    def _asset(self, name: str, kind: str) -> Handler:
        content = (importlib.resources.files(__package__) / "page" / name).read_bytes()

        async def answer(request: Request) -> Response:
            self._check_host(request)
            return Response(content, headers={**_HEADERS, "cache-control": "no-cache"}, media_type=kind)

        return answer


def make_app(served: Mapping[str, ServedIndex], guard: Guard, hosts: frozenset[str] | None) -> Starlette:
    """The ASGI application."""

    async def wrong_host(request: Request, err: Exception) -> Response:
        return _error(err, "") if isinstance(err, MvindexError) else Response(status_code=500)

    async def no_route(request: Request, err: Any) -> Response:
        request_id = request_id_of(request.headers.get(REQUEST_ID_KEY))
        row = {"class": "QueryError", "message": err.detail, "request_id": request_id}
        headers = {**_HEADERS, **(err.headers or {}), REQUEST_ID_KEY: request_id}
        return JSONResponse({"error": row}, err.status_code, headers=headers)

    handlers: Any = {MvindexError: wrong_host, 404: no_route, 405: no_route}
    app = Starlette(routes=App(served, guard, hosts).routes(), exception_handlers=handlers)
    # A redirect would name whatever host the request made up.
    app.router.redirect_slashes = False
    return app


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    """The handler that passes a request on to that of its method."""

    async def handled(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handled


async def _while_connected(request: Request, answer: Awaitable[T]) -> T:
    """The answer, which is given up when the client goes away. Call it once the body was read."""
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


def _json(value: Any, status: int = 200) -> JSONResponse:
    return JSONResponse(value, status)


def _missing(doc_id: str, call: Call) -> Response:
    row = {"class": "QueryError", "message": f"there is no document {doc_id!r:.120}", "request_id": call.request_id}
    return _json({"error": row}, 404)


def _error(err: MvindexError, request_id: str) -> Response:
    status = 501 if isinstance(err, Unsupported) else http_status_of(err)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {"retry-after": "1"} if status in (429, 503) else {}
    row = {"class": known_class(err).__name__, "message": str(err), "request_id": request_id}
    return JSONResponse({"error": row}, status, headers=headers)
