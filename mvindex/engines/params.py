"""Inverted lists: how many so many views want, how many views train them, and how they are searched until tuned."""

from __future__ import annotations

import math

from mvindex.engines.protocol import MAX_LISTS, Kind

IVF_KINDS = frozenset({Kind.IVF_FLAT, Kind.IVF_SQ8, Kind.IVF_PQ, Kind.IVF_RABITQ})
# Their scores are those of codes.
CODED_KINDS = IVF_KINDS - {Kind.IVF_FLAT}
# Their codes have so few bits that hits are in a rough order.
COARSE_KINDS = frozenset({Kind.IVF_PQ, Kind.IVF_RABITQ})
# Of coarse codes at least so many hits are scored anew, also for few documents.
LEAST_COARSE = 400
# From so many centroids on, they are found by a graph: in training, when views are added, and in searches.
GRAPH_LISTS = 1 << 16
GRAPH_LINKS = 32
GRAPH_EF = 128
# Codes of 4 bits stand in blocks of so many rows; a list's last block is filled up.
BLOCK_ROWS = 32
# Points per centroid: fewer than these Faiss warns of; with more than those k-means takes longer and gains nothing
# measurable.
MIN_POINTS, POINTS = 39, 64
# At least so many views, if there are so many, train the codes.
LEAST_SAMPLE = 65_536
# So many views a list: 4,096 lists for 1.6 million, as measured.
_VIEWS_PER_LIST = 400
# Lists looked at, per square root of their number.
USUAL_EFFORT = 16


def usual_lists(num_views: int) -> int:
    """How many lists so many views are put in: a power of two, at most what can be trained on them."""
    wanted = 1 << max(0, round(math.log2(max(num_views / _VIEWS_PER_LIST, 1))))
    return max(1, min(wanted, MAX_LISTS, num_views // MIN_POINTS))


def sample_size(num_lists: int, num_views: int) -> int:
    """How many views the lists and codes are trained on."""
    return min(num_views, max(num_lists * POINTS, LEAST_SAMPLE))


def usual_search(kind: Kind, num_lists: int) -> dict[str, int]:
    """What is used before anybody has tuned. probes: lists a query; fetch: view hits per document wanted.

    16 sqrt(lists) is a quarter of 4,096 lists, an eighth of 16,384 and a twentieth of 131,072. Codes of few bits say
    less about the order, so that more of their hits are scored anew.
    """
    return {"probes": probes_of(USUAL_EFFORT, num_lists), "fetch": 15 if kind in COARSE_KINDS else 4}


def probes_of(effort: float, num_lists: int) -> int:
    """How many lists are looked at: effort times the square root of their number, at least one, at most all."""
    return max(1, min(num_lists, round(effort * math.sqrt(num_lists))))
