"""The search by views: an engine's ranking or the exact scan, and documents from it.

It does not matter how many questions a call has: in any batch a question gets the same documents.

Promises kept here (docs/decisions/002): min(top_k, allowed) distinct documents whatever the engine; one score and
one order; exact only where the candidates provably hold the top_k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from mvindex.engines.protocol import DocumentEngine, Engine, ranks_documents
from mvindex.records import Combine, Floats, Ints, sliced
from mvindex.search.ann import HITS_AT_ONCE, RankedSearch
from mvindex.search.exact import (
    Best,
    GroupSearch,
    add_tail,
    pairs_of,
    rankings_of,
    scanned,
    scanned_to_depth,
)
from mvindex.search.parts import Parts, StoredViews
from mvindex.search.ranking import Engines, Pairs, Ranking, Request, ScoredPairs, Share
from mvindex.search.request import QUERY_BATCH
from mvindex.search.result_merge import find_cut_short, floors_of, merge_rankings
from mvindex.store.snapshot import Snapshot

# The numbers of documents that are measured; between them costs follow.
FEW, MANY = 10, 100
# What a filter costs that allows a share of the documents, measured by bench/graph_filters.py: a walk takes this power
# of the share times as long, a scan the sum of this part of its time and this multiple of the share, at most all of it.
_WALK_POWER = -0.6
_SCAN_LEAST, _SCAN_SLOPE = 0.1, 3.5


def is_scan_faster(measured: Mapping[str, Any], top_k: int, share: float, num_documents: int) -> bool:
    """Return whether the exact scan is the faster of the two.

    What was added since the build is scanned by both.

    Args:
        measured: What the build has measured, see SelfMeasured.
        top_k: How many documents are wanted.
        share: Of the documents that the engine covers, how many may be found, over 0.
        num_documents: How many are covered now, of all shards; some may have been taken in since it was measured.
    """
    # Between what was measured for few and for many.
    place = min(max(math.log(top_k / FEW) / math.log(MANY / FEW), 0.0), 1.0)
    walk = measured["ms_10"] + place * (measured["ms_100"] - measured["ms_10"])
    scan = measured["exact_ms_10"] + place * (measured["exact_ms_100"] - measured["exact_ms_10"])
    scan *= num_documents / measured["documents"] * min(1.0, _SCAN_LEAST + _SCAN_SLOPE * share)
    return bool(scan < walk * share**_WALK_POWER)


# Below this many allowed documents, or this share of those an approximate engine covers, they are scanned: graphs
# lose rows under tight filters, and a scan of few documents is the faster of the two.
_SCAN_DOCUMENTS = 10_000
_SCAN_SHARE = 0.05
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)
# Documents of a group that are scored together: bounds memory.
_DOCUMENTS_AT_ONCE = 1 << 14


class DocumentSearch(Protocol):
    """A search of one store, in two steps where it is one of several shards."""

    @property
    def first_limit(self) -> int:
        """How many view hits one index of all shards would first look at; 0 where nothing is proposed."""

    def propose(self, queries: Floats, found: dict[Hashable, Any]) -> Floats:
        """Return the scores of the view hits that this shard has among the first_limit of all, (q, m) float32.

        found: see OneOfShards.
        """

    def run(self, queries: Floats, floors: Floats | None = None) -> list[Ranking]:
        """Return the best documents of each query, of those that were proposed without those below the floors, (q,)."""


class _FullSearch(NamedTuple):
    """A search that proposes nothing, since it looks at all that its store has to look at."""

    search: Callable[[Floats], Iterable[Ranking]]
    first_limit: int = 0

    def propose(self, queries: Floats, found: dict[Hashable, Any]) -> Floats:
        return np.empty((len(queries), 0), dtype=np.float32)

    def run(self, queries: Floats, floors: Floats | None = None) -> list[Ranking]:
        return list(self.search(queries))


def _begin_search(snapshot: Snapshot, engines: Engines, request: Request) -> DocumentSearch:
    """Return the search of one store; see search_documents()."""
    top_k = min(request.top_k, request.num_allowed)
    if top_k == 0:
        empty = np.empty(0, dtype=np.int64)
        ranking = Ranking(empty, empty.astype(np.float32), empty, True, 0, 0, 0)
        return _FullSearch(lambda queries: [ranking] * len(queries))
    if top_k < request.top_k:
        request = request._replace(top_k=top_k)
    engine = engines.ranking
    if engine is not None and not _is_better_scanned(engine, request):
        if not ranks_documents(engine):
            return RankedSearch(snapshot, engines, request)
        if engine.is_ready():
            return _FullSearch(partial(_walked, snapshot, engines, engine, request))
    scan = scanned if request.depth is None else scanned_to_depth
    return _FullSearch(partial(scan, snapshot, engines.scan, request=request))


def search_documents(snapshot: Snapshot, engines: Engines, queries: Floats, request: Request) -> list[Ranking]:
    """Return the best documents of each query, min(top_k, allowed) of them.

    queries: (q, d) float32, finite, of norm up to MAX_NORM.
    """
    return _begin_search(snapshot, engines, request).run(queries)


def rank_views(parts: Parts, queries: Floats) -> list[Ranking]:
    """Return the best documents of each query, (q, d) float32, in all parts together."""
    parts.check_dim(queries)
    first, *others = parts.all
    if not others:
        with first.errors():
            return search_documents(first.snapshot, first.engines, queries, first.request)
    share = Share(num_shards=len(parts.all), top_k=first.request.top_k)
    searches = []
    for part in parts.all:
        with part.errors():
            searches.append(_begin_search(part.snapshot, part.engines, part.request._replace(share=share)))
    size = max(1, HITS_AT_ONCE // max(1, *(search.first_limit for search in searches)))
    return [ranking for tile in sliced(queries, size) for ranking in _rank_shares(parts, searches, tile, first.request)]


def rank_group(parts: Parts, queries: Floats, combine: Combine) -> Ranking:
    """Return the ranking of one group of queries, (m, d) float32, in all parts together."""
    parts.check_dim(queries)
    request = parts.all[0].request

    def rank(top_k: int) -> list[Ranking]:
        deeper = Parts([part._replace(request=part.request._replace(top_k=top_k, share=None)) for part in parts.all])
        begins = range(0, len(queries), QUERY_BATCH)
        return [ranking for at in begins for ranking in rank_views(deeper, queries[at : at + QUERY_BATCH])]

    def score_all() -> Iterator[ScoredPairs]:
        for part, first in zip(parts.all, parts.firsts.tolist(), strict=True):
            allowed = first + np.flatnonzero(part.request.allowed)
            for begin in range(0, len(allowed), _DOCUMENTS_AT_ONCE):
                some = pairs_of(allowed[begin : begin + _DOCUMENTS_AT_ONCE], len(queries))
                yield parts.score(queries, some, request.scoring)

    return GroupSearch(
        queries=queries,
        combine=combine,
        scoring=request.scoring,
        top_k=request.top_k,
        num_allowed=parts.num_allowed,
        rank=rank,
        views=parts,
        score_all=score_all,
    ).run()


def _rank_shares(parts: Parts, searches: Sequence[DocumentSearch], queries: Floats, request: Request) -> list[Ranking]:
    """Return the rankings over several parts, each of which is searched for its share.

    Approximate engines propose what one engine of all views would: each its share of the view hits, and the best of
    all parts are scored. A part that may have more of them than its share is searched in full afterwards.
    """
    proposed, rankings = [], []
    in_common: dict[Hashable, Any] = {}
    for search, part in zip(searches, parts.all, strict=True):
        with part.errors():
            proposed.append(search.propose(queries, in_common))
    floors = floors_of(proposed, [search.first_limit for search in searches], request.scoring)
    for search, part in zip(searches, parts.all, strict=True):
        with part.errors():
            rankings.append(search.run(queries, floors))
    merged = merge_rankings(parts, rankings, request.top_k)
    cut_short = find_cut_short(rankings, merged, request.scoring)
    if not any(map(len, cut_short)):
        return merged
    for part, of_part, which in zip(parts.all, rankings, cut_short, strict=True):
        with part.errors():
            again = search_documents(part.snapshot, part.engines, queries[which], part.request) if len(which) else []
        for query, ranking in zip(which.tolist(), again, strict=True):
            of_part[query] = ranking.after(of_part[query])
    return merge_rankings(parts, rankings, request.top_k)


def _is_better_scanned(ranking: Engine, request: Request) -> bool:
    """Return whether an approximate engine may use little of what it covers, or cannot rank views to a depth."""
    if ranks_documents(ranking) and request.depth is not None:
        return True
    inside = request.num_allowed
    if len(request.allowed) > ranking.num_rows:
        inside -= int(np.count_nonzero(request.allowed[ranking.num_rows :]))
    is_small = inside < _SCAN_SHARE * ranking.num_rows
    num_shards = 1 if request.share is None else request.share.num_shards
    if ranks_documents(ranking) and (measured := ranking.measured) is not None:
        share, covered = inside / ranking.num_rows, num_shards * ranking.num_rows
        return is_small or is_scan_faster(measured, request.top_k, share, covered)
    is_small = is_small or inside * num_shards < _SCAN_DOCUMENTS
    return not ranking.capabilities.is_exact and inside < ranking.num_rows // 2 and is_small


def _walked(
    snapshot: Snapshot, engines: Engines, engine: DocumentEngine, request: Request, queries: Floats
) -> list[Ranking]:
    """Return the rankings of the queries, (q, d) float32, by an engine that finds documents itself.

    One round of scoring, and a scan for what stays short. request.top_k is at most what is allowed.
    """
    tail = _NO_ROWS
    if len(request.allowed) > engine.num_rows:
        tail = np.flatnonzero(request.allowed[engine.num_rows :]) + engine.num_rows
    num_inside = request.num_allowed - len(tail)
    best = Best(StoredViews(snapshot.views), queries, request.top_k, request.scoring)
    add_tail(best, snapshot, engines.scan, queries, request, tail)
    if num_inside:
        allowed = None if num_inside == engine.num_rows else request.allowed[: engine.num_rows]
        proposed = engine.documents(queries, min(request.top_k, num_inside), allowed, request.scoring)
        is_found = proposed >= 0
        best.add(Pairs(proposed[is_found].astype(np.int64), is_found.nonzero()[0]))
    rankings = list(rankings_of(best, exact=not num_inside, rounds=1))
    short = [query for query, ranking in enumerate(rankings) if ranking.short_by]
    if short:
        for query, scan in zip(short, scanned(snapshot, engines.scan, queries[short], request), strict=True):
            rankings[query] = scan._replace(rounds=2, num_scored=rankings[query].num_scored + scan.num_scored)
    return rankings
