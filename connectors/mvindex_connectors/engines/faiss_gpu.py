"""A copy of an engine on a GPU, where this Faiss can have one; what the copy cannot do is done on the CPU as ever."""

from __future__ import annotations

import logging
from threading import Lock
from types import ModuleType
from typing import Any

from mvindex.engines.params import CLONED_KINDS
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_files import translated
from mvindex_connectors.engines.faiss_ivf import has_groups, ivf_of

logger = logging.getLogger(__name__)

# Faiss' kernels take no more lists and no more rows a query than these.
_MOST = 2048


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
