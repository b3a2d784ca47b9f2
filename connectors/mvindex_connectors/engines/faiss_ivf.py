"""Inverted lists of Faiss: how they are made, how they are trained on a sample, and which searches are worth trying."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.engines.auto import (
    BLOCK_ROWS,
    COARSE_KINDS,
    GROUPED_NLIST,
    GROUPS_ADDED,
    LEAST_SAMPLE,
    POINTS,
    default_k_factor,
    num_groups,
)
from mvindex.kernels.score import decode
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Floats, Ints, ProgressCallback, no_progress, sliced
from mvindex.store.snapshot import Snapshot

_CODE_BITS, _CODE_VALUES = 4, 16
_SEED = 1
_SAMPLE_RUN = 64
_READ_ROWS = 8192
# Rows of the sample that train the groups, each.
_GROUP_POINTS = 256
_MANY_LISTS = 16_384


def searches(kind: str, nlist: int, dim: int) -> list[dict[str, int]]:
    """Return the search parameters that tune tries: powers of two of nlist from 1 in 512 on, several k_factor each.

    Of many lists three quarters of each power as well: there a step of two is many milliseconds.
    """
    nprobe = [nlist >> power for power in range(9, -1, -1) if nlist >> power]
    if nlist >= _MANY_LISTS:
        nprobe = sorted({*nprobe, *(3 * each // 4 for each in nprobe)})
    default = default_k_factor(kind, dim)
    # Among 10^8 views the codes tell fewer of the nearest apart: more view hits cost less than more lists.
    coarse = (-(-default // 4), -(-default // 2), default, 2 * default, 4 * default)
    k_factors = coarse if kind in COARSE_KINDS else (2, 4, 8)
    return [{"nprobe": each, "k_factor": k_factor} for each in dict.fromkeys(nprobe) for k_factor in k_factors]


def sample_views(snapshots: Sequence[Snapshot], size: int) -> npt.NDArray[Any]:
    """Return a sample of about `size` views, (n, d) as stored, from each snapshot in proportion to its views.

    Drawn by chance with a fixed seed, in short runs of neighbours on disk; checked against their checksums, as all
    that is read.
    """
    num_views = sum(snapshot.views.num_views for snapshot in snapshots)
    runs = [_sampled_runs(each.views.num_views, -(-size * each.views.num_views // num_views)) for each in snapshots]
    count = sum(end - begin for part in runs for begin, end in part)
    dtype = np.result_type(*(each.views.matrix.dtype for each in snapshots))
    sample = np.empty((count, snapshots[0].views.dim), dtype=dtype)
    filled = 0
    for snapshot, part in zip(snapshots, runs, strict=True):
        for begin, end in part:
            sample[filled : filled + end - begin] = snapshot.views.read_views(begin, end)
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
        # What a view differs from its centroid by is smaller, so that codes of as many bits are finer; the inner
        # product with the centroid is known when the list is found.
        index.by_residual = True
    else:
        index = faiss.IndexIVFRaBitQFastScan(quantiser, dim, nlist, metric, BLOCK_ROWS, True, 1)
    index.cp.seed = _SEED
    index.cp.max_points_per_centroid = max(POINTS, -(-LEAST_SAMPLE // nlist))
    return index


def coarse_quantiser(faiss: ModuleType, dim: int, nlist: int) -> Any:
    """Return the index that finds the lists nearest to a view: brute force, or by groups where there are many lists."""
    if nlist < GROUPED_NLIST:
        return faiss.IndexFlatIP(dim)
    groups = num_groups(nlist)
    quantiser = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, groups, faiss.METRIC_INNER_PRODUCT)
    quantiser.nprobe = GROUPS_ADDED
    return quantiser


def ivf_of(faiss: ModuleType, index: Any) -> Any:
    """Return the inverted lists of an index, behind its rotation or not."""
    return faiss.extract_index_ivf(index)


def has_groups(faiss: ModuleType, index: Any) -> bool:
    """Return whether the centroids of an index of inverted lists stand in groups."""
    return isinstance(faiss.downcast_index(ivf_of(faiss, index).quantizer), faiss.IndexIVF)


def train(faiss: ModuleType, index: Any, sample: npt.NDArray[Any], on_progress: ProgressCallback = no_progress) -> None:
    """Train lists and codes on the sample, (n, d) as stored; on a GPU where this Faiss has one."""
    if len(sample) < _CODE_VALUES:
        # A code's table has 16 entries: of fewer views, some stand there twice.
        sample = np.resize(sample, (_CODE_VALUES, sample.shape[1]))
    if has_groups(faiss, index):
        _train_groups(faiss, index, sample, on_progress)
        sample = _spread(sample, LEAST_SAMPLE)
    elif getattr(faiss, "get_num_gpus", int)() > 0:
        on_gpu = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(ivf_of(faiss, index).d))
        train_with(faiss, index, on_gpu, decode(sample))
        return
    index.train(decode(sample))


def train_with(faiss: ModuleType, index: Any, clusterer: Any, sample: Floats) -> None:
    """Train the index on the sample, (n, d) float32, with an index that finds the nearest centroids for k-means.

    Faiss keeps a bare pointer, and its Python side takes it that the index frees what it is assigned, which it does
    not: the clusterer lives in this frame until training ends, and is its own again then. The list of what the index
    itself points to, its quantiser and rotation, stays as it is.
    """
    ivf = ivf_of(faiss, index)
    ivf.clustering_index = clusterer
    try:
        index.train(sample)
    finally:
        ivf.clustering_index = None
        clusterer.this.own(True)


def _train_groups(faiss: ModuleType, index: Any, sample: npt.NDArray[Any], on_progress: ProgressCallback) -> None:
    """Train the centroids of the lists group by group, as many in each as it has of the sample's rows.

    The two-level k-means of faiss.contrib.clustering, with the groups kept: they are the first level of the quantiser.
    """
    ivf = ivf_of(faiss, index)
    quantiser = faiss.downcast_index(ivf.quantizer)
    groups = _centroids(faiss, _spread(sample, quantiser.nlist * _GROUP_POINTS), quantiser.nlist, _GROUP_POINTS)
    group_of = _nearest(faiss, groups, sample)
    ends = np.cumsum(np.bincount(group_of, minlength=quantiser.nlist))
    # Whole numbers, so that no group has more centroids than rows, and all together nlist.
    shares = np.diff(ends * ivf.nlist // len(sample), prepend=0)
    parts = np.split(np.argsort(group_of, kind="stable"), ends[:-1])
    found: list[Floats] = [np.empty((0, sample.shape[1]), dtype=np.float32)] * len(parts)
    work, lock = deque(np.flatnonzero(shares).tolist()), Lock()

    def train_some() -> None:
        # A group is trained in less time than several threads take to meet at its ends.
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        for number in taken_from(work):
            found[number] = _centroids(faiss, sample[parts[number]], int(shares[number]), POINTS)
            with lock:
                on_progress("training lists", len(parts) - len(work), len(parts))
        faiss.omp_set_num_threads(before)

    run_in_threads(train_some, default_threads())
    centroids = np.concatenate(found)
    if isinstance(index, faiss.IndexPreTransform):
        # A rotation changes no inner product: trained without it, rotated here.
        rotation = faiss.downcast_VectorTransform(index.chain.at(0))
        groups, centroids = rotation.apply(groups), rotation.apply(centroids)
    quantiser.quantizer.add(groups)
    quantiser.train(centroids)
    quantiser.add(centroids)
    # Codes of residuals read a centroid by its number.
    quantiser.make_direct_map()


def _centroids(faiss: ModuleType, rows: npt.NDArray[Any], count: int, points: int) -> Floats:
    """Return unit centroids of the rows by k-means, (count, d) float32, of at most so many points for each."""
    parameters = faiss.ClusteringParameters()
    parameters.spherical, parameters.niter, parameters.seed = True, 10, _SEED
    parameters.min_points_per_centroid, parameters.max_points_per_centroid = 1, points
    clustering = faiss.Clustering(rows.shape[1], count, parameters)
    clustering.train(decode(rows), faiss.IndexFlatIP(rows.shape[1]))
    centroids: Floats = faiss.vector_to_array(clustering.centroids).reshape(count, -1)
    return centroids


def _nearest(faiss: ModuleType, centroids: Floats, sample: npt.NDArray[Any]) -> Ints:
    """Return the number of the nearest centroid of each row, (n,)."""
    flat = faiss.IndexFlatIP(centroids.shape[1])
    flat.add(centroids)
    return np.concatenate([flat.search(decode(block), 1)[1].ravel() for block in sliced(sample, _READ_ROWS)])


def _spread(sample: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return so many rows, spread evenly over the sample; all if there are no more."""
    return sample if len(sample) <= size else sample[np.linspace(0, len(sample) - 1, size).astype(np.int64)]
