"""Search by view ranking: rounds of growing limits, the fresh tail by scan, a full scan for what stays open."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mvindex.engines.protocol import OneOfShards, ranks_documents
from mvindex.kernels.score import Aggregate
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.search.exact import add_tail, rankings_of, scanned
from mvindex.search.request import Engines, Ranking, Request, ViewHits
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
HITS_AT_ONCE = 1 << 23
# After the top_k documents of the best views, twice as many each time are scored: an aggregate may lie far below.
_DOUBLING = 2


class _Hits(NamedTuple):
    """View hits of some queries by document: which of the queries, document row, best hit's score; (m,) each.

    lowest: (q,) float64, the last view hit's score; -inf where every view of the engine was seen. scores: (q, limit)
    float32, of all of them, falling.
    """

    which: Ints
    rows: Ints
    best: Doubles
    lowest: Doubles
    scores: Floats


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
        # Limits are those of all shards.
        self._share = None if self._is_exact or request.depth is not None else request.share
        self._view_hits: dict[int, ViewHits] = {}
        self._proposed: tuple[Floats, Ints] | None = None
        self._floors: Floats | None = None
        # View hits that one index of all shards would first look at; 0 where all is looked at here.
        self.first_limit = 0
        if self._share is not None:
            self._num_views *= self._share.num_shards
            is_ranked = self._num_documents > 0 and self._first_limit() <= self._last_limit()
            self.first_limit = self._first_limit() if is_ranked else 0

    def propose(self, queries: Floats, found: dict[Hashable, Any] | None = None) -> Floats:
        """Search the engine once; return the scores of the first view hits of this shard's share, (q, m) float32.

        run() of the same queries goes on from there. m is 0 where the first limit is. found: see OneOfShards.
        """
        if not self.first_limit:
            return np.empty((len(queries), 0), dtype=np.float32)
        self._proposed = self._view_ranking(queries, self.first_limit, 0, found)
        return self._proposed[0]

    def run(self, queries: Floats, floors: Floats | None = None) -> list[Ranking]:
        """Return the rankings of the queries, (q, d) float32.

        floors: (q,) float32; documents whose best view hit of those that were proposed is lower are not scored.
        """
        self._floors = floors
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
                exact, view_hits = bool(is_proven[query]), self._view_hits.get(query)
                rankings.append(ranking._replace(rounds=int(rounds[query]), exact=exact, view_hits=view_hits))
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
            for tile in _tiles(np.flatnonzero(is_open), max(1, HITS_AT_ONCE // limit)):
                hits = self._hits(queries, tile, limit, turn)
                rounds[tile] += 1
                self._score(best, tile, hits, seen, errors)
                # Whether the documents are enough is seen where those of all shards are merged.
                is_full = (self._share is not None) | (best.counts()[tile] >= self._request.top_k)
                is_settled = self._is_settled(best, tile, hits, errors)
                is_proven[tile] = self._is_exact & is_settled
                is_open[tile] = ~(is_full & (is_settled | self._accepts_any(is_last)))
                self._note_view_hits(tile, hits, is_last)
            if is_last:
                break
            limit, turn = min(limit * _GROWTH, self._last_limit()), turn + 1
        return rounds, is_open, is_proven

    def _is_settled(self, best: Best, tile: Ints, hits: _Hits, errors: Doubles) -> Bools:
        """Return whether no unseen document reaches the top_k-th score, (len(tile),)."""
        unseen = hits.lowest + errors[tile] if self._is_exact else hits.lowest
        thresholds = best.thresholds
        if self._share is not None and self._request.scoring.aggregate is not Aggregate.MAX:
            thresholds = best.scores_at(self._share.of(self._share.top_k))
        is_settled: Bools = unseen.astype(np.float32) < thresholds[tile]
        is_settled |= hits.lowest == -np.inf
        return is_settled

    def _accepts_any(self, is_last: bool) -> bool:
        """Return whether top_k documents are enough, settled or not: at a fixed depth, or without a proof."""
        is_by_best_view = self._request.scoring.aggregate is Aggregate.MAX
        return self._request.depth is not None or (not self._is_exact and (is_by_best_view or is_last))

    def _note_view_hits(self, tile: Ints, hits: _Hits, is_last: bool) -> None:
        """Keep what the merge of all shards has to know, of the last round."""
        if self._share is None:
            return
        most = self._share.of(self.first_limit, self._snapshot.views.max_views)
        # By DRPQ one index looks no further than the last limit either.
        is_done = is_last and self._request.scoring.aggregate is not Aggregate.MAX
        for query, scores, lowest in zip(tile.tolist(), hits.scores, hits.lowest.tolist(), strict=True):
            found = scores[scores > -np.inf]
            lowest = -np.inf if is_done or len(found) < most else lowest
            self._view_hits[query] = ViewHits(found[:most], lowest, self.first_limit)

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

    def _view_ranking(
        self, queries: Floats, limit: int, turn: int, found: dict[Hashable, Any] | None = None
    ) -> tuple[Floats, Ints]:
        """Return scores and rows of the best `limit` views of each query, or of this shard's share of them."""
        if self._share is None:
            return self._ranking.search(queries, limit, self._allowed_views, turn)
        keep = self._share.of(limit, self._snapshot.views.max_views)
        shards = OneOfShards(keep, {} if found is None else found)
        return self._ranking.search(queries, limit, self._allowed_views, turn, shards)

    def _hits(self, queries: Floats, tile: Ints, limit: int, turn: int) -> _Hits:
        """Return the best `limit` views of those of the queries that are in the tile, by document."""
        if turn or self._proposed is None:
            scores, rows = self._view_ranking(queries[tile], limit, turn)
        else:
            scores, rows = self._proposed[0][tile], self._proposed[1][tile]
        floors = -np.inf if turn or self._floors is None else self._floors[tile][:, None]
        which, at = np.nonzero((rows >= 0) & (scores >= floors))
        documents = self._snapshot.views.document_rows(rows[which, at])
        # Falling scores: the first hit of a document is its best.
        _, first = np.unique(which * self._num_rows + documents, return_index=True)
        found = scores[which[first], at[first]].astype(np.float64)
        # _num_views counts the store's: an engine that leaves views out runs dry before.
        has_all = self._is_exact & ((limit >= self._num_views) | (np.count_nonzero(rows >= 0, axis=1) < limit))
        lowest = np.where(has_all, -np.inf, scores.min(axis=1, where=rows >= 0, initial=np.inf).astype(np.float64))
        return _Hits(which[first], documents[first], found, lowest, scores)

    def _first_limit(self) -> int:
        """Return the first limit: (top_k - 1) k + 1 views hold top_k documents, and one row more shows that they do.

        Where one document has far more views than the others, less is tried first.
        """
        top_k = min(self._request.top_k, self._num_documents) if self._share is None else self._share.top_k
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
