"""The example that fills and builds the shards of an index as Ray tasks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mvindex
from mvindex.errors import MvindexError
from mvindex.store.embedded import EmbeddedStore
from tests.helpers.cli import ROOT, ok, read_passages, write_tsv
from tests.helpers.cli import mvindex as command_line
from tests.helpers.shard_examples import stored

tiny_models = pytest.importorskip("tests.helpers.tiny_models")


@pytest.mark.long
@pytest.mark.needs("ray")
def test_shards_as_ray_tasks_make_one_index(tmp_path):
    tiny_models.make_model(tmp_path / "encoder")
    write_tsv(tmp_path / "corpus.tsv", read_passages(60))
    command = [sys.executable, str(ROOT / "examples" / "ray" / "shards.py"), "corpus.tsv", "--index", "ray.mvx"]
    options = ["--shards", "2", "--encoder", str(tmp_path / "encoder"), "--kind", "ivf-flat", "--question", "when?"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 6
    with (
        mvindex.open(tmp_path / "ray.mvx") as index,
        mvindex.create(tmp_path / "one.mvx", encoder=tmp_path / "encoder") as one,
    ):
        one.add(mvindex.Document(*row) for row in read_passages(60))
        assert index.info().kind == "ivf-flat" and len(index) == 60
        found, wanted = (each.search("when was the embargo?", exact=True).hits for each in (index, one))
        assert [(hit.id, hit.snippet) for hit in found] == [(hit.id, hit.snippet) for hit in wanted]


# A chunk has up to 1,024 documents.
MANY = 6000


def workers_below(pid):
    """Return the workers of a cluster, started by this process, that fill a shard now."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(b"ray::run"):
                parent = int(entry.name)
                while parent not in (0, pid):
                    parent = int((Path("/proc") / str(parent) / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid:
                    found.append(int(entry.name))
    return found


def committed(path):
    """Return how many documents each shard of two has that can be opened."""
    counts = []
    for number in range(2):
        with (
            contextlib.suppress(MvindexError),
            contextlib.closing(EmbeddedStore(path / f"shard-{number:05d}-of-00002")) as store,
        ):
            counts.append(store.count())
    return counts


@pytest.mark.long
@pytest.mark.needs("ray")
def test_workers_that_are_killed_store_each_chunk_exactly_once(tmp_path):
    """Every worker is killed twice, in the middle of its shard; the index is the one of an undisturbed ingest."""
    tiny_models.make_model(tmp_path / "encoder")
    write_tsv(tmp_path / "corpus.tsv", [(f"d{n}", f"This is text {n}. It is of {n % 97}.", "") for n in range(MANY)])
    command = [sys.executable, str(ROOT / "examples" / "ray" / "shards.py"), "corpus.tsv", "--index", "ray.mvx"]
    options = ["--shards", "2", "--workers", "2", "--encoder", str(tmp_path / "encoder"), "--kind", "exact"]
    killed = 0
    with open(tmp_path / "output", "w") as output:
        running = subprocess.Popen([*command, *options], cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
        try:
            seen = 0
            for _ in range(2):
                deadline = time.monotonic() + 300
                while running.poll() is None and sum(committed(tmp_path / "ray.mvx")) <= seen:
                    assert time.monotonic() < deadline, (tmp_path / "output").read_text()
                    time.sleep(0.02)
                seen = sum(committed(tmp_path / "ray.mvx"))
                for pid in workers_below(running.pid):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            assert running.wait(600) == 0, (tmp_path / "output").read_text()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
    assert killed >= 2, (tmp_path / "output").read_text()
    for number in range(2):
        ok(
            command_line(
                "ingest", "corpus.tsv", "--index", "calm.mvx", "--shard", f"{number}/2", "--encoder", "encoder",
                cwd=tmp_path,
            )
        )  # fmt: skip
    ok(command_line("assemble", "calm.mvx", cwd=tmp_path))
    with mvindex.open(tmp_path / "ray.mvx") as index, mvindex.open(tmp_path / "calm.mvx") as calm:
        assert len(index) == MANY
        assert stored(index) == stored(calm)
