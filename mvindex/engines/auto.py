"""The choice of a kind by size and memory, and the parameters of inverted lists until they are tuned."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mvindex import engines
from mvindex.engines.protocol import EXACT, MAX_NLIST, ViewBytes, cache_bytes
from mvindex.errors import ConfigError
from mvindex.kernels import has_numba

IVF_KINDS = frozenset({"ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"})
# Their scores are those of codes.
CODED_KINDS = IVF_KINDS - {"ivf-flat"}
# Their codes have so few bits that hits are in a rough order.
COARSE_KINDS = frozenset({"ivf-pq", "ivf-rabitq"})
# Any Faiss for GPUs copies these to one.
CLONED_KINDS = frozenset({"ivf-flat", "ivf-sq8"})
# Faiss has these on GPUs by NVIDIA's cuVS only.
CUVS_KINDS = frozenset({"ivf-pq", "hnsw"})
# CAGRA links the nearest of so many views or more; fewer are searched faster on the CPU.
CAGRA_LEAST = 1 << 14
# Of coarse codes at least so many hits are scored anew, also for few documents: below, the first document of all may be
# missing, for .1 ms; more of them add less than .005 to the recall of the first ten.
LEAST_COARSE = 50
# From so many centroids on, they stand in groups, which are compared first: in training, when views are added, and in
# searches. Comparing a view with all centroids takes 27 microseconds at 16,384 of 96 dimensions, 218 at 131,072.
GROUPED_NLIST = 1 << 14
# Groups whose centroids a view is compared with when it is added. With twice as many, a search needs no fewer views for
# the same recall; with half as many, an eighth more.
GROUPS_ADDED = 8
# View hits per document that are scored anew, with so many dimensions and more.
_COARSE_K_FACTOR, _COARSE_DIM = 15, 384
# Among the views of more lists than these, coarse codes tell fewer of the nearest apart. Twice as many hits find .94 of
# the first ten of 168 million views in 4,096 of 131,072 lists instead of .91, for .3 ms of 9.
_SPARSE_NLIST = 1 << 15
# Codes of 4 bits stand in blocks of so many rows; a list's last block is filled up.
BLOCK_ROWS = 32
# Points per centroid: fewer than these Faiss warns of; with more than those k-means takes longer and gains nothing
# measurable.
MIN_POINTS, POINTS = 39, 64
# At least so many views, if there are so many, train the codes.
LEAST_SAMPLE = 65_536
# Views a list: 4,096 lists for 1.6 million, as measured.
_VIEWS_PER_LIST = 400
# Lists searched for DEFAULT_TOP_K documents, per square root of their number.
DEFAULT_EFFORT, DEFAULT_TOP_K = 16, 100
# The first documents of a hundred are found in fewer lists: nprobe grows with this power of top_k.
_TOP_K_POWER = 0.2
# So many views a hit are searched at least: of fewer, a search is short where lists are uneven or documents filtered.
_VIEWS_PER_HIT = 4


def default_nlist(num_views: int) -> int:
    """Return the default nlist: a power of two, at most what can be trained on so many views."""
    nlist = 1 << max(0, round(math.log2(max(num_views / _VIEWS_PER_LIST, 1))))
    return max(1, min(nlist, MAX_NLIST, num_views // MIN_POINTS))


def kinds_on_gpus(packages: Collection[str]) -> frozenset[str]:
    """Return the kinds that are searched on GPUs, by the names of installed packages."""
    if "faiss-gpu-cuvs" in packages:
        return CLONED_KINDS | CUVS_KINDS
    return CLONED_KINDS if any(name.startswith("faiss-gpu") for name in packages) else frozenset()


def sample_size(nlist: int, num_views: int) -> int:
    """Return how many views the lists and codes are trained on."""
    return min(num_views, max(nlist * POINTS, LEAST_SAMPLE))


def default_search(kind: str, nlist: int, dim: int) -> dict[str, int]:
    """Return the default search parameters.

    nprobe: lists a query for the first top_k documents, see nprobe_for_hits(); k_factor: view hits per document.
    16 sqrt(lists) is a quarter of 4,096 lists, an eighth of 16,384 and a twentieth of 131,072. Codes of few bits say
    less about the order, so that more of their hits are scored anew.
    """
    k_factor = default_k_factor(kind, dim)
    if kind in COARSE_KINDS:
        k_factor = round(k_factor * math.sqrt(max(1.0, nlist / _SPARSE_NLIST)))
    return {"nprobe": nprobe_of(DEFAULT_EFFORT, nlist), "k_factor": k_factor, "top_k": DEFAULT_TOP_K}


def default_k_factor(kind: str, dim: int) -> int:
    """Return how many view hits per document are scored anew; of coarse codes of few dimensions up to four times more.

    Codes of as many bits for each dimension estimate a score with an error that is as one over the square root of the
    dimensions. 15 was measured with 384; with 96 it finds .88 of the first ten documents, where 60 finds .95.
    """
    if kind not in COARSE_KINDS:
        return 4
    return round(_COARSE_K_FACTOR * min(max(_COARSE_DIM / dim, 1.0), 4.0))


def nprobe_for_hits(search: Mapping[str, int], nlist: int, num_views: int, limit: int) -> int:
    """Return how many lists are searched for so many view hits: the rule of every store that has inverted lists.

    The nprobe of `search` is that for k_factor * top_k hits; where top_k is not given, for any number. Measured with
    800,000 views in 2,048 lists, the same recall needs about .4 of the lists for the first document, .63 for ten, all
    for a hundred: see docs/how-to/scale.md. Where no k_factor multiplies the documents into hits, the lists hold four
    times the hits, at least.
    """
    top_k = search.get("top_k")
    share = 1.0 if top_k is None else (limit / (top_k * search["k_factor"])) ** _TOP_K_POWER
    least = 1 if "k_factor" in search else math.ceil(_VIEWS_PER_HIT * limit * nlist / max(num_views, 1))
    return max(1, min(nlist, max(round(search["nprobe"] * share), least)))


def num_groups(nlist: int) -> int:
    """Return the number of groups of so many centroids, 32 to 128 in each."""
    return 1 << math.ceil(math.log2(nlist) / 2 + 1.5)


def groups_for(nprobe: int, nlist: int) -> int:
    """Return in how many groups a search looks for the nprobe lists that are nearest to a query.

    Measured with 131,072 lists: .98 and more of the nearest tenth of them are found, as nprobe goes from 300 to 8,000.
    """
    return math.ceil(num_groups(nlist) * min(1.0, 0.25 + 4 * nprobe / nlist))


def nprobe_of(effort: float, nlist: int) -> int:
    """Return nprobe: effort times the square root of nlist, at least one, at most all."""
    return max(1, min(nlist, round(effort * math.sqrt(nlist))))


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
