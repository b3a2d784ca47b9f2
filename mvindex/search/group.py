"""Search by a query group: a document's score is the max, sum or mean of its scores for several query vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.kernels.score import Scoring, combine_scores
from mvindex.records import Combine, Floats, Ints
from mvindex.search.exact import ViewSource
from mvindex.search.ranking import Pairs, Ranking, ScoredPairs

# By sum and mean each vector is first searched for so many times top_k documents, then for so many times as many.
_FIRST_DEPTH, _GROWTH = 8, 4
# From one in so many documents on, all are scored at once instead.
_SCORED_SHARE = 4


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

    @classmethod
    def of(cls, found: ScoredPairs, num_queries: int, combine: Combine) -> Scored:
        """Return documents that were scored for every query of a group, by rising rows, with combined scores."""
        order, shape = np.lexsort((found.rows, found.which)), (num_queries, -1)
        scores, slots = found.scores[order].reshape(shape), found.slots[order].reshape(shape)
        rows, ordinals = found.rows[order].reshape(shape)[0], found.ordinals[order].reshape(shape)[0]
        # The winning slot is that for the query that the document scores best for.
        winners = slots[scores.argmax(axis=0), np.arange(len(rows))]
        return cls(rows, combine_scores(scores, combine), winners, ordinals)

    def top(self, top_k: int) -> Scored:
        """Return the top_k, best first: falling scores, then rising ordinals."""
        order = np.lexsort((self.ordinals, -self.scores))[:top_k]
        return Scored(self.rows[order], self.scores[order], self.slots[order], self.ordinals[order])


def pairs_of(rows: Ints, num_queries: int) -> Pairs:
    """Return the documents (n,) for each query of a group."""
    return Pairs(np.tile(rows, num_queries), np.repeat(np.arange(num_queries), len(rows)))


def score_group(views: ViewSource, queries: Floats, rows: Ints, scoring: Scoring, combine: Combine) -> Scored:
    """Return the documents, those that are still there, with their combined scores. queries: (m, d) float32."""
    return Scored.of(views.score(queries, pairs_of(rows, len(queries)), scoring), len(queries), combine)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSearch:
    """A search for the best top_k documents of one group of queries.

    Attributes:
        queries: (m, d) float32.
        combine: How the m scores of a document make one.
        scoring: How each of them is made.
        top_k: Number of documents.
        num_allowed: The number of allowed documents.
        rank: Returns the ranking of each query for a number of documents.
        views: Scores documents.
        score_all: Yields all allowed documents, some at a time, scored for every query.
        keep: Called with the rows of documents that may still be among the best.

    """

    queries: Floats
    combine: Combine
    scoring: Scoring
    top_k: int
    num_allowed: int
    rank: Callable[[int], list[Ranking]]
    views: ViewSource
    score_all: Callable[[], Iterable[ScoredPairs]]
    keep: Callable[[Ints], object] | None = None

    def run(self) -> Ranking:
        """Return the best documents of the group.

        By max, the top_k documents are among the top_k of each vector: a document that is in none of these lists has
        its best score in a list of top_k documents that all come before it. By sum and mean (Fagin's threshold
        algorithm), a document that no list has scores at most the last score of each list, combined; done when the
        top_k-th score is strictly higher. The combination never falls where a score rises, rounding included.
        """
        num_allowed = self.num_allowed
        top_k = min(self.top_k, num_allowed)
        if self.combine is Combine.MAX or len(self.queries) == 1 or not num_allowed:
            found = self.rank(self.top_k)
            return self._ranking(found, top_k, max(each.rounds for each in found))
        depth, rounds = _FIRST_DEPTH * top_k, 0
        while depth * _SCORED_SHARE < num_allowed:
            found = self.rank(depth)
            rounds += max(each.rounds for each in found)
            ranking = self._ranking(found, top_k, rounds)
            if not ranking.exact or ranking.scores[-1] > self._unseen(found):
                return ranking
            depth *= _GROWTH
        best, num_scored = self._best_of_all(top_k)
        return _as_ranking(best, top_k)._replace(rounds=rounds + 1, num_scored=num_scored)

    def _best_of_all(self, top_k: int) -> tuple[Scored, int]:
        """Return the top_k of all allowed documents, each of them scored, and their number."""
        best, num_scored = _NONE, 0
        for found in self.score_all():
            own = Scored.of(found, len(self.queries), self.combine)
            best, num_scored = best.joined(own).top(top_k), num_scored + len(own.rows)
            if self.keep is not None:
                self.keep(best.rows)
        return best, num_scored

    def _unseen(self, found: Sequence[Ranking]) -> float:
        """Return the highest score that a document in none of the lists can have."""
        lasts = np.array([[each.scores[-1]] for each in found], dtype=np.float32)
        return float(combine_scores(lasts, self.combine)[0])

    def _ranking(self, found: Sequence[Ranking], top_k: int, rounds: int) -> Ranking:
        """Return the best of the documents in the rankings; exact where all of these are."""
        rows = np.unique(np.concatenate([each.rows for each in found]))
        scored = score_group(self.views, self.queries, rows, self.scoring, self.combine)
        ranking = _as_ranking(scored.top(top_k), top_k)
        if self.keep is not None:
            self.keep(ranking.rows)
        num_scored = sum(each.num_scored for each in found)
        return ranking._replace(exact=all(each.exact for each in found), rounds=rounds, num_scored=num_scored)


def _as_ranking(best: Scored, top_k: int) -> Ranking:
    return Ranking(best.rows, best.scores, best.slots, True, top_k - len(best.rows), 0, 0)


_NO_ROWS = np.empty(0, dtype=np.int64)
_NONE = Scored(_NO_ROWS, _NO_ROWS.astype(np.float32), _NO_ROWS, _NO_ROWS)
