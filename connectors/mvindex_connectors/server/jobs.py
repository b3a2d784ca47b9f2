"""Jobs: administration that goes on when its caller is gone. One job of an index runs at a time.

The work of each kind is a type, which is the JSON of its request too, and is filled from messages by name.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Protocol

from google.protobuf.message import Message
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES
from mvindex.errors import ConfigError, IndexLocked, MvindexError, NoSuchIndex, QueryError
from mvindex.records import check_count
from mvindex.search.request import as_vectors
from mvindex.search.tuning import check_time_limit, checked_target
from mvindex.v1 import jobs_pb2 as messages
from mvindex_connectors.remote.admin import JobState, JobStatus
from mvindex_connectors.remote.convert import vectors_from
from mvindex_connectors.remote.status import nearest_known_class
from mvindex_connectors.server.index_set import IndexSet
from mvindex_connectors.server.tenants import find_index
from mvindex_connectors.server.tokens import Caller

Recall = Annotated[float, Meta(gt=0, le=1)]
logger = logging.getLogger(__name__)

# Jobs that have ended and are still listed.
_MAX_ENDED = 200


def described(description: str = "", **schema: Any) -> Meta:
    """Return a note for the description only; the index checks such values."""
    return Meta(description=description or None, extra_json_schema=schema or None)


# JSON has one kind of number: 10.0 is the whole number 10, which msgspec's int refuses.
Count = Annotated[float, Meta(ge=1, multiple_of=1)]
Offset = Annotated[float, Meta(ge=0, multiple_of=1)]
Vector = Annotated[list[float], Meta(min_length=1)]
IdempotencyKey = Annotated[
    str, described("A repeated request with the same key is not carried out again.", maxLength=128, pattern="^[ -~]*$")
]


class Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body."""

    # Exactly one of these members must be given.
    one_of: ClassVar[tuple[str, ...]] = ()


class Progress(Protocol):
    """Takes the progress of a job from any thread; raises MvindexError where the job should stop."""

    def step(self, step: str, done: int, total: int | None) -> None:
        """Take how much of a step is done, and how much there is."""

    def count(self, number: int) -> None:
        """Add to what is done."""


class Work(Protocol):
    """The work of a job."""

    kind: ClassVar[str]

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the work can be done; raise MvindexError if not."""

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Do the work, and return its report as JSON holds it, without paths."""


class CreateIndex(Request, omit_defaults=True):
    """How an index is created: give dim, for given vectors, or encoder."""

    kind = "create"
    one_of = ("dim", "encoder")

    dim: Count | UnsetType = UNSET
    encoder: Annotated[str, described("A packaged encoder.", enum=list(PACKAGED_NAMES))] | UnsetType = UNSET
    dtype: Annotated[str, described(enum=["fp16", "fp32"])] = "fp16"
    temperature: float | None = None
    prune_views: float | None = None
    shards: Count | None = None
    lexical: Annotated[str | None, described("unicode, english, auto or none.")] = None
    filter_fields: dict[str, str] = {}

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the name is free, and the settings name one kind of index."""
        if (self.dim is UNSET) == (self.encoder is UNSET):
            raise ConfigError("create: expected either dim or encoder")
        if self.encoder is not UNSET and self.encoder not in PACKAGED_NAMES:
            # A folder of this machine or a download is not for a caller to choose.
            raise ConfigError(f"create: encoder: expected one of {', '.join(PACKAGED_NAMES)}, got {self.encoder!r:.60}")
        indexes.check_creatable(index)

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Create and serve the index."""
        settings = {name: value for name, value in structs.asdict(self).items() if value is not UNSET}
        settings |= {name: int(settings[name]) for name in ("dim", "shards") if settings.get(name) is not None}
        await indexes.create(index, settings)
        return {"index": index}


class DropIndex(Request):
    """Which index is dropped; only one that was created by a job can be."""

    kind = "drop"

    confirm: Annotated[str, described("The name of the index again.")]

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the name is confirmed, and the index can be dropped."""
        if self.confirm != index:
            raise ConfigError(f"confirm: expected the name of the index again, {index!r}, got {self.confirm!r:.120}")
        indexes.check_droppable(index)

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Stop serving the index, and remove it."""
        await indexes.drop(index)
        return {"index": index}


class BuildEngine(Request, omit_defaults=True):
    """Which engine is built."""

    kind = "build"

    engine: Annotated[str | None, described("The kind; by size, memory and target_recall by default.")] = None
    parameters: dict[str, Count] = {}
    target_recall: Recall = 0.98

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check the goal, and that the index is written to here."""
        checked_target(self.target_recall)
        indexes.services[index].check_may_write()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Build the engine. Reads go on; writes wait."""
        service = indexes.services[index]
        target = service.local_index()
        parameters = {name: int(value) for name, value in self.parameters.items()}
        report = await service.write(
            lambda: target.admin.build(
                self.engine, parameters=parameters, target_recall=self.target_recall, on_progress=progress.step
            )
        )
        return asdict(report)


