"""A copy of an engine on a GPU, where this Faiss can have one; what the copy cannot do is done on the CPU as ever."""

from __future__ import annotations

import logging
from threading import Lock
from types import ModuleType
from typing import Any

from mvindex.engines.protocol import Kind
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_files import translated

logger = logging.getLogger(__name__)

# Faiss clones these; it has no lists of packed 4-bit codes and no graph of this kind for GPUs.
_CLONED = frozenset({Kind.IVF_FLAT, Kind.IVF_SQ8})
# Faiss' kernels take no more lists and no more rows a query than these.
_MOST = 2048


class GpuCopy:
    """The inverted lists on one GPU. Thread-safe: searches of the same GPU wait for one another."""

    def __init__(self, faiss: ModuleType, index: Any, number: int) -> None:
        """index: on the CPU; number: of the GPU."""
        self._faiss = faiss
        self._resources = faiss.StandardGpuResources()
        self._index = translated(faiss.index_cpu_to_gpu, self._resources, number, index)
        self._lock = Lock()

    def takes(self, limit: int, probes: int, has_mask: bool) -> bool:
        """True for a search that the GPU can do: of all views, not too many rows or lists."""
        return limit <= _MOST and probes <= _MOST and not has_mask

    def search(self, queries: Floats, limit: int, probes: int) -> tuple[Floats, Ints]:
        """As faiss.Index.search has it."""
        parameters = self._faiss.SearchParametersIVF(nprobe=probes)
        with self._lock:
            scores, rows = translated(self._index.search, queries, limit, params=parameters)
        return scores, rows


def gpu_copy(faiss: ModuleType, kind: Kind, index: Any, device: str | None) -> GpuCopy | None:
    """The copy that device "cuda" or "cuda:N" asks for; None for other devices and kinds, and without a GPU build."""
    name, _, number = (device or "").partition(":")
    if name != "cuda" or kind not in _CLONED:
        return None
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        logger.info("this Faiss has no GPU: kind %s is searched on the CPU (the extra gpu has one)", kind.value)
        return None
    return GpuCopy(faiss, index, int(number or 0))
