"""Bytes of an index, by the arithmetic of its formats: the store's files, engines on disk and in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mvindex.engines.auto import view_bytes
from mvindex.engines.params import BLOCK_ROWS, COARSE_KINDS, GRAPH_LISTS, IVF_KINDS, sample_size
from mvindex.engines.protocol import Kind
from mvindex.store.segments import BLOCK_BYTES
from mvindex.store.views import ROW_DTYPE, ViewType

# starts, and whether a document is alive.
_STORE_BYTES = 8 + 1
# Beside the text: rows of documents, texts and metadata, and two indices; measured with short ids, without metadata.
_CATALOG_BYTES = 180
# The checksum of a MiB, in memory with whether it was checked, and as a row of the catalog.
_BLOCK_RAM, _BLOCK_ROW = 9, 64
_PAGE = 4096
# Of a list: its two lengths on disk; in memory two vectors and what the allocator keeps of them.
_LIST_DISK, _LIST_RAM = 16, 80
# Codes in blocks are held in powers of two from this on; the part of it never written takes no memory but its page.
_LEAST_CAPACITY = 256
# Lists differ in length: codes of a list are taken as spread evenly over so much about the mean.
_SPREAD = 0.3
# Training holds so many times the sample: as given, rotated, and what is left after the centroid; as measured at most.
_SAMPLE_COPIES = {Kind.IVF_FLAT: 1.0, Kind.IVF_SQ8: 2.0, Kind.IVF_PQ: 3.0, Kind.IVF_RABITQ: 3.5}
# Of the native scan: a block's spare rows, bounds of a document, dims from which rows are padded to 64 bytes.
_SPARE_ROWS, _BOUNDS, _PADDED_DIM, _VECTOR = 16, 8, 192, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What is to be held. text_bytes: of a document, title and metadata included; views: of a document, on average."""

    documents: int
    views: float
    dim: int
    view_type: ViewType
    text_bytes: int

    @property
    def num_views(self) -> int:
        """Views of all documents."""
        return math.ceil(self.documents * self.views)

    def shard(self, shards: int) -> Collection:
        """The largest of so many shards: whole documents, all their views."""
        return replace(self, documents=-(-self.documents // shards))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBytes:
    """The store: its files, and what of it is always in memory; the files are read through the page cache."""

    views: int
    rows: int
    catalog: int
    resident: int

    @property
    def disk(self) -> int:
        """All files."""
        return self.views + self.rows + self.catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBytes:
    """An engine: its files, what it takes in memory once it is open, and at most while it is built."""

    disk: int
    resident: int
    building: int


def store_bytes(held: Collection) -> StoreBytes:
    """What a store of these documents takes."""
    views = held.num_views * held.dim * held.view_type.dtype.itemsize
    rows = held.documents * ROW_DTYPE.itemsize
    blocks = (views + rows) // BLOCK_BYTES
    catalog = held.documents * (_CATALOG_BYTES + held.text_bytes) + blocks * _BLOCK_ROW
    return StoreBytes(
        views=views, rows=rows, catalog=catalog, resident=held.documents * _STORE_BYTES + blocks * _BLOCK_RAM
    )


def engine_bytes(kind: Kind, num_views: int, dim: int, lists: int, all_views: int | None = None) -> EngineBytes:
    """What a Faiss engine takes; lists: of ivf kinds. all_views: of all shards, whose lists are learnt together."""
    row = view_bytes(kind, dim)
    if kind not in IVF_KINDS:
        size = round(num_views * row.total)
        return EngineBytes(disk=size, resident=size, building=size)
    fixed = _tables(kind, dim) + _quantiser(kind, dim, lists)
    filled = num_views
    if row.is_in_blocks:
        filled += round(min(lists, num_views) * (BLOCK_ROWS - 1) / 2)
    codes = filled * row.code + num_views * row.beside
    disk = round(fixed + codes + lists * _LIST_DISK)
    spare = lists * _unused(filled * row.code / lists) if row.is_in_blocks else 0.0
    resident = round(fixed + codes + lists * _LIST_RAM + spare)
    sample = sample_size(lists, all_views or num_views) * dim * 4 * _SAMPLE_COPIES[kind]
    return EngineBytes(disk=disk, resident=resident, building=round(max(sample + fixed, resident)))


def scan_bytes(scan: str, held: Collection) -> int:
    """What the copies take that the exact scan of that name keeps (see engines.scan_name)."""
    rows, dim = held.num_views, held.dim
    if scan.startswith("native"):
        unit = _VECTOR if dim > _PADDED_DIM or dim % _VECTOR == 0 else 4
        blocks = max(1, rows // min(max((1 << 22) // dim, 256), 8192))
        pitch = -(-dim // unit) * unit
        return (rows + _SPARE_ROWS * blocks) * pitch + held.documents * _BOUNDS + blocks * dim * 4
    if scan.startswith("torch"):
        width = {"int8": 1, "bf16": 2}.get(scan.split()[1], 4)
        return rows * dim * width
    return 0


def _quantiser(kind: Kind, dim: int, lists: int) -> float:
    """The centroids, from GRAPH_LISTS on with a graph over them."""
    width = _width(kind, dim)
    return lists * (view_bytes(Kind.HNSW, width).total if lists >= GRAPH_LISTS else 4 * width)


def _tables(kind: Kind, dim: int) -> int:
    """A rotation, and the values of codes."""
    width = _width(kind, dim)
    values = {Kind.IVF_PQ: 16 * width * 4, Kind.IVF_SQ8: 2 * dim * 4, Kind.IVF_RABITQ: 4 * width}.get(kind, 0)
    return values + (4 * width * dim if kind in COARSE_KINDS else 0)


def _width(kind: Kind, dim: int) -> int:
    """Coarse codes need an even number of dimensions."""
    return dim + dim % 2 if kind in COARSE_KINDS else dim


def _unused(list_bytes: float) -> float:
    """Bytes of a list's last page in memory beyond its codes, on average: its room is a power of two."""
    sizes = [list_bytes * (1 + _SPREAD * step / 8) for step in range(-8, 9)]
    return sum(min(_PAGE, _capacity(size) - size) for size in sizes) / len(sizes)


def _capacity(size: float) -> int:
    return max(_LEAST_CAPACITY, 1 << math.ceil(math.log2(max(size, 1))))
