"""The one search loop: over-fetch, deduplicate, grow, rescore, certify. Engines only ever propose candidates.

Promises kept here (docs/decisions/002): min(top_k, allowed) distinct documents whatever the engine; one score and
one order; exact only where the candidates provably hold the top_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mvindex.aggregate import best_views, top_documents, view_scores
from mvindex.engines.base import RankingEngine, ScanEngine
from mvindex.records import Bools, Floats, Ints
from mvindex.store.snapshot import Snapshot

# Below this many allowed documents, or this share of those an approximate engine covers, they are scanned: graphs
# lose rows under tight filters, and a scan of few documents is the faster of the two.
_SCAN_DOCUMENTS = 10_000
_SCAN_SHARE = 0.05
_MAX_ROUNDS = 5
# An approximate engine is asked for this many rows per document wanted: views of one document crowd.
_OVER_FETCH = 4
# Candidates rescored at once: bounds memory when thousands of documents tie.
_RESCORE_DOCUMENTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The scan that is always there, and the ranking that is active (None: the scan answers)."""

    scan: ScanEngine
    ranking: RankingEngine | None = None


class Ranking(NamedTuple):
    """The documents of one query in order: rows, scores and winning slots, (m,) each; see SearchResult for the rest."""

    rows: Ints
    scores: Floats
    slots: Ints
    exact: bool
    short_by: int
    rounds: int


class _Found(NamedTuple):
    """Candidates of one query: document rows, whether they provably hold the top_k, and the engine's searches."""

    rows: Ints
    exact: bool
    rounds: int


def search_documents(
    snapshot: Snapshot, engines: Engines, queries: Floats, top_k: int, allowed: Bools
) -> list[Ranking]:
    """The top_k allowed documents of each query, min(top_k, allowed) of them, by their best view.

    queries: (q, d) float32, finite, of norm up to MAX_NORM; allowed: (num_rows,) bool, living documents only.
    """
    wanted = min(top_k, int(np.count_nonzero(allowed)))
    if wanted == 0:
        nothing = np.empty(0, dtype=np.int64)
        return [
            Ranking(nothing, nothing.astype(np.float32), nothing, exact=True, short_by=0, rounds=0) for _ in queries
        ]
    if engines.ranking is None or _is_better_scanned(engines.ranking, allowed):
        found = _scan(snapshot, engines.scan, queries, wanted, allowed)
    else:
        found = _RankedSearch(snapshot, engines.ranking, engines.scan, allowed).run(queries, wanted)
    return [_rescored(snapshot, query, entry, wanted) for query, entry in zip(queries, found, strict=True)]


def _is_better_scanned(ranking: RankingEngine, allowed: Bools) -> bool:
    """True when an approximate engine may use only a small part of what it covers."""
    inside = int(np.count_nonzero(allowed[: ranking.num_rows]))
    is_small = inside < _SCAN_DOCUMENTS or inside < _SCAN_SHARE * ranking.num_rows
    return not ranking.capabilities.is_exact and inside < ranking.num_rows // 2 and is_small


def _scan(snapshot: Snapshot, scan: ScanEngine, queries: Floats, wanted: int, allowed: Bools) -> list[_Found]:
    found = scan.candidates(snapshot, queries, wanted, allowed)
    pairs = zip(found.starts[:-1], found.starts[1:], strict=True)
    return [_Found(found.rows[begin:end], exact=True, rounds=1) for begin, end in pairs]


