"""Maintenance of an index: compact, snapshot, verify, repair, salvage."""

from mvindex.maintenance.compact import CompactReport, compact_store
from mvindex.maintenance.read import Problem
from mvindex.maintenance.repair import RepairReport
from mvindex.maintenance.salvage import SalvageReport
from mvindex.maintenance.snapshot import SnapshotReport, snapshot_store
from mvindex.maintenance.verify import VerifyReport

__all__ = [
    "CompactReport",
    "Problem",
    "RepairReport",
    "SalvageReport",
    "SnapshotReport",
    "VerifyReport",
    "compact_store",
    "snapshot_store",
]
