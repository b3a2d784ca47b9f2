"""Build and query times: counts of work, times the rates of a machine.

Not counted: encoding texts and queries, reading views that no page cache holds, and the network between shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mvindex.engines.params import (
    COARSE_KINDS,
    GROUPED_NLIST,
    GROUPS_ADDED,
    IVF_KINDS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds as a fixed part and a rate per unit of work."""

    fixed_s: float
    per_unit_s: float

    def seconds(self, work: float) -> float:
        """Return the seconds of so many units of work."""
        return self.fixed_s + self.per_unit_s * work

    @classmethod
    def through(cls, small: tuple[float, float], large: tuple[float, float]) -> Line:
        """Return the line through two points (work, seconds); through the larger and zero where noise hides a slope."""
        (work, seconds), (more_work, more_seconds) = small, large
        slope = (more_seconds - seconds) / (more_work - work)
        if not 0 < slope <= more_seconds / more_work:
            return cls(fixed_s=0.0, per_unit_s=more_seconds / more_work)
        return cls(fixed_s=seconds - slope * work, per_unit_s=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of one thread of a machine.

    product_s: one multiplication and addition of a matrix product, which trains lists and assigns views to them.
    build, query: by kind, over build_work() and query_work(); a kind that was not measured in time is left out.
    """

    product_s: float
    build: Mapping[str, Line]
    query: Mapping[str, Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An engine to be built and searched: one shard's views, all_views of all shards, its lists and its search."""

    kind: str
    num_views: int
    all_views: int
    dim: int
    nlist: int = 0
    nprobe: int = 0
    top_k: int = 10


def build_seconds(rates: Rates, load: Workload) -> float | None:
    """Return the seconds of a build; None where the kind was not measured."""
    line = rates.build.get(load.kind)
    return None if line is None else line.seconds(build_work(load)) + rates.product_s * build_products(load)


def query_seconds(rates: Rates, load: Workload) -> float | None:
    """Return the latency of a single query; None where the kind was not measured."""
    line = rates.query.get(load.kind)
    return None if line is None else line.seconds(query_work(load))


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
    """Return the elements (vectors times dimensions) that a query reads."""
    if load.kind == "hnsw":
        ef = max(_HNSW_MIN_EF, _HNSW_EF_PER_ROW * 4 * load.top_k)
        return float(min(load.num_views, _VISITED_PER_EF * ef)) * load.dim
    if load.kind not in IVF_KINDS:
        return float(load.num_views) * load.dim
    centroids = float(load.nlist)
    if load.nlist >= GROUPED_NLIST:
        groups = num_groups(load.nlist)
        centroids = groups + load.nlist * groups_for(load.nprobe, load.nlist) / groups
    return (load.num_views * load.nprobe / load.nlist + centroids) * load.dim
