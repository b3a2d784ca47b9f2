"""How fast a folder's disk is written and read, past the page cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from mvindex.planning.rates import Span

_FILE_BYTES, _FILES, _READS, _ROUNDS = 64 << 20, 3, 24, 5


def measured_disk(folder: Path, read_bytes: int) -> tuple[Span, Span, Span]:
    """Seconds of a byte written and made durable, of a byte read in order, and of one read of so many bytes anywhere.

    Where the system keeps no promise to forget cached pages, reads come from memory, and are as fast as that.
    """
    path, drawn = folder / "disk.bin", np.random.default_rng(0)
    content = drawn.bytes(_FILE_BYTES)
    writes = [_written(path, content) / _FILE_BYTES for _ in range(_FILES)]
    reads = [_read(path) / _FILE_BYTES for _ in range(_FILES)]
    at = drawn.integers(0, max(1, _FILE_BYTES - read_bytes), (_ROUNDS, _READS)).tolist()
    anywhere = [_read_at(path, offsets, read_bytes) / _READS for offsets in at]
    path.unlink()
    return Span.of(writes), Span.of(reads), Span.of(anywhere)


def _written(path: Path, content: bytes) -> float:
    started = time.perf_counter()
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - started


def _read(path: Path) -> float:
    with open(path, "rb", buffering=0) as file:
        _forget(file.fileno())
        started = time.perf_counter()
        while file.read(1 << 20):
            pass
        return time.perf_counter() - started


def _read_at(path: Path, offsets: list[int], size_bytes: int) -> float:
    with open(path, "rb", buffering=0) as file:
        _forget(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        started = time.perf_counter()
        for offset in offsets:
            os.pread(file.fileno(), size_bytes, offset)
        return time.perf_counter() - started


def _forget(handle: int) -> None:
    """Nothing; the file's pages, all on disk, leave memory where the system can be asked for it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
