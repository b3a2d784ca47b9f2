"""Maintenance of an index: compact, snapshot, verify, repair, salvage."""

from mvindex.upkeep.compacting import CompactReport, compact_store
from mvindex.upkeep.copying import SnapshotReport, snapshot_store
from mvindex.upkeep.reading import Problem
from mvindex.upkeep.repairing import RepairReport
from mvindex.upkeep.salvaging import SalvageReport
from mvindex.upkeep.verifying import VerifyReport
from mvindex.upkeep.whole import repair, salvage, verify

__all__ = [
    "CompactReport",
    "Problem",
    "RepairReport",
    "SalvageReport",
    "SnapshotReport",
    "VerifyReport",
    "compact_store",
    "repair",
    "salvage",
    "snapshot_store",
    "verify",
]
