"""A disk that fails: one fsync, write or read of an operation ends with EIO, and the next ones go on.

strace makes the call fail. An operation succeeds or says so; what was acknowledged before is there, searches are right,
and run again it ends well. A sync that fails is never taken for a success. Each call with FULL=1, here some of them.
"""

import subprocess
import sys

import numpy as np
import pytest
from faults_sweeps import check, swept

import mvindex

OPERATIONS = [
    "ingest into a new index",
    "replace",
    "update metadata",
    "build hnsw over flat",
    "compact with flat, beside a reader",
    "snapshot",
    "salvage",
    "mvindex compact",
    "mvindex verify --salvage",
    "mvindex delete",
]
TROUBLES = ["failing-sync", "failing-write", "failing-read"]
# What cannot be read is damaged: it is reported, and the rest is saved.
READS_ON = {("failing-read", "salvage"), ("failing-read", "mvindex verify --salvage")}
UPDATE = (
    "import sys, mvindex\n"
    "with mvindex.open(sys.argv[1]) as index:\n"
    "    print('opened', flush=True)\n"
    "    index.update('1', metadata={'new': 1})\n"
    "print('acknowledged')\n"
)

pytestmark = pytest.mark.needs("strace")


@pytest.mark.parametrize(
    ("trouble", "operations", "every"),
    [
        ("failing-sync", ["replace", "snapshot"], 5),
        ("failing-write", ["replace", "mvindex compact"], 11),
        ("failing-read", ["compact with flat, beside a reader"], 7),
    ],
)
def test_a_call_that_fails_is_an_error_and_costs_nothing_that_was_acknowledged(trouble, operations, every, tmp_path):
    check(swept(trouble, operations, tmp_path, "--every", str(every)), successes=2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("trouble", "operation"),
    [(trouble, name) for trouble in TROUBLES for name in OPERATIONS if (trouble, name) not in READS_ON],
)
def test_a_call_that_fails_costs_nothing_in_any_operation(trouble, operation, tmp_path):
    """Here some of the calls; bench/full_disk.py takes them all."""
    every = 9 if trouble == "failing-read" else 15  # an operation reads less often than it writes
    check(swept(trouble, [operation], tmp_path, "--every", str(every)), successes=2)


@pytest.mark.full
def test_salvage_takes_a_failed_read_for_damage_and_reads_on(tmp_path):
    (row,) = swept("failing-read", ["salvage"], tmp_path, "--every", "2")
    assert row["faults"] == [] and row["failed"] == 0 and row["done"] >= 5


# SQLite syncs the log with fdatasync(). It would go on where the directory fails: that is synced by Python's fsync().
@pytest.mark.parametrize(
    ("name", "call"),
    [("catalog.sqlite-wal", "fdatasync"), ("", "fsync")],
    ids=["the log", "the directory of a new log"],
)
def test_a_commit_whose_sync_fails_is_not_acknowledged(name, call, tmp_path):
    path = tmp_path / "i.mvx"
    with mvindex.create(path, dim=4) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(3)], np.eye(3, 4))
    failing = ["-P", str(path / "generation-000001" / name), "-e", f"inject={call}:error=EIO:when=1"]
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "log"), "-e", f"trace={call}", *failing]
    done = subprocess.run(
        [*command, sys.executable, "-c", UPDATE, str(path)], capture_output=True, text=True, check=False
    )
    assert "(INJECTED)" in (tmp_path / "log").read_text()
    assert (done.returncode, done.stdout) == (1, "opened\n")
    assert "StoreError" in done.stderr and "catalog.sqlite" in done.stderr
    assert mvindex.verify(path).is_sound
    with mvindex.open(path) as index:
        assert index.update("2", metadata={"late": True}) is None and len(index) == 3
