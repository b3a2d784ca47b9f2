"""The parts that all Faiss kinds share: reading the store's views in blocks, and indexes from and to files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.engines.params import CLONED_KINDS
from mvindex.errors import EngineError, EngineUnavailable
from mvindex.kernels.score import decode
from mvindex.kernels.threads import LibraryThreads
from mvindex.plugins import require_faiss
from mvindex.records import Floats, Ints
from mvindex.store.views import MappedViews
from mvindex_connectors.engines.faiss_ivf import has_groups, ivf_of

INDEX_NAME = "index.faiss"
_BLOCK_ROWS = 65_536
logger = logging.getLogger(__name__)

# Faiss' kernels take no more lists and no more rows a query than these.
_MOST = 2048


def blocks(views: MappedViews, doc_rows: tuple[int, int]) -> Iterator[tuple[Ints, Floats]]:
    """Yield view rows (m,) and views (m, d) of document rows [begin, end), whole documents, a block at a time."""
    first, last = doc_rows
    stretches = np.arange(int(views.starts[first]), int(views.starts[last]), _BLOCK_ROWS)
    # A stretch may begin inside the last document; then no document begins in it.
    cuts = np.minimum(np.searchsorted(views.starts, stretches), last)
    for begin, end in pairwise(np.unique(np.append(cuts, last)).tolist()):
        packed, _ = views.read_block(begin, end)
        yield views.starts[begin] + np.arange(len(packed)), decode(packed)


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


class GpuCopy:
    """The inverted lists on one GPU. Thread-safe: searches of the same GPU wait for one another."""

    def __init__(self, faiss: ModuleType, index: Any, number: int) -> None:
        """Copy an index on the CPU to the GPU of that number."""
        self._faiss = faiss
        self._resources = faiss.StandardGpuResources()
        self._index = translated(faiss.index_cpu_to_gpu, self._resources, number, index)
        self._lock = Lock()

    def takes(self, limit: int, nprobe: int, has_mask: bool) -> bool:
        """Return whether the GPU can do a search: of all views, not too many rows or lists."""
        return limit <= _MOST and nprobe <= _MOST and not has_mask

    def search(self, queries: Floats, limit: int, nprobe: int) -> tuple[Floats, Ints]:
        """Search as faiss.Index.search() does."""
        parameters = self._faiss.SearchParametersIVF(nprobe=nprobe)
        with self._lock:
            scores, rows = translated(self._index.search, queries, limit, params=parameters)
        return scores, rows


def gpu_copy(faiss: ModuleType, kind: str, index: Any, device: str | None) -> GpuCopy | None:
    """Return the copy for device "cuda" or "cuda:N"; None for other devices and kinds, and without a GPU build."""
    name, _, number = (device or "").partition(":")
    if name != "cuda" or kind not in CLONED_KINDS:
        return None
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        logger.info("this Faiss has no GPU: kind %s is searched on the CPU (the extra gpu has one)", kind)
        return None
    if has_groups(faiss, index):
        logger.info("lists in groups are searched on the CPU: kind %s has %d lists", kind, ivf_of(faiss, index).nlist)
        return None
    return GpuCopy(faiss, index, int(number or 0))
