"""The JSON of administration as types, as schemas.py has the others."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES
from mvindex_connectors.server.http.schemas import Count, IdempotencyKey, Request, described

Recall = Annotated[float, Meta(gt=0, le=1)]


class CreateIndex(Request, omit_defaults=True):
    """How an index is created: give dim, for given vectors, or encoder."""

    one_of = ("dim", "encoder")

    dim: Count | UnsetType = UNSET
    encoder: Annotated[str, described("A packaged encoder.", enum=list(PACKAGED_NAMES))] | UnsetType = UNSET
    dtype: Annotated[str, described(enum=["fp16", "fp32"])] = "fp16"
    temperature: float | None = None
    prune_views: float | None = None
    shards: Count | None = None
    lexical: Annotated[str | None, described("unicode, english, auto or none.")] = None
    filter_fields: dict[str, str] = {}


class DropIndex(Request):
    """Which index is dropped; only one that was created by a job can be."""

    confirm: Annotated[str, described("The name of the index again.")]


class BuildEngine(Request, omit_defaults=True):
    """Which engine is built."""

    engine: Annotated[str | None, described("The kind; by size, memory and target_recall by default.")] = None
    parameters: dict[str, Count] = {}
    target_recall: Recall = 0.98


class TuneEngine(Request, omit_defaults=True):
    """How search parameters are measured: with views of the index as queries."""

    top_k: Count = 10
    target_recall: Recall = 0.98
    time_limit_s: Annotated[
        float, described("Seconds after which no further setting is measured.", exclusiveMinimum=0)
    ] = 1800.0


class CompactIndex(Request):
    """Has no members."""


class SnapshotIndex(Request):
    """Where the copy goes in the folder of --admin-folder."""

    name: Annotated[str, described("A new name: letters, digits, '-', '_' and '.'.", minLength=1, maxLength=100)]


class StartJobRequest(Request):
    """Work on an index; one job of an index runs at a time."""

    one_of = ("create", "drop", "build", "tune", "compact", "snapshot")

    index: str
    create: CreateIndex | UnsetType = UNSET
    drop: DropIndex | UnsetType = UNSET
    build: BuildEngine | UnsetType = UNSET
    tune: TuneEngine | UnsetType = UNSET
    compact: CompactIndex | UnsetType = UNSET
    snapshot: SnapshotIndex | UnsetType = UNSET
    idempotency_key: IdempotencyKey = ""


class Job(Struct, kw_only=True):
    """A job of administration. Times are seconds since 1970."""

    id: str
    index: str
    kind: Annotated[str, described("create, drop, build, tune, compact or snapshot; empty for a job of a past run.")]
    state: Annotated[str, described(enum=["running", "done", "failed", "cancelled", "ended"])]
    step: Annotated[str, described("What it is doing.")]
    done: Annotated[int, described("How much of the step is done.")]
    total: int | None
    message: Annotated[str, described("The error of a job that failed.")]
    error: Annotated[str, described("The class of that error.")]
    result: Annotated[dict[str, Any] | None, described("The report of a job that is done.")]
    started_at: float
    ended_at: float | None


class JobList(Struct):
    """Jobs that run, and the latest that ended, in the order in which they were started."""

    jobs: list[Job]
