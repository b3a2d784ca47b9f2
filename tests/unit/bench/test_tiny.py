"""Every bench runs in its tiny form: `python bench/NAME.py --tiny`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "bench"
# Parts of benches, which are no programs.
PARTS = {"rounds.py", "tables.py", "tiny.py", "vectors.py"}
# One of each sort; the others in the full run.
DEFAULT = ["dpr.py", "fuzz.py", "lexical.py", "scale_fit.py", "squad_splits.py", "studies.py"]
NEEDS = {
    "screenshots.py": "chromium",
    "milvus.py": "milvus-lite",
    "milvus_bulk.py": "milvus-server",
    "milvus_kills.py": "milvus-lite",
}
WITHOUT = {file.name for file in BENCH.glob("*.py") if not re.search(r"--tiny|tiny\.parse\(", file.read_text())}
# They measure for as long as it takes to open servers, or processes, many times.
LONG = ["readers.py", "rolling_restart.py", "serving.py", "serving_attacks.py", "start.py"]
# They encode texts: torch is imported, and the texts are encoded, once for each half.
ENCODING = [
    "citations.py",
    "codes.py",
    "cold.py",
    "drpq.py",
    "encoding.py",
    "full_count.py",
    "graph.py",
    "ingest.py",
    "lists.py",
    "pruning.py",
    "quality.py",
    "scale.py",
    "shards.py",
    "training.py",
    "training_speed.py",
    "views.py",
]
FULL = sorted(
    {file.name for file in BENCH.glob("*.py")} - PARTS - WITHOUT - {*DEFAULT, *LONG, *ENCODING} - NEEDS.keys()
)


def run(*command):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        *DEFAULT,
        *(pytest.param(name, marks=pytest.mark.full) for name in FULL),
        *(pytest.param(name, marks=pytest.mark.long) for name in LONG),
        *(pytest.param(name, marks=[pytest.mark.needs(need), pytest.mark.full]) for name, need in NEEDS.items()),
    ],
)
def test_a_bench_runs_in_its_tiny_form(name):
    done = run(sys.executable, str(BENCH / name), "--tiny")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.full
@pytest.mark.parametrize("names", [ENCODING[::2], ENCODING[1::2]], ids=["one half", "other half"])
def test_benches_that_encode_run_in_their_tiny_form(names):
    done = run(sys.executable, "-m", "tests.unit.bench.tiny_runs", *names)
    failed = {row["bench"]: row["failed"] for row in map(json.loads, done.stdout.splitlines())}
    assert failed == dict.fromkeys(names), done.stderr[-2000:]


def test_benches_have_a_tiny_form():
    assert WITHOUT <= PARTS
