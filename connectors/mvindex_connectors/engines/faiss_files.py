"""The parts that all Faiss kinds share: reading the store's views in blocks, and indexes from and to files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.errors import EngineError, EngineUnavailable
from mvindex.kernels.score import decode
from mvindex.kernels.threads import LibraryThreads
from mvindex.plugins import require_faiss
from mvindex.records import Bools, Floats, Ints
from mvindex.store.views import MappedViews

INDEX_NAME = "index.faiss"
_BLOCK_ROWS = 65_536


def blocks(views: MappedViews, doc_rows: tuple[int, int], wanted: Bools | None = None) -> Iterator[tuple[Ints, Floats]]:
    """Yield view rows (m,) and views (m, d) of document rows [begin, end), whole documents, a block at a time.

    wanted: (num_rows,) bool, the documents whose views are read; None for all.
    """
    first, last = doc_rows
    stretches = np.arange(int(views.starts[first]), int(views.starts[last]), _BLOCK_ROWS)
    # A stretch may begin inside the last document; then no document begins in it.
    cuts = np.minimum(np.searchsorted(views.starts, stretches), last)
    for begin, end in pairwise(np.unique(np.append(cuts, last)).tolist()):
        if wanted is None or wanted[begin:end].all():
            packed, _ = views.read_block(begin, end)
            yield views.starts[begin] + np.arange(len(packed)), decode(packed)
        elif wanted[begin:end].any():
            chosen = begin + np.flatnonzero(wanted[begin:end])
            packed, starts = views.fetch(chosen)
            shifts = np.repeat(views.starts[chosen] - starts[:-1], np.diff(starts))
            yield np.arange(len(packed)) + shifts, decode(packed)


def write_index(faiss: ModuleType, index: Any, path: Path) -> None:
    """Write the index to a new file, without fsync.

    By a file of ours: Faiss' own writer only prints that the disk did not take the last bytes.
    """
    with open(path, "xb") as file:
        translated(faiss.write_index, index, faiss.PyCallbackIOWriter(file.write))


def read_index(faiss: ModuleType, path: Path) -> Any:
    """Return the index in the file."""
    return translated(faiss.read_index, str(path))


def translated(call: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what the call returns, run in as many threads as default_threads() says.

    Faiss' C++ exceptions, all RuntimeError in Python, become EngineError.
    """
    try:
        with _threads().limited():
            return call(*args, **kwargs)
    except MemoryError as err:
        raise EngineUnavailable(f"faiss: not enough memory: {err}") from err
    except RuntimeError as err:
        raise EngineError(f"faiss: {err}") from err


@cache
def _threads() -> LibraryThreads:
    faiss = require_faiss()
    return LibraryThreads(faiss.omp_get_max_threads, faiss.omp_set_num_threads)
