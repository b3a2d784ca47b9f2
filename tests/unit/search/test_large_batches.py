"""A batch of many questions: what it costs beside its answers."""

import errno
import gc
import mmap
import subprocess
import sys

import numpy as np
import pytest

import mvindex
from mvindex.engines import scan_vnni
from mvindex.kernels.threads import private_bytes

# Prints the CPU seconds of this process' threads, its own and all others', that a hundred searches took.
SEARCHES = """
import sys
from pathlib import Path
import numpy as np, mvindex
from mvindex.kernels import expecting_work

def seconds():
    ticks = {
        task.name: sum(map(int, (task / "stat").read_text().rpartition(")")[2].split()[11:13]))
        for task in Path("/proc/self/task").iterdir()
    }
    own = ticks.pop(Path("/proc/thread-self").resolve().name)
    return own / 100, sum(ticks.values()) / 100

mvindex.set_threads(1)
queries = np.random.default_rng(0).standard_normal((256, 384)).astype(np.float32)
# Loops are compiled before; else another thread does so.
with mvindex.open(sys.argv[1]) as index, expecting_work():
    index.search(queries, exact=True)
    before = seconds()
    for _ in range(100):
        index.search(queries, exact=True)
    print(*(now - then for now, then in zip(seconds(), before)))
"""


@pytest.fixture
def made(tmp_path):
    views = np.random.default_rng(1).standard_normal((400, 2, 384)).astype(np.float32)
    with mvindex.create(tmp_path / "made.mvx", dim=384, lexical="none") as index:
        index.add_views([mvindex.Document(f"d{number}", "t") for number in range(400)], list(views))
    return tmp_path / "made.mvx"


def test_on_one_thread_a_batch_leaves_the_other_cores_alone(made, monkeypatch):
    """BLAS has threads for long vectors, which wait for more work by spinning, on the cores of the next scan."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    done = subprocess.run([sys.executable, "-c", SEARCHES, str(made)], capture_output=True, text=True, check=True)
    own, others = map(float, done.stdout.split())
    assert own > 0.05
    assert others < 0.1 * own


def test_room_for_thousands_of_documents_takes_the_memory_of_those_that_are_kept():
    # Private: what a scan of a large index takes for a moment cannot be seen from outside.
    before = private_bytes()
    found = scan_vnni._empty_found(256, 10, 24_736, np.full(256, -np.inf))
    for array in (found.lower, found.upper, found.rows):
        array[:, :8] = 1
    assert private_bytes() - before < 32 << 20
    found.rows[:] = 1  # what is written is counted
    assert private_bytes() - before > 32 << 20
    assert found.rows.shape == found.lower.shape == (256, 24_736)
    assert found.rows.dtype == np.int64 and found.lower.dtype == np.float64


def test_a_kernel_without_large_pages_does_as_well(monkeypatch):
    class Refusing(mmap.mmap):
        def madvise(self, *advice):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(scan_vnni.mmap, "mmap", Refusing)
    # Private: as above.
    found = scan_vnni._empty_found(256, 10, 24_736, np.full(256, -np.inf))
    found.lower[:, :8] = 1.5
    assert (found.lower[:, :8] == 1.5).all()


def test_python_looks_for_cycles_once_when_the_hits_of_a_batch_are_made(made):
    queries, looks = np.random.default_rng(0).standard_normal((64, 384)).astype(np.float32), []
    with mvindex.open(made) as index:
        index.search(queries, top_k=100, exact=True)
        gc.collect()
        gc.callbacks.append(lambda phase, info: looks.append(info["generation"]) if phase == "start" else None)
        try:
            assert sum(len(result.hits) for result in index.search(queries, top_k=100, exact=True)) == 6400
        finally:
            gc.callbacks.pop()
    assert len(looks) <= 2


@pytest.mark.parametrize("is_enabled", [True, False])
def test_whether_python_looks_for_cycles_is_afterwards_as_before(made, is_enabled, monkeypatch):
    queries = np.random.default_rng(0).standard_normal((64, 384)).astype(np.float32)
    with mvindex.open(made) as index:
        (gc.enable if is_enabled else gc.disable)()
        try:
            index.search(queries, top_k=100, exact=True)
            assert gc.isenabled() == is_enabled
            monkeypatch.setattr("mvindex.search.hits.hits_of", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                index.search(queries, top_k=100, exact=True)
            assert gc.isenabled() == is_enabled
        finally:
            gc.enable()
