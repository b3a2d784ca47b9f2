"""The papers' measures, computed from the view scores of (question, document) pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
