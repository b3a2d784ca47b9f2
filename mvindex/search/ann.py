"""Search by view ranking: the one loop of growing limits, and its candidates in a store of this machine.

There, the documents that an engine lacks are scanned, and what stays open is scanned in full.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from mvindex.engines.protocol import OneOfShards, ranks_documents
from mvindex.kernels.score import Aggregate
from mvindex.records import Bools, Doubles, Floats, Ints, sliced
from mvindex.search.exact import Best, add_tail, rankings_of, scanned
from mvindex.search.parts import StoredViews
from mvindex.search.ranking import Engines, Pairs, Ranking, Request, Share, ViewHits
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


class Hits(NamedTuple):
    """View hits of some queries by document: which of the queries, document row, best hit's score; (m,) each.

    lowest: (q,) float64, the last view hit's score; -inf where every view was seen. num_hits: looked at so far, and
    is_last: whether the source has no more; (q,) each, or one for all.
    """

    which: Ints
    rows: Ints
    best: Doubles
    lowest: Doubles
    num_hits: Ints | int
    is_last: Bools | bool


class CandidateSource(Protocol):
    """Proposes view hits for a batch of queries; never scores a document."""

    @property
    def is_exact(self) -> bool:
        """Whether all views are ranked, up to error()."""

    @property
    def share(self) -> Share | None:
        """The share of one shard of several, whose merge finds out whether documents are enough; None alone."""

    @property
    def hits_at_once(self) -> int:
        """How many view hits are asked for together."""

    def error(self, queries: Floats) -> Doubles:
        """Return the most by which the source's scores of a query are off, (q,)."""

    def limits(self) -> Iterable[int]:
        """Yield the numbers of view hits to ask for, round by round."""

    def hits(self, queries: Floats, tile: Ints, limit: int, turn: int) -> Hits:
        """Return the best `limit` view hits of the queries with these numbers; turn: the round, from 0."""


class Rounds(NamedTuple):
    """The outcome of a search in rounds, (q,) each: searches of a query, whether it is open, whether it is proven."""

    rounds: Ints
    is_open: Bools
    is_proven: Bools


