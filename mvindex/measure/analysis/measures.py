"""The papers' measures: of view scores of pairs, of the similarity of views, and of their attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.measure.analysis.ranks import Pool, ViewBlock
from mvindex.records import Doubles, Floats, Ints, Views


@dataclass(frozen=True, slots=True, eq=False)
class PairScores:
    """View scores of m pairs of a question and a document: scores (r,) float64, starts (m + 1,) int64."""

    scores: Doubles
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def counts(self) -> Ints:
        """Return the number of views of each pair's document, (m,)."""
        return np.diff(self.starts)

    @property
    def best(self) -> Doubles:
        """Return the best view's score, (m,)."""
        scores: Doubles = np.maximum.reduceat(self.scores, self.starts[:-1])
        return scores

    @property
    def winners(self) -> Ints:
        """Return the slot of the best view, (m,); on a tie the first, as in search."""
        slots = np.arange(len(self.scores)) - np.repeat(self.starts[:-1], self.counts)
        is_best = self.scores == np.repeat(self.best, self.counts)
        return np.minimum.reduceat(np.where(is_best, slots, len(self.scores)), self.starts[:-1])

    def where(self, mask: npt.NDArray[np.bool_]) -> PairScores:
        """Return the pairs that the mask (m,) selects."""
        counts = self.counts
        return PairScores(self.scores[np.repeat(mask, counts)], np.append(0, np.cumsum(counts[mask])))

    def shares(self, temperature: float) -> Doubles:
        """Return softmax(scores / temperature) within each pair, (r,)."""
        weights = np.exp((self.scores - np.repeat(self.best, self.counts)) / temperature)
        total = np.add.reduceat(weights, self.starts[:-1])
        shares: Doubles = weights / np.repeat(total, self.counts)
        return shares


def pair_scores(views: Views, queries: Floats, documents: Ints) -> PairScores:
    """Return the view scores of each query (m, d) and its document, (m,) rows of the views."""
    begins, counts = views.starts[documents], np.diff(views.starts)[documents]
    starts = np.append(0, np.cumsum(counts))
    rows = views.rows[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], counts)].astype(np.float64)
    return PairScores(np.einsum("rd,rd->r", rows, np.repeat(queries.astype(np.float64), counts, axis=0)), starts)


def local_variations(pairs: PairScores, scale: float) -> Doubles:
    """Return LV of each pair, (m,): max_i f_i - (sum_i f_i - max_i f_i) / (k - 1), f the softmax of scale * scores.

    MVR eq. 9; the paper names no normalisation, the softmax is our reading. Every pair needs two views.
    """
    shares = pairs.shares(1 / scale)
    most = np.maximum.reduceat(shares, pairs.starts[:-1])
    variations: Doubles = most - (1 - most) / (pairs.counts - 1)
    return variations


def margins(pairs: PairScores) -> Doubles:
    """Return the best view's score minus the second best of each pair, (m,). Every pair needs two views."""
    rest = pairs.scores.copy()
    rest[pairs.starts[:-1] + pairs.winners] = -np.inf
    gaps: Doubles = pairs.best - np.maximum.reduceat(rest, pairs.starts[:-1])
    return gaps


def perplexities(documents: Ints, winners: Ints) -> Doubles:
    """Return PPL = exp(-sum_i p_i log p_i) of each document that has questions, in ascending order.

    p_i is the share of the document's questions that view i won (MVR eq. 10; the paper's figure is the mean).
    documents: (m,) the document of each question; winners: (m,) the slot that won.
    """
    wins, counts = np.unique(np.stack([documents, winners]), axis=1, return_counts=True)
    _, which = np.unique(wins[0], return_inverse=True)
    total = np.bincount(which, weights=counts)
    shares = counts / total[which]
    values: Doubles = np.exp(np.bincount(which, weights=-shares * np.log(shares)))
    return values


def gradient_weights(pairs: PairScores, temperature: float) -> Doubles:
    """Return r(c_j) of each view, (r,): r_j = [1 + sum_{j' != j} a_j' (s_j - s_j') / T] a_j, a = softmax(s / T).

    DRPQ eq. 11, where T = 1: the derivative of the document's score by the view's. The weights of a pair sum to 1.
    """
    shares = pairs.shares(temperature)
    means = np.add.reduceat(shares * pairs.scores, pairs.starts[:-1])
    weights: Doubles = shares * (1 + (pairs.scores - np.repeat(means, pairs.counts)) / temperature)
    return weights


def variances(values: Doubles, starts: Ints) -> Doubles:
    """Return the variance within each segment, (m,)."""
    counts = np.diff(starts)
    means = np.add.reduceat(values, starts[:-1]) / counts
    spread: Doubles = np.add.reduceat((values - np.repeat(means, counts)) ** 2, starts[:-1]) / counts
    return spread


def by_rank(values: Doubles, pairs: PairScores, most: int) -> list[float]:
    """Return the mean value of the best view, the second best and so on, up to `most`, over the pairs that have it."""
    owners = np.repeat(np.arange(len(pairs)), pairs.counts)
    order = np.lexsort((-pairs.scores, owners))
    ranks = np.arange(len(order)) - np.repeat(pairs.starts[:-1], pairs.counts)
    mask = ranks < most
    sums = np.bincount(ranks[mask], weights=values[order][mask])
    return [float(value) for value in sums / np.bincount(ranks[mask])]


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


# Where a view may not attend, the divergence would be infinite: such a share counts as this.
LEAST_SHARE = 1e-9


def divergences(attention: Floats) -> Doubles:
    """Return KL(i, j) = sum_l a_jl log(a_jl / a_il), (k, k), of one document's attention (k, t) (CAMVR eq. 14)."""
    shares = np.maximum(attention.astype(np.float64), LEAST_SHARE)
    shares /= shares.sum(axis=1, keepdims=True)
    logs = np.log(shares)
    entropies = np.einsum("jl,jl->j", shares, logs)
    kl: Doubles = np.maximum(entropies[None, :] - logs @ shares.T, 0)
    np.fill_diagonal(kl, 0)
    return kl


def mean_divergences(attentions: Iterable[Floats | None]) -> dict[str, Any] | None:
    """Return the section `attention`: the mean KL of each pair of slots over the documents that have both.

    Return None if no document has two views in one window. `mean` is over a document's pairs, then over documents.
    """
    sums, counts = np.zeros((2, MOST_SLOTS, MOST_SLOTS))
    total, documents = 0.0, 0
    for attention in attentions:
        if attention is None or len(attention) < 2:
            continue
        kl = divergences(attention[:MOST_SLOTS])
        size = len(kl)
        sums[:size, :size] += kl
        counts[:size, :size] += 1
        total += float(kl.sum()) / (size * (size - 1))
        documents += 1
    if not documents:
        return None
    used = int(np.count_nonzero(counts[0]))
    means = [[float(sums[i, j] / counts[i, j]) if counts[i, j] else None for j in range(used)] for i in range(used)]
    return {"kl": means, "mean": total / documents, "documents": documents}
