"""Search by view ranking: rounds of growing limits, the fresh tail by scan, a full scan for what stays open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mvindex.engines.protocol import ranks_documents
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.scoring.aggregate import Aggregate
from mvindex.search.exact import add_tail, rankings_of, scanned
from mvindex.search.request import Engines, Ranking, Request
from mvindex.search.rescore import Best, Pairs
from mvindex.store.snapshot import Snapshot

# Where documents are uneven, an exact engine is first searched for this many times the mean rows of top_k documents.
_OVER_FETCH = 4
_GROWTH = 4
# A ranking of more than one view in so many costs more than a scan, but where there are few; in a graph each view that
# is ranked costs some microseconds, in a scan some nanoseconds.
_RANKED_SHARE, _FEW_VIEWS = 8, 1 << 16
_RANKED_SHARE_OF_GRAPH, _FEW_VIEWS_OF_GRAPH = 64, 1 << 12
# View hits of a batch in memory at once.
_HITS_AT_ONCE = 1 << 23
# After the top_k documents of the best views, twice as many each time are scored: an aggregate may lie far below.
_DOUBLING = 2


class _Hits(NamedTuple):
    """View hits of some queries by document: which of the queries, document row, best hit's score; (m,) each.

    lowest: (q,) float64, the last view hit's score; -inf where every view of the engine was seen.
    """

    which: Ints
    rows: Ints
    best: Doubles
    lowest: Doubles


class RankedSearch:
    """A search by one ranking engine.

    A document's score, its best view's or DRPQ's mean, is never above its best view. So on an exact ranking a query is
    done when the best view not seen lies strictly below the top_k-th score (design: promise 3).
    """

    def __init__(self, snapshot: Snapshot, engines: Engines, request: Request) -> None:
        if engines.ranking is None or ranks_documents(engines.ranking):
            raise ValueError("a ranked search needs a ranking engine")
        self._snapshot = snapshot
        self._ranking = engines.ranking
        self._is_exact = engines.ranking.capabilities.is_exact
        self._engines = engines
        self._request = request
        self._num_rows = engines.ranking.num_rows
        self._tail = np.flatnonzero(request.allowed[self._num_rows :]) + self._num_rows
        self._num_documents = snapshot.count(request.allowed) - len(self._tail)
        self._allowed_views: Bools | None = None
        self._num_views = snapshot.views.view_start(self._num_rows)
        if self._num_documents < self._num_rows:
            self._allowed_views, self._num_views = snapshot.views_inside(request.allowed, self._num_rows)

    def run(self, queries: Floats) -> list[Ranking]:
        """Return the rankings of the queries, (q, d) float32."""
        best = Best(self._snapshot.views, queries, self._request.top_k, self._request.scoring)
        add_tail(best, self._snapshot, self._engines.scan, queries, self._request, self._tail)
        rounds, is_open, is_proven = self._rounds(best, queries)
        left = np.flatnonzero(is_open)
        rescued: Iterator[Ranking] = iter(())
        if len(left):
            rescued = scanned(self._snapshot, self._engines.scan, queries[left], replace(self._request, depth=None))
        found = rankings_of(best, range(len(queries)), self._request.top_k, exact=True, rounds=0)
        rankings = []
        for query, ranking in enumerate(found):
            if is_open[query]:
                scan = next(rescued)
                num_scored = ranking.num_scored + scan.num_scored
                rankings.append(scan._replace(rounds=int(rounds[query]) + 1, num_scored=num_scored))
            else:
                rankings.append(ranking._replace(rounds=int(rounds[query]), exact=bool(is_proven[query])))
        return rankings

    def _rounds(self, best: Best, queries: Floats) -> tuple[Ints, Bools, Bools]:
        """Return the searches each query had, whether it is still open, whether its result is proven; (q,) each."""
        rounds = np.zeros(len(queries), dtype=np.int64)
        is_open = np.full(len(queries), self._num_documents > 0)
        is_proven = np.full(len(queries), self._is_exact or self._num_documents == 0)
        errors = self._ranking.error(queries)
        seen: list[Ints] = [np.empty(0, dtype=np.int64)] * len(queries)
        limit, turn = self._first_limit(), 0
        while is_open.any() and limit <= self._last_limit():
            is_last = limit == self._last_limit()
            for tile in _tiles(np.flatnonzero(is_open), max(1, _HITS_AT_ONCE // limit)):
                hits = self._hits(queries[tile], limit, turn)
                rounds[tile] += 1
                self._score(best, tile, hits, seen, errors)
                is_full = best.counts()[tile] >= self._request.top_k
                is_settled = self._is_settled(best, tile, hits, errors)
                is_proven[tile] = self._is_exact & is_settled
                is_open[tile] = ~(is_full & (is_settled | self._accepts_any(is_last)))
            if is_last:
                break
            limit, turn = min(limit * _GROWTH, self._last_limit()), turn + 1
        return rounds, is_open, is_proven

    def _is_settled(self, best: Best, tile: Ints, hits: _Hits, errors: Doubles) -> Bools:
        """Return whether no unseen document reaches the top_k-th score, (len(tile),)."""
        unseen = hits.lowest + errors[tile] if self._is_exact else hits.lowest
        is_settled: Bools = unseen.astype(np.float32) < best.thresholds[tile]
        is_settled |= hits.lowest == -np.inf
        return is_settled

    def _accepts_any(self, is_last: bool) -> bool:
        """Return whether top_k documents are enough, settled or not: at a fixed depth, or without a proof."""
        is_by_best_view = self._request.scoring.aggregate is Aggregate.MAX
        return self._request.depth is not None or (not self._is_exact and (is_by_best_view or is_last))

    def _score(self, best: Best, tile: Ints, hits: _Hits, seen: list[Ints], errors: Doubles) -> None:
        """Score documents not seen before, those of the best views first, while they may matter."""
        starts = np.searchsorted(hits.which, np.arange(len(tile) + 1)).tolist()
        which, rows, upper = [], [], []
        for number, query in enumerate(tile.tolist()):
            at = slice(starts[number], starts[number + 1])
            fresh, bounds = hits.rows[at], hits.best[at] + errors[query]
            if len(seen[query]):
                is_new = ~np.isin(fresh, seen[query], assume_unique=True)
                fresh, bounds = fresh[is_new], bounds[is_new]
            seen[query] = np.concatenate([seen[query], fresh])
            rows.append(fresh)
            which.append(np.full(len(fresh), query))
            upper.append(bounds)
        pairs = Pairs(np.concatenate(rows), np.concatenate(which))
        if self._is_exact and self._request.depth is None:
            best.settle(pairs, np.concatenate(upper), _DOUBLING)
        else:
            # What an approximate engine, or a fixed depth, has found is scored whatever its best hit says.
            best.add(pairs)

    def _hits(self, queries: Floats, limit: int, turn: int) -> _Hits:
        """Return the best `limit` views of each query, by document."""
        scores, rows = self._ranking.search(queries, limit, self._allowed_views, turn)
        which, at = np.nonzero(rows >= 0)
        documents = self._snapshot.views.document_rows(rows[which, at])
        # Falling scores: the first hit of a document is its best.
        _, first = np.unique(which * self._num_rows + documents, return_index=True)
        found = scores[which[first], at[first]].astype(np.float64)
        # _num_views counts the store's: an engine that leaves views out runs dry before.
        has_all = self._is_exact & ((limit >= self._num_views) | (np.count_nonzero(rows >= 0, axis=1) < limit))
        lowest = np.where(has_all, -np.inf, scores.min(axis=1, where=rows >= 0, initial=np.inf).astype(np.float64))
        return _Hits(which[first], documents[first], found, lowest)

    def _first_limit(self) -> int:
        """Return the first limit: (top_k - 1) k + 1 views hold top_k documents, and one row more shows that they do.

        Where one document has far more views than the others, less is tried first.
        """
        top_k = min(self._request.top_k, self._num_documents)
        if self._request.depth is not None:
            return min(max(self._request.depth, top_k), self._last_limit())
        if not self._is_exact:
            able = self._ranking.capabilities
            return min(max(top_k * able.over_fetch, able.least_limit), self._num_views)
        mean_views = -(-self._num_views // max(self._num_documents, 1))
        enough = (top_k - 1) * self._snapshot.views.max_views + 2
        limit = min(enough, top_k * _OVER_FETCH * mean_views + 64)
        if self._request.scoring.aggregate is not Aggregate.MAX:
            limit *= _GROWTH  # an aggregate lies below its best view, and a round is another pass over all views
        return min(limit, self._num_views)

    def _last_limit(self) -> int:
        """Return the greatest limit: no further than a scan's cost allows, except for a fixed depth."""
        few, share = (_FEW_VIEWS, _RANKED_SHARE) if self._is_exact else (_FEW_VIEWS_OF_GRAPH, _RANKED_SHARE_OF_GRAPH)
        deepest = self._num_views if self._request.depth is not None else max(self._num_views // share, few)
        return min(deepest, self._num_views, self._ranking.capabilities.max_limit or deepest)


def _tiles(queries: Ints, size: int) -> Iterator[Ints]:
    for begin in range(0, len(queries), size):
        yield queries[begin : begin + size]
