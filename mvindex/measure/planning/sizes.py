"""Bytes, times and recall of each kind: of known corpora and one machine, scaled to the documents planned.

The points are of 384 dimensions: the lower of 1.6 million views in 4,096 lists and of 8 million in 16,384 on the harder
corpus, 1.6 million on the easier one. Recall follows the share of the lists searched, nearly alike at both sizes.

Not counted: encoding texts and queries, reading views that no page cache holds, and the network between shards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mvindex.engines.auto import (
    BLOCK_ROWS,
    COARSE_KINDS,
    GROUPED_NLIST,
    GROUPS_ADDED,
    IVF_KINDS,
    LEAST_SAMPLE,
    default_search,
    groups_for,
    num_groups,
    sample_size,
    view_bytes,
)
from mvindex.engines.protocol import EXACT
from mvindex.kernels import WORTH_LOADING
from mvindex.store.views import BLOCK_BYTES, ROW_DTYPE, ViewType

_MEASURED_NLIST = 4_096


class _Point(NamedTuple):
    """The share of the lists searched, and (harder, easier) recall of the first 10 and of the first 100 documents."""

    share: float
    at_10: tuple[float, float]
    at_100: tuple[float, float]


_PQ: Sequence[_Point] = (
    _Point(1 / 16, (0.929, 0.986), (0.831, 0.866)),
    _Point(1 / 8, (0.970, 0.993), (0.919, 0.931)),
    _Point(1 / 4, (0.991, 0.999), (0.973, 0.974)),
    _Point(1 / 2, (0.999, 0.999), (0.992, 0.994)),
)
_POINTS: Mapping[str, Sequence[_Point]] = {
    "ivf-pq": _PQ,
    # Finer codes find no less than those of ivf-pq in the same lists.
    "ivf-flat": _PQ,
    "ivf-sq8": _PQ,
    "ivf-rabitq": (
        _Point(1 / 16, (0.895, 0.982), (0.787, 0.823)),
        _Point(1 / 8, (0.923, 0.990), (0.848, 0.866)),
        _Point(1 / 4, (0.927, 0.995), (0.872, 0.888)),
    ),
    # 800,000 views, searched with the defaults (docs/decisions/010).
    "graph": (_Point(1.0, (0.973, 0.999), (0.971, 0.992)),),
    # 80,000 views of the harder corpus, searched with the defaults.
    "hnsw": (_Point(1.0, (0.996, 0.996), (0.986, 0.986)),),
}
# The links of a view in CAGRA, and those that they are chosen of, by the defaults of Faiss.
_CAGRA_LINKS, _CAGRA_CANDIDATES = 64, 128
# A graph over more views was not measured.
_MAX_GRAPH_VIEWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The expected recall of the first `at` documents on the harder and the easier corpus; low is None if unknown."""

    low: float | None
    high: float
    at: int


def expected_recall(kind: str, num_views: int, target: float, top_k: int) -> tuple[Recall, float]:
    """Return the expected recall, and the least measured share of the lists that reaches the target.

    The largest share is taken where none reaches it. The share is of 4,096 lists or more; see nprobe_for().
    """
    at = 10 if top_k < math.sqrt(10 * 100) else 100
    if kind not in _POINTS:
        return Recall(low=1.0, high=1.0, at=at), 1.0
    chosen = next((point for point in _POINTS[kind] if _at(point, at)[0] >= target), _POINTS[kind][-1])
    low, high = _at(chosen, at)
    is_unknown = kind == "hnsw" and num_views > _MAX_GRAPH_VIEWS
    return Recall(low=None if is_unknown else low, high=high, at=at), chosen.share


def nprobe_for(share: float, nlist: int) -> int:
    """Return how many of nlist lists to search, to find what that share of 4,096 lists finds.

    Below 4,096 lists the number searched per square root of nlist decides, as in the default search.
    """
    return math.ceil(nlist * min(1.0, share * max(1.0, math.sqrt(_MEASURED_NLIST / nlist))))


