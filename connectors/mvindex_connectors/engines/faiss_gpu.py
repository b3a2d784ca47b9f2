"""A copy of an engine on a GPU, where this Faiss can have one; what the copy cannot do is done on the CPU as ever."""

from __future__ import annotations

import logging
from threading import Lock
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from mvindex.engines.auto import CAGRA_LEAST, CLONED_KINDS, CUVS_KINDS
from mvindex.errors import EngineError
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_files import translated
from mvindex_connectors.engines.faiss_ivf import has_groups, ivf_of

logger = logging.getLogger(__name__)

# Faiss' kernels take no more lists and no more rows a query than these.
_MOST = 2048
# Candidates that CAGRA keeps during a search, as many as fit in one block of threads: no more rows come of it.
_CAGRA_WIDTH = 512
# Memory of a GPU that a copy computes in; Faiss would take 1.5 GiB for each.
_TEMPORARY_BYTES = 256 << 20


class GpuCopy(Protocol):
    """An engine on one GPU. Thread-safe: searches of one copy wait for one another."""

    def takes(self, limit: int, nprobe: int) -> bool:
        """Return whether the GPU can do a search: not too many rows or lists."""

    def search(self, queries: Floats, limit: int, nprobe: int) -> tuple[Floats, Ints]:
        """Search as faiss.Index.search() does."""


def _resources(faiss: ModuleType) -> Any:
    """Return what a copy computes with.

    Each has its own: Faiss frees the memory of an index by its resources, whenever Python collects it, and no lock
    would keep that apart from another one's search.
    """
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_TEMPORARY_BYTES)
    return resources


class ListsCopy:
    """A GpuCopy of inverted lists."""

    def __init__(self, faiss: ModuleType, index: Any, number: int) -> None:
        """Copy an index on the CPU to the GPU of that number; packed 4-bit codes as an index of plain ones."""
        self._faiss, self._lock, self._resources = faiss, Lock(), _resources(faiss)
        options = faiss.GpuClonerOptions()
        if hasattr(ivf_of(faiss, index), "pq"):
            index, options.use_cuvs = unpacked(faiss, index), True
        self._is_rotated = isinstance(index, faiss.IndexPreTransform)
        self._index = translated(faiss.index_cpu_to_gpu, self._resources, number, index, options)

    def takes(self, limit: int, nprobe: int) -> bool:
        """See GpuCopy."""
        return limit <= _MOST and nprobe <= _MOST

    def search(self, queries: Floats, limit: int, nprobe: int) -> tuple[Floats, Ints]:
        """See GpuCopy."""
        parameters = self._faiss.SearchParametersIVF(nprobe=nprobe)
        if self._is_rotated:
            parameters = self._faiss.SearchParametersPreTransform(index_params=parameters)
        with self._lock:
            scores, rows = translated(self._index.search, queries, limit, params=parameters)
        return scores, rows


class CagraCopy:
    """A GpuCopy of the views of an HNSW index under a graph by CAGRA, which the GPU links anew in seconds."""

    def __init__(self, faiss: ModuleType, index: Any, number: int) -> None:
        """Link the views that the index holds."""
        self._faiss, self._lock, self._resources = faiss, Lock(), _resources(faiss)
        flat = faiss.downcast_index(index.storage)
        # Faiss points to the views, as this class does: the index must stay alive.
        self._source = index
        self._views: Floats = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
        config = faiss.GpuIndexCagraConfig()
        config.device = number
        metric = faiss.METRIC_INNER_PRODUCT
        self._index = translated(faiss.GpuIndexCagra, self._resources, flat.d, metric, config)
        translated(self._index.train, self._views)

    def takes(self, limit: int, nprobe: int) -> bool:
        """See GpuCopy."""
        return limit <= _CAGRA_WIDTH

    def search(self, queries: Floats, limit: int, nprobe: int) -> tuple[Floats, Ints]:
        """See GpuCopy. Scores are computed here: their sign differs between versions of cuVS."""
        parameters = self._faiss.SearchParametersCagra(itopk_size=_CAGRA_WIDTH)
        with self._lock:
            _, rows = translated(self._index.search, queries, limit, params=parameters)
        # What is missing may be another number than -1.
        rows = np.where((rows >= 0) & (rows < len(self._views)), rows, -1)
        scores = np.einsum("qd,qmd->qm", queries, self._views[rows])
        scores[rows < 0] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


