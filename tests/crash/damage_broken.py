"""Stores that break their promise about damage on purpose, so that it shows whether the trials find it."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from damage_files import Role
from damage_kinds import Damage

import mvindex
from mvindex import maintenance as upkeep
from mvindex.index import Index
from mvindex.maintenance.read import CatalogRow
from mvindex.maintenance.repair import RepairReport
from mvindex.store import catalog, reader, snapshot, writer
from mvindex.store.segments import MappedSegment
from mvindex.store.views import MappedViews


class Broken(NamedTuple):
    """What is broken, a damage that shows it, and the kind of fault that it must be found out as."""

    do: Callable[[], None]
    damage: Damage
    fault: str


def views_unchecked() -> None:
    """Views are answered from as they are."""
    for owner, name in ((MappedViews, "check_documents"), (MappedSegment, "check")):
        setattr(owner, name, lambda *_: None)


def rows_unchecked() -> None:
    """Rows of the catalog are answered from as they are."""
    reader.check_document = lambda *_: None
    reader.text_checksum = lambda *_: _Any()
    reader.metadata_checksum = lambda *_: _Any()
    catalog.check_document = lambda *_: None


def log_not_missed() -> None:
    """Nobody looks whether what was acknowledged is there."""
    snapshot.read_acknowledged = lambda _: 0


def verify_blind() -> None:
    """Verify finds nothing, ever."""
    verify = upkeep.verify
    upkeep.verify = lambda path: replace(verify(path), problems=())


def salvage_forgets() -> None:
    """Salvage loses a document."""
    salvage = upkeep.salvage

    def broken(path, target):
        report = salvage(path, target)
        with mvindex.open(target) as index:
            index.delete(ids=[next(iter(index)).id])
        return report

    upkeep.salvage = broken


def salvage_trusts() -> None:
    """Salvage takes rows for sound whatever their checksums say."""
    CatalogRow.faults = lambda *_: []


def repair_idle() -> None:
    """Repair makes nothing."""
    upkeep.repair = lambda path: RepairReport(made_again=())


def deletes_another() -> None:
    """A write retires one more document than it was asked to."""
    retire = writer._mark_deleted

    def broken(connection, doc_rows):
        retire(connection, [*doc_rows, 8] if doc_rows else doc_rows)

    writer._mark_deleted = broken


def verify_crashes() -> None:
    """Verify ends the process."""
    upkeep.verify = lambda path: os.kill(os.getpid(), signal.SIGSEGV)


def snapshot_plain() -> None:
    """A snapshot is a plain copy."""
    Index.snapshot = lambda self, path: shutil.copytree(self.path, path)


class _Any:
    """Equal to every checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None


BROKEN = {
    broken.do.__name__: broken
    for broken in (
        Broken(views_unchecked, Damage(Role.VIEWS, "zeroed", 1), "wrong answer"),
        Broken(rows_unchecked, Damage(Role.CATALOG, "bit flipped", 5), "wrong answer"),
        Broken(log_not_missed, Damage(Role.LOG, "cut to 0", 1), "wrong answer"),
        Broken(verify_blind, Damage(Role.ROWS, "deleted", 1), "unseen"),
        Broken(verify_crashes, Damage(Role.CURRENT, "deleted", 1), "crashes"),
        Broken(salvage_forgets, Damage(Role.CURRENT, "deleted", 1), "intact, not saved"),
        Broken(salvage_trusts, Damage(Role.CATALOG, "bit flipped", 5), "wrongly saved"),
        Broken(repair_idle, Damage(Role.ACKNOWLEDGED, "deleted", 1), "not rebuilt"),
        Broken(deletes_another, Damage(Role.LOCK, "extended", 1, "delete"), "made worse"),
        Broken(snapshot_plain, Damage(Role.VIEWS, "bit flipped", 1, "snapshot"), "damage copied"),
    )
}
