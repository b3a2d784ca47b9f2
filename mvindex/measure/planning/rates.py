"""Build and query times: counts of work, times the rates of a reference machine.

Not counted: encoding texts and queries, reading views that no page cache holds, and the network between shards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mvindex.engines.params import (
    COARSE_KINDS,
    GROUPED_NLIST,
    GROUPS_ADDED,
    IVF_KINDS,
    default_search,
    groups_for,
    num_groups,
    sample_size,
)
from mvindex.engines.protocol import EXACT

# The number of k-means iterations of a build.
_ITERATIONS = 10
# Comparing a view with a centroid of a group takes so many times as long as in a matrix product: 17 ns against 1.7, of
# 96 dimensions.
_UNBLOCKED = 10
# Vectors visited in a graph of 32 links, per ef: 14 to 22 measured on 8,192 to 32,768 vectors.
_VISITED_PER_EF = 17
_HNSW_EF_CONSTRUCTION, _HNSW_MIN_EF, _HNSW_EF_PER_ROW = 80, 512, 4
# Documents of a graph's beam for the first ten; they grow with the square root of top_k.
_BEAM, _BEAM_TOP_K = 400, 10


# The reference machine: the two cores of an AMD EPYC (Zen 5, AVX-512 VNNI) that docs/figures were measured on. Seconds
# of one thread. A multiplication and addition of a matrix product, which trains lists and assigns views to them: 1.7 ns
# for 96 dimensions.
REFERENCE_CORES = 2
_PRODUCT_S = 1.77e-11
# Of an element of build_work(). Lists: the 125 s of 10 million views of 96 dimensions (full_count.jsonl), less their
# products; the builds of other lists take about as long (scale.jsonl). graph: 271 s for 800,000 views of 384
# (bench/graph.py). hnsw: 320 s for 1,600,000 (scale.jsonl). flat reads fp16 and writes float32, at 1.3 GB/s.
_BUILD_S: Mapping[str, float] = {
    EXACT: 0.0,
    "flat": 1.5e-9,
    "graph": 8.8e-7,
    "hnsw": 3.8e-10,
    **dict.fromkeys(IVF_KINDS, 2.5e-8),
}
# Of an element of query_work(), beside what each query takes. exact and graph: peers.jsonl. ivf-pq: 1.8 ms for a
# million views (peers_by_size.jsonl), 15 for 168 million (full_count.jsonl). Others: the least time of scale.jsonl;
# flat as the scan in float32 there.
_QUERY_FIXED_S = 5e-4
# Of a view hit that is scored anew, and more of a query, where hits are counted apart: ivf-pq.
_HIT_S, _HITS_FIXED_S = 8e-7, 2e-4
_QUERY_S: Mapping[str, float] = {
    EXACT: 6.0e-11,
    "flat": 3.8e-10,
    "graph": 1.3e-8,
    "hnsw": 2.5e-9,
    "ivf-flat": 2.7e-10,
    "ivf-sq8": 2.1e-10,
    "ivf-pq": 2.35e-11,
    "ivf-rabitq": 6.7e-11,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An engine to be built and searched: one shard's views, all_views of all shards, its lists and its search.

    k_factor: view hits that are scored anew per document; 0 for the kind's default.
    """

    kind: str
    num_views: int
    all_views: int
    dim: int
    nlist: int = 0
    nprobe: int = 0
    top_k: int = 10
    k_factor: int = 0


def build_seconds(load: Workload, cores: int) -> float:
    """Return the seconds of a build on so many cores of the reference machine."""
    return (_BUILD_S[load.kind] * build_work(load) + _PRODUCT_S * build_products(load)) / cores


def query_seconds(load: Workload) -> float:
    """Return the latency of a single query in one thread of the reference machine."""
    seconds = _QUERY_FIXED_S + _QUERY_S[load.kind] * query_work(load)
    if load.kind != "ivf-pq":
        return seconds
    k_factor = load.k_factor or default_search(load.kind, load.nlist, load.dim)["k_factor"]
    return seconds + _HITS_FIXED_S + _HIT_S * k_factor * load.top_k


def build_work(load: Workload) -> float:
    """Return the elements (views times dimensions) that a build codes or, in a graph, compares."""
    if load.kind == EXACT:
        return 0.0
    visited = min(load.num_views, _VISITED_PER_EF * _HNSW_EF_CONSTRUCTION) if load.kind == "hnsw" else 1
    return float(load.num_views) * load.dim * visited


def build_products(load: Workload) -> float:
    """Return the multiplications, in matrix products, that train lists and assign views; 0 for kinds without lists."""
    if load.kind not in IVF_KINDS:
        return 0.0
    rotated = load.dim if load.kind in COARSE_KINDS else 0
    sample = sample_size(load.nlist, load.all_views)
    if load.nlist < GROUPED_NLIST:
        trained, compared = float(_ITERATIONS * load.nlist), float(load.nlist)
    else:
        groups, members = num_groups(load.nlist), load.nlist / num_groups(load.nlist)
        trained, compared = groups + _ITERATIONS * members, groups + _UNBLOCKED * GROUPS_ADDED * members
    return float(load.dim) * (sample * trained + load.num_views * (compared + rotated))


def query_work(load: Workload) -> float:
    """Return the elements that a query reads: vectors times dimensions, and for a graph documents times dimensions."""
    if load.kind == "hnsw":
        ef = max(_HNSW_MIN_EF, _HNSW_EF_PER_ROW * 4 * load.top_k)
        return float(min(load.num_views, _VISITED_PER_EF * ef)) * load.dim
    if load.kind == "graph":
        return min(load.num_views, _BEAM * math.sqrt(load.top_k / _BEAM_TOP_K)) * load.dim
    if load.kind not in IVF_KINDS:
        return float(load.num_views) * load.dim
    centroids = float(load.nlist)
    if load.nlist >= GROUPED_NLIST:
        groups = num_groups(load.nlist)
        centroids = groups + load.nlist * groups_for(load.nprobe, load.nlist) / groups
    return (load.num_views * load.nprobe / load.nlist + centroids) * load.dim
