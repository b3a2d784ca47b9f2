"""Operations on a disk that fills up, or with a limit on file sizes: one clear error, nothing lost, nothing left over.

The disk is a real one, a tmpfs in mounts of the test's own. Here each operation has a dozen amounts of room;
bench/full_disk.py tries every 4 KiB.
"""

import subprocess
import sys

import pytest
from faults_cases import found_by
from faults_disk import own_mounts
from faults_sweeps import check, swept

MOUNTS = "NOT RUN: needs a user who may mount a tmpfs (root, or user namespaces) and unshare (util-linux)"
OPERATIONS = [
    "ingest into a new index",
    "replace",
    "delete by id",
    "update metadata",
    "build hnsw over flat",
    "compact with flat, beside a reader",
    "snapshot",
    "salvage",
]
COMMANDS = ["mvindex compact", "mvindex verify --salvage", "mvindex build"]


@pytest.fixture
def own_disk():
    if own_mounts() is None:
        pytest.skip(MOUNTS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_a_full_disk_an_operation_succeeds_or_says_so_and_loses_nothing(operation, own_disk, tmp_path):
    check(swept("full-disk", [operation], tmp_path, "--step-bytes", str(9 * 4096)))


def test_on_a_full_disk_a_command_is_one_line_and_exit_1(own_disk, tmp_path):
    check(swept("full-disk", COMMANDS, tmp_path, "--step-bytes", str(15 * 4096)))


@pytest.mark.full
def test_on_a_full_disk_an_ingest_of_files_loses_no_reject(own_disk, tmp_path):
    pytest.importorskip("torch")
    check(swept("full-disk", ["mvindex ingest"], tmp_path, "--step-bytes", str(9 * 4096)), at_least=4)


def test_a_file_that_may_not_grow_is_like_a_full_disk(tmp_path):
    names = ["replace", "build hnsw over flat", "compact with flat, beside a reader", "snapshot"]
    check(swept("file-size", names, tmp_path, "--step-bytes", str(9 * 4096)))


def test_a_failed_compaction_leaves_nothing_though_the_log_cannot_be_folded_in(tmp_path):
    found = found_by("disk", "behind_a_reader", tmp_path, is_mounting=True)
    for outcome in found["tries"]:
        assert outcome["error"] == "StoreError" and "No space left on device" in outcome["message"]
    assert found["log_bytes"] > 0 and found["left"] == []
    assert found["done"] == {"gave": 12} and found["wrong"] == []


def test_an_engine_that_is_cut_short_is_never_committed(tmp_path):
    for name, found in found_by("disk", "engine_cut_short", tmp_path).items():
        assert found["build"]["error"] == "StoreError", name
        assert "index.faiss" in found["build"]["message"] or "engine-" in found["build"]["message"], name
        assert "File too large" in found["build"]["message"], name
        kind, hits, problems = found["state"]["gave"]
        assert (kind, len(hits), problems) == ("exact", 3, 0), name


def test_a_full_temporary_folder_is_named_and_costs_no_document(tmp_path):
    found = found_by("disk", "full_temporary_folder", tmp_path, is_mounting=True)
    assert found["room"] == [{"gave": 8000}] * 3
    ingest, salvage, count = found["none"]
    for outcome in (ingest, salvage):
        assert outcome["error"] == "StoreError" and f"{tmp_path}/temporary" in outcome["message"]
        assert "database or disk is full" in outcome["message"]
    assert count == {"gave": 8000}


def test_an_index_on_a_read_only_disk_is_read_and_not_written(tmp_path):
    found = found_by("disk", "on_a_read_only_disk", tmp_path, is_mounting=True)
    assert found["reads"] == {name: [] for name in ("without", "without-shm", "without-wal", "without-wal-shm")}
    assert found["snapshot"] == [24]
    for name, outcome in found["writes"].items():
        assert outcome["error"] == "StoreError" and "Read-only file system" in outcome["message"], name
        assert str(tmp_path / "disk") in outcome["message"], name


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["verify"], ["get", "1"]])
def test_standard_output_on_a_full_disk_is_one_line_and_exit_1(arguments, tmp_path):
    import numpy as np

    import mvindex

    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("1", "text")], np.ones((1, 1, 2)))
    command = [sys.executable, "-m", "mvindex", *arguments, "--index", str(tmp_path / "a.mvx")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "No space left on device" in done.stderr
