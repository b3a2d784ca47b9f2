"""Stores that break a promise about damage on purpose, to show that the trials find it."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import mvindex
from mvindex.index.administration import IndexAdmin
from mvindex.maintenance import dispatch
from mvindex.maintenance.read import CatalogRow
from mvindex.maintenance.repair import RepairReport
from mvindex.store import catalog, reader, snapshot, writer
from mvindex.store.views import MappedSegment, MappedViews
from tests.durability.damage.files import Role
from tests.durability.damage.kinds import Damage


class Broken(NamedTuple):
    """A defect, a damage that reveals it, and the kind of fault that must be found."""

    do: Callable[[], None]
    damage: Damage
    fault: str


def views_unchecked() -> None:
    """Answer from views without checking them."""
    for owner, name in ((MappedViews, "check_documents"), (MappedSegment, "check")):
        setattr(owner, name, lambda *_: None)


def rows_unchecked() -> None:
    """Answer from rows of the catalog without checking them."""
    reader.check_document = lambda *_: None
    reader.text_checksum = lambda *_: _Any()
    reader.metadata_checksum = lambda *_: _Any()
    catalog.check_document = lambda *_: None


def log_not_missed() -> None:
    """Do not check that what was acknowledged is there."""
    snapshot.read_acknowledged = lambda _: 0


def verify_blind() -> None:
    """Let verify report no problem, ever."""
    verify = dispatch.verify
    dispatch.verify = lambda path: replace(verify(path), problems=())


def salvage_forgets() -> None:
    """Let salvage lose a document."""
    salvage = dispatch.salvage

    def broken(path, target):
        report = salvage(path, target)
        with mvindex.open(target) as index:
            index.delete(ids=[next(iter(index)).id])
        return report

    dispatch.salvage = broken


def salvage_trusts() -> None:
    """Let salvage save rows without checking them."""
    CatalogRow.faults = lambda *_: []


def repair_idle() -> None:
    """Let repair do nothing."""
    dispatch.repair = lambda path: RepairReport(made_again=())


def deletes_another() -> None:
    """Let a write delete one more document than it should."""
    # Private: the store is broken on purpose.
    update = writer._update

    def broken(connection, statement, values, expected):
        if "SET alive = 0" in statement:
            values, expected = [*values, (8,)], expected + 1
        update(connection, statement, values, expected)

    writer._update = broken


def verify_crashes() -> None:
    """Let verify end the process."""
    dispatch.verify = lambda path: os.kill(os.getpid(), signal.SIGSEGV)


def snapshot_plain() -> None:
    """Make snapshots by copying files."""
    IndexAdmin.snapshot = lambda self, path: shutil.copytree(self._store.where, path)


class _Any:
    """An object that equals every checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None


BROKEN = {
    broken.do.__name__: broken
    for broken in (
        Broken(views_unchecked, Damage(Role.VIEWS, "zeroed", 1), "wrong answer"),
        Broken(rows_unchecked, Damage(Role.CATALOG, "bit flipped", 1), "wrong answer"),
        Broken(log_not_missed, Damage(Role.LOG, "cut to 0", 1), "wrong answer"),
        Broken(verify_blind, Damage(Role.ROWS, "deleted", 1), "unseen"),
        Broken(verify_crashes, Damage(Role.CURRENT, "deleted", 1), "crashes"),
        Broken(salvage_forgets, Damage(Role.CURRENT, "deleted", 1), "intact, not saved"),
        Broken(salvage_trusts, Damage(Role.CATALOG, "bit flipped", 1), "wrongly saved"),
        Broken(repair_idle, Damage(Role.ACKNOWLEDGED, "deleted", 1), "not rebuilt"),
        Broken(deletes_another, Damage(Role.LOCK, "extended", 1, "delete"), "made worse"),
        Broken(snapshot_plain, Damage(Role.VIEWS, "bit flipped", 1, "snapshot"), "damage copied"),
    )
}
