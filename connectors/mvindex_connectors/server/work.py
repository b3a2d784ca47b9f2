"""The work of jobs: a type for each kind, which is the JSON of its request too, and is filled from messages by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Protocol

from google.protobuf.message import Message
from msgspec import UNSET, Meta, UnsetType, structs

from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES
from mvindex.errors import ConfigError, QueryError
from mvindex.records import check_count
from mvindex.search.request import as_vectors
from mvindex.search.tuning import check_time_limit, checked_target
from mvindex.v1 import jobs_pb2 as messages
from mvindex_connectors.remote.convert import vectors_from
from mvindex_connectors.server.index_set import IndexSet
from mvindex_connectors.server.json_types import Count, IdempotencyKey, Request, Vector, described

Recall = Annotated[float, Meta(gt=0, le=1)]


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
