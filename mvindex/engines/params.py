"""Parameters of inverted lists: their number, the views that train them, and their search until it is tuned."""

from __future__ import annotations

import math

from mvindex.engines.protocol import MAX_NLIST

IVF_KINDS = frozenset({"ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"})
# Their scores are those of codes.
CODED_KINDS = IVF_KINDS - {"ivf-flat"}
# Their codes have so few bits that hits are in a rough order.
COARSE_KINDS = frozenset({"ivf-pq", "ivf-rabitq"})
# Of coarse codes at least so many hits are scored anew, also for few documents.
LEAST_COARSE = 400
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
# Lists searched, per square root of their number.
DEFAULT_EFFORT = 16


def default_nlist(num_views: int) -> int:
    """Return the default nlist: a power of two, at most what can be trained on so many views."""
    nlist = 1 << max(0, round(math.log2(max(num_views / _VIEWS_PER_LIST, 1))))
    return max(1, min(nlist, MAX_NLIST, num_views // MIN_POINTS))


def sample_size(nlist: int, num_views: int) -> int:
    """Return how many views the lists and codes are trained on."""
    return min(num_views, max(nlist * POINTS, LEAST_SAMPLE))


def default_search(kind: str, nlist: int) -> dict[str, int]:
    """Return the default search parameters. nprobe: lists a query; k_factor: view hits per document.

    16 sqrt(lists) is a quarter of 4,096 lists, an eighth of 16,384 and a twentieth of 131,072. Codes of few bits say
    less about the order, so that more of their hits are scored anew.
    """
    return {"nprobe": nprobe_of(DEFAULT_EFFORT, nlist), "k_factor": 15 if kind in COARSE_KINDS else 4}


def nprobe_of(effort: float, nlist: int) -> int:
    """Return nprobe: effort times the square root of nlist, at least one, at most all."""
    return max(1, min(nlist, round(effort * math.sqrt(nlist))))
