"""Parameters of inverted lists: their number, the views that train them, and their search until it is tuned."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mvindex.engines.protocol import MAX_NLIST

IVF_KINDS = frozenset({"ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"})
# Their scores are those of codes.
CODED_KINDS = IVF_KINDS - {"ivf-flat"}
# Their codes have so few bits that hits are in a rough order.
COARSE_KINDS = frozenset({"ivf-pq", "ivf-rabitq"})
# Of coarse codes at least so many hits are scored anew, also for few documents: below, the first document of all may be
# missing, for .1 ms; more of them add less than .005 to the recall of the first ten.
LEAST_COARSE = 50
# From so many centroids on, they are found by a graph: in training, when views are added, and in searches.
GRAPH_NLIST = 1 << 16
GRAPH_M = 32
GRAPH_EF = 128
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


def default_nlist(num_views: int) -> int:
    """Return the default nlist: a power of two, at most what can be trained on so many views."""
    nlist = 1 << max(0, round(math.log2(max(num_views / _VIEWS_PER_LIST, 1))))
    return max(1, min(nlist, MAX_NLIST, num_views // MIN_POINTS))


def sample_size(nlist: int, num_views: int) -> int:
    """Return how many views the lists and codes are trained on."""
    return min(num_views, max(nlist * POINTS, LEAST_SAMPLE))


def default_search(kind: str, nlist: int) -> dict[str, int]:
    """Return the default search parameters.

    nprobe: lists a query for the first top_k documents, see nprobe_for_hits(); k_factor: view hits per document.
    16 sqrt(lists) is a quarter of 4,096 lists, an eighth of 16,384 and a twentieth of 131,072. Codes of few bits say
    less about the order, so that more of their hits are scored anew.
    """
    k_factor = 15 if kind in COARSE_KINDS else 4
    return {"nprobe": nprobe_of(DEFAULT_EFFORT, nlist), "k_factor": k_factor, "top_k": DEFAULT_TOP_K}


def nprobe_for_hits(search: Mapping[str, int], nlist: int, limit: int) -> int:
    """Return nprobe for so many view hits, from that for k_factor * top_k of them; always the same without top_k.

    Measured with 800,000 views in 2,048 lists, the same recall needs about .4 of the lists for the first document, .63
    for ten, all for a hundred: see docs/how-to/scale.md.
    """
    top_k = search.get("top_k")
    share = 1.0 if top_k is None else (limit / (top_k * search["k_factor"])) ** _TOP_K_POWER
    return max(1, min(nlist, round(search["nprobe"] * share)))


def nprobe_of(effort: float, nlist: int) -> int:
    """Return nprobe: effort times the square root of nlist, at least one, at most all."""
    return max(1, min(nlist, round(effort * math.sqrt(nlist))))
