"""What building and searching takes: counts of bytes, products and views, times the seconds that a machine needs each.

Not counted: encoding texts and queries, which depends on the encoder, and the network between shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mvindex.engines.params import COARSE_KINDS, GRAPH_EF, GRAPH_LISTS, IVF_KINDS, LEAST_COARSE, sample_size
from mvindex.engines.protocol import Kind
from mvindex.planning.rates import NOTHING, Rates, Span
from mvindex.planning.sizes import Collection, EngineBytes

# k-means as Faiss runs it here.
_ITERATIONS = 10
# Vectors met in a graph of 32 links, per ef: 14 to 22 measured on 8,192 to 32,768 centroids.
_MET = (12, 22)
_HNSW_EF_BUILD, _HNSW_EF_LEAST, _HNSW_EF = 80, 512, 4
# Of the view hits of coarse codes, so many documents: 850 to 1,300 of 1,500 measured.
_DOCUMENTS_PER_HIT = (0.57, 0.87)
# Documents that a certified scan scores for 100 wanted: 241 to 278 measured at 400,000 views.
_CERTIFIED = (2.4, 2.8)
_RUN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How a layout is made and searched.

    name: of its scan's rate; all_views: of all shards, whose lists are learnt together; cached: the share of views in
    the page cache.
    """

    name: str
    kind: Kind
    lists: int
    all_views: int
    probes: int
    fetch: int
    top_k: int
    cached: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds: of a build, by step; of a query alone, and of each in a batch."""

    build: Mapping[str, Span]
    alone: Span
    batch: Span

    @property
    def whole_build(self) -> Span:
        """All steps."""
        return sum(self.build.values(), NOTHING)


def layout_times(rates: Rates, held: Collection, engine: EngineBytes, how: Searched) -> Times:
    """What one shard takes on a machine of these rates."""
    return Times(
        build=_build(rates, held, engine, how),
        alone=_query(rates, held, how, "alone"),
        batch=_query(rates, held, how, "batch"),
    )


def _build(rates: Rates, held: Collection, engine: EngineBytes, how: Searched) -> dict[str, Span]:
    rows, dim = held.num_views, held.dim
    reading = rates.read_disk * (rows * dim * held.view_type.dtype.itemsize)
    if how.kind is Kind.EXACT:
        return {"copying views at the first search": reading + rates.read_memory * (2.0 * rows * dim)}
    writing = rates.write_disk * engine.disk
    if how.kind is Kind.FLAT:
        return {"adding views": reading + rates.adds["flat"] * (float(rows) * dim), "writing": writing}
    if how.kind is Kind.HNSW:
        linking = _met(rates.linking, rows, _HNSW_EF_BUILD) * (float(rows) * dim)
        return {"adding views": reading + linking, "writing": writing}
    sample = sample_size(how.lists, how.all_views)
    turned = rates.product * (dim * dim) if how.kind in COARSE_KINDS else NOTHING
    adding = _nearest(rates, how.lists, dim) + turned + rates.adds[how.kind.value] * dim
    return {
        "reading a sample": rates.random_read * (sample / _RUN),
        "training": (_nearest(rates, how.lists, dim) * _ITERATIONS + turned) * sample,
        "adding views": adding * rows + reading,
        # Parts are written, read again and merged.
        "writing": writing * 2 + rates.read_disk * engine.disk,
    }


def _nearest(rates: Rates, lists: int, dim: int) -> Span:
    """Finding the list of a view, one of many: by products, or along a graph."""
    if lists < GRAPH_LISTS:
        return rates.product * (lists * dim)
    return _met(rates.linking, lists, GRAPH_EF) * dim


def _met(distance: Span, nodes: int, ef: int) -> Span:
    """Seconds a dimension of all vectors that a search with this ef meets."""
    return distance.between(min(_MET[0] * ef, nodes), min(_MET[1] * ef, nodes))


def _query(rates: Rates, held: Collection, how: Searched, mode: str) -> Span:
    is_alone = mode == "alone"
    overhead = rates.overhead if is_alone else rates.overhead_batch
    scan = rates.scans[f"{how.name} {mode}"] * (held.dim * _views_met(held, how))
    return overhead + _coarse(rates, held.dim, how, is_alone) + scan + _rescoring(rates, held, how, is_alone)


def _views_met(held: Collection, how: Searched) -> float:
    if how.kind in IVF_KINDS:
        return held.num_views * how.probes / how.lists
    if how.kind is Kind.HNSW:
        ef = max(_HNSW_EF_LEAST, _HNSW_EF * how.fetch * how.top_k)
        return min(float(held.num_views), ef * sum(_MET) / 2)
    return held.num_views


def _coarse(rates: Rates, dim: int, how: Searched, is_alone: bool) -> Span:
    """Finding the lists: all centroids are read, or multiplied by a batch, or a graph is walked."""
    if how.kind not in IVF_KINDS:
        return NOTHING
    if how.lists >= GRAPH_LISTS:
        distance = rates.distance if is_alone else rates.distance_batch
        return _met(distance, how.lists, max(GRAPH_EF, how.probes)) * dim
    return rates.read_memory * (4 * how.lists * dim) if is_alone else rates.product * (how.lists * dim)


def _rescoring(rates: Rates, held: Collection, how: Searched, is_alone: bool) -> Span:
    """Scoring all views of the documents found; what the page cache lacks is read one document after the other."""
    least, most = documents_scored(how, held.documents)
    rate = rates.rescore if is_alone else rates.rescore_batch
    read = rates.random_read * (1 - how.cached)
    return (rate * (held.views * held.dim) + read).between(least, most)


def documents_scored(how: Searched, documents: int) -> tuple[float, float]:
    """How many documents are scored for a query, at least and at most."""
    if how.kind in (Kind.EXACT, Kind.FLAT):
        least, most = (how.top_k * share for share in _CERTIFIED)
    else:
        hits = how.top_k * how.fetch
        hits = max(hits, LEAST_COARSE) if how.kind in COARSE_KINDS else hits
        least, most = (hits * share for share in _DOCUMENTS_PER_HIT)
    return min(least, documents), min(most, documents)
