"""View scores to document scores: the ONE scoring function, and the total order of documents.

A view's score is the inner product of the stored view and the query, rounded once to float32. The sum is taken in
float64 and proven: where its rounding error could change the float32, the products (exact in float64) are summed
exactly instead. So a score depends on the two vectors only: not on engine, batch, thread or BLAS.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.records import Doubles, Floats, Ints
from mvindex.store.views import decode, row_norms

_UNIT_ROUNDOFF = 2.0**-53


class DocumentScores(NamedTuple):
    """Scores (m,) float32 of m documents and, for each, the slot (m,) int64 of its best view (the first, on a tie)."""

    scores: Floats
    slots: Ints


def view_scores(packed: npt.NDArray[Any], query: Floats) -> Floats:
    """The score of each stored view, (r,) float32, for a query (d,) float32; packed: (r, d) fp16 or fp32.

    For any order of summation |fl(x . y) - x . y| <= d u / (1 - d u) sum |x_i y_i| (Higham 2002, eq. 3.5).
    """
    narrow, wide_query = decode(packed), query.astype(np.float64)
    rows = narrow.astype(np.float64)
    sums = rows @ wide_query
    slack = 2 * len(query) * _UNIT_ROUNDOFF
    open_rows = _undecided(sums, row_norms(narrow) * (slack * np.linalg.norm(wide_query)))
    if len(open_rows):
        magnitudes = np.abs(rows[open_rows]) @ np.abs(wide_query)
        open_rows = open_rows[_undecided(sums[open_rows], magnitudes * slack)]
        sums[open_rows] = [math.fsum(products) for products in (rows[open_rows] * wide_query).tolist()]
    # Adding zero turns -0.0 into 0.0: the two are equal in order and must print alike.
    return sums.astype(np.float32) + np.float32(0)


def best_views(scores: Floats, starts: Ints) -> DocumentScores:
    """Each document's best view. scores: (r,) float32; starts: (m + 1,) int64, no document without a view."""
    best = np.maximum.reduceat(scores, starts[:-1])
    counts = np.diff(starts)
    slots = np.arange(len(scores)) - np.repeat(starts[:-1], counts)
    is_best = scores == np.repeat(best, counts)
    return DocumentScores(best, np.minimum.reduceat(np.where(is_best, slots, len(scores)), starts[:-1]))


def top_documents(scores: Floats, ordinals: Ints, top_k: int) -> Ints:
    """The positions of the top_k documents in the total order: score falling, then ordinal rising."""
    if len(scores) > 4 * top_k:
        threshold = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        kept = np.flatnonzero(scores >= threshold)
        return kept[np.lexsort((ordinals[kept], -scores[kept]))[:top_k]]
    return np.lexsort((ordinals, -scores))[:top_k]


def _undecided(sums: Doubles, errors: Doubles) -> Ints:
    """The positions where the true sum, within its error, could round to another float32."""
    return np.flatnonzero((sums - errors).astype(np.float32) != (sums + errors).astype(np.float32))
