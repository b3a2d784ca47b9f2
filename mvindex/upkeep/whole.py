"""What keeps an index whole, in shards or not, by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mvindex.store.shards import is_sharded
from mvindex.upkeep import repairing, salvaging, sharded, verifying
from mvindex.upkeep.repairing import RepairReport
from mvindex.upkeep.salvaging import SalvageReport
from mvindex.upkeep.verifying import VerifyReport

Progress = Callable[[int], None]


def _ignore(count: int) -> None:
    """Nothing: nobody watches the progress."""


def verify(path: str | Path, on_progress: Progress = _ignore) -> VerifyReport:
    """What of the index at path is not as it was written: every file, document and row is read and checked.

    Takes no lock; a state that is committed while it runs is not looked at. on_progress is told of bytes read.
    StoreError when there is nothing that could be read as an index.
    """
    index = Path(path).absolute()
    return sharded.verify_shards(index, on_progress) if is_sharded(index) else verifying.verify(index, on_progress)


def repair(path: str | Path) -> RepairReport:
    """What was made again of the index at path, all of it from its catalogs; engines are left to a build.

    Takes the writer lock. DamagedIndex when a catalog itself is damaged: `mvindex verify --salvage` saves what is
    sound.
    """
    index = Path(path).absolute()
    return sharded.repair_shards(index) if is_sharded(index) else repairing.repair(index)


def salvage(path: str | Path, target: str | Path, on_progress: Progress = _ignore) -> SalvageReport:
    """What was saved: a new index at target with every sound document of the one at path, complete or not there at all.

    Documents keep ids, texts, metadata, views and ordinals; the damaged index is only read. on_progress is told of
    documents looked at. ConfigError when the target exists; StoreError when there is nothing to be read.
    """
    index = Path(path).absolute()
    if is_sharded(index):
        return sharded.salvage_shards(index, Path(target), on_progress)
    return salvaging.salvage(index, target, on_progress)
