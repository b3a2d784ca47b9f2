"""Snapshots to and restores from addresses that are killed at their steps, or short of memory: whole or not there."""

import json
import os
import random
import signal
import subprocess
import sys

import fsspec
import numpy as np
import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.maintenance.backups import backup_names
from tests.durability.processes import KILLED, ROOT

pytest.importorskip("aiohttp", reason="NOT RUN: needs aiohttp (the extra files)")

from tests.helpers.file_server import serve_folder  # noqa: E402 - needs aiohttp
from tests.helpers.s3_server import s3_bucket  # noqa: E402 - as the line before

IS_LONG = os.environ.get("MVINDEX_LONG") == "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index of 3,000 documents with an engine, whose views exceed the memory of some tests."""
    folder = tmp_path_factory.mktemp("remote")
    views = np.random.default_rng(0).standard_normal((3000, 4, 256)).astype(np.float32)
    with mvindex.create(folder / "a.mvx", dim=256) as index:
        index.add_views([mvindex.Document(f"d{n}", f"text {n}") for n in range(3000)], views)
        index.admin.build("flat")
    return folder


@pytest.fixture
def s3():
    with s3_bucket() as name:
        yield f"s3://{name}"


def copied(what, source, target, scratch, *more):
    """Return the status of a copying process, and what it printed."""
    command = [sys.executable, "-m", "tests.durability.remote_copy", what, str(source), str(target), *map(str, more)]
    environment = {**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None


def some(steps):
    """Return the steps at which processes are killed: the last ones, where a copy becomes whole, and others."""
    last = range(max(1, steps - 1), steps + 1)
    return [*random.Random(1).sample(range(1, steps - 1), steps - 2 if IS_LONG else 1), *last]


@pytest.mark.needs("s3")
def test_a_killed_upload_is_no_snapshot_and_a_second_run_succeeds(folder, s3, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    _, whole = copied("snapshot", folder / "a.mvx", f"{s3}/whole", scratch)
    assert whole["documents"] == 3000 and os.listdir(scratch) == []
    for step in some(whole["steps"]):
        address = f"{s3}/at-{step}/20260101T000000Z"
        status, _ = copied("snapshot", folder / "a.mvx", address, scratch, "--kill-at", step)
        assert status == -signal.SIGKILL
        assert backup_names(f"{s3}/at-{step}") == []
        with pytest.raises(StoreError, match="expected a snapshot"):
            mvindex.restore(address, tmp_path / "no.mvx")
        again = f"{s3}/at-{step}/20260102T000000Z"
        assert copied("snapshot", folder / "a.mvx", again, scratch) == (0, whole)
        # The copy that the killed process made was removed.
        assert os.listdir(scratch) == []
        assert mvindex.restore(f"{s3}/at-{step}", tmp_path / f"{step}.mvx").documents == 3000


@pytest.mark.needs("s3")
def test_a_killed_restore_leaves_no_index_and_a_second_run_succeeds(folder, s3, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    copied("snapshot", folder / "a.mvx", f"{s3}/one", scratch)
    _, whole = copied("restore", f"{s3}/one", tmp_path / "whole.mvx", scratch)
    for step in some(whole["steps"]):
        target = tmp_path / str(step) / "b.mvx"
        target.parent.mkdir()
        status, _ = copied("restore", f"{s3}/one", target, scratch, "--kill-at", step)
        assert status == -signal.SIGKILL
        if not target.exists():
            assert copied("restore", f"{s3}/one", target, scratch)[1] == whole
        assert os.listdir(target.parent) == ["b.mvx"]
        assert mvindex.verify(target).is_sound


@pytest.mark.parametrize("kind", ["directory", "http"])
def test_a_restore_that_is_short_of_memory_is_whole_or_not_there(folder, kind, tmp_path):
    """The limit is of the address space, in which views are mapped."""
    found = set()
    with mvindex.open(folder / "a.mvx") as index:
        index.admin.snapshot(tmp_path / "snapshot")
        index.admin.snapshot(f"memory://{tmp_path.name}")
    fsspec.filesystem("memory").get(f"/{tmp_path.name}", str(tmp_path / "web"), recursive=True)
    with serve_folder(tmp_path) as server:
        source = tmp_path / "snapshot" if kind == "directory" else f"{server.url}/web"
        for room in [0, 4, 24, 512] if not IS_LONG else [*range(0, 96, 2), 512]:
            folder_of_target = tmp_path / f"room-{room}"
            folder_of_target.mkdir()
            target = folder_of_target / "b.mvx"
            _, outcome = copied("restore", source, target, tmp_path, "--room", room << 20)
            found.add("error" not in outcome)
            if "error" in outcome:
                assert os.listdir(folder_of_target) == [], (room, outcome)
            else:
                assert outcome["documents"] == 3000 and mvindex.verify(target).is_sound
    assert found == {True, False}