class ListFinder:
    """Finds on a GPU the list of each view that is added to an index, which stores it on the CPU."""

    def __init__(self, faiss: ModuleType, index: Any) -> None:
        """Copy the centroids of an index whose codes Faiss makes for given lists."""
        self._faiss, self._ivf, self._resources = faiss, ivf_of(faiss, index), _resources(faiss)
        self._centroids = translated(faiss.index_cpu_to_gpu, self._resources, 0, self._ivf.quantizer)

    def add(self, views: Floats, rows: Ints) -> None:
        """Add views, (n, d) float32, under these rows, (n,) int64, as add_with_ids() does."""
        try:
            _, lists = translated(self._centroids.search, views, 1)
        except EngineError as err:
            logger.warning("lists of views are found on the CPU from now on: %s", err)
            # Where the lists' own centroids are.
            self._centroids = self._ivf.quantizer
            _, lists = translated(self._centroids.search, views, 1)
        views, rows, lists = (np.ascontiguousarray(each) for each in (views, rows, lists))
        pointers = (self._faiss.swig_ptr(each) for each in (views, rows, lists))
        translated(self._ivf.add_core, len(views), *pointers)


def list_finder(faiss: ModuleType, kind: str, index: Any) -> ListFinder | None:
    """Return what finds lists on a GPU; None where this Faiss has none, or none for such an index."""
    has_gpu = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0
    if not has_gpu or kind not in CLONED_KINDS or has_groups(faiss, index):
        return None
    try:
        return ListFinder(faiss, index)
    except EngineError as err:
        logger.warning("kind %s: lists of views are found on the CPU: %s", kind, err)
        return None


def unpacked(faiss: ModuleType, index: Any) -> Any:
    """Return an index of the same lists whose 4-bit codes are not packed in blocks, as a GPU reads them.

    It points to the quantiser and the rotation of the index, which must stay alive.
    """
    packed = faiss.downcast_index(ivf_of(faiss, index))
    lists = faiss.ArrayInvertedLists(packed.nlist, packed.code_size)
    packed.orig_invlists = lists
    try:
        packed.reconstruct_orig_invlists()
    finally:
        packed.orig_invlists = None
    pq = packed.pq
    plain = faiss.IndexIVFPQ(packed.quantizer, packed.d, packed.nlist, pq.M, pq.nbits, packed.metric_type)
    plain.pq, plain.by_residual, plain.is_trained, plain.ntotal = pq, packed.by_residual, True, packed.ntotal
    plain.replace_invlists(lists, True)
    return faiss.IndexPreTransform(index.chain.at(0), plain) if isinstance(index, faiss.IndexPreTransform) else plain


def gpu_copy(faiss: ModuleType, kind: str, index: Any, device: str | None) -> GpuCopy | None:
    """Return the copy for device "cuda" or "cuda:N"; None, with the reason in the log, where there is none."""
    name, _, number = (device or "").partition(":")
    if name != "cuda":
        return None
    why = why_no_copy(faiss, kind, index)
    if why is not None:
        logger.info("kind %s is searched on the CPU: %s", kind, why)
        return None
    copy = CagraCopy if kind == "hnsw" else ListsCopy
    try:
        return copy(faiss, index, int(number or 0))
    except EngineError as err:
        logger.warning("kind %s is searched on the CPU: Faiss cannot copy it to %s: %s", kind, device, err)
        return None


def why_no_copy(faiss: ModuleType, kind: str, index: Any) -> str | None:
    """Return why an engine is not copied to a GPU; None where it can be."""
    if kind not in CLONED_KINDS | CUVS_KINDS:
        return "Faiss has no such kind on GPUs"
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return "this Faiss has no GPU (the extra gpu has one)"
    if kind in CUVS_KINDS and not hasattr(faiss, "GpuIndexCagra"):
        return "this Faiss is built without cuVS (the package faiss-gpu-cuvs, in place of others of Faiss, has it)"
    if kind == "hnsw":
        return None if index.ntotal >= CAGRA_LEAST else f"it has fewer than {CAGRA_LEAST:,} views"
    ivf = faiss.downcast_index(ivf_of(faiss, index))
    if has_groups(faiss, index):
        return f"lists in groups, {ivf.nlist:,} of them, are not searched on GPUs"
    if kind == "ivf-pq" and ivf.pq.M % 2:
        return f"cuVS wants codes of whole bytes, which {ivf.pq.M} codes of 4 bits are not"
    return None
