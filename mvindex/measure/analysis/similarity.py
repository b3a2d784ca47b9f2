"""Similarity of the views of one document: mean cosines by slot, and their histogram."""

from __future__ import annotations

from typing import Any

import numpy as np

from mvindex.measure.analysis.pool import Pool, ViewBlock
from mvindex.records import Doubles, Floats, Ints

# Slots beyond these are left out of the matrix, which would be unreadable; they count in everything else.
MOST_SLOTS = 32
_EDGES = np.linspace(-1, 1, 41)
# Cosines computed at once: 64 MB.
_PAIRS_AT_ONCE = 1 << 23


class SimilarityCounter:
    """Counts the cosines of pairs of views of one document, block by block."""

    def __init__(self) -> None:
        self._sums, self._counts = np.zeros((2, MOST_SLOTS, MOST_SLOTS))
        self._histogram = np.zeros(len(_EDGES) - 1, dtype=np.int64)
        self._means, self._documents = 0.0, 0

    def add(self, block: ViewBlock) -> None:
        """Count the block's documents of two views or more. A view of norm 0 has cosine 0 to all others."""
        counts = np.diff(block.starts)
        norms = np.linalg.norm(block.rows, axis=1, keepdims=True)
        units = block.rows / np.where(norms > 0, norms, np.float32(1))
        means = mean_cosines(block.rows, block.starts)[counts > 1]
        self._means += float(means.sum())
        self._documents += len(means)
        for number in np.unique(counts[counts > 1]).tolist():
            first = block.starts[:-1][counts == number]
            step = max(1, _PAIRS_AT_ONCE // number**2)
            for begin in range(0, len(first), step):
                self._add(units[first[begin : begin + step, None] + np.arange(number)])

    def _add(self, views: Floats) -> None:
        """Count views (m, k, d) of unit length, of documents that have k >= 2 views each."""
        cosines = np.einsum("mid,mjd->mij", views, views, optimize=True).astype(np.float64)
        above = np.triu_indices(views.shape[1], 1)
        pairs: Doubles = np.clip(cosines[:, above[0], above[1]], -1, 1)
        self._histogram += np.histogram(pairs, _EDGES)[0]
        shown = min(views.shape[1], MOST_SLOTS)
        self._sums[:shown, :shown] += cosines[:, :shown, :shown].sum(axis=0)
        self._counts[:shown, :shown] += len(views)

    def report(self) -> dict[str, Any] | None:
        """Return the section `similarity`; None if no document had two views.

        mean_cosine is the mean over a document's pairs, then over documents; heat is by slots, None where no document
        has both.
        """
        if not self._documents:
            return None
        used = int(np.count_nonzero(self._counts[0]))
        sums, counts = self._sums[:used, :used], self._counts[:used, :used]
        heat = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        return {
            "mean_cosine": self._means / self._documents,
            "heat": [[None if np.isnan(value) else float(value) for value in row] for row in heat],
            "histogram": {"edges": _EDGES.tolist(), "counts": self._histogram.tolist()},
            "documents": self._documents,
        }


def mean_cosines(rows: Floats, starts: Ints) -> Doubles:
    """Return the mean cosine over each document's pairs of views, (m,); NaN for a document of one view.

    For unit vectors u_1..u_k it is (|sum u|^2 - k) / (k (k - 1)). A view of norm 0 has cosine 0 to all others.
    """
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    units = wide / np.where(norms > 0, norms, 1)
    squares = np.add.reduceat(np.einsum("rd,rd->r", units, units), starts[:-1])
    sums, counts = np.add.reduceat(units, starts[:-1]), np.diff(starts)
    pairs = np.where(counts > 1, counts * (counts - 1), np.nan)
    means: Doubles = (np.einsum("md,md->m", sums, sums) - squares) / pairs
    return means


def measure_similarity(pool: Pool) -> dict[str, Any] | None:
    """Return the section `similarity` of the pool's documents."""
    counter = SimilarityCounter()
    for block in pool.blocks():
        counter.add(block)
    return counter.report()
