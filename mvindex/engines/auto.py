"""The automatic choice of a kind of engine by size, memory and target recall."""

from __future__ import annotations

from dataclasses import dataclass

from mvindex import engines
from mvindex.engines.protocol import EXACT, ViewBytes, cache_bytes
from mvindex.errors import ConfigError
from mvindex.kernels import has_numba

# A certified scan reads a byte per dimension of every view: beyond so many it takes some 10 ms a query on one core.
SCANNED_BYTES = 200_000_000
# Beyond the scan, in this order: the first whose codes fit in memory.
_PREFERRED = ("graph", "ivf-pq", "ivf-rabitq")
# A view is linked in about half a millisecond of one core: of more, lists are built sooner.
LINKED_VIEWS = 4_000_000
# What blocks of 32 codes leave empty.
_PADDING = 1.04
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Views to be searched, their dimensions, and the memory that the engine may use, in bytes."""

    num_views: int
    dim: int
    memory_bytes: int


def usable_memory() -> int:
    """Return three quarters of the memory that this process may use, as in mvindex plan."""
    return 3 * cache_bytes()


def view_bytes(kind: str, dim: int) -> ViewBytes:
    """Return the bytes of a view in the engine, in memory and on disk alike, without centroids and tables.

    Raises:
        ConfigError: If the kind does not say.

    """
    find = engines.find_kind(kind).view_bytes
    if find is None:
        raise ConfigError(f"kind {kind!r}: does not say what a view takes; it cannot be planned or chosen for you")
    return find(dim)


def code_bytes(kind: str, dim: int) -> float:
    """Return the bytes of a view in the engine with the padding of blocks, without centroids and tables."""
    found = view_bytes(kind, dim)
    return found.total * (_PADDING if found.is_in_blocks else 1)


def chosen_kind(sizes: Sizes, target_recall: float) -> tuple[str, str]:
    """Return the kind and the reason for it in a sentence; raise ConfigError if none fits in memory."""
    views, dim = f"{sizes.num_views:,} views of {sizes.dim} dimensions", sizes.dim
    scanned = sizes.num_views * dim
    if target_recall >= 1:
        return EXACT, "only the certified scan finds everything for certain (target recall 1)"
    if scanned <= SCANNED_BYTES:
        return EXACT, f"{views} are scanned, with proof, in some milliseconds; an engine would save little"
    known = [kind for kind in _PREFERRED if kind in engines.kind_names()]
    if sizes.num_views > LINKED_VIEWS or not has_numba():
        known.remove("graph")
    if not known:
        return EXACT, f"no engine of kind {' or '.join(_PREFERRED)} is installed"
    for kind in known:
        needed = sizes.num_views * code_bytes(kind, dim)
        if needed <= sizes.memory_bytes:
            room = f"its codes take {needed / _GIB:.2f} GiB of the {sizes.memory_bytes / _GIB:.1f} GiB there are"
            return kind, f"a scan of {views} would read {scanned / _GIB:.2f} GiB a query; {room}"
    least = sizes.num_views * code_bytes(known[-1], dim)
    raise ConfigError(
        f"{views} take {least / _GIB:.1f} GiB as the smallest codes; there are {sizes.memory_bytes / _GIB:.1f} GiB for "
        "them: split the index into shards (mvindex plan says how many), or choose --kind yourself"
    )
