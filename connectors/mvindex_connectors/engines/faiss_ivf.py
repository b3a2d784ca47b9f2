"""Inverted lists of Faiss: how they are made, how they are trained on a sample, and which searches are worth trying."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from mvindex.engines.params import BLOCK_ROWS, COARSE_KINDS, GRAPH_EF, GRAPH_M, GRAPH_NLIST, LEAST_SAMPLE, POINTS
from mvindex.records import Floats
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import decode

_CODE_BITS, _CODE_VALUES = 4, 16
_SEED = 1
_SAMPLE_RUN = 64
_READ_ROWS = 8192


def searches(kind: str, nlist: int) -> list[dict[str, int]]:
    """Return the search parameters that tune tries: powers of two of nlist from 1 in 512 on, several k_factor each."""
    nprobe = [nlist >> power for power in range(9, -1, -1) if nlist >> power]
    k_factors = (4, 8, 15, 30) if kind in COARSE_KINDS else (2, 4, 8)
    return [{"nprobe": each, "k_factor": k_factor} for each in dict.fromkeys(nprobe) for k_factor in k_factors]


def sample_views(snapshots: Sequence[Snapshot], size: int) -> Floats:
    """Return a sample of about `size` views, (n, d) float32, from each snapshot in proportion to its views.

    Drawn by chance with a fixed seed, in short runs of neighbours on disk; checked against their checksums, as all
    that is read.
    """
    num_views = sum(snapshot.views.num_views for snapshot in snapshots)
    runs = [_sampled_runs(each.views.num_views, -(-size * each.views.num_views // num_views)) for each in snapshots]
    count = sum(end - begin for part in runs for begin, end in part)
    sample = np.empty((count, snapshots[0].views.dim), dtype=np.float32)
    filled = 0
    for snapshot, part in zip(snapshots, runs, strict=True):
        for begin, end in part:
            sample[filled : filled + end - begin] = decode(snapshot.views.read_views(begin, end))
            filled += end - begin
    return sample


def _sampled_runs(num_views: int, size: int) -> list[tuple[int, int]]:
    """Return the view rows [begin, end) to read, about `size` in all; every row if there are no more."""
    if size >= num_views or num_views <= _SAMPLE_RUN:
        return [(begin, min(begin + _READ_ROWS, num_views)) for begin in range(0, num_views, _READ_ROWS)]
    # A run of neighbours costs one read; of 64 views, some 8 documents.
    num_runs = max(1, size // _SAMPLE_RUN)
    stretches = np.linspace(0, num_views - _SAMPLE_RUN, num_runs)
    shifts = np.random.default_rng(_SEED).random(num_runs) * max(1.0, num_views / num_runs - _SAMPLE_RUN)
    begins = np.minimum((stretches + shifts).astype(np.int64), num_views - _SAMPLE_RUN)
    return [(begin, begin + _SAMPLE_RUN) for begin in begins.tolist()]


def new_ivf(faiss: ModuleType, kind: str, dim: int, nlist: int) -> Any:
    """Return an untrained index of inverted lists, behind a random rotation where codes are of few bits.

    A rotation spreads the variance evenly over the parts that are coded apart, and makes the dimensions even in number.
    """
    if kind not in COARSE_KINDS:
        return _lists(faiss, kind, dim, nlist)
    width = dim + dim % 2
    rotation = faiss.RandomRotationMatrix(dim, width)
    rotation.init(_SEED)
    return faiss.IndexPreTransform(rotation, _lists(faiss, kind, width, nlist))


def _lists(faiss: ModuleType, kind: str, dim: int, nlist: int) -> Any:
    metric = faiss.METRIC_INNER_PRODUCT
    quantiser = coarse_quantiser(faiss, dim, nlist)
    if kind == "ivf-flat":
        index = faiss.IndexIVFFlat(quantiser, dim, nlist, metric)
    elif kind == "ivf-sq8":
        index = faiss.IndexIVFScalarQuantizer(quantiser, dim, nlist, faiss.ScalarQuantizer.QT_8bit, metric)
    elif kind == "ivf-pq":
        index = faiss.IndexIVFPQFastScan(quantiser, dim, nlist, dim // 2, _CODE_BITS, metric, BLOCK_ROWS)
    else:
        index = faiss.IndexIVFRaBitQFastScan(quantiser, dim, nlist, metric, BLOCK_ROWS, True, 1)
    index.cp.seed = _SEED
    index.cp.max_points_per_centroid = max(POINTS, -(-LEAST_SAMPLE // nlist))
    return index


def coarse_quantiser(faiss: ModuleType, dim: int, nlist: int) -> Any:
    """Return the index that finds the lists nearest to a view: brute force, or a graph for many lists."""
    if nlist < GRAPH_NLIST:
        return faiss.IndexFlatIP(dim)
    graph = faiss.IndexHNSWFlat(dim, GRAPH_M, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = GRAPH_EF
    graph.hnsw.efSearch = GRAPH_EF
    return graph


def ivf_of(faiss: ModuleType, index: Any) -> Any:
    """Return the inverted lists of an index, behind its rotation or not."""
    return faiss.extract_index_ivf(index)


def train(faiss: ModuleType, index: Any, sample: Floats) -> None:
    """Train lists and codes on the sample, (n, d) float32; on a GPU where this Faiss has one."""
    if len(sample) < _CODE_VALUES:
        # A code's table has 16 entries: of fewer views, some stand there twice.
        sample = np.resize(sample, (_CODE_VALUES, sample.shape[1]))
    ivf = ivf_of(faiss, index)
    if getattr(faiss, "get_num_gpus", int)() > 0:
        on_gpu = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(ivf.d))
        ivf.clustering_index = on_gpu
        index.referenced_objects = [on_gpu]
    index.train(sample)
