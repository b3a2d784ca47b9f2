"""ServerAdmin: administration of an index behind a server, by jobs that go on when the client is gone.

A JobStatus and its messages are the server's as well.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mvindex import errors
from mvindex.errors import MvindexError, RemoteError, TimedOut
from mvindex.records import ProgressCallback, no_progress
from mvindex.search.request import Vector, as_vectors
from mvindex.v1 import jobs_pb2 as messages
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.address import Access, access_from_environment, parse_address
from mvindex_connectors.remote.convert import vectors_message
from mvindex_connectors.remote.retry import CallSettings, RetryingChannel

if TYPE_CHECKING:
    from typing_extensions import Self

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0


class JobState(Enum):
    """The state of a job; ended: its server ended before, or has ended since."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job as it was when the server was asked. Times are seconds since 1970.

    `kind` is create, drop, build, tune, compact or snapshot; empty for a job of a past run. `done` of `total` of its
    `step` is done; no total where that is not known. `message`, and its class `error`, are of a job that failed;
    `result` is the report of one that is done.
    """

    id: str
    index: str
    kind: str
    state: JobState
    step: str
    done: int
    total: int | None
    message: str
    error: str
    result: Mapping[str, Any] | None
    started_at: float
    ended_at: float | None


def status_message(status: JobStatus) -> messages.Job:
    """Return a job as a message."""
    values = asdict(status)
    result = values.pop("result")
    values["state"] = messages.JobState.Value(f"JOB_STATE_{status.state.name}")
    return messages.Job(**values, result_json="" if result is None else json.dumps(result))


def status_of(job: messages.Job) -> JobStatus:
    """Return a message as a job."""
    values = {each.name: getattr(job, each.name) for each in fields(JobStatus) if each.name != "result"}
    values |= {name: None for name in ("total", "ended_at") if not job.HasField(name)}
    values["state"] = JobState[messages.JobState.Name(job.state).removeprefix("JOB_STATE_")]
    return JobStatus(**values, result=json.loads(job.result_json) if job.result_json else None)


class RemoteJob:
    """A job of a server."""

    def __init__(self, admin: ServerAdmin, status: JobStatus) -> None:
        """Take what the server said when the job was started."""
        self._admin, self.id = admin, status.id

    def status(self) -> JobStatus:
        """Return the job as it is now."""
        return self._admin.job_status(self.id)

    def cancel(self) -> JobStatus:
        """Ask the job to stop, which it does at its next step; return it as it is now."""
        return self._admin.cancel(self.id)

    def wait(self, timeout_s: float | None = None, on_progress: ProgressCallback = no_progress) -> Mapping[str, Any]:
        """Wait until the job has ended, and return its report.

        Args:
            timeout_s: Seconds to wait; None for as long as it takes. The job goes on after them.
            on_progress: Called with a step, how much of it is done, and how much there is.

        Raises:
            TimedOut: The job still runs.
            MvindexError: The job failed, with the class of the server's error; RemoteError if it was cancelled, or
                its server has ended.

        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause = _FIRST_PAUSE_S
        while (status := self.status()).state is JobState.RUNNING:
            if status.step:
                on_progress(status.step, status.done, status.total)
            if until is not None and time.monotonic() + pause > until:
                raise TimedOut(f"job {self.id}: expected its end within {timeout_s:g} s; it goes on")
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_S)
        if status.state is JobState.DONE:
            return status.result or {}
        if status.state is JobState.FAILED:
            raise _error_of(status)
        raise RemoteError(f"job {self.id} ({status.kind or 'of a past run'}): {status.message or status.state.value}")


