"""Conversion of jobs to messages, and of requests for jobs to their work."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message

from mvindex.errors import QueryError
from mvindex.v1 import jobs_pb2 as messages
from mvindex_connectors.remote.convert import vectors_from
from mvindex_connectors.server.jobs import Job, JobState
from mvindex_connectors.server.work import Work, work_of

_STATES = {
    JobState.RUNNING: messages.JOB_STATE_RUNNING,
    JobState.DONE: messages.JOB_STATE_DONE,
    JobState.FAILED: messages.JOB_STATE_FAILED,
    JobState.CANCELLED: messages.JOB_STATE_CANCELLED,
    JobState.ENDED: messages.JOB_STATE_ENDED,
}


def job_message(job: Job) -> messages.Job:
    """Return the message of a job."""
    return messages.Job(
        id=job.id,
        index=job.index,
        kind=job.kind,
        state=_STATES[job.state],
        step=job.name,
        done=job.done,
        total=job.total,
        message=job.message,
        error=job.error,
        result_json="" if job.result is None else json.dumps(job.result),
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def work_from(request: messages.StartJobRequest) -> Work:
    """Return the work of a request; QueryError where it names none, ConfigError for a value that is none."""
    kind = request.WhichOneof("work")
    if kind is None:
        raise QueryError("work: expected one of create, drop, build, tune, compact and snapshot, got none")
    given: Message = getattr(request, kind)
    return work_of(kind, {field.name: _value(value) for field, value in given.ListFields()})


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return vectors_from(value)  # the one message among the values
    return dict(value) if hasattr(value, "items") else value
