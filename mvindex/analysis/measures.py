"""The papers' measures of what views do, of the view scores of (question, document) pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mvindex.records import Doubles, Floats, Ints, Views


@dataclass(frozen=True, slots=True, eq=False)
class PairScores:
    """View scores of m pairs of a question and a document. scores: (r,) float64; starts: (m + 1,) int64."""

    scores: Doubles
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def counts(self) -> Ints:
        """Views of each pair's document, (m,)."""
        return np.diff(self.starts)

    @property
    def best(self) -> Doubles:
        """The best view's score, (m,)."""
        found: Doubles = np.maximum.reduceat(self.scores, self.starts[:-1])
        return found

    @property
    def winners(self) -> Ints:
        """The slot of the best view, (m,), the first on a tie, as in search."""
        slots = np.arange(len(self.scores)) - np.repeat(self.starts[:-1], self.counts)
        is_best = self.scores == np.repeat(self.best, self.counts)
        return np.minimum.reduceat(np.where(is_best, slots, len(self.scores)), self.starts[:-1])

    def where(self, is_kept: npt.NDArray[np.bool_]) -> PairScores:
        """The pairs (m,) bool that are kept."""
        counts = self.counts
        return PairScores(self.scores[np.repeat(is_kept, counts)], np.append(0, np.cumsum(counts[is_kept])))

    def shares(self, temperature: float) -> Doubles:
        """softmax(scores / temperature) within each pair, (r,)."""
        weights = np.exp((self.scores - np.repeat(self.best, self.counts)) / temperature)
        total = np.add.reduceat(weights, self.starts[:-1])
        found: Doubles = weights / np.repeat(total, self.counts)
        return found


def pair_scores(views: Views, queries: Floats, documents: Ints) -> PairScores:
    """The view scores of each question and its document. queries: (m, d); documents: (m,) rows of the views."""
    begins, counts = views.starts[documents], np.diff(views.starts)[documents]
    starts = np.append(0, np.cumsum(counts))
    rows = views.rows[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], counts)].astype(np.float64)
    return PairScores(np.einsum("rd,rd->r", rows, np.repeat(queries.astype(np.float64), counts, axis=0)), starts)


def local_variations(pairs: PairScores, scale: float) -> Doubles:
    """LV of each pair, (m,): max_i f_i - (sum_i f_i - max_i f_i) / (k - 1), f the softmax of scale times scores.

    MVR eq. 9; the paper names no normaliser, softmax is our reading. Every pair needs two views.
    """
    shares = pairs.shares(1 / scale)
    most = np.maximum.reduceat(shares, pairs.starts[:-1])
    found: Doubles = most - (1 - most) / (pairs.counts - 1)
    return found


def margins(pairs: PairScores) -> Doubles:
    """How far the best view of each pair lies above the second, (m,), in scores. Every pair needs two views."""
    rest = pairs.scores.copy()
    rest[pairs.starts[:-1] + pairs.winners] = -np.inf
    found: Doubles = pairs.best - np.maximum.reduceat(rest, pairs.starts[:-1])
    return found


def perplexities(documents: Ints, winners: Ints) -> Doubles:
    """PPL = exp(-sum_i p_i log p_i) of each document asked for, in rising order; p_i: the share of its questions that
    view i won (MVR eq. 10; the paper's figure is the mean).

    documents: (m,) which document each question asks for; winners: (m,) the slot that won.
    """  # noqa: D205 - the formula needs the room
    wins, counts = np.unique(np.stack([documents, winners]), axis=1, return_counts=True)
    _, which = np.unique(wins[0], return_inverse=True)
    total = np.bincount(which, weights=counts)
    shares = counts / total[which]
    found: Doubles = np.exp(np.bincount(which, weights=-shares * np.log(shares)))
    return found


def gradient_weights(pairs: PairScores, temperature: float) -> Doubles:
    """r(c_j) of each view, (r,): r_j = [1 + sum_{j' != j} a_j' (s_j - s_j') / T] a_j, a = softmax(s / T).

    DRPQ eq. 11, there T = 1: the derivative of the document's score in the view's. Those of a pair sum to 1.
    """
    shares = pairs.shares(temperature)
    means = np.add.reduceat(shares * pairs.scores, pairs.starts[:-1])
    found: Doubles = shares * (1 + (pairs.scores - np.repeat(means, pairs.counts)) / temperature)
    return found


def variances(values: Doubles, starts: Ints) -> Doubles:
    """The variance within each stretch, (m,)."""
    counts = np.diff(starts)
    means = np.add.reduceat(values, starts[:-1]) / counts
    found: Doubles = np.add.reduceat((values - np.repeat(means, counts)) ** 2, starts[:-1]) / counts
    return found


def by_rank(values: Doubles, pairs: PairScores, most: int) -> list[float]:
    """The mean value of the best view, of the second best, and so on, of the pairs that have so many; up to `most`."""
    owners = np.repeat(np.arange(len(pairs)), pairs.counts)
    order = np.lexsort((-pairs.scores, owners))
    ranks = np.arange(len(order)) - np.repeat(pairs.starts[:-1], pairs.counts)
    kept = ranks < most
    sums = np.bincount(ranks[kept], weights=values[order][kept])
    return [float(value) for value in sums / np.bincount(ranks[kept])]
