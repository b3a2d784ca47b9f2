"""Every bench runs in its tiny form: `python bench/NAME.py --tiny`."""

import fcntl
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
LONG = ["readers.py", "rolling_restart.py", "serving.py"]
FULL = sorted({file.name for file in BENCH.glob("*.py")} - PARTS - WITHOUT - {*DEFAULT, *LONG} - NEEDS.keys())


# They encode texts; torch is imported and the texts are encoded once.
ENCODING = {
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
    "views.py",
}
ENCODING |= {"training.py", "training_speed.py"}


def run(*command):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def encoding(tmp_path_factory):
    """Return what tiny_runs writes of the benches that encode, by name, and its own errors; workers share it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    found = shared / "tiny-encoding.json"
    with open(shared / "tiny-encoding.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            done = run(sys.executable, "-m", "tests.unit.bench.tiny_runs", *sorted(ENCODING))
            found.write_text(json.dumps([done.stdout, done.stderr]), encoding="utf-8")
    stdout, errors = json.loads(found.read_text(encoding="utf-8"))
    return {row["bench"]: row for row in map(json.loads, stdout.splitlines())}, errors


@pytest.mark.parametrize(
    "name",
    [
        *DEFAULT,
        *(pytest.param(name, marks=pytest.mark.full) for name in FULL),
        *(pytest.param(name, marks=pytest.mark.long) for name in LONG),
        *(pytest.param(name, marks=[pytest.mark.needs(need), pytest.mark.full]) for name, need in NEEDS.items()),
    ],
)
def test_a_bench_runs_in_its_tiny_form(name, request):
    if name in ENCODING:
        rows, errors = request.getfixturevalue("encoding")
        assert name in rows, errors[-2000:]
        assert rows[name]["failed"] is None, rows[name]["failed"]
    else:
        done = run(sys.executable, str(BENCH / name), "--tiny")
        assert done.returncode == 0, done.stderr[-2000:]


def test_benches_have_a_tiny_form():
    assert WITHOUT <= PARTS
