"""Compute the bytes of an index by the arithmetic of its formats: store files, and engines on disk and in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mvindex.engines.auto import view_bytes
from mvindex.engines.params import (
    BLOCK_ROWS,
    COARSE_KINDS,
    GROUPED_NLIST,
    IVF_KINDS,
    LEAST_SAMPLE,
    num_groups,
    sample_size,
)
from mvindex.kernels import WORTH_LOADING
from mvindex.store.segments import BLOCK_BYTES
from mvindex.store.views import ROW_DTYPE, ViewType

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
