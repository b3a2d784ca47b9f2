"""The routes of administration: jobs are started, listed, looked at and cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mvindex.errors import QueryError
from mvindex_connectors.server.admission import CallContext
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.http.responses import error_response, json_response
from mvindex_connectors.server.idempotency import check_idempotency_key
from mvindex_connectors.server.jobs import Job, Jobs, StartJobRequest

T = TypeVar("T")
Read = Callable[[Request, type[StartJobRequest], Callable[[StartJobRequest], T]], Awaitable[T]]


class AdminRoutes:
    """The handlers of administration."""

    def __init__(self, jobs: Jobs, read: Read[Any]) -> None:
        """read: returns the converted body of a request."""
        self._jobs, self._read = jobs, read

    def handlers(self) -> dict[str, Callable[[Request, CallContext], Awaitable[Response]]]:
        """Return the handlers by operation."""
        return {
            "startJob": self._start,
            "listJobs": self._list,
            "getJob": self._get,
            "cancelJob": self._cancel,
        }

    async def _start(self, request: Request, call: CallContext) -> Response:
        call.caller.check_may_administer()
        body = await self._read(request, StartJobRequest, lambda body: body)
        call.index = body.index
        key = check_idempotency_key(body.idempotency_key)
        return json_response(self._jobs.start(body.index, body.work(), call.caller, key).status())

    async def _list(self, request: Request, call: CallContext) -> Response:
        return json_response(schemas.JobList([job.status() for job in self._jobs.list(call.caller)]))

    async def _get(self, request: Request, call: CallContext) -> Response:
        return self._found(self._jobs.find, request, call)

    async def _cancel(self, request: Request, call: CallContext) -> Response:
        return self._found(self._jobs.cancel, request, call)

    def _found(self, find: Callable[[str, Any], Job], request: Request, call: CallContext) -> Response:
        try:
            return json_response(find(request.path_params["job"], call.caller).status())
        except QueryError as err:
            return error_response(err, call.request_id, 404)
