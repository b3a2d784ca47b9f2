"""The one search loop: over-fetch, deduplicate, grow, rescore, certify. Engines only ever propose candidates.

Promises kept here (docs/decisions/002): min(top_k, allowed) distinct documents whatever the engine; one score and
one order; exact only where the candidates provably hold the top_k.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from mvindex.engines.protocol import Engine, ranks_documents
from mvindex.records import Floats
from mvindex.search.ann import HITS_AT_ONCE, RankedSearch
from mvindex.search.exact import scanned, scanned_to_depth
from mvindex.search.request import Engines, Ranking, Request, Share
from mvindex.search.shard_merge import Part, find_cut_short, floors_of, merge_rankings, owners
from mvindex.search.walk import walked
from mvindex.store.snapshot import Snapshot

__all__ = [
    "Engines",
    "Part",
    "Ranking",
    "Request",
    "merge_rankings",
    "owners",
    "search_documents",
    "search_parts",
]

# Below this many allowed documents, or this share of those an approximate engine covers, they are scanned: graphs
# lose rows under tight filters, and a scan of few documents is the faster of the two.
_SCAN_DOCUMENTS = 10_000
_SCAN_SHARE = 0.05


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


@dataclass(frozen=True, slots=True)
class _FullSearch:
    """A search that proposes nothing, since it looks at all that its store has to look at."""

    search: Callable[[Floats], Iterable[Ranking]]
    first_limit: int = 0

    def propose(self, queries: Floats, found: dict[Hashable, Any]) -> Floats:
        return np.empty((len(queries), 0), dtype=np.float32)

    def run(self, queries: Floats, floors: Floats | None = None) -> list[Ranking]:
        return list(self.search(queries))


def _begin_search(snapshot: Snapshot, engines: Engines, request: Request) -> DocumentSearch:
    """Return the search of one store; see search_documents()."""
    top_k = min(request.top_k, snapshot.count(request.allowed))
    if top_k == 0:
        nothing = np.empty(0, dtype=np.int64)
        ranking = Ranking(nothing, nothing.astype(np.float32), nothing, True, 0, 0, 0)
        return _FullSearch(lambda queries: [ranking] * len(queries))
    if top_k < request.top_k:
        request = replace(request, top_k=top_k)
    engine = engines.ranking
    if engine is not None and not _is_better_scanned(snapshot, engine, request):
        if not ranks_documents(engine):
            return RankedSearch(snapshot, engines, request)
        if engine.is_ready():
            return _FullSearch(lambda queries: walked(snapshot, engines, engine, queries, request))
    scan = scanned if request.depth is None else scanned_to_depth
    return _FullSearch(lambda queries: scan(snapshot, engines.scan, queries, request))


def search_documents(snapshot: Snapshot, engines: Engines, queries: Floats, request: Request) -> list[Ranking]:
    """Return the best documents of each query, min(top_k, allowed) of them.

    queries: (q, d) float32, finite, of norm up to MAX_NORM.
    """
    return _begin_search(snapshot, engines, request).run(queries)


def search_parts(
    parts: Sequence[Part], queries: Floats, errors: Sequence[Callable[[], AbstractContextManager[None]]] | None = None
) -> list[Ranking]:
    """Return the best documents of each query in all parts; rows are numbered through all parts: see owners().

    errors: for each part, a context that names it in errors.
    """
    named = [nullcontext] * len(parts) if errors is None else errors
    if len(parts) == 1:
        with named[0]():
            return search_documents(parts[0].snapshot, parts[0].engines, queries, parts[0].request)
    share = Share(num_shards=len(parts), top_k=parts[0].request.top_k)
    searches = []
    for part, error in zip(parts, named, strict=True):
        with error():
            searches.append(_begin_search(part.snapshot, part.engines, replace(part.request, share=share)))
    size = max(1, HITS_AT_ONCE // max(1, *(search.first_limit for search in searches)))
    tiles = (queries[begin : begin + size] for begin in range(0, len(queries), size))
    return [ranking for tile in tiles for ranking in _search_shares(parts, searches, tile, named)]


def _search_shares(
    parts: Sequence[Part],
    searches: Sequence[DocumentSearch],
    queries: Floats,
    errors: Sequence[Callable[[], AbstractContextManager[None]]],
) -> list[Ranking]:
    """Return the rankings over several parts, each of which is searched for its share.

    Approximate engines propose what one engine of all views would: each its share of the view hits, and the best of
    all parts are scored. A part that may have more of them than its share is searched in full afterwards.
    """
    proposed, found = [], []
    in_common: dict[Hashable, Any] = {}
    for search, error in zip(searches, errors, strict=True):
        with error():
            proposed.append(search.propose(queries, in_common))
    floors = floors_of(proposed, [search.first_limit for search in searches], parts[0].request.scoring)
    for search, error in zip(searches, errors, strict=True):
        with error():
            found.append(search.run(queries, floors))
    merged = merge_rankings(parts, found)
    cut_short = find_cut_short(found, merged, parts[0].request.scoring)
    if not any(map(len, cut_short)):
        return merged
    for part, own, which, error in zip(parts, found, cut_short, errors, strict=True):
        with error():
            again = search_documents(part.snapshot, part.engines, queries[which], part.request) if len(which) else []
        for query, ranking in zip(which.tolist(), again, strict=True):
            own[query] = ranking.after(own[query])
    return merge_rankings(parts, found)


def _is_better_scanned(snapshot: Snapshot, ranking: Engine, request: Request) -> bool:
    """Return whether an approximate engine may use little of what it covers, or cannot rank views to a depth."""
    if ranking.capabilities.ranks_documents and request.depth is not None:
        return True
    inside = snapshot.count(request.allowed) - int(np.count_nonzero(request.allowed[ranking.num_rows :]))
    num_shards = 1 if request.share is None else request.share.num_shards
    is_small = inside * num_shards < _SCAN_DOCUMENTS or inside < _SCAN_SHARE * ranking.num_rows
    return not ranking.capabilities.is_exact and inside < ranking.num_rows // 2 and is_small
