"""Which kind of engine an index of some size wants, and why: what `mvindex build` does when it is not told."""

from __future__ import annotations

from dataclasses import dataclass

from mvindex.engines.protocol import Kind, cache_bytes
from mvindex.errors import ConfigError

# A certified scan reads a byte per dimension of every view: beyond so many it takes some 10 ms a query on one core.
SCANNED_BYTES = 200_000_000
# Bytes of a view beside its code: its row number, and what blocks of 32 codes leave empty.
_ID_BYTES, _PADDING = 8, 1.04
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is to be searched: views, their dimensions, and the memory that there is for the engine, in bytes."""

    num_views: int
    dim: int
    memory_bytes: int


def usable_memory() -> int:
    """Three quarters of the memory that this process may use, as in mvindex plan: the rest is for everything else."""
    return 3 * cache_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBytes:
    """The bytes of a view in an engine: its code, and its number and links. is_in_blocks: codes stand 32 at a time."""

    code: float
    beside: float = 0.0
    is_in_blocks: bool = False

    @property
    def total(self) -> float:
        """Both together, without what blocks leave empty."""
        return self.code + self.beside


def view_bytes(kind: Kind, dim: int) -> ViewBytes:
    """The bytes of a view in the engine, in memory and on disk alike, without lists' centroids and tables.

    A graph holds 64 links at its bottom, 32 above for one view in 31, a level and an offset. Coarse codes have 4 bits
    for two dimensions (ivf-pq) or for four, and 8 bytes of factors (ivf-rabitq).
    """
    width = dim + dim % 2
    found = {
        Kind.FLAT: ViewBytes(code=4 * dim),
        Kind.HNSW: ViewBytes(code=4 * dim, beside=64 * 4 + 32 * 4 / 31 + 4 + 8),
        Kind.IVF_FLAT: ViewBytes(code=4 * dim, beside=_ID_BYTES),
        Kind.IVF_SQ8: ViewBytes(code=dim, beside=_ID_BYTES),
        Kind.IVF_PQ: ViewBytes(code=-(-width // 4), beside=_ID_BYTES, is_in_blocks=True),
        Kind.IVF_RABITQ: ViewBytes(code=-(-width // 8) + 8, beside=_ID_BYTES, is_in_blocks=True),
    }
    return found[kind]


def code_bytes(kind: Kind, dim: int) -> float:
    """The bytes of a view in the engine with what blocks leave empty, without lists' centroids and tables."""
    found = view_bytes(kind, dim)
    return found.total * (_PADDING if found.is_in_blocks else 1)


def chosen_kind(sizes: Sizes, target_recall: float) -> tuple[Kind, str]:
    """The kind and the reason for it, in a sentence. ConfigError when none fits in memory: shards are wanted then."""
    views, dim = f"{sizes.num_views:,} views of {sizes.dim} dimensions", sizes.dim
    scanned = sizes.num_views * dim
    if target_recall >= 1:
        return Kind.EXACT, "only the certified scan finds everything for certain (target recall 1)"
    if scanned <= SCANNED_BYTES:
        return Kind.EXACT, f"{views} are scanned, with proof, in some milliseconds; an engine would save little"
    for kind in (Kind.IVF_PQ, Kind.IVF_RABITQ):
        needed = sizes.num_views * code_bytes(kind, dim)
        if needed <= sizes.memory_bytes:
            room = f"its codes take {needed / _GIB:.2f} GiB of the {sizes.memory_bytes / _GIB:.1f} GiB there are"
            return kind, f"a scan of {views} would read {scanned / _GIB:.2f} GiB a query; {room}"
    least = sizes.num_views * code_bytes(Kind.IVF_RABITQ, dim)
    raise ConfigError(
        f"{views} take {least / _GIB:.1f} GiB as the smallest codes; there are {sizes.memory_bytes / _GIB:.1f} GiB for "
        "them: split the index into shards (mvindex plan says how many), or choose --kind yourself"
    )