class ServerAdmin:
    """Starts and follows jobs for one index of a server; the token must be of role admin."""

    def __init__(self, url: str, *, access: Access | None = None, settings: CallSettings | None = None) -> None:
        """Take an address, whose index need not exist; nothing is sent yet.

        Args:
            url: grpc://host:port/name, or grpcs:// for TLS.
            access: Credentials; by default from the environment (docs/how-to/serving.md).
            settings: Timeouts and retries.

        Raises:
            ConfigError: The URL or the credentials are malformed.

        """
        channel = RetryingChannel(parse_address(url), access or access_from_environment(), settings or CallSettings())
        self._use(channel, is_own=True)

    @classmethod
    def over(cls, channel: RetryingChannel) -> ServerAdmin:
        """Return the administration of a client's index, over its channel, which stays open."""
        admin = cls.__new__(cls)
        admin._use(channel, is_own=False)
        return admin

    def _use(self, channel: RetryingChannel, *, is_own: bool) -> None:
        self._is_own = is_own
        self._channel, self._stub = channel, MvindexServiceStub(channel.grpc_channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless it is a client's; jobs go on."""
        if self._is_own:
            self._channel.close()

    def create(  # noqa: PLR0913 - each argument is a setting of the index
        self,
        *,
        encoder: str | None = None,
        dim: int | None = None,
        dtype: str | None = None,
        temperature: float | None = None,
        prune_views: float | None = None,
        shards: int | None = None,
        lexical: str | None = None,
        filter_fields: Mapping[str, str] | None = None,
    ) -> RemoteJob:
        """Create the index, in the folder of the server's --admin-folder; see mvindex.create().

        encoder: the name of a packaged encoder; or dim, for given vectors.
        """
        work = messages.CreateIndex(
            encoder=encoder,
            dim=dim,
            dtype=dtype,
            temperature=temperature,
            prune_views=prune_views,
            shards=shards,
            lexical=lexical,
            filter_fields=filter_fields or {},
        )
        return self._start(create=work)

    def drop(self, confirm: str) -> RemoteJob:
        """Remove the index, if a job created it; confirm: its name again."""
        return self._start(drop=messages.DropIndex(confirm=confirm))

    def build(
        self, kind: str | None = None, *, parameters: Mapping[str, int] | None = None, target_recall: float = 0.98
    ) -> RemoteJob:
        """Build an engine and make it the active one; see Index.build(). Searches go on, writes wait."""
        work = messages.BuildEngine(engine=kind, parameters=parameters or {}, target_recall=target_recall)
        return self._start(build=work)

    def tune(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        target_recall: float = 0.98,
        time_limit_s: float = 1800.0,
    ) -> RemoteJob:
        """Choose search parameters by measured recall; see Index.tune(). Searches go on, writes wait."""
        vectors = None if queries is None else vectors_message(as_vectors(queries, None))
        return self._start(
            tune=messages.TuneEngine(
                queries=vectors, top_k=top_k, target_recall=target_recall, time_limit_s=time_limit_s
            )
        )

    def compact(self) -> RemoteJob:
        """Give back the space of deleted and replaced documents. Searches go on, writes wait."""
        return self._start(compact=messages.CompactIndex())

    def snapshot(self, name: str) -> RemoteJob:
        """Copy the index to a new name in the folder of the server's --admin-folder. Nobody waits."""
        return self._start(snapshot=messages.SnapshotIndex(name=name))

    def jobs(self) -> list[JobStatus]:
        """Return the jobs of all indexes: those that run, and the latest that ended."""
        return [status_of(job) for job in self._channel.call(self._stub.ListJobs, messages.JobsRequest()).jobs]

    def job_status(self, job_id: str) -> JobStatus:
        """Return a job as it is now; QueryError where there is none of this id."""
        return status_of(self._channel.call(self._stub.GetJob, messages.JobRequest(id=job_id)))

    def cancel(self, job_id: str) -> JobStatus:
        """Ask a job to stop, which it does at its next step; return it as it is now."""
        return status_of(self._channel.call(self._stub.CancelJob, messages.JobRequest(id=job_id)))

    def _start(self, **work: Any) -> RemoteJob:
        request = messages.StartJobRequest(
            index=self._channel.address.name, idempotency_key=secrets.token_hex(16), **work
        )
        return RemoteJob(self, status_of(self._channel.call(self._stub.StartJob, request)))


def _error_of(status: JobStatus) -> MvindexError:
    kind = getattr(errors, status.error, RemoteError)
    is_ours = isinstance(kind, type) and issubclass(kind, MvindexError)
    return (kind if is_ours else RemoteError)(status.message)
