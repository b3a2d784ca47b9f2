"""One query over inverted lists in several threads: Faiss itself searches the lists of one query in one thread.

Where compiled loops can read the lists, they do instead (faiss_fast_scan.py). Faiss' own ways to share out lists
(`implem` 14 and 15) take twice the CPU time, and were slower at every load tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mvindex.kernels.threads import run_in_threads
from mvindex.plugins import require_faiss
from mvindex.records import Floats, Ints
from mvindex_connectors.engines.faiss_ivf import ivf_of

# Codes that a thread must have to search: of 96 dimensions some 2 ms, where starting a thread takes .1.
CODES_PER_THREAD = 1 << 19


def search_split(index: Any, query: Floats, limit: int, parameters: Any, num_threads: int) -> tuple[Floats, Ints]:
    """Return the best `limit` rows of one query, (1, d) float32, as index.search() does: scores and rows, (1, limit).

    parameters: SearchParametersIVF. Each thread has every num_threads-th of the nearest lists.
    """
    faiss = require_faiss()
    ivf = faiss.downcast_index(ivf_of(faiss, index))
    if isinstance(index, faiss.IndexPreTransform):
        query = index.chain.at(0).apply(query)
    nprobe = parameters.nprobe
    closest, lists = faiss.downcast_index(ivf.quantizer).search(query, nprobe, params=parameters.quantizer_params)
    scores = np.empty((num_threads, limit), dtype=np.float32)
    rows = np.empty((num_threads, limit), dtype=np.int64)
    # The lists of others are left out as -1. Their scores stay, since tables are rounded by the range of all.
    shares = np.full((num_threads, nprobe), -1, dtype=np.int64)
    for number in range(num_threads):
        shares[number, number::num_threads] = lists[0, number::num_threads]
    numbers = iter(range(num_threads))

    def search() -> None:
        at, pointer = next(numbers), faiss.swig_ptr
        ivf.search_preassigned_c(
            1,
            pointer(query),
            limit,
            pointer(shares[at]),
            pointer(closest),
            pointer(scores[at]),
            pointer(rows[at]),
            False,
            parameters,
        )

    run_in_threads(search, num_threads)
    found, hits = scores.ravel(), rows.ravel()
    order = np.argsort(-found, kind="stable")[:limit]
    return found[order][None], hits[order][None]
