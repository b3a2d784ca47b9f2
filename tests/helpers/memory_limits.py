"""Processes that may use so much memory and no more, and what one of them says of an index.

A control group counts the page cache as well: what is read of a file has to go again. `ulimit -d` counts private memory
only; it is the weaker test, for where no group can be made.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OLD_GROUPS = _GROUPS / "memory"
# What an index says: searches, documents, sizes, and what verify finds; and the most private memory it took.
SAYS = """
import json, os, sys
import numpy as np
import mvindex
from mvindex import engines

path, how = sys.argv[1], json.loads(sys.argv[2])
if not how["default_scan"]:
    from mvindex.engines.scan_numpy import NumpyScan
    engines.open_scan = lambda *_: NumpyScan()


def hits(results):
    return [[[(hit.id, hit.score, hit.slot, hit.text) for hit in result.hits], result.exact] for result in results]


with mvindex.open(path) as index:
    info = index.info()
    queries = np.random.default_rng(7).standard_normal((how["queries"], info.dim)).astype(np.float32)
    ids = [hit.id for hit in index.search(queries[0], top_k=20).hits]
    print(json.dumps({
        "exact": hits(index.search(queries, top_k=10, exact=True)),
        "drpq": hits(index.search(queries[:2], top_k=10, exact=True, scoring="drpq")),
        info.kind: hits(index.search(queries, top_k=10)),
        "get": [[index.get(doc_id).text, index.get(doc_id).title] for doc_id in ids],
        "info": [info.documents, info.views, info.dim, info.kind, info.size_bytes],
        "verify": [mvindex.verify(path).is_sound, mvindex.verify(path).documents],
    }))
"""


def can_group() -> bool:
    """Return whether control groups that limit memory can be made here."""
    try:
        with group(1 << 30):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def group(limit_bytes: int) -> Iterator[Path]:
    """Inside it, a new control group of so much memory, without swap; OSError where none can be made."""
    is_old = (_OLD_GROUPS / "memory.limit_in_bytes").exists()
    made = (_OLD_GROUPS if is_old else _GROUPS) / f"mvindex-{os.getpid()}-{time.monotonic_ns()}"
    made.mkdir()
    try:
        (made / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(limit_bytes))
        with contextlib.suppress(OSError):  # where there is no swap
            (made / ("memory.memsw.limit_in_bytes" if is_old else "memory.swap.max")).write_text(
                str(limit_bytes if is_old else 0)
            )
        yield made
    finally:
        _removed(made)


def _removed(made: Path) -> None:
    """Remove the group, once its last process has ended."""
    for _ in range(100):
        try:
            made.rmdir()
            return
        except OSError:
            time.sleep(0.05)
    made.rmdir()


def peak_bytes(made: Path) -> int:
    """The most that the group held, page cache included."""
    old = made / "memory.max_usage_in_bytes"
    return int((old if old.exists() else made / "memory.peak").read_text())


def in_group(made: Path) -> Callable[[], None]:
    """Return the function that puts a child into the group before it begins."""
    return lambda: (made / "cgroup.procs").write_text(str(os.getpid())) and None


def with_data_limit(limit_bytes: int) -> Callable[[], None]:
    """Return the function that limits a child's private memory before it begins."""
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def uncached(path: Path) -> None:
    """Drop all pages of the files from memory: a page counts for the group that reads it first."""
    for file in (file for file in path.rglob("*") if file.is_file()):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def said(
    path: Path, before: Callable[[], None] | None = None, *, queries: int = 6, default_scan: bool = False
) -> dict[str, object]:
    """Return a new process's answers about the index; raise RuntimeError with its last output where it dies."""
    command = [sys.executable, "-c", SAYS, str(path), json.dumps({"queries": queries, "default_scan": default_scan})]
    # Without a compiler and torch in it, a process of mvindex takes some 30 MB.
    lean = {} if default_scan else {"MVINDEX_KERNELS": "off"}
    environment = os.environ | lean | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, preexec_fn=before, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def views_bytes(path: Path) -> int:
    """The bytes of an index's views."""
    return sum(file.stat().st_size for file in path.rglob("views-*"))
