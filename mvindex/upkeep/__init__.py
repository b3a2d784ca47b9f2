"""What keeps an index whole: compact, snapshot, upgrade, verify, repair, salvage."""

from mvindex.upkeep.compacting import CompactReport, UpgradeReport, compact_store, upgrade
from mvindex.upkeep.copying import SnapshotReport, snapshot_store
from mvindex.upkeep.reading import Problem
from mvindex.upkeep.repairing import RepairReport, repair
from mvindex.upkeep.salvaging import SalvageReport, salvage
from mvindex.upkeep.verifying import VerifyReport, verify

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
