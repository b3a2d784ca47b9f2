"""The routes of administration: jobs are started, listed, looked at and cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mvindex.errors import QueryError
from mvindex_connectors.server.admission import CallContext
from mvindex_connectors.server.http import job_schemas
from mvindex_connectors.server.http.responses import error_response, json_response
from mvindex_connectors.server.idempotency import check_idempotency_key
from mvindex_connectors.server.jobs import Job, Jobs
from mvindex_connectors.server.work import work_of

T = TypeVar("T")
# JSON has one kind of number.
_COUNTS = ("dim", "shards", "top_k")
Read = Callable[[Request, type[job_schemas.StartJobRequest], Callable[[job_schemas.StartJobRequest], T]], Awaitable[T]]


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
        body = await self._read(request, job_schemas.StartJobRequest, lambda body: body)
        call.index = body.index
        [kind] = [name for name in body.one_of if getattr(body, name) is not msgspec.UNSET]
        values = msgspec.to_builtins(getattr(body, kind))
        values |= {name: int(values[name]) for name in _COUNTS if values.get(name) is not None}
        if "parameters" in values:
            values["parameters"] = {name: int(value) for name, value in values["parameters"].items()}
        work = work_of(kind, values)
        key = check_idempotency_key(body.idempotency_key)
        return json_response(job_response(self._jobs.start(body.index, work, call.caller, key)))

    async def _list(self, request: Request, call: CallContext) -> Response:
        return json_response(job_schemas.JobList([job_response(job) for job in self._jobs.list(call.caller)]))

    async def _get(self, request: Request, call: CallContext) -> Response:
        return self._found(self._jobs.find, request, call)

    async def _cancel(self, request: Request, call: CallContext) -> Response:
        return self._found(self._jobs.cancel, request, call)

    def _found(self, find: Callable[[str, Any], Job], request: Request, call: CallContext) -> Response:
        try:
            return json_response(job_response(find(request.path_params["job"], call.caller)))
        except QueryError as err:
            return error_response(err, call.request_id, 404)


def job_response(job: Job) -> job_schemas.Job:
    """Return a job as the response shows it."""
    return job_schemas.Job(
        id=job.id,
        index=job.index,
        kind=job.kind,
        state=job.state.value,
        step=job.name,
        done=job.done,
        total=job.total,
        message=job.message,
        error=job.error,
        result=None if job.result is None else dict(job.result),
        started_at=job.started_at,
        ended_at=job.ended_at,
    )
