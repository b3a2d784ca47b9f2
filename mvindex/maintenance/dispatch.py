"""Maintenance of an index by its path, in shards or not."""

from __future__ import annotations

from pathlib import Path

from mvindex.maintenance import repair as repairing
from mvindex.maintenance import salvage as salvaging
from mvindex.maintenance import shards as sharded
from mvindex.maintenance import verify as verifying
from mvindex.maintenance.repair import RepairReport
from mvindex.maintenance.salvage import SalvageReport
from mvindex.maintenance.verify import VerifyReport
from mvindex.paths import user_path
from mvindex.records import CountCallback, no_progress
from mvindex.store.shard_layout import is_sharded


def verify(path: str | Path, on_progress: CountCallback = no_progress) -> VerifyReport:
    """Read and check every file, document and row of the index at path; damage is reported, not raised.

    Takes no lock; a state that is committed while it runs is not read.

    Args:
        path: The index.
        on_progress: Called with the number of bytes read since the last call.

    Raises:
        StoreError: There is no index at the path, or one of another format version.
    """
    index = user_path(path).absolute()
    return sharded.verify_shards(index, on_progress) if is_sharded(index) else verifying.verify(index, on_progress)


def repair(path: str | Path) -> RepairReport:
    """Make damaged derived files of the index at path again from its catalog; engines are left to a build.

    Takes the writer lock.

    Args:
        path: The index.

    Raises:
        DamagedIndex: A catalog itself is damaged: `mvindex verify --salvage` saves what is sound.
    """
    index = user_path(path).absolute()
    return sharded.repair_shards(index) if is_sharded(index) else repairing.repair(index)


def salvage(path: str | Path, target: str | Path, on_progress: CountCallback = no_progress) -> SalvageReport:
    """Write every sound document of the index at path to a new index, complete or not there at all.

    Documents keep ids, texts, metadata, views and ordinals; the damaged index is only read. The report lists what could
    not be saved; a catalog that SQLite cannot open is beyond salvage: restore a snapshot.

    Args:
        path: The damaged index.
        target: Where the new index is made.
        on_progress: Called with the number of document rows examined since the last call.

    Raises:
        ConfigError: The target exists.
        StoreError: There is no index, or SQLite cannot read its catalog at all.
    """
    index = user_path(path).absolute()
    if is_sharded(index):
        return sharded.salvage_shards(index, user_path(target), on_progress)
    return salvaging.salvage(index, target, on_progress)