def _at(point: _Point, at: int) -> tuple[float, float]:
    return point.at_10 if at == 10 else point.at_100


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


# Where the views of a document start, and whether it is live.
_STORE_BYTES = 8 + 1
# Rows of documents, texts and metadata, and two indices, without the text; measured with short ids, without metadata.
_CATALOG_BYTES = 180
# The checksum of a MiB, in memory with whether it was checked, and as a row of the catalog.
_BLOCK_RAM, _BLOCK_ROW = 9, 64
_PAGE = 4096
# Of a list: its two lengths on disk; two vectors and the allocator's overhead in memory.
_LIST_DISK, _LIST_RAM = 16, 80
# Codes in blocks take powers of two from this on; the unwritten part takes no memory but its first page.
_LEAST_CAPACITY = 256
# Lists differ in length: the codes of a list are assumed to spread evenly over this share about the mean.
_SPREAD = 0.3
# Lists that are filled grow, and leave gaps: the most memory, of that once they are loaded. Measured 1.8
# at 10^7 views, and 1.6 at 1.7 x 10^8 (docs/figures/full_count.jsonl).
_FILLING = 1.7
# Float32 copies of the sample in memory during training: original, rotated, and residuals; the largest measured.
_SAMPLE_COPIES = {"ivf-flat": 1.0, "ivf-sq8": 2.0, "ivf-pq": 3.0, "ivf-rabitq": 3.5}
# Of a row of the sample, where lists are trained by groups: its group, in the order read and twice sorted.
_SAMPLE_ROW = 3 * 8
# Of a centroid in a group: its number, and its place.
_GROUPED_BYTES = 16
# Of the int8 scan: spare rows of a block, bounds of a document, dimensions from which rows are padded to 64 bytes.
_SPARE_ROWS, _BOUNDS, _PADDED_DIM, _VECTOR = 16, 8, 192, 64
# Of a document in the torch scan: its row, and its largest norm.
_DEVICE_DOCUMENT = 8 + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The documents to plan for.

    views: per document, on average; text_bytes: per document, title and metadata included.
    """

    documents: int
    views: float
    dim: int
    view_type: ViewType
    text_bytes: int

    @property
    def num_views(self) -> int:
        """Return the number of views of all documents."""
        return math.ceil(self.documents * self.views)

    def shard(self, shards: int) -> Collection:
        """Return the largest of that many shards; a document is whole in one shard."""
        return replace(self, documents=-(-self.documents // shards))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBytes:
    """The files of a store, and the bytes always in memory; the files are read through the page cache."""

    views: int
    rows: int
    catalog: int
    resident: int

    @property
    def disk(self) -> int:
        """Return the bytes of all files."""
        return self.views + self.rows + self.catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBytes:
    """The files of an engine, its memory once it is open, and the most memory while it is built, or only trained."""

    disk: int
    resident: int
    building: int
    training: int = 0


def store_bytes(collection: Collection) -> StoreBytes:
    """Return the bytes of a store of these documents."""
    views = collection.num_views * collection.dim * collection.view_type.dtype.itemsize
    rows = collection.documents * ROW_DTYPE.itemsize
    blocks = (views + rows) // BLOCK_BYTES
    catalog = collection.documents * (_CATALOG_BYTES + collection.text_bytes) + blocks * _BLOCK_ROW
    return StoreBytes(
        views=views, rows=rows, catalog=catalog, resident=collection.documents * _STORE_BYTES + blocks * _BLOCK_RAM
    )


def engine_bytes(kind: str, shard: Collection, nlist: int, all_views: int | None = None) -> EngineBytes:
    """Return the bytes of a Faiss engine of a shard; all_views: of all shards, whose lists are trained together."""
    num_views, dim = shard.num_views, shard.dim
    row = view_bytes(kind, dim)
    if kind not in IVF_KINDS:
        size = round(num_views * row.total)
        return EngineBytes(disk=size, resident=size, building=max(size, round(num_views * row.building)))
    fixed = _tables(kind, dim) + _quantiser(kind, dim, nlist)
    filled = num_views
    if row.is_in_blocks:
        filled += round(min(nlist, num_views) * (BLOCK_ROWS - 1) / 2)
    codes = filled * row.code + num_views * row.beside
    disk = round(fixed + codes + nlist * _LIST_DISK)
    spare = nlist * _unused(filled * row.code / nlist) if row.is_in_blocks else 0.0
    resident = round(fixed + codes + nlist * _LIST_RAM + spare)
    training = round(fixed + _training(kind, shard, nlist, sample_size(nlist, all_views or num_views)))
    building = max(training, round(_FILLING * resident))
    return EngineBytes(disk=disk, resident=resident, building=building, training=training)


def gpu_bytes(kind: str, shard: Collection, engine: EngineBytes) -> int:
    """Return the bytes of the copy of an engine on a GPU, the most while it is made; lists take what they do here."""
    if kind != "hnsw":
        return engine.resident
    return shard.num_views * 4 * (shard.dim + _CAGRA_LINKS + _CAGRA_CANDIDATES)


def scan_bytes(scan: str, collection: Collection) -> int:
    """Return the bytes of the copies that the exact scan of that name keeps (see engines.scan_name)."""
    rows, dim = collection.num_views, collection.dim
    if scan.startswith("native"):
        unit = _VECTOR if dim > _PADDED_DIM or dim % _VECTOR == 0 else 4
        blocks = max(1, rows // min(max((1 << 22) // dim, 256), 8192))
        pitch = -(-dim // unit) * unit
        return (rows + _SPARE_ROWS * blocks) * pitch + collection.documents * _BOUNDS + blocks * dim * 4
    if not scan.startswith("torch"):
        return 0
    return rows * dim * (2 if scan.startswith("torch fp16") else 4) + collection.documents * _DEVICE_DOCUMENT


def has_copies_file(scan: str, collection: Collection) -> bool:
    """Return whether a build of kind exact writes the copies of the scan of that name to a file."""
    return scan.startswith("native") and collection.num_views * collection.dim > WORTH_LOADING


def _training(kind: str, shard: Collection, nlist: int, sample: int) -> float:
    """Return the bytes of training: the sample as stored, and copies of all of it or of what trains the codes."""
    is_grouped = nlist >= GROUPED_NLIST
    copied = min(sample, LEAST_SAMPLE) if is_grouped else sample
    row = shard.dim * shard.view_type.dtype.itemsize + (_SAMPLE_ROW if is_grouped else 0)
    return sample * row + copied * shard.dim * 4 * _SAMPLE_COPIES[kind]


def _quantiser(kind: str, dim: int, nlist: int) -> float:
    """Return the bytes of the centroids, from GROUPED_NLIST on in groups."""
    width = _width(kind, dim)
    if nlist < GROUPED_NLIST:
        return nlist * 4 * width
    return nlist * (4 * width + _GROUPED_BYTES) + num_groups(nlist) * (4 * width + _LIST_DISK)


def _tables(kind: str, dim: int) -> int:
    """Return the bytes of the rotation and of the codebooks."""
    width = _width(kind, dim)
    values = {"ivf-pq": 16 * width * 4, "ivf-sq8": 2 * dim * 4, "ivf-rabitq": 4 * width}.get(kind, 0)
    return values + (4 * width * dim if kind in COARSE_KINDS else 0)


def _width(kind: str, dim: int) -> int:
    """Return the dimensions of codes; coarse codes need an even number."""
    return dim + dim % 2 if kind in COARSE_KINDS else dim


def _unused(list_bytes: float) -> float:
    """Return the bytes of a list's last page beyond its codes, on average: its capacity is a power of two."""
    sizes = [list_bytes * (1 + _SPREAD * step / 8) for step in range(-8, 9)]
    return sum(min(_PAGE, _capacity(size) - size) for size in sizes) / len(sizes)


def _capacity(size: float) -> int:
    return max(_LEAST_CAPACITY, 1 << math.ceil(math.log2(max(size, 1))))
