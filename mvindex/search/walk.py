"""Search by an engine that finds documents itself: one round of scoring, and a scan for what stays short."""

from __future__ import annotations

import numpy as np

from mvindex.engines.protocol import DocumentEngine
from mvindex.records import Floats
from mvindex.search.exact import add_tail, rankings_of, scanned
from mvindex.search.request import Engines, Ranking, Request
from mvindex.search.rescore import Best, Pairs
from mvindex.store.snapshot import Snapshot


def walked(
    snapshot: Snapshot, engines: Engines, engine: DocumentEngine, queries: Floats, request: Request
) -> list[Ranking]:
    """Return the rankings of the queries, (q, d) float32; request.top_k is at most what is allowed."""
    tail = np.flatnonzero(request.allowed[engine.num_rows :]) + engine.num_rows
    num_inside = snapshot.count(request.allowed) - len(tail)
    best = Best(snapshot.views, queries, request.top_k, request.scoring)
    add_tail(best, snapshot, engines.scan, queries, request, tail)
    if num_inside:
        allowed = None if num_inside == engine.num_rows else request.allowed[: engine.num_rows]
        found = engine.documents(queries, min(request.top_k, num_inside), allowed, request.scoring)
        which = np.repeat(np.arange(len(queries)), [len(rows) for rows in found])
        best.add(Pairs(found[0] if len(found) == 1 else np.concatenate(found), which))
    rankings = list(rankings_of(best, range(len(queries)), request.top_k, exact=not num_inside, rounds=1))
    short = [query for query, ranking in enumerate(rankings) if ranking.short_by]
    if short:
        for query, scan in zip(short, scanned(snapshot, engines.scan, queries[short], request), strict=True):
            rankings[query] = scan._replace(rounds=2, num_scored=rankings[query].num_scored + scan.num_scored)
    return rankings
