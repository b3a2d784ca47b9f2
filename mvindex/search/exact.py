"""Search by scan: every document that may matter is scored, also of query groups, so that the ranking is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from mvindex.engines.protocol import Candidates, ScanEngine
from mvindex.kernels.score import Scoring, combine_scores
from mvindex.records import Bools, Combine, Doubles, Floats, Ints
from mvindex.search.parts import StoredViews, documents_of_best_views
from mvindex.search.ranking import Pairs, Ranking, Request, ScoredPairs
from mvindex.store.snapshot import Snapshot

# Where fewer than one document in so many is allowed, these are scored at once: no scan leaves out more than it costs.
_SCORED_AT_ONCE = 64
# Documents that stand together, as those that an engine lacks, are scanned without the others: from so many on.
_SCANNED_TOGETHER = 4096
# And where the batch has no more of these pairs than so many: all of them are written down.
_MOST_PAIRS = 1 << 22
# Documents of so many times top_k are sorted whole; of more only those that reach the top_k-th highest score.
_SORTED_WHOLE = 4
# Candidates of a batch that are scored together: bounds memory when thousands of documents tie.
_CANDIDATES_AT_ONCE = 1 << 18
# A scan's bounds are tight: after the top_k highest, all that may matter is scored, up to so many times as many. Where
# thousands have no bound, the best of these leave few of the others to be sorted.
_SCORED_NEXT = 1 << 10


def scanned(snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request) -> Iterator[Ranking]:
    """Yield the exact rankings: every document that may matter is scored."""
    candidates = candidates_of(snapshot, scan, queries, request)
    for begin, end in _groups(candidates.starts):
        best = Best(StoredViews(snapshot.views), queries[begin:end], request.top_k, request.scoring)
        settle_candidates(best, candidates, begin, end)
        yield from rankings_of(best, exact=True, rounds=1)


def settle_candidates(best: Best, candidates: Candidates, begin: int, end: int) -> None:
    """Settle the candidates of queries [begin, end) in best, where they are [0, end - begin)."""
    at = slice(candidates.starts[begin], candidates.starts[end])
    which = np.repeat(np.arange(end - begin), np.diff(candidates.starts[begin : end + 1]))
    best.settle(Pairs(candidates.rows[at], which), candidates.upper[at], _SCORED_NEXT)


def add_tail(  # noqa: PLR0913 - a search and the rows that its engine lacks
    best: Best, snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request, tail: Ints
) -> None:
    """Settle the allowed documents that an engine lacks, rows `tail`, as far as they may matter."""
    if not len(tail):
        return
    fresh = np.zeros_like(request.allowed)
    fresh[tail] = True
    request = request._replace(top_k=min(request.top_k, len(tail)), allowed=fresh, num_allowed=len(tail))
    settle_candidates(best, candidates_of(snapshot, scan, queries, request, tail), 0, len(queries))


def candidates_of(
    snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request, rows: Ints | None = None
) -> Candidates:
    """Return documents that hold each query's top_k: by a scan, or all allowed ones if there are few.

    rows: the allowed ones, where they are known and stand together.
    """
    num_allowed = request.num_allowed
    if rows is None:
        are_few = num_allowed * _SCORED_AT_ONCE <= snapshot.num_rows
    else:
        are_few = num_allowed < _SCANNED_TOGETHER
    leaves_out_little = are_few or num_allowed == request.top_k
    if leaves_out_little and num_allowed * len(queries) <= _MOST_PAIRS:
        return _same_for_all(len(queries), np.flatnonzero(request.allowed) if rows is None else rows)
    is_zero = ~queries.any(axis=1)
    if not is_zero.any():
        return scan.candidates(snapshot, queries, request.top_k, request.allowed, request.scoring)
    # Every document scores 0 for a query of zeros: the lowest ordinals win.
    rows = np.flatnonzero(request.allowed) if rows is None else rows
    lowest = np.argpartition(snapshot.views.ordinals(rows), request.top_k - 1)[: request.top_k]
    parts = list(_same_for_all(len(queries), rows[lowest]).each())
    others = np.flatnonzero(~is_zero)
    if len(others):
        found = scan.candidates(snapshot, queries[others], request.top_k, request.allowed, request.scoring)
        for query, part in zip(others, found.each(), strict=True):
            parts[query] = part
    return Candidates.joined(parts)


def _same_for_all(num_queries: int, rows: Ints) -> Candidates:
    return Candidates(
        np.arange(num_queries + 1) * len(rows), np.tile(rows, num_queries), np.full(num_queries * len(rows), np.inf)
    )


def _groups(starts: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of queries that have up to _CANDIDATES_AT_ONCE candidates together, or are one."""
    begin = 0
    while begin < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[begin] + _CANDIDATES_AT_ONCE, side="right")) - 1
        end = max(end, begin + 1)
        yield begin, end
        begin = end


