"""The work of jobs: one class for each kind, made of a request's values and checked before a job is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES
from mvindex.errors import ConfigError, MvindexError
from mvindex.records import Floats, check_count
from mvindex.search.tuning import check_time_limit, checked_target
from mvindex_connectors.server.index_set import IndexSet


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create an index, with a packaged encoder or for vectors of `dim` dimensions; see mvindex.create()."""

    kind = "create"
    dim: int | None = None
    encoder: str | None = None
    dtype: str = "fp16"
    temperature: float | None = None
    prune_views: float | None = None
    shards: int | None = None
    lexical: str | None = None
    filter_fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.dim is None) == (self.encoder is None):
            raise ConfigError("expected either dim or encoder")
        if self.encoder is not None and self.encoder not in PACKAGED_NAMES:
            # A folder of this machine or a download is not for a caller to choose.
            raise ConfigError(f"encoder: expected one of {', '.join(PACKAGED_NAMES)}, got {self.encoder!r:.60}")

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the name is free."""
        indexes.check_creatable(index)

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Create and serve the index."""
        await indexes.create(index, asdict(self))
        return {"index": index}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Remove an index that was created by a job; confirm: its name again."""

    kind = "drop"
    confirm: str = ""

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the name is confirmed, and the index can be dropped."""
        if self.confirm != index:
            raise ConfigError(f"confirm: expected the name of the index again, {index!r}, got {self.confirm!r:.120}")
        indexes.check_droppable(index)

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Stop serving the index, and remove it."""
        await indexes.drop(index)
        return {"index": index}


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Build an engine; see Index.build()."""

    kind = "build"
    engine: str | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    target_recall: float = 0.98

    def __post_init__(self) -> None:
        checked_target(self.target_recall)

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the index is written to here."""
        indexes.services[index].check_may_write()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Build the engine. Reads go on; writes wait."""
        service = indexes.services[index]
        target = service.local_index()
        report = await service.write(
            lambda: target.admin.build(
                self.engine, parameters=self.parameters, target_recall=self.target_recall, on_progress=progress.step
            )
        )
        return asdict(report)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tune:
    """Choose search parameters by measured recall; see Index.tune(). queries: (q, d); None for views of the index."""

    kind = "tune"
    queries: Floats | None = None
    top_k: int = 10
    target_recall: float = 0.98
    time_limit_s: float = 1800.0

    def __post_init__(self) -> None:
        checked_target(self.target_recall)
        check_time_limit(self.time_limit_s)
        check_count("top_k", self.top_k)

    def check(self, indexes: IndexSet, index: str) -> None:
        """Check that the index is written to here."""
        indexes.services[index].check_may_write()

    async def run(self, indexes: IndexSet, index: str, progress: Progress) -> Mapping[str, Any]:
        """Measure, and save the parameters. Reads go on, and are slower; writes wait."""
        service = indexes.services[index]
        target = service.local_index()
        report = await service.write(
            lambda: target.admin.tune(
                self.queries,
                top_k=self.top_k,
                target_recall=self.target_recall,
                time_limit_s=self.time_limit_s,
                on_progress=progress.step,
            )
        )
        return asdict(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Give back the space of deleted and replaced documents."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Copy the index into the folder of --admin-folder, under a new name."""

    kind = "snapshot"
    name: str = ""

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


KINDS: Mapping[str, type[Any]] = {each.kind: each for each in (Create, Drop, Build, Tune, Compact, Snapshot)}


def work_of(kind: str, values: Mapping[str, Any]) -> Work:
    """Return the work of a kind; ConfigError for a value that is none."""
    try:
        work: Work = KINDS[kind](**values)
    except MvindexError as err:
        raise ConfigError(f"{kind}: {err}") from err
    return work
