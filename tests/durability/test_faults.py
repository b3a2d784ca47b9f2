"""Operations under trouble succeed or say clearly why not; nothing acknowledged is lost and nothing is left over.

The table below is of operations by trouble: by default at a few levels of a few operations, with FULL=1 of all.
bench/full_disk.py is the long form, with every level. The rest of this file tests single cases of the same troubles.
"""

import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

import mvindex
from tests.durability.commands import COMMANDS, INGEST
from tests.durability.faults.cases import found_by
from tests.durability.faults.trials import names_in, swept
from tests.durability.mounts import own_mounts

NO_MOUNTS = "NOT RUN: needs a user who may mount a tmpfs (root, or user namespaces) and unshare (util-linux)"
STRACE = (pytest.mark.needs("strace"),)
FULL, LONG = (pytest.mark.full,), (pytest.mark.full, pytest.mark.long)
BESIDE = "compact with flat, beside a reader"
ALL = ["ingest into a new index", "replace", "delete by id", "update metadata", "build hnsw over flat", BESIDE]
ALL += ["snapshot", "restore", "salvage", *COMMANDS]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A trouble at some levels. pages, every: how far apart they are; failures, successes: at least so many."""

    trouble: str
    operations: tuple[str, ...]
    pages: int = 9
    every: int = 1
    failures: int = 1
    successes: int = 3
    marks: tuple[pytest.MarkDecorator, ...] = ()


SHORT = [
    Row(trouble="full-disk", operations=("mvindex compact",), pages=25),
    Row(trouble="file-size", operations=("snapshot",), pages=15),
    Row(trouble="full-disk", operations=("restore",), pages=25),
    Row(trouble="open-files", operations=("mvindex compact",), every=4, failures=2, successes=2),
    Row(trouble="interrupted", operations=("mvindex compact",), every=23, successes=2),
    Row(trouble="terminated", operations=("mvindex compact",), every=23, successes=2),
    Row(trouble="memory", operations=("mvindex compact",), every=7, failures=1, successes=2),
    Row(trouble="clock", operations=("replace",), failures=0, successes=4),
    Row(trouble="failing-sync", operations=("replace",), every=9, successes=2, marks=STRACE),
    Row(trouble="failing-write", operations=("mvindex compact",), every=19, successes=2, marks=STRACE),
    Row(trouble="failing-read", operations=(BESIDE,), every=11, successes=2, marks=STRACE),
]
LEVELS = {
    "full-disk": {},
    "file-size": {},
    "open-files": {"every": 2, "failures": 2, "successes": 2},
    "interrupted": {"every": 13, "successes": 2},
    "terminated": {"every": 13, "successes": 2},
    "clock": {"failures": 0, "successes": 4},
    "memory": {"every": 2, "successes": 2},
    "failing-sync": {"every": 15, "successes": 2, "marks": STRACE},
    "failing-write": {"every": 15, "successes": 2, "marks": STRACE},
    # An operation reads less often than it writes.
    "failing-read": {"every": 9, "successes": 2, "marks": STRACE},
}
# A read that fails is damage, which salvage reports, and saves the rest.
READS_ON = {("failing-read", "salvage"), ("failing-read", "mvindex verify --salvage")}
EVERY = [
    Row(trouble=trouble, operations=(name,), **{**levels, "marks": (*levels.get("marks", ()), *LONG)})
    for trouble, levels in LEVELS.items()
    for name in ALL
    if (trouble, name) not in READS_ON
]
# The first Ctrl-C lets an ingest of files end its chunk; no reject may be lost.
INGESTS = [
    Row(trouble="full-disk", operations=(INGEST,), pages=19, failures=3, marks=FULL),
    Row(trouble="interrupted", operations=(INGEST,), every=34, successes=2, marks=FULL),
    Row(trouble="terminated", operations=(INGEST,), every=21, successes=2, marks=LONG),
    Row(trouble="open-files", operations=(INGEST,), every=3, failures=2, successes=2, marks=LONG),
]


CASES = [
    pytest.param(row, marks=row.marks, id=f"{row.trouble}, {' and '.join(row.operations)}, {size}")
    for size, rows in (("short", SHORT), ("full", EVERY), ("full", INGESTS))
    for row in rows
]


@pytest.mark.parametrize("row", CASES)
def test_an_operation_under_trouble_succeeds_or_ends_clearly_and_loses_nothing(row, tmp_path):
    if row.trouble == "full-disk" and own_mounts() is None:
        pytest.skip(NO_MOUNTS)
    if INGEST in row.operations:
        pytest.importorskip("torch")
    for found in swept(row.trouble, row.operations, tmp_path, row.pages * 4096, row.every):
        assert found["faults"] == [], found["operation"]
        assert found["failed"] >= row.failures and found["done"] >= row.successes, found


@pytest.mark.full
@pytest.mark.needs("strace")
def test_salvage_takes_a_failed_read_for_damage_and_reads_on(tmp_path):
    (row,) = swept("failing-read", ["salvage"], tmp_path, every=2)
    assert row["faults"] == [] and row["failed"] == 0 and row["done"] >= 5


UPDATE = (
    "import sys, mvindex\n"
    "with mvindex.open(sys.argv[1]) as index:\n"
    "    print('opened', flush=True)\n"
    "    index.update('1', metadata={'new': 1})\n"
    "print('acknowledged')\n"
)


# SQLite syncs the log with fdatasync(). It would go on where the directory fails: that is synced by Python's fsync().
@pytest.mark.needs("strace")
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


def test_a_failed_compaction_leaves_nothing_even_where_the_log_cannot_be_checkpointed(tmp_path):
    found = found_by("disks", "behind_a_reader", tmp_path, is_mounting=True)
    for outcome in found["tries"]:
        assert outcome["error"] == "StoreError"
        # By the system or by SQLite, whose file meets the end of the disk first.
        assert re.search("No space left on device|the disk is full", outcome["message"])
    assert found["log_bytes"] > 0 and found["left"] == []
    assert found["done"] == {"result": 12} and found["wrong"] == []


def test_an_engine_that_is_cut_short_is_never_committed(tmp_path):
    for name, found in found_by("disks", "engine_cut_short", tmp_path).items():
        assert found["build"]["error"] == "StoreError", name
        assert "index.faiss" in found["build"]["message"] or "engine-" in found["build"]["message"], name
        assert "File too large" in found["build"]["message"], name
        kind, hits, problems = found["state"]["result"]
        assert (kind, len(hits), problems) == ("exact", 3, 0), name


def test_a_full_temporary_folder_is_named_and_no_document_is_lost(tmp_path):
    found = found_by("disks", "full_temporary_folder", tmp_path, is_mounting=True)
    assert found["room"] == [{"result": 8000}] * 3
    ingest, salvage, count = found["none"]
    for outcome in (ingest, salvage):
        assert outcome["error"] == "StoreError" and f"{tmp_path}/temporary" in outcome["message"]
        assert "database or disk is full" in outcome["message"]
    assert count == {"result": 8000}


def test_an_index_on_a_read_only_disk_is_read_and_not_written(tmp_path):
    found = found_by("disks", "on_a_read_only_disk", tmp_path, is_mounting=True)
    assert found["reads"] == {name: [] for name in ("without", "without-shm", "without-wal", "without-wal-shm")}
    assert found["snapshot"] == [24]
    for name, outcome in found["writes"].items():
        assert outcome["error"] == "StoreError" and "Read-only file system" in outcome["message"], name
        assert str(tmp_path / "disk") in outcome["message"], name


@pytest.mark.parametrize(
    "arguments",
    [["info", "--json"], *(pytest.param(each, marks=FULL) for each in (["info"], ["verify"], ["get", "1"]))],
)
def test_standard_output_on_a_full_disk_is_one_line_and_exit_1(arguments, tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("1", "text")], np.ones((1, 1, 2)))
    command = [sys.executable, "-m", "mvindex", *arguments, "--index", str(tmp_path / "a.mvx")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "No space left on device" in done.stderr


NUM_DOCUMENTS, DIM = 6000, 32


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An index that takes a moment to compact, to copy or to build."""
    path = tmp_path_factory.mktemp("large") / "large.mvx"
    views = np.random.default_rng(0).standard_normal((NUM_DOCUMENTS, 1, DIM))
    with mvindex.create(path, dim=DIM) as index:
        index.add_views([mvindex.Document(str(number), "t") for number in range(NUM_DOCUMENTS)], views)
        index.delete(ids=["0"])
    return path


