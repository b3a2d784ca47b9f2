"""Engines of all shards: lists and codes are trained once, on views of all of them, and shared.

The trained file lies beside the shards and is named by its checksum; trained.json says for which build it is. A build
that was killed resumes with it, and skips the shards that are done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mvindex.durable import file_checksum, rename, replace_text
from mvindex.engines import find_kind
from mvindex.engines.build import (
    BuildReport,
    EngineChoice,
    build_engine,
    remove_leftovers,
    report_of,
    train,
    trained_name,
)
from mvindex.engines.protocol import EXACT
from mvindex.errors import ConfigError
from mvindex.records import ProgressCallback
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import check_regular
from mvindex.store.sharded import ShardedStore
from mvindex.store.snapshot import Snapshot

_NOTE = "trained.json"


def build_shards(
    index: Path, stores: Mapping[int, EmbeddedStore], choice: EngineChoice, on_progress: ProgressCallback
) -> BuildReport:
    """Build an engine in every shard and report them together; a shard without documents needs none."""
    choice = choice.checked()
    if choice.kind != EXACT and not any(store.snapshot.num_documents for store in stores.values()):
        raise ConfigError(f"{index}: the index is empty; ingest documents before building {choice.kind!r}")
    shared = choice
    if choice.kind != EXACT and find_kind(choice.kind).train is not None:
        trained = trained_file(index, stores, choice) or train_shards(index, stores, choice, on_progress)
        shared = replace(choice, trained=trained)
    reports = [build_shard(number, store, shared, on_progress) for number, store in stores.items()]
    (index / _NOTE).unlink(missing_ok=True)
    remove_trained(index, shared.trained)
    return _summed(choice, reports)


def remove_trained(index: Path, kept: Path | None) -> None:
    """Delete what shards were trained with but for one file."""
    for file in index.glob(trained_name("*")):
        if file != kept:
            file.unlink(missing_ok=True)


def build_shard(number: int, store: EmbeddedStore, choice: EngineChoice, on_progress: ProgressCallback) -> BuildReport:
    """Build an engine in one shard and report it; one that was built from the same training is left as it is."""

    def report_shard(what: str, done: int, total: int | None) -> None:
        on_progress(f"shard {number}: {what}", done, total)

    if not store.snapshot.num_documents:
        choice = EngineChoice(kind=EXACT)
    if choice.trained is not None and _is_built(store, choice, file_checksum(choice.trained)):
        remove_leftovers(store)
        return report_of(store.snapshot, choice.kind, store.snapshot.settings["engine"])
    return build_engine(store, choice, report_shard)


def build_one_shard(
    store: ShardedStore, number: int, choice: EngineChoice, on_progress: ProgressCallback
) -> BuildReport:
    """Build in one shard what build_shards() builds in all; other processes may build others meanwhile.

    Raises:
        ConfigError: For ivf kinds that were not trained over all shards with the same kind and nlist, and for numbers
            of no shard.

    """
    sharding, directory = store.sharding, store.directory
    if number not in sharding.stores:
        raise ConfigError(f"{directory}: expected a shard from 0 to {sharding.count - 1}, got {number}")
    if find_kind(choice.kind).train is not None:
        trained = trained_file(directory, sharding.stores, choice)
        if trained is None:
            raise ConfigError(
                f"{directory}: nothing was trained for {choice.kind!r} over all shards as they are now: mvindex build "
                f"--kind {choice.kind} --train-only comes first, with the same --nlist"
            )
        choice = replace(choice, trained=trained)
    return build_shard(number, sharding.stores[number], choice, on_progress)


def _is_built(store: EmbeddedStore, choice: EngineChoice, checksum: str) -> bool:
    """Return whether the engine is of this choice, and covers all documents."""
    record = store.snapshot.settings["engine"]
    if record is None or record["kind"] != choice.kind or record["built_rows"] != store.snapshot.num_rows:
        return False
    settings = record["settings"]
    return bool(settings.get("trained") == checksum)


def train_shards(
    index: Path, stores: Mapping[int, EmbeddedStore], choice: EngineChoice, on_progress: ProgressCallback
) -> Path:
    """Train on views of all shards, and return the file, written durably."""
    file = train_snapshots(index, [store.snapshot for store in stores.values()], choice, on_progress)
    note = index / f"{_NOTE}.new"
    check_regular(note)
    replace_text(index / _NOTE, json.dumps(_key(stores, choice) | {"checksum": file_checksum(file)}) + "\n", note)
    return file


def train_snapshots(
    index: Path, snapshots: Sequence[Snapshot], choice: EngineChoice, on_progress: ProgressCallback
) -> Path:
    """Train on views of the snapshots that have any, and return the file, written durably to the directory."""
    fresh = index / "trained.new"
    check_regular(fresh)
    train([each for each in snapshots if each.num_documents], choice, fresh, on_progress)
    file = index / trained_name(file_checksum(fresh))
    rename(fresh, file)
    return file


def trained_file(index: Path, stores: Mapping[int, EmbeddedStore], choice: EngineChoice) -> Path | None:
    """Return the file that was trained for this unfinished build; None where there is none."""
    try:
        found = json.loads((index / _NOTE).read_text(encoding="utf-8"))
        checksum = str(found.pop("checksum"))
        file = index / trained_name(checksum)
        is_right = found == _key(stores, choice) and file_checksum(file) == checksum
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return file if is_right else None


def _key(stores: Mapping[int, EmbeddedStore], choice: EngineChoice) -> dict[str, Any]:
    """Return what identifies a build; documents that are added make it another one."""
    views = sum(store.snapshot.views.num_views for store in stores.values())
    return {"kind": choice.kind, "parameters": dict(choice.parameters), "shards": len(stores), "views": views}


def _summed(choice: EngineChoice, reports: Sequence[BuildReport]) -> BuildReport:
    return BuildReport(
        kind=choice.kind,
        documents=sum(report.documents for report in reports),
        views=sum(report.views for report in reports),
        engine_bytes=sum(report.engine_bytes for report in reports),
        stored_bytes=sum(report.stored_bytes for report in reports),
    )
