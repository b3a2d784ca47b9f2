"""The memory of every step of an index's life grows by at most 16 bytes a document.

Peaks of two collections, of which one is several times as large, tell what grows with the collection: see memory_steps,
which also takes larger ones.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from mvindex.measure.planning.sizes import engine_bytes

ROOT = Path(__file__).parents[3]
PROMISED = 16.0
DIM, VIEWS, LISTS, SHARDS = 8, 2, 16, 2
# Rows to be deleted, half of them, are Python integers in a list.
DELETED = {"delete half": 0.5 * (32 + 8)}
# SQLite sorts up to 250 pages in memory, then in files.
SORTED_BYTES = {"salvage": 250 * 4096, "salvage, half retired": 250 * 4096}
# Pieces of a fixed size differ by the length of texts and ids, allocators by what they keep for later.
PYTHON_SLACK_BYTES, PRIVATE_SLACK_BYTES = 64 << 10, 384 << 10

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: needs /proc")
pytest.importorskip("faiss")


def growth(folder, column, sizes, *options):
    """Bytes that each step's peak grows by, and how many documents are between the sizes."""
    command = [
        sys.executable,
        "-m",
        "tests.helpers.memory_steps",
        "--documents",
        *map(str, sizes),
        "--folder",
        str(folder),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    peaks = defaultdict(list)
    for row in map(json.loads, done.stdout.splitlines()):
        peaks[row["step"]].append(row[column])
    return {step: high - low for step, (low, high) in peaks.items()}, sizes[1] - sizes[0]


def engine_growth(sizes):
    """Bytes that `mvindex plan` says for the larger engine more than for the smaller, by step that builds one."""

    def more(share):
        low, high = (engine_bytes("ivf-pq", round(size * share) * VIEWS, DIM, LISTS).resident for size in sizes)
        return high - low

    return {"build": more(1), "compact": more(1), "build in shards": more(1 / SHARDS)}


def too_much(found, added, allowed):
    """Bytes a document of the steps that take more than they may, and the rest is as promised."""
    limits = {step: PROMISED * added + allowed(step) for step in found}
    return {step: round(more / added, 1) for step, more in found.items() if more > limits[step]}


@pytest.mark.full
def test_python_objects_and_arrays_grow_by_at_most_sixteen_bytes_a_document(tmp_path):
    found, added = growth(tmp_path, "python_bytes", (2000, 6000), "--trace")
    assert len(found) >= 18
    assert too_much(found, added, lambda step: PYTHON_SLACK_BYTES + DELETED.get(step, 0) * added) == {}


@pytest.mark.full
@pytest.mark.long
def test_all_private_memory_grows_by_at_most_sixteen_bytes_a_document_beside_planned_codes(tmp_path):
    sizes = (1000, 41_000)
    found, added = growth(tmp_path, "private_bytes", sizes)
    planned = engine_growth(sizes)

    def allowed(step):
        beside = planned.get(step, 0) + SORTED_BYTES.get(step, 0) + DELETED.get(step, 0) * added
        return PRIVATE_SLACK_BYTES + beside

    assert too_much(found, added, allowed) == {}