# A test run in the background may ignore SIGINT, and its children with it.
HEARS_CTRL_C = (
    "import runpy, signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "runpy.run_module('mvindex', run_name='__main__', alter_sys=True)"
)


def sent_while_writing(number, arguments, path, copy):
    """Send the signal to the command once it has begun to write; return its status and its stderr."""
    command = [sys.executable, "-c", HEARS_CTRL_C, *arguments, "--index", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not has_begun(process.pid, path, copy):
            time.sleep(0.001)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr


def has_begun(pid, path, copy):
    """Return whether the process has the writer's lock, or is writing a copy of the index."""
    lock = path / "writer.lock"
    is_locked = lock.exists() and lock.read_text().startswith(f"process {pid} on")
    return is_locked or any(copy.parent.glob(f".{copy.name}*"))


CTRL_C, SIGTERM = (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)
COMPACT, SNAPSHOT, BUILD = ["compact"], ["snapshot", "copy.mvx"], ["build", "--kind", "hnsw"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (COMPACT, CTRL_C),
        pytest.param(SNAPSHOT, SIGTERM, marks=FULL),
        pytest.param(BUILD, CTRL_C, marks=FULL),
        pytest.param(COMPACT, SIGTERM, marks=FULL),
        pytest.param(SNAPSHOT, CTRL_C, marks=FULL),
        pytest.param(BUILD, SIGTERM, marks=FULL),
    ],
)
def test_a_real_command_that_gets_a_signal_ends_at_once_and_can_be_run_again(
    arguments, sent, large, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path, copy = tmp_path / "i.mvx", tmp_path / "copy.mvx"
    number, status = sent
    for _ in range(10):
        for left in (path, copy):
            shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(large, path)
        ended, stderr = sent_while_writing(number, arguments, path, copy)
        # On a busy machine the command may be done, or silently leaving, before it is seen to have begun.
        if ended not in (0, -signal.SIGINT) or stderr:
            break
    assert (ended, stderr) == (status, "")
    assert not copy.exists()
    if sent == CTRL_C:
        assert list(tmp_path.iterdir()) == [path] and names_in(path) == names_in(large)
    found = mvindex.verify(path)
    assert found.is_sound and found.documents == NUM_DOCUMENTS - 1
    command = [sys.executable, "-m", "mvindex", *arguments, "--index", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    with mvindex.open(copy if arguments == SNAPSHOT else path) as index:
        info = index.info()
    assert (info.documents, info.kind) == (NUM_DOCUMENTS - 1, "hnsw" if arguments == BUILD else "exact")
    assert info.num_deleted == (0 if arguments == COMPACT else 1)
    assert {entry.name for entry in tmp_path.iterdir()} <= {"i.mvx", "copy.mvx"}
    assert not any("unfinished" in name for name in names_in(tmp_path))
