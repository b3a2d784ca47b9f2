"""A job as a server tells of it: one record for Python, JSON and gRPC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

from mvindex.v1 import jobs_pb2 as messages


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
