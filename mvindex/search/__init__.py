"""The one search loop: over-fetch, deduplicate, grow, rescore, certify. Engines only ever propose candidates.

Promises kept here (docs/decisions/002): min(top_k, allowed) distinct documents whatever the engine; one score and
one order; exact only where the candidates provably hold the top_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mvindex.engines.protocol import Engine, ranks_documents
from mvindex.records import Floats
from mvindex.search.ann import RankedSearch
from mvindex.search.exact import scanned, scanned_to_depth
from mvindex.search.request import Engines, Ranking, Request
from mvindex.search.shard_merge import Part, merge_rankings, owners
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


def search_documents(snapshot: Snapshot, engines: Engines, queries: Floats, request: Request) -> list[Ranking]:
    """Return the best documents of each query, min(top_k, allowed) of them.

    queries: (q, d) float32, finite, of norm up to MAX_NORM.
    """
    num_allowed = snapshot.count(request.allowed)
    top_k = min(request.top_k, num_allowed)
    if top_k == 0:
        nothing = np.empty(0, dtype=np.int64)
        return [Ranking(nothing, nothing.astype(np.float32), nothing, True, 0, 0, 0) for _ in queries]
    if top_k < request.top_k:
        request = replace(request, top_k=top_k)
    ranking = engines.ranking
    if ranking is not None and not _is_better_scanned(snapshot, ranking, request):
        if not ranks_documents(ranking):
            return RankedSearch(snapshot, engines, request).run(queries)
        if ranking.is_ready():
            return walked(snapshot, engines, ranking, queries, request)
    if request.depth is not None:
        return list(scanned_to_depth(snapshot, engines.scan, queries, request))
    return list(scanned(snapshot, engines.scan, queries, request))


def search_parts(parts: Sequence[Part], queries: Floats) -> list[Ranking]:
    """Return the best documents of each query in all parts; rows are numbered through all parts: see owners()."""
    return merge_rankings(
        parts, [search_documents(part.snapshot, part.engines, queries, part.request) for part in parts]
    )


def _is_better_scanned(snapshot: Snapshot, ranking: Engine, request: Request) -> bool:
    """Return whether an approximate engine may use little of what it covers, or cannot rank views to a depth."""
    if ranking.capabilities.ranks_documents and request.depth is not None:
        return True
    inside = snapshot.count(request.allowed) - int(np.count_nonzero(request.allowed[ranking.num_rows :]))
    is_small = inside < _SCAN_DOCUMENTS or inside < _SCAN_SHARE * ranking.num_rows
    return not ranking.capabilities.is_exact and inside < ranking.num_rows // 2 and is_small
