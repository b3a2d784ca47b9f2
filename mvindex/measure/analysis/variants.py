"""Variants of a document's vectors (some views, or their mean), and the document scores that each gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mvindex.ingest.prune import kept_views
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.measure.analysis.pool import ViewBlock
from mvindex.records import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of a document's views. choose: returns which views of a block belong to the variant, (r,) bool."""

    name: str
    choose: Callable[[ViewBlock], Bools]


@dataclass(frozen=True, slots=True)
class MeanView:
    """One vector per document, the mean of its views; is_unit: scaled to unit length, as the views are."""

    name: str
    is_unit: bool


Variant = Subset | MeanView


def all_views() -> Subset:
    """Return the variant of every view."""
    return Subset("all views", lambda block: np.ones(len(block.rows), dtype=bool))


def single_view(slot: int) -> Subset:
    """Return the variant of the view in that slot, as the document's only vector (CAMVR tables 2 and 7)."""
    return Subset(f"view {slot}", lambda block: block.slots == slot)


def most_different(num_views: int) -> Subset:
    """Return the variant of the num_views most different views of each document (see ranks_apart)."""
    return Subset(f"{num_views} views", lambda block: ranks_apart(block, num_views) < num_views)


def pruned(eps: float) -> Subset:
    """Return the variant without views that lie within eps of a view that stays (mvindex.ingest.prune)."""
    return Subset(f"pruned {eps}", lambda block: kept_views(block.rows, block.starts, eps))


class Reduced:
    """The documents of a block reduced to a variant: their scores for queries, and their number of vectors."""

    def __init__(self, block: ViewBlock, variant: Variant) -> None:
        self._block, self._variant = block, variant
        self._means: Floats | None = None
        self._mask: Bools | None = None
        if isinstance(variant, MeanView):
            self._means = _means(block, variant.is_unit)
            self.num_vectors = len(self._means)
        else:
            self._mask = variant.choose(block)
            self.num_vectors = int(np.count_nonzero(self._mask))

    def scores(self, queries: Floats, view_scores: Floats, scoring: Scoring) -> Floats:
        """Return each document's score, (q, m) float32; -inf where the variant has none of its views.

        queries: (q, d); view_scores: (q, r), the scores of all views of the block.
        """
        if self._means is not None:
            return queries @ self._means.T
        if self._mask is None or self._mask.all():
            return document_scores(view_scores, self._block.starts, scoring)
        counts = np.add.reduceat(self._mask.astype(np.int64), self._block.starts[:-1])
        has_views = counts > 0
        scores = np.full((len(view_scores), len(counts)), -np.inf, dtype=np.float32)
        if has_views.any():
            starts = np.append(0, np.cumsum(counts[has_views]))
            scores[:, has_views] = document_scores(view_scores[:, self._mask], starts, scoring)
        return scores


def document_scores(view_scores: Floats, starts: Ints, scoring: Scoring) -> Floats:
    """Return document scores (q, m) float32 of view scores (q, r): the maximum, or DRPQ's softmax mean (eq. 4-6)."""
    best: Floats = np.maximum.reduceat(view_scores, starts[:-1], axis=1)
    if scoring.aggregate is Aggregate.MAX:
        return best
    gaps = view_scores - np.repeat(best, np.diff(starts), axis=1)
    weights = np.exp(gaps / np.float32(scoring.temperature))
    total = np.add.reduceat(weights, starts[:-1], axis=1)
    return np.asarray(best + np.add.reduceat(weights * gaps, starts[:-1], axis=1) / total, dtype=np.float32)


def ranks_apart(block: ViewBlock, most: int) -> Ints:
    """Return the rank (r,) of each view in the farthest-first order of its document; from `most` on all get `most`.

    The first view comes first; each next is the view whose nearest view among those taken is farthest away, on a tie
    the lower slot (Gonzalez 1985: within a factor of two of the best choice of as many centres).
    """
    ranks = np.full(len(block.rows), most, dtype=np.int64)
    counts = np.diff(block.starts)
    for number in np.unique(counts).tolist():
        first = block.starts[:-1][counts == number]
        rows = first[:, None] + np.arange(number)
        views = block.rows[rows]
        ranks[rows] = _ranks_of(views, min(most, number), most)
    return ranks


def _ranks_of(views: Floats, steps: int, rest: int) -> Ints:
    """Return the ranks (m, k) of the views (m, k, d) of documents that have k views each."""
    documents = np.arange(len(views))
    ranks = np.full(views.shape[:2], rest, dtype=np.int64)
    nearest = np.full(views.shape[:2], np.inf)
    taken = np.zeros(len(views), dtype=np.int64)
    for step in range(steps):
        ranks[documents, taken] = step
        gaps = views - views[documents, taken][:, None]
        nearest = np.minimum(nearest, np.einsum("mkd,mkd->mk", gaps, gaps))
        nearest[documents, taken] = -1.0
        taken = nearest.argmax(axis=1)
    return ranks


def _means(block: ViewBlock, is_unit: bool) -> Floats:
    counts = np.diff(block.starts)[:, None]
    means = np.add.reduceat(block.rows, block.starts[:-1], axis=0) / counts
    if is_unit:
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.where(norms > 0, norms, 1)
    return means.astype(np.float32)