def search_in_rounds(source: CandidateSource, best: Best, queries: Floats, depth: int | None) -> Rounds:
    """Score what a source proposes, until each query has its documents, or the source has no more.

    A document's score, its best view's or DRPQ's mean, is never above its best view. So on an exact ranking a query is
    done when the best view not seen lies strictly below the top_k-th score (design: promise 3).

    Args:
        source: Ranks views.
        best: Gets the documents.
        queries: (q, d) float32.
        depth: Look at no more than so many view hits where they have top_k documents; None looks as far as it takes.

    """
    rounds: Ints = np.zeros(len(queries), dtype=np.int64)
    is_open, is_proven = np.ones(len(queries), dtype=bool), np.full(len(queries), source.is_exact)
    has_more, errors = is_open.copy(), source.error(queries)
    seen: list[Ints] = [np.empty(0, dtype=np.int64)] * len(queries)
    is_by_best_view = best.scoring.aggregate is Aggregate.MAX
    for turn, limit in enumerate(source.limits()):
        left = np.flatnonzero(is_open & has_more)
        if not len(left):
            break
        for tile in sliced(left, max(1, source.hits_at_once // limit)):
            hits = source.hits(queries, tile, limit, turn)
            rounds[tile] += 1
            pairs, upper = _fresh(tile, hits, seen, errors)
            if source.is_exact and depth is None:
                best.settle(pairs, upper, _DOUBLING)
            else:
                # What an approximate engine, or a fixed depth, has found is scored whatever its best hit says.
                best.add(pairs)
            is_full = (source.share is not None) | (best.counts()[tile] >= best.top_k)
            is_settled = _is_settled(source, best, tile, hits, errors)
            # Settled or not, top_k documents are enough at a fixed depth, or without a proof.
            is_enough: Bools | bool = False
            if depth is not None:
                is_enough = not source.is_exact or hits.is_last | (hits.num_hits >= depth)
            elif not source.is_exact:
                is_enough = hits.is_last | is_by_best_view
            is_proven[tile] = source.is_exact & is_settled
            is_open[tile] = ~(is_full & (is_settled | is_enough))
            has_more[tile] = np.logical_not(hits.is_last)
    return Rounds(rounds, is_open, is_proven)


def _fresh(tile: Ints, hits: Hits, seen: list[Ints], errors: Doubles) -> tuple[Pairs, Doubles]:
    """Return documents not seen before with upper bounds of their scores, and note that they are seen."""
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
    return Pairs(np.concatenate(rows), np.concatenate(which)), np.concatenate(upper)


def _is_settled(source: CandidateSource, best: Best, tile: Ints, hits: Hits, errors: Doubles) -> Bools:
    """Return whether no unseen document reaches the top_k-th score, (len(tile),)."""
    unseen = hits.lowest + errors[tile] if source.is_exact else hits.lowest
    thresholds = best.thresholds
    if source.share is not None and best.scoring.aggregate is not Aggregate.MAX:
        thresholds = best.scores_at(source.share.of(source.share.top_k))
    is_settled: Bools = unseen.astype(np.float32) < thresholds[tile]
    is_settled |= hits.lowest == -np.inf
    return is_settled


class _DocumentHits(NamedTuple):
    """A hit of each document: which query, document row, place in the ranking of views; (m,) each."""

    which: Ints
    rows: Ints
    places: Ints


def _first_of_each(hits: _DocumentHits, num_rows: int) -> _DocumentHits:
    """Return the first hit of each query's documents, of document rows below num_rows, by query and row.

    Scores fall: it is the document's best. Numbers made of all three are sorted, which takes a tenth of sorting places.
    """
    bits = int(hits.places.max(initial=0)).bit_length()
    packed = (hits.which * num_rows + hits.rows) << bits | hits.places
    packed.sort()
    owners = packed >> bits
    is_first = np.append(True, owners[1:] != owners[:-1])[: len(owners)]
    packed, owners = packed[is_first], owners[is_first]
    which = owners // num_rows
    return _DocumentHits(which, owners - which * num_rows, packed & ((1 << bits) - 1))


class RankedSearch:
    """A search by one ranking engine, the CandidateSource of its views."""

    hits_at_once = HITS_AT_ONCE

    def __init__(self, snapshot: Snapshot, engines: Engines, request: Request) -> None:
        if engines.ranking is None or ranks_documents(engines.ranking):
            raise ValueError("a ranked search needs a ranking engine")
        self._snapshot = snapshot
        self._ranking = engines.ranking
        self.is_exact = engines.ranking.capabilities.is_exact
        self._engines = engines
        self._request = request
        self._num_rows = engines.ranking.num_rows
        self._tail = np.flatnonzero(request.allowed[self._num_rows :]) + self._num_rows
        self._num_documents = request.num_allowed - len(self._tail)
        self._allowed_views: Bools | None = None
        self._num_views = snapshot.views.view_start(self._num_rows)
        if self._num_documents < self._num_rows:
            self._allowed_views, self._num_views = snapshot.views_inside(request.allowed, self._num_rows)
        # Limits are those of all shards.
        self.share = None if self.is_exact or request.depth is not None else request.share
        self._view_hits: dict[int, ViewHits] = {}
        self._proposed: tuple[Floats, Ints] | None = None
        self._floors: Floats | None = None
        # View hits that one index of all shards would first look at; 0 where all is looked at here.
        self.first_limit = 0
        if self.share is not None:
            self._num_views *= self.share.num_shards
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
        best = Best(StoredViews(self._snapshot.views), queries, self._request.top_k, self._request.scoring)
        add_tail(best, self._snapshot, self._engines.scan, queries, self._request, self._tail)
        rounds, is_open, is_proven = self._rounds(best, queries)
        left = np.flatnonzero(is_open)
        rescued: Iterator[Ranking] = iter(())
        if len(left):
            rescued = scanned(self._snapshot, self._engines.scan, queries[left], self._request._replace(depth=None))
        found = rankings_of(best, exact=True, rounds=0)
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

    def _rounds(self, best: Best, queries: Floats) -> Rounds:
        if self._num_documents:
            return search_in_rounds(self, best, queries, self._request.depth)
        none = np.zeros(len(queries), dtype=np.int64)
        return Rounds(none, none.astype(bool), ~none.astype(bool))

    def error(self, queries: Floats) -> Doubles:
        """Return the most by which the engine's scores of a query are off, (q,)."""
        return self._ranking.error(queries)

    def limits(self) -> Iterator[int]:
        """Yield growing limits up to the last one; none where already the first costs more than a scan."""
        limit, last = self._first_limit(), self._last_limit()
        while limit < last:
            yield limit
            limit = min(limit * _GROWTH, last)
        if limit == last:
            yield limit

    def _note_view_hits(self, tile: Ints, scores: Floats, lowest: Doubles, is_last: bool) -> None:
        """Keep what the merge of all shards has to know, of the last round."""
        if self.share is None:
            return
        most = self.share.of(self.first_limit, self._snapshot.views.max_views)
        # By DRPQ one index looks no further than the last limit either.
        is_done = is_last and self._request.scoring.aggregate is not Aggregate.MAX
        for query, own, last in zip(tile.tolist(), scores, lowest.tolist(), strict=True):
            found = own[own > -np.inf]
            lowest_known = -np.inf if is_done or len(found) < most else last
            self._view_hits[query] = ViewHits(found[:most], lowest_known, self.first_limit)

    def _view_ranking(
        self, queries: Floats, limit: int, turn: int, found: dict[Hashable, Any] | None = None
    ) -> tuple[Floats, Ints]:
        """Return scores and rows of the best `limit` views of each query, or of this shard's share of them."""
        if self.share is None:
            return self._ranking.search(queries, limit, self._allowed_views, turn)
        keep = self.share.of(limit, self._snapshot.views.max_views)
        shards = OneOfShards(keep, {} if found is None else found)
        return self._ranking.search(queries, limit, self._allowed_views, turn, shards)

    def hits(self, queries: Floats, tile: Ints, limit: int, turn: int) -> Hits:
        """Return the best `limit` views of those of the queries that are in the tile, by document."""
        if turn or self._proposed is None:
            scores, rows = self._view_ranking(queries[tile], limit, turn)
        else:
            scores, rows = self._proposed[0][tile], self._proposed[1][tile]
        floors = -np.inf if turn or self._floors is None else self._floors[tile][:, None]
        which, at = np.nonzero((rows >= 0) & (scores >= floors))
        documents = self._snapshot.views.document_rows(rows[which, at])
        which, documents, at = _first_of_each(_DocumentHits(which, documents, at), self._num_rows)
        found = scores[which, at].astype(np.float64)
        # _num_views counts the store's: an engine that leaves views out runs dry before.
        has_all = self.is_exact & ((limit >= self._num_views) | (np.count_nonzero(rows >= 0, axis=1) < limit))
        lowest = np.where(has_all, -np.inf, scores.min(axis=1, where=rows >= 0, initial=np.inf).astype(np.float64))
        is_last = limit == self._last_limit()
        self._note_view_hits(tile, scores, lowest, is_last)
        return Hits(which, documents, found, lowest, limit, is_last)

    def _first_limit(self) -> int:
        """Return the first limit: (top_k - 1) k + 1 views hold top_k documents, and one row more shows that they do.

        Where one document has far more views than the others, less is tried first.
        """
        top_k = min(self._request.top_k, self._num_documents) if self.share is None else self.share.top_k
        if self._request.depth is not None:
            return min(max(self._request.depth, top_k), self._last_limit())
        if not self.is_exact:
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
        few, share = (_FEW_VIEWS, _RANKED_SHARE) if self.is_exact else (_FEW_VIEWS_OF_GRAPH, _RANKED_SHARE_OF_GRAPH)
        deepest = self._num_views if self._request.depth is not None else max(self._num_views // share, few)
        return min(deepest, self._num_views, self._ranking.capabilities.max_limit or deepest)
