"""Search of lists that are found apart: once for several shards, and those of one query in several threads.

Where compiled loops can read the lists, they do instead (faiss_fast_scan.py). Faiss' own ways to share out lists
(`implem` 14 and 15) take twice the CPU time, and were slower at every load tried.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.threads import run_in_threads
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_ivf import ivf_of

# Codes that a thread must have to search: of 96 dimensions some 2 ms, where starting a thread takes .1.
CODES_PER_THREAD = 1 << 19


class NearestLists(NamedTuple):
    """Queries as the lists are coded, (q, d), and scores and numbers of the lists nearest to each, (q, nprobe)."""

    queries: Floats
    scores: Floats
    lists: Ints


def nearest_lists(faiss: ModuleType, index: Any, queries: Floats, parameters: Any) -> NearestLists:
    """Return the nearest lists of the queries, (q, d) float32. parameters: SearchParametersIVF."""
    ivf = faiss.downcast_index(ivf_of(faiss, index))
    if isinstance(index, faiss.IndexPreTransform):
        queries = index.chain.at(0).apply(queries)
    quantiser = faiss.downcast_index(ivf.quantizer)
    return NearestLists(queries, *quantiser.search(queries, parameters.nprobe, params=parameters.quantizer_params))


def search_lists(  # noqa: PLR0913 - what a search of given lists needs
    faiss: ModuleType, index: Any, nearest: NearestLists, limit: int, parameters: Any, num_threads: int
) -> tuple[Floats, Ints]:
    """Return the best `limit` rows of each query, as index.search() does: scores and rows, (q, limit).

    parameters: SearchParametersIVF. num_threads: for one query only; each has every num_threads-th of its lists.
    """
    ivf = faiss.downcast_index(ivf_of(faiss, index))
    num_queries, nprobe = nearest.lists.shape
    scores = np.empty((num_threads, num_queries, limit), dtype=np.float32)
    rows = np.empty((num_threads, num_queries, limit), dtype=np.int64)
    shares = nearest.lists[None]
    if num_threads > 1:
        # The lists of others are left out as -1. Their scores stay, since tables are rounded by the range of all.
        shares = np.full((num_threads, num_queries, nprobe), -1, dtype=np.int64)
        for number in range(num_threads):
            shares[number, :, number::num_threads] = nearest.lists[:, number::num_threads]
    numbers = iter(range(num_threads))

    def search() -> None:
        at, pointer = next(numbers), faiss.swig_ptr
        ivf.search_preassigned_c(
            num_queries,
            pointer(nearest.queries),
            limit,
            pointer(shares[at]),
            pointer(nearest.scores),
            pointer(scores[at]),
            pointer(rows[at]),
            False,
            parameters,
        )

    run_in_threads(search, num_threads)
    if num_threads == 1:
        return scores[0], rows[0]
    found, hits = scores.ravel(), rows.ravel()
    order = np.argsort(-found, kind="stable")[:limit]
    return found[order][None], hits[order][None]
