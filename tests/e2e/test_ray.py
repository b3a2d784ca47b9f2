"""The example that fills and builds the shards of an index as Ray tasks, on a cluster of two nodes."""

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
from tests.helpers.cli import ROOT, ok, write_tsv
from tests.helpers.cli import mvindex as command_line
from tests.helpers.shard_examples import stored

tiny_models = pytest.importorskip("tests.helpers.tiny_models")

# A chunk has up to 1,024 documents: enough of them for each to be in the middle of its shard when it is killed.
MANY = 12_000
DEADLINE_S = 300


@pytest.fixture
def cluster():
    """Start a cluster of Ray with two nodes of one CPU each: the processes of two machines, on this one."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes.add_node(num_cpus=1)
        nodes.wait_for_nodes()
        yield nodes
    finally:
        nodes.shutdown()


def raylet(node):
    """Return the process of a node that starts its workers."""
    return next(process.pid for kind, process in node.live_processes() if kind == "raylet")


def workers_below(pid):
    """Return the workers, started by this process, that fill a shard now."""
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


@contextlib.contextmanager
def example(folder, cluster, *options):
    """Run the example on the nodes of a cluster, and end it with the block."""
    with open(folder / "output", "w") as output:
        running = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "ray" / "shards.py"), "corpus.tsv", "--index", "ray.mvx",
             "--shards", "2", "--encoder", "encoder", *options],
            cwd=folder, env={**os.environ, "RAY_ADDRESS": cluster.address}, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()


@pytest.mark.needs("ray")
def test_a_node_that_is_lost_leaves_its_shard_to_the_other_one(tmp_path, cluster):
    """Workers are killed in the middle of their shards, then a whole node; the index is that of a calm ingest."""
    tiny_models.make_model(tmp_path / "encoder")
    write_tsv(tmp_path / "corpus.tsv", [(f"d{n}", f"This is text {n}. It is of {n % 97}.", "") for n in range(MANY)])
    head, other = map(raylet, (cluster.head_node, *cluster.worker_nodes))
    with example(tmp_path, cluster, "--kind", "ivf-flat", "--question", "which text is of 7?") as running:
        seen, deadline = 0, time.monotonic() + DEADLINE_S

        def wait_for_chunk():
            """Wait until another chunk is committed, while both nodes work on their shards."""
            nonlocal seen
            while sum(committed(tmp_path / "ray.mvx")) <= seen or not (workers_below(head) and workers_below(other)):
                assert running.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
                time.sleep(0.02)
            seen = sum(committed(tmp_path / "ray.mvx"))

        def kill(pids):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # it may have ended with its parent
                    os.kill(pid, signal.SIGKILL)

        wait_for_chunk()
        kill([*workers_below(head), *workers_below(other)])
        wait_for_chunk()
        kill([other, *workers_below(other)])
        assert running.wait(DEADLINE_S) == 0, (tmp_path / "output").read_text()
    for number in range(2):
        ok(
            command_line(
                "ingest", "corpus.tsv", "--index", "calm.mvx", "--shard", f"{number}/2", "--encoder", "encoder",
                cwd=tmp_path,
            )
        )  # fmt: skip
    ok(command_line("assemble", "calm.mvx", cwd=tmp_path))
    with mvindex.open(tmp_path / "ray.mvx") as index, mvindex.open(tmp_path / "calm.mvx") as calm:
        assert index.info().kind == "ivf-flat" and len(index) == MANY
        assert stored(index) == stored(calm)
        found, wanted = (each.search("which text is of 7?", exact=True).hits for each in (index, calm))
        assert [(hit.id, hit.score, hit.snippet) for hit in found] == [
            (hit.id, hit.score, hit.snippet) for hit in wanted
        ]
    assert found[0].id in (tmp_path / "output").read_text()
