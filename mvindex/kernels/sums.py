"""Inner products of stored views with queries in float64, straight from the mapped store."""

from __future__ import annotations

from typing import Any

import numpy as np

from mvindex.kernels.compiled import compiled
from mvindex.kernels.numbers import decoded, prefetch

# Documents ahead of the one that is summed.
_AHEAD = 1


@compiled
def sums_of_documents(matrix: Any, begins: Any, starts: Any, queries: Any, which: Any, sums: Any, squares: Any) -> None:
    """Write <q, v> and |v|^2 in float64 per view of each pair into sums and squares.

    matrix: (num_views, d) float32, or int16 with the bits of fp16. Pair i is the views begins[i], ... of a document,
    starts[i + 1] - starts[i] of them, with queries[which[i]], (q, d) float64; sums, squares: (starts[-1],) float64.
    """
    dim, row_bytes, matrix_at = matrix.shape[1], matrix.shape[1] * matrix.itemsize, matrix.ctypes.data
    for pair in range(len(begins)):
        query = queries[which[pair]]
        for at in range(starts[pair], starts[pair + 1]):
            slot = at - starts[pair]
            # Documents lie anywhere: the next one is called for while this one is summed.
            ahead = begins[min(pair + _AHEAD, len(begins) - 1)] + slot
            for line in range(0, row_bytes, 64):
                prefetch(matrix_at + ahead * row_bytes + line)
            view = matrix[begins[pair] + slot]
            total, square = 0.0, 0.0
            for i in range(dim):
                value = np.float64(decoded(view[i]))
                total += value * query[i]
                square += value * value
            sums[at] = total
            squares[at] = square
