"""Search by a query group: a document's score is the max, sum or mean of its scores for several query vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from mvindex.kernels.score import DocumentScores, Scoring
from mvindex.records import Combine, Floats, Ints
from mvindex.search.request import Ranking
from mvindex.search.rescore import Pairs, score_pairs
from mvindex.search.shard_merge import Part, owners
from mvindex.store.views import MappedViews

# By sum and mean each vector is first searched for so many times top_k documents, then for so many times as many.
_FIRST_DEPTH, _GROWTH = 8, 4
# From one in so many documents on, all are scored at once instead.
_SCORED_SHARE = 4
# Documents that are scored together: bounds memory.
_DOCUMENTS_AT_ONCE = 1 << 14


def combine_scores(scores: Floats, combine: Combine) -> Floats:
    """Return the combined scores, (n,), of (m, n) float32: added one vector after the other in float64, then rounded.

    Never falls where a score rises, and is the score itself where m is 1.
    """
    if combine is Combine.MAX:
        highest: Floats = scores.max(axis=0)
        return highest
    # np.sum() adds in an order that depends on the shape.
    total = scores[0].astype(np.float64)
    for more in scores[1:]:
        total += more
    if combine is Combine.MEAN:
        total /= len(scores)
    with np.errstate(over="ignore"):
        rounded: Floats = total.astype(np.float32)
    return rounded


def score_group(
    views: MappedViews, queries: Floats, doc_rows: Ints, scoring: Scoring, combine: Combine
) -> DocumentScores:
    """Return the combined score of each document, (n,), and the winning slot for the vector that it scores best for.

    queries: (m, d) float32, one group.
    """
    shape = len(queries), len(doc_rows)
    pairs = Pairs(np.tile(doc_rows, len(queries)), np.repeat(np.arange(len(queries)), len(doc_rows)))
    found = score_pairs(views, queries, pairs, scoring)
    scores, slots = found.scores.reshape(shape), found.slots.reshape(shape)
    best = scores.argmax(axis=0)
    return DocumentScores(combine_scores(scores, combine), slots[best, np.arange(len(doc_rows))])


@dataclass(frozen=True, slots=True)
class Scored:
    """Documents with their combined scores, winning slots and ordinals, (n,) each."""

    rows: Ints
    scores: Floats
    slots: Ints
    ordinals: Ints

    def joined(self, more: Scored) -> Scored:
        """Return the documents of both."""
        return Scored(
            np.concatenate([self.rows, more.rows]),
            np.concatenate([self.scores, more.scores]),
            np.concatenate([self.slots, more.slots]),
            np.concatenate([self.ordinals, more.ordinals]),
        )

    def top(self, top_k: int) -> Scored:
        """Return the top_k, best first: falling scores, then rising ordinals."""
        order = np.lexsort((self.ordinals, -self.scores))[:top_k]
        return Scored(self.rows[order], self.scores[order], self.slots[order], self.ordinals[order])


class GroupScorer(Protocol):
    """The scores of documents for one group, in one kind of store."""

    def count(self) -> int:
        """Return the number of allowed documents."""

    def search(self, top_k: int) -> list[Ranking]:
        """Return the ranking of each vector for a number of documents."""

    def score(self, rows: Ints) -> Scored:
        """Return these documents with their combined scores."""

    def score_all(self, top_k: int) -> tuple[Scored, int]:
        """Return the top_k of all allowed documents, each of them scored, and their number."""


@dataclass(frozen=True, slots=True)
class GroupSearch:
    """A search for the best top_k documents of one group of queries, (m, d) float32."""

    scorer: GroupScorer
    queries: Floats
    combine: Combine
    top_k: int

    def run(self) -> Ranking:
        """Return the best documents of the group.

        By max, the top_k documents are among the top_k of each vector: a document that is in none of these lists has
        its best score in a list of top_k documents that all come before it. By sum and mean (Fagin's threshold
        algorithm), a document that no list has scores at most the last score of each list, combined; done when the
        top_k-th score is strictly higher. The combination never falls where a score rises, rounding included.
        """
        num_allowed = self.scorer.count()
        top_k = min(self.top_k, num_allowed)
        if self.combine is Combine.MAX or len(self.queries) == 1 or not num_allowed:
            found = self.scorer.search(self.top_k)
            return self._ranking(found, top_k, max(each.rounds for each in found))
        depth, rounds = _FIRST_DEPTH * top_k, 0
        while depth * _SCORED_SHARE < num_allowed:
            found = self.scorer.search(depth)
            rounds += max(each.rounds for each in found)
            ranking = self._ranking(found, top_k, rounds)
            if not ranking.exact or ranking.scores[-1] > self._unseen(found):
                return ranking
            depth *= _GROWTH
        best, num_scored = self.scorer.score_all(top_k)
        return _as_ranking(best, top_k)._replace(rounds=rounds + 1, num_scored=num_scored)

    def _unseen(self, found: Sequence[Ranking]) -> float:
        """Return the highest score that a document in none of the lists can have."""
        lasts = np.array([[each.scores[-1]] for each in found], dtype=np.float32)
        return float(combine_scores(lasts, self.combine)[0])

    def _ranking(self, found: Sequence[Ranking], top_k: int, rounds: int) -> Ranking:
        """Return the best of the documents in the rankings; exact where all of these are."""
        rows = np.unique(np.concatenate([each.rows for each in found]))
        ranking = _as_ranking(self.scorer.score(rows).top(top_k), top_k)
        num_scored = sum(each.num_scored for each in found)
        return ranking._replace(exact=all(each.exact for each in found), rounds=rounds, num_scored=num_scored)


def _as_ranking(best: Scored, top_k: int) -> Ranking:
    return Ranking(best.rows, best.scores, best.slots, True, top_k - len(best.rows), 0, 0)


@dataclass(frozen=True, slots=True)
class PartsScorer:
    """The scores of one group over the parts of an embedded store.

    Attributes:
        parts: The stores; their requests name filter and scoring.
        errors: For each part, a context that names it in errors.
        queries: (m, d) float32.
        combine: How the m scores of a document make one.
        rank: Returns the ranking of each vector over all parts for a number of documents.

    """

    parts: Sequence[Part]
    errors: Sequence[Callable[[], AbstractContextManager[None]]]
    queries: Floats
    combine: Combine
    rank: Callable[[int], list[Ranking]]

    def count(self) -> int:
        """Return the number of allowed documents."""
        return sum(part.snapshot.count(part.request.allowed) for part in self.parts)

    def search(self, top_k: int) -> list[Ranking]:
        """Return the ranking of each vector for a number of documents."""
        return self.rank(top_k)

    def score_all(self, top_k: int) -> tuple[Scored, int]:
        """Return the top_k of all allowed documents, each of them scored, and their number."""
        first, best = 0, self.score(np.empty(0, dtype=np.int64))
        num_scored = 0
        for part in self.parts:
            allowed = np.flatnonzero(part.request.allowed)
            num_scored += len(allowed)
            cuts = [*range(0, len(allowed), _DOCUMENTS_AT_ONCE), len(allowed)]
            for begin, end in pairwise(cuts):
                more = self.score(first + allowed[begin:end])
                best = best.joined(more).top(top_k)
            first += max(part.snapshot.num_rows, 1)
        return best, num_scored

    def score(self, rows: Ints) -> Scored:
        """Return the documents with their combined scores; rows are numbered through all parts, see owners()."""
        which, local = owners(self.parts, rows)
        scores, slots = np.empty(len(rows), dtype=np.float32), np.empty(len(rows), dtype=np.int64)
        ordinals = np.empty(len(rows), dtype=np.int64)
        for number, (part, errors) in enumerate(zip(self.parts, self.errors, strict=True)):
            places = np.flatnonzero(which == number)
            if len(places):
                views, own = part.snapshot.views, local[places]
                with errors():
                    scores[places], slots[places] = score_group(
                        views, self.queries, own, part.request.scoring, self.combine
                    )
                ordinals[places] = views.ordinals(own)
        return Scored(rows, scores, slots, ordinals)
