"""Maintenance of an index in shards, shard by shard: verify, repair, salvage and snapshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from mvindex.durable import audit_step, file_checksum, flush_to_disk
from mvindex.engines.build import trained_name
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, StoreError
from mvindex.maintenance.read import Problem
from mvindex.maintenance.repair import RepairReport
from mvindex.maintenance.repair import repair as repair_one
from mvindex.maintenance.salvage import SalvageReport
from mvindex.maintenance.salvage import salvage as salvage_one
from mvindex.maintenance.snapshot import SnapshotReport, snapshot_store
from mvindex.maintenance.verify import VerifyReport
from mvindex.maintenance.verify import verify as verify_one
from mvindex.records import CountCallback
from mvindex.store.create import atomic_directory, create_store
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import KEPT_SETTINGS, check_regular, size_of
from mvindex.store.rows import FORMAT_VERSION
from mvindex.store.shard_layout import (
    SHARDS,
    ShardPlace,
    Shards,
    new_index_id,
    open_shard,
    places_in,
    read_shards,
    write_shards,
)


def verify_shards(index: Path, on_progress: CountCallback) -> VerifyReport:
    """Verify every shard; one that is missing, or belongs to another index, is a problem of its own."""
    problems = list(_problems_beside(index))
    reports = []
    for place in _places(index):
        directory = index / place.directory
        try:
            reports.append(verify_one(directory, on_progress))
            if reports[-1].is_sound:
                open_shard(index, place, _known_id(index, place)).close()
        except StoreError as err:
            problems.append(Problem(str(directory), None, f"shard {place}: {err}"))
    problems += [problem for report in reports for problem in report.problems]
    return VerifyReport(
        path=str(index),
        format_version=min([report.format_version for report in reports], default=FORMAT_VERSION),
        documents=sum(report.documents for report in reports),
        damaged_documents=sum(report.damaged_documents for report in reports),
        size_bytes=sum(report.size_bytes for report in reports),
        problems=tuple(sorted(problems, key=lambda problem: problem.is_derived)),
    )


def repair_shards(index: Path) -> RepairReport:
    """Repair each shard, and shards.json where it is damaged and all shards are there."""
    reports = [repair_one(index / place.directory) for place in _places(index)]
    made = [file for report in reports for file in report.made_again]
    if os.path.lexists(index / SHARDS):
        try:
            read_shards(index)
        except DamagedIndex:
            with suppress(IsADirectoryError):
                (index / SHARDS).unlink()
            write_shards(index, Shards(index_id=new_index_id(), shard_ids=_shard_ids(index)))
            made.append(str(index / SHARDS))
    return RepairReport(made_again=tuple(made), removed=tuple(file for report in reports for file in report.removed))


def salvage_shards(index: Path, target: Path, on_progress: CountCallback) -> SalvageReport:
    """Salvage each shard into a new index in shards; one of which nothing can be saved is empty there."""
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; a salvage is written to a new directory")
    lost: list[Problem] = []
    saved: list[SalvageReport] = []
    places = _places(index)
    with atomic_directory(target) as building:
        for place in places:
            directory = index / place.directory
            try:
                saved.append(salvage_one(directory, building / place.directory, on_progress))
            except StoreError as err:
                lost.append(Problem(str(directory), None, f"shard {place}: nothing of it could be saved: {err}"))
        if not saved:
            raise StoreError(f"{index}: nothing of its {len(places)} shards could be saved; {lost[0].what}")
        whole_id = new_index_id()
        _complete(building, places, whole_id)
        write_shards(building, Shards(index_id=whole_id, shard_ids=_shard_ids(building)))
    return SalvageReport(
        path=str(index),
        target=str(target),
        documents=sum(report.documents for report in saved),
        lost=(*lost, *(problem for report in saved for problem in report.lost)),
    )


def snapshot_shards(
    index: Path, stores: Sequence[EmbeddedStore], target: Path, on_progress: CountCallback
) -> SnapshotReport:
    """Copy the latest committed state of each shard, complete or not there at all."""
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; a snapshot is written to a new directory")
    if index == target.absolute() or index in target.absolute().parents:
        raise ConfigError(f"{target} lies inside the index; write the snapshot elsewhere")
    with atomic_directory(target) as building:
        reports = [snapshot_store(store, building / store.directory.name, on_progress) for store in stores]
        for file in index.glob(trained_name("*")):
            check_regular(file)
            # Another build removes what no shard needs; a later build here trains anew.
            with suppress(FileNotFoundError):
                with audit_step("write", building / file.name):
                    shutil.copyfile(file, building / file.name)
                flush_to_disk(building / file.name)
        write_shards(building, read_shards(index))
    return SnapshotReport(
        path=str(target),
        documents=sum(report.documents for report in reports),
        version=sum(report.version for report in reports),
        size_bytes=size_of(target),
    )


def _problems_beside(index: Path) -> Iterator[Problem]:
    """Yield the problems of the files beside the shards, all of which are derived."""
    try:
        read_shards(index)
    except StoreError as err:
        yield Problem(str(index / SHARDS), None, str(err), is_derived=True)
    for file in index.glob(trained_name("*")):
        try:
            check_regular(file)
            if trained_name(file_checksum(file)) != file.name:
                yield Problem(str(file), None, "does not match its checksum", is_derived=True)
        except (OSError, MvindexError) as err:
            yield Problem(str(file), None, f"cannot be read: {err}", is_derived=True)


def _places(index: Path) -> list[ShardPlace]:
    """Return the shards that the index must have; StoreError when there is none to know from."""
    with suppress(StoreError):
        return list(read_shards(index).places())
    found = places_in(index)
    if not found:
        raise StoreError(f"{index}: there is no shard in it")
    return [ShardPlace(number, found[0].count) for number in range(found[0].count)]


def _known_id(index: Path, place: ShardPlace) -> str | None:
    """Return the shard's id in shards.json; None where that cannot be read."""
    with suppress(StoreError):
        return read_shards(index).shard_ids[place.number]
    return None


def _shard_ids(index: Path) -> tuple[str, ...]:
    """Return the ids of all shards; errors name one that cannot be opened."""
    ids = []
    for place in _places(index):
        with closing(open_shard(index, place)) as store:
            ids.append(str(store.snapshot.settings["index_id"]))
    return tuple(ids)


def _complete(building: Path, places: Sequence[ShardPlace], whole_id: str) -> None:
    """Make missing shards, like the others, and write into each which shard of which index it is."""
    kept: dict[str, object] = {}
    for place in places:
        if (building / place.directory).exists():
            with closing(EmbeddedStore(building / place.directory)) as store:
                kept = kept or {name: store.snapshot.settings.get(name) for name in KEPT_SETTINGS}
                with store.writing() as writer:
                    writer.change_settings(shard=place.as_setting(), whole_id=whole_id)
    for place in places:
        if not (building / place.directory).exists():
            own = {**kept, "shard": place.as_setting(), "whole_id": whole_id}
            create_store(building / place.directory, own)
