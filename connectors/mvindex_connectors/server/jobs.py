"""Jobs: administration that goes on when its caller is gone. One job of an index runs at a time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mvindex.errors import IndexLocked, MvindexError, NoSuchIndex, QueryError
from mvindex_connectors.remote.jobs import JobState, JobStatus
from mvindex_connectors.remote.status import nearest_known_class
from mvindex_connectors.server.index_set import IndexSet
from mvindex_connectors.server.tenants import find_index
from mvindex_connectors.server.tokens import Caller
from mvindex_connectors.server.work import CreateIndex, Work

logger = logging.getLogger(__name__)

# Jobs that have ended and are still listed.
_MAX_ENDED = 200


class JobCancelled(MvindexError):
    """A job was asked to stop."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A job; its progress is written by the thread that works. Times are seconds since 1970."""

    id: str
    index: str
    work: Work | None
    key: tuple[str, str] | None = None
    state: JobState = JobState.RUNNING
    name: str = ""  # of the step
    done: int = 0
    total: int | None = None
    message: str = ""
    error: str = ""
    result: Mapping[str, Any] | None = None
    started_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    is_cancelled: bool = False

    @property
    def kind(self) -> str:
        """The kind of its work; empty where that is not known any more."""
        return "" if self.work is None else self.work.kind

    def step(self, step: str, done: int, total: int | None) -> None:
        """Take how much of a step is done; raise JobCancelled once the job should stop."""
        self.name, self.done, self.total = step, done, total
        self.count(0)

    def count(self, number: int) -> None:
        """Add to what is done; raise JobCancelled once the job should stop."""
        self.done += number
        if self.is_cancelled:
            raise JobCancelled("the job was cancelled")

    def status(self) -> JobStatus:
        """Return the job as callers see it."""
        return JobStatus(
            id=self.id,
            index=self.index,
            kind=self.kind,
            state=self.state,
            step=self.name,
            done=self.done,
            total=self.total,
            message=self.message,
            error=self.error,
            result=self.result,
            started_at=self.started_at,
            ended_at=self.ended_at,
        )


class Jobs:
    """The jobs of a server, in its event loop."""

    def __init__(self, indexes: IndexSet, folder: str) -> None:
        """folder: the path of --admin-folder, which is left out of messages."""
        self._indexes, self._folder = indexes, folder
        # Ids name the server's run: one of another run is known to have ended.
        self._run_id = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, index: str, work: Work, caller: Caller, key: str) -> Job:
        """Start a job and return it; a known key of the caller's returns the job that it started.

        Raises:
            NotPermitted: The caller is no admin.
            NoSuchIndex: There is no such index for the caller.
            IndexLocked: Another job of this index runs.
            ConfigError: The work cannot be done; so does Unsupported.

        """
        caller.check_may_administer()
        own_key = (caller.digest.hex(), key) if key else None
        for job in self._jobs.values():
            if own_key is not None and job.key == own_key:
                return job
        if not isinstance(work, CreateIndex):
            find_index(self._indexes.services, index, caller)
        elif not caller.may_see(index):
            raise NoSuchIndex(f"index: expected a name that the token is bound to, got {index!r:.120}")
        for job in self._jobs.values():
            if job.index == index and job.state is JobState.RUNNING:
                raise IndexLocked(f"{index}: job {job.id} ({job.kind}) runs; wait until it ends, or cancel it")
        work.check(self._indexes, index)
        job = Job(id=f"{self._run_id}-{next(self._numbers)}", index=index, work=work, key=own_key)
        self._jobs[job.id] = job
        self._forget_old()
        logger.info("job started", extra={"fields": _logged(job) | {"caller": caller.name}})
        task = asyncio.get_running_loop().create_task(self._run(job, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def find(self, job_id: str, caller: Caller) -> Job:
        """Return a job; QueryError where there is none for the caller. One of an earlier run has ended."""
        caller.check_may_administer()
        job = self._jobs.get(job_id)
        if job is not None and caller.may_see(job.index):
            return job
        run_id, _, number = job_id.partition("-")
        is_id = number.isascii() and number.isdigit() and len(run_id) == len(self._run_id)
        if job is None and is_id and run_id != self._run_id:
            return Job(id=job_id, index="", work=None, state=JobState.ENDED, started_at=0.0, message=_ENDED)
        raise QueryError(f"job: expected the id of a job, got {job_id!r:.60}")

    def list(self, caller: Caller) -> list[Job]:
        """Return the jobs of the indexes that exist for the caller, in the order in which they were started."""
        caller.check_may_administer()
        return [job for job in self._jobs.values() if caller.may_see(job.index)]

    def cancel(self, job_id: str, caller: Caller) -> Job:
        """Ask a job to stop, and return it; it stops at its next step."""
        job = self.find(job_id, caller)
        job.is_cancelled = True
        return job

    def stop(self) -> None:
        """End the jobs that run; the work is abandoned at its next step, or when its index is closed."""
        for job in self._jobs.values():
            if job.state is JobState.RUNNING:
                job.is_cancelled = True
                self._end(job, JobState.ENDED, _ENDED)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            result = await work.run(self._indexes, job.index, job)
        except JobCancelled:
            self._end(job, JobState.CANCELLED, "")
        except MvindexError as err:
            job.error = nearest_known_class(err).__name__
            self._end(job, JobState.FAILED, self._without_paths(job, str(err)))
        except Exception:
            logger.exception("unexpected error in job %s", job.id)
            job.error = "ServerFailed"
            self._end(job, JobState.FAILED, f"unexpected error; the server's log has the details of job {job.id}")
        else:
            job.result = result
            self._end(job, JobState.DONE, "")

    def _end(self, job: Job, state: JobState, message: str) -> None:
        if job.state is not JobState.RUNNING:
            return
        job.state, job.message, job.ended_at = state, message, time.time()
        logger.info("job ended", extra={"fields": _logged(job) | {"state": state.value, "error": message[:500]}})

    def _without_paths(self, job: Job, message: str) -> str:
        service = self._indexes.services.get(job.index)
        for path in (service.local_path if service else "", self._folder):
            message = message.replace(path, job.index) if path else message
        return message

    def _forget_old(self) -> None:
        ended = [job.id for job in self._jobs.values() if job.state is not JobState.RUNNING]
        for job_id in ended[:-_MAX_ENDED]:
            del self._jobs[job_id]


_ENDED = "the server that ran this job has ended; unless it was complete, the index is as it was before"


def _logged(job: Job) -> dict[str, Any]:
    return {"job": job.id, "index": job.index, "kind": job.kind}