def rankings_of(best: Best, exact: bool, rounds: int) -> Iterator[Ranking]:
    """Yield the ranking of each query."""
    for (rows, scores, slots), num_scored in zip(best.each(), best.num_scored.tolist(), strict=True):
        yield Ranking(rows, scores, slots, exact, best.top_k - len(rows), rounds, num_scored)


def scanned_to_depth(snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request) -> Iterator[Ranking]:
    """Yield rankings by DRPQ's two steps (section 3.3): documents of the depth best views, then aggregates."""
    depth = max(request.depth or 0, request.top_k)
    num_documents = min(depth, request.num_allowed)
    by_view = request._replace(top_k=num_documents, scoring=Scoring(), depth=None)
    candidates = candidates_of(snapshot, scan, queries, by_view)
    num_views = int(snapshot.views.counts(0, snapshot.num_rows)[request.allowed].sum())
    for query, part in enumerate(candidates.each()):
        one = queries[query : query + 1]
        rows, unseen = documents_of_best_views(snapshot.views, one[0], part.rows, depth, request.top_k)
        best = Best(StoredViews(snapshot.views), one, request.top_k, request.scoring)
        best.add(Pairs(rows, np.zeros(len(rows), dtype=np.int64)))
        exact = depth >= num_views or bool(np.float32(unseen) < best.thresholds[0])
        yield from rankings_of(best, exact=exact, rounds=1)


class ViewSource(Protocol):
    """The stored views of a search's candidates."""

    @property
    def scored_together(self) -> int:
        """So few documents are scored together, whether all of them may matter or not."""

    def score(self, queries: Floats, pairs: Pairs, scoring: Scoring) -> ScoredPairs:
        """Return the documents with their scores by the one scoring function, but for those that are gone.

        queries: (q, d) float32. DamagedIndex where stored views do not match their checksum.
        """