class TuneEngine(Request, omit_defaults=True):
    """How search parameters are measured."""

    kind = "tune"

    queries: Annotated[list[Vector], described("Vectors; by default views of the index.")] | UnsetType = UNSET
    top_k: Count = 10
    target_recall: Recall = 0.98
    time_limit_s: Annotated[
        float, described("Seconds after which no further setting is measured.", exclusiveMinimum=0)
    ] = 1800.0

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check the goal, and that the index is written to here."""
        checked_target(self.target_recall)
        check_time_limit(self.time_limit_s)
        check_count("top_k", int(self.top_k))
        if self.queries is not UNSET and len(dims := {len(row) for row in self.queries}) > 1:
            raise QueryError(f"queries: expected vectors of one dimension, got {min(dims)} and {max(dims)} numbers")
        indexes.services[index].check_may_write()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Measure, and save the parameters. Reads go on, and are slower; writes wait."""
        service = indexes.services[index]
        target = service.local_index()
        report = await service.write(
            lambda: target.admin.tune(
                None if self.queries is UNSET else as_vectors(self.queries, None),
                top_k=int(self.top_k),
                target_recall=self.target_recall,
                time_limit_s=self.time_limit_s,
                on_progress=progress.step,
            )
        )
        return asdict(report)


class CompactIndex(Request):
    """Has no members."""

    kind = "compact"

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the index is written to here."""
        indexes.services[index].check_may_write()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Compact the index. Reads go on; writes wait."""
        service = indexes.services[index]
        target = service.local_index()
        progress.step("documents", 0, (await service.info()).documents)
        return asdict(await service.write(lambda: target.admin.compact(progress.count)))


class SnapshotIndex(Request):
    """Where the copy goes in the folder of --admin-folder."""

    kind = "snapshot"

    name: Annotated[str, described("A new name: letters, digits, '-', '_' and '.'.", minLength=1, maxLength=100)]

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the name is free, and the index in a directory."""
        indexes.snapshot_path(self.name)
        indexes.services[index].local_index()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Copy the index. Nobody waits."""
        service = indexes.services[index]
        target, path = service.local_index(), indexes.snapshot_path(self.name)
        progress.step("bytes", 0, (await service.info()).size_bytes)
        report = await service.in_background(lambda: target.admin.snapshot(path, progress.count))
        return {**asdict(report), "path": self.name}


KINDS: tuple[type[Any], ...] = (CreateIndex, DropIndex, BuildEngine, TuneEngine, CompactIndex, SnapshotIndex)


class StartJobRequest(Request):
    """Work on an index; one job of an index runs at a time."""

    one_of = tuple(each.kind for each in KINDS)

    index: str
    create: CreateIndex | UnsetType = UNSET
    drop: DropIndex | UnsetType = UNSET
    build: BuildEngine | UnsetType = UNSET
    tune: TuneEngine | UnsetType = UNSET
    compact: CompactIndex | UnsetType = UNSET
    snapshot: SnapshotIndex | UnsetType = UNSET
    idempotency_key: IdempotencyKey = ""

    def work(self) -> Work:
        """Return the one that is given."""
        work: Work
        [work] = [given for name in self.one_of if (given := getattr(self, name)) is not UNSET]
        return work


def work_from(request: messages.StartJobRequest) -> Work:
    """Return the work of a message; QueryError where it names none."""
    kind = request.WhichOneof("work")
    if kind is None:
        raise QueryError("work: expected one of create, drop, build, tune, compact and snapshot, got none")
    given: Message = getattr(request, kind)
    [type_] = [each for each in KINDS if each.kind == kind]
    values = {field.name: _value(value) for field, value in given.ListFields()}
    # gRPC leaves out what is empty.
    values |= {each.name: getattr(given, each.name) for each in structs.fields(type_) if each.required}
    work: Work = type_(**values)
    return work


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return vectors_from(value)  # the one message among the values
    return dict(value) if hasattr(value, "items") else value


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
        own = {each.name: getattr(self, each.name) for each in fields(JobStatus) if each.name != "step"}
        return JobStatus(**own, step=self.name)


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
        """Start a job and return it; a known key of the caller's returns the job of this work that it started.

        Raises:
            NotPermitted: The caller is no admin.
            NoSuchIndex: There is no such index for the caller.
            IndexLocked: Another job of this index runs.
            ConfigError: The work cannot be done; so does Unsupported.

        """
        caller.check_may_administer()
        own_key = (caller.digest.hex(), key) if key else None
        for job in self._jobs.values():
            if own_key is not None and (job.key, job.index, job.work) == (own_key, index, work):
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
