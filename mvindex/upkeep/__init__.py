"""What keeps an index whole: compact, snapshot, upgrade, verify, repair, salvage."""

from mvindex.upkeep.compacting import CompactReport, UpgradeReport, compact_store
from mvindex.upkeep.copying import SnapshotReport, snapshot_store
from mvindex.upkeep.reading import Problem
from mvindex.upkeep.repairing import RepairReport
from mvindex.upkeep.salvaging import SalvageReport
from mvindex.upkeep.verifying import VerifyReport
from mvindex.upkeep.whole import repair, salvage, upgrade, verify

__all__ = [
    "CompactReport",
    "Problem",
    "RepairReport",
    "SalvageReport",
    "SnapshotReport",
    "UpgradeReport",
    "VerifyReport",
    "compact_store",
    "repair",
    "salvage",
    "snapshot_store",
    "upgrade",
    "verify",
]