class Best:
    """The best documents found so far of each query of a batch, by the one scoring function and the total order.

    thresholds: (q,) float32, the score of the top_k-th best, -inf where there are fewer. num_scored: (q,) int64.
    """

    def __init__(self, views: ViewSource, queries: Floats, top_k: int, scoring: Scoring) -> None:
        self._views = views
        self._queries = queries
        self.top_k = top_k
        self.scoring = scoring
        self._found = _NONE
        self.thresholds: Floats = np.empty(len(queries), dtype=np.float32)
        self.thresholds.fill(-np.inf)
        self.num_scored: Ints = np.zeros(len(queries), dtype=np.int64)

    def add(self, pairs: Pairs) -> None:
        """Score the documents, and keep the best of each query. No pair may come twice."""
        self.take(self._views.score(self._queries, pairs, self.scoring))

    def take(self, found: ScoredPairs) -> None:
        """Keep the best of each query of documents that are scored. No pair may come twice."""
        is_single = len(self._queries) == 1
        self.num_scored += len(found.which) if is_single else np.bincount(found.which, minlength=len(self._queries))
        if len(self._found.which):
            may_matter = found.scores >= self.thresholds[found.which]
            found = ScoredPairs._make(column[may_matter] for column in found)
            found = ScoredPairs._make(np.concatenate([old, new]) for old, new in zip(self._found, found, strict=True))
        if len(found.which) > _SORTED_WHOLE * self.top_k * len(self._queries):
            reach = np.flatnonzero(found.scores >= self._lasts(found)[found.which])
            found = ScoredPairs._make(column[reach] for column in found)
        if is_single:
            order = np.lexsort((found.ordinals, -found.scores))[: self.top_k]
            last = order[self.top_k - 1 :]
        else:
            order = np.lexsort((found.ordinals, -found.scores, found.which))
            ranks = _ranks(found.which[order], len(self._queries))
            last, order = order[ranks == self.top_k - 1], order[ranks < self.top_k]
        self.thresholds[found.which[last]] = found.scores[last]
        which, rows, scores, slots, ordinals = found
        self._found = ScoredPairs(which[order], rows[order], scores[order], slots[order], ordinals[order])

    def _lasts(self, found: ScoredPairs) -> Floats:
        """Return the top_k-th highest score of each query, (q,); -inf where there are fewer."""
        num_queries, lasts = len(self._queries), np.full(len(self._queries), -np.inf, dtype=np.float32)
        if num_queries == 1:
            place = len(found.scores) - self.top_k
            lasts[0] = np.partition(found.scores, place)[place]
            return lasts
        # As integers the scores rise and fall as they do as numbers, so that one sort does for all queries.
        bits = found.scores.view(np.int32).astype(np.int64)
        keys = (found.which << 32) - np.where(bits < 0, np.iinfo(np.int32).min - bits, bits)
        keys.sort()
        ends = np.bincount(found.which, minlength=num_queries).cumsum()
        at = np.append(0, ends[:-1]) + self.top_k - 1
        has_more = at < ends
        bits = ((np.flatnonzero(has_more) << 32) - keys[at[has_more]]).astype(np.int32)
        lasts[has_more] = np.where(bits < 0, np.iinfo(np.int32).min - bits, bits).view(np.float32)
        return lasts

    def settle(self, pairs: Pairs, upper: Doubles, growth: int) -> None:
        """Score those of the documents (m,) whose upper bound (m,) reaches the threshold.

        The top_k of the highest bounds come first, then growth times as many, and so on: the threshold rises before
        the doubtful ones are looked at.
        """
        if len(pairs.which) <= self._views.scored_together:
            self.add(pairs)
            return
        # Rounding keeps order: a score, rounded to float32, is at most its rounded bound.
        pending = _Pending(pairs.doc_rows, pairs.which, upper.astype(np.float32))
        step = self.top_k
        while True:
            pending = _Pending._make(column[pending.upper >= self.thresholds[pending.which]] for column in pending)
            if not len(pending.which):
                return
            is_next = self._highest(pending, step)
            self.add(Pairs(pending.rows[is_next], pending.which[is_next]))
            pending = _Pending._make(column[~is_next] for column in pending)
            step *= growth

    def _highest(self, pending: _Pending, step: int) -> Bools:
        """Return which entries have one of their query's `step` highest bounds, (m,)."""
        starts = np.searchsorted(pending.which, np.arange(len(self._queries) + 1)).tolist()
        is_high = np.ones(len(pending.which), dtype=bool)
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            if end - begin > step:
                lowest = np.argpartition(pending.upper[begin:end], end - begin - step)[: end - begin - step]
                is_high[begin + lowest] = False
        return is_high

    def each(self) -> Iterator[tuple[Ints, Floats, Ints]]:
        """Yield the rows, scores and winning slots of each query's documents, best first."""
        _, rows, scores, slots, _ = self._found
        if len(self._queries) == 1:
            return iter([(rows, scores, slots)])
        bounds = np.searchsorted(self._found.which, np.arange(len(self._queries) + 1)).tolist()
        return ((rows[at:end], scores[at:end], slots[at:end]) for at, end in pairwise(bounds))

    def scores_at(self, rank: int) -> Floats:
        """Return the score of the rank-th best document of each query, from 1; -inf where there are fewer, (q,)."""
        at = np.searchsorted(self._found.which, np.arange(len(self._queries))) + rank - 1
        is_there = at < np.searchsorted(self._found.which, np.arange(len(self._queries)), side="right")
        scores: Floats = np.full(len(self._queries), -np.inf, dtype=np.float32)
        scores[is_there] = self._found.scores[at[is_there]]
        return scores

    def counts(self) -> Ints:
        """Return how many documents each query has, (q,)."""
        return np.bincount(self._found.which, minlength=len(self._queries))


_NONE = ScoredPairs._make(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.float32, np.int64, np.int64))


class _Pending(NamedTuple):
    rows: Ints
    which: Ints
    upper: Floats


def _ranks(which: Ints, num_queries: int) -> Ints:
    """Return the position of each entry among those of its query; `which` is ascending."""
    starts = np.searchsorted(which, np.arange(num_queries))
    return np.arange(len(which)) - starts[which]


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
        combined = scores[0] if num_queries == 1 else combine_scores(scores, combine)
        return cls(rows, combined, winners, ordinals)

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
        best, num_scored = _NO_DOCUMENTS, 0
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
_NO_DOCUMENTS = Scored(_NO_ROWS, _NO_ROWS.astype(np.float32), _NO_ROWS, _NO_ROWS)