class _RankedSearch:
    """A search by view ranking: rounds of growing limits, the fresh tail by scan, a full scan for what stays short."""

    def __init__(self, snapshot: Snapshot, ranking: RankingEngine, scan: ScanEngine, allowed: Bools) -> None:
        self._snapshot = snapshot
        self._ranking = ranking
        self._scan = scan
        self._allowed = allowed
        inside = allowed[: ranking.num_rows]
        self._num_inside = int(np.count_nonzero(inside))
        self._max_views = snapshot.views.max_views
        self._allowed_views = None
        self._num_views = snapshot.views.view_start(ranking.num_rows)
        if self._num_inside < len(inside):
            self._allowed_views = np.repeat(inside, snapshot.views.counts(0, len(inside)))
            self._num_views = int(np.count_nonzero(self._allowed_views))

    def run(self, queries: Floats, wanted: int) -> list[_Found]:
        """Candidates of each query, at least wanted documents (wanted <= allowed)."""
        inside = self._ranked(queries, min(wanted, self._num_inside))
        short = [query for query, entry in enumerate(inside) if entry is None]
        rescued = iter(_scan(self._snapshot, self._scan, queries[short], wanted, self._allowed) if short else [])
        tail = self._tail(queries, wanted)
        found = []
        for entry, fresh in zip(inside, tail, strict=True):
            if entry is None:
                full = next(rescued)
                found.append(full._replace(rounds=full.rounds + _MAX_ROUNDS))
            else:
                found.append(entry._replace(rows=np.concatenate([entry.rows, fresh])))
        return found

    def _ranked(self, queries: Floats, wanted: int) -> list[_Found | None]:
        """Candidates among the documents the engine covers; None for a query that it left short."""
        found: list[_Found | None] = [None] * len(queries)
        if wanted == 0:
            return [_Found(np.empty(0, dtype=np.int64), exact=True, rounds=0)] * len(queries)
        errors, open_queries = self._ranking.error(queries), np.arange(len(queries))
        limit = self._first_limit(wanted)
        for rounds in range(1, _MAX_ROUNDS + 1):
            scores, rows = self._ranking.search(queries[open_queries], limit, self._allowed_views)
            is_whole = self._ranking.capabilities.is_exact and limit >= self._num_views
            for query, its_scores, its_rows in zip(open_queries, scores, rows, strict=True):
                documents = self._candidates(its_scores, its_rows, wanted, -1 if is_whole else errors[query])
                if documents is not None:
                    found[query] = _Found(documents, exact=self._ranking.capabilities.is_exact, rounds=rounds)
            open_queries = np.array([query for query in open_queries if found[query] is None], dtype=np.int64)
            if not len(open_queries) or limit == self._cap(limit * 4):
                break
            limit = self._cap(limit * 4)
        return found

    def _candidates(self, scores: Floats, rows: Ints, wanted: int, error: float) -> Ints | None:
        """The documents of a ranking that can be among the wanted best, or None when it must go deeper.

        Exact engines: done when the next row is strictly below the wanted-th document, by more than both errors
        (promise 3); a negative error says that no row is left out. Others: done with enough documents, all kept.
        """
        rows, scores = rows[rows >= 0], scores[rows >= 0].astype(np.float64)
        documents, first = np.unique(self._snapshot.views.document_rows(rows), return_index=True)
        if len(documents) < wanted:
            return None
        if not self._ranking.capabilities.is_exact or error < 0:
            return documents
        best = scores[first]
        lowest = np.partition(best, len(best) - wanted)[len(best) - wanted] - 2 * error
        return documents[best >= lowest] if scores[-1] < lowest else None

    def _tail(self, queries: Floats, wanted: int) -> list[Ints]:
        """Candidates among the documents added since the engine was built."""
        fresh = self._allowed.copy()
        fresh[: self._ranking.num_rows] = False
        num_fresh = int(np.count_nonzero(fresh))
        if num_fresh == 0:
            return [np.empty(0, dtype=np.int64)] * len(queries)
        return [entry.rows for entry in _scan(self._snapshot, self._scan, queries, min(wanted, num_fresh), fresh)]

    def _first_limit(self, wanted: int) -> int:
        """Exact: the best (wanted - 1) k + 1 views hold wanted documents, and one row more shows that they do."""
        is_exact = self._ranking.capabilities.is_exact
        return self._cap((wanted - 1) * self._max_views + 2 if is_exact else wanted * _OVER_FETCH)

    def _cap(self, limit: int) -> int:
        return min(limit, self._num_views, self._ranking.capabilities.max_limit or limit)


def _rescored(snapshot: Snapshot, query: Floats, found: _Found, wanted: int) -> Ranking:
    """The wanted best candidates by the one scoring function, in the total order."""
    rows, scores, slots = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    for begin in range(0, len(found.rows), _RESCORE_DOCUMENTS):
        part = found.rows[begin : begin + _RESCORE_DOCUMENTS]
        packed, starts = snapshot.views.fetch(part)
        best = best_views(view_scores(packed, query), starts)
        rows, scores = np.concatenate([rows, part]), np.concatenate([scores, best.scores])
        slots = np.concatenate([slots, best.slots])
        kept = top_documents(scores, snapshot.views.ordinals(rows), wanted)
        rows, scores, slots = rows[kept], scores[kept], slots[kept]
    return Ranking(rows, scores, slots, found.exact, wanted - len(rows), found.rounds)
