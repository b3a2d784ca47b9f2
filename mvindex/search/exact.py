"""Search by scan: every document that may matter is scored, so that the ranking is exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from mvindex.engines.protocol import Candidates, ScanEngine
from mvindex.kernels.score import Scoring
from mvindex.records import Floats, Ints
from mvindex.search.request import Ranking, Request
from mvindex.search.rescore import Best, Pairs, documents_of_best_views
from mvindex.store.snapshot import Snapshot

# Where fewer than one document in so many is allowed, these are scored at once: no scan leaves out more than it costs.
_SCORED_AT_ONCE = 64
# Documents that stand together, as those that an engine lacks, are scanned without the others: from so many on.
_SCANNED_TOGETHER = 4096
# And where the batch has no more of these pairs than so many: all of them are written down.
_MOST_PAIRS = 1 << 22
# Candidates of a batch that are scored together: bounds memory when thousands of documents tie.
_CANDIDATES_AT_ONCE = 1 << 18
# A scan's bounds are tight: after the top_k highest, all that may matter is scored.
_ALL = 1 << 40


def scanned(snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request) -> Iterator[Ranking]:
    """Yield the exact rankings: every document that may matter is scored."""
    candidates = candidates_of(snapshot, scan, queries, request)
    for begin, end in _groups(candidates.starts):
        best = Best(snapshot.views, queries[begin:end], request.top_k, request.scoring)
        settle_candidates(best, candidates, begin, end)
        yield from rankings_of(best, range(end - begin), request.top_k, exact=True, rounds=1)


def settle_candidates(best: Best, candidates: Candidates, begin: int, end: int) -> None:
    """Settle the candidates of queries [begin, end) in best, where they are [0, end - begin)."""
    at = slice(candidates.starts[begin], candidates.starts[end])
    which = np.repeat(np.arange(end - begin), np.diff(candidates.starts[begin : end + 1]))
    best.settle(Pairs(candidates.rows[at], which), candidates.upper[at], _ALL)


def add_tail(  # noqa: PLR0913 - a search and the rows that its engine lacks
    best: Best, snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request, tail: Ints
) -> None:
    """Settle the allowed documents that an engine lacks, rows `tail`, as far as they may matter."""
    if not len(tail):
        return
    fresh = np.zeros_like(request.allowed)
    fresh[tail] = True
    request = replace(request, top_k=min(request.top_k, len(tail)), allowed=fresh)
    settle_candidates(best, candidates_of(snapshot, scan, queries, request, tail), 0, len(queries))


def candidates_of(
    snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request, rows: Ints | None = None
) -> Candidates:
    """Return documents that hold each query's top_k: by a scan, or all allowed ones if there are few.

    rows: the allowed ones, where they are known and stand together.
    """
    if rows is None:
        num_allowed = snapshot.count(request.allowed)
        are_few = num_allowed * _SCORED_AT_ONCE <= snapshot.num_rows
    else:
        num_allowed, are_few = len(rows), len(rows) < _SCANNED_TOGETHER
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


def rankings_of(best: Best, queries: Iterable[int], top_k: int, exact: bool, rounds: int) -> Iterator[Ranking]:
    """Yield the ranking of each of the queries."""
    for query in queries:
        rows, scores, slots = best.of(int(query))
        yield Ranking(rows, scores, slots, exact, top_k - len(rows), rounds, int(best.num_scored[query]))


def scanned_to_depth(snapshot: Snapshot, scan: ScanEngine, queries: Floats, request: Request) -> Iterator[Ranking]:
    """Yield rankings by DRPQ's two steps (section 3.3): documents of the depth best views, then aggregates."""
    depth = max(request.depth or 0, request.top_k)
    num_documents = min(depth, snapshot.count(request.allowed))
    by_view = replace(request, top_k=num_documents, scoring=Scoring(), depth=None)
    candidates = candidates_of(snapshot, scan, queries, by_view)
    num_views = int(snapshot.views.counts(0, snapshot.num_rows)[request.allowed].sum())
    for query, part in enumerate(candidates.each()):
        one = queries[query : query + 1]
        rows, unseen = documents_of_best_views(snapshot.views, one[0], part.rows, depth, request.top_k)
        best = Best(snapshot.views, one, request.top_k, request.scoring)
        best.add(Pairs(rows, np.zeros(len(rows), dtype=np.int64)))
        exact = depth >= num_views or bool(np.float32(unseen) < best.thresholds[0])
        yield from rankings_of(best, range(1), request.top_k, exact=exact, rounds=1)
