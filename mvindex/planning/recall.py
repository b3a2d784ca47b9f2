"""What share of the exact documents a kind may find: measured on two corpora, and read off between the points.

The points (docs/scale.md, "Planning") are of 384 dimensions: the lower of 1.6 million views in 4,096 lists and of
8 million in 16,384 on the harder corpus, 1.6 million on the kinder one. What is found follows the share of the lists
that is looked at, nearly alike at both sizes. Of fewer than 4,096 lists as large a share finds less: there the lists
looked at per square root of their number decide, as in the usual search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.engines.protocol import Kind

# Lists of the smaller of the measured collections.
MEASURED_LISTS = 4_096
# Share of the lists; recall of 10 and of 100 documents on the harder corpus; the same on the kinder one.
_Point = tuple[float, float, float, float, float]
_PQ: Sequence[_Point] = (
    (1 / 16, 0.929, 0.831, 0.986, 0.866),
    (1 / 8, 0.970, 0.919, 0.993, 0.931),
    (1 / 4, 0.991, 0.973, 0.999, 0.974),
    (1 / 2, 0.999, 0.992, 0.999, 0.994),
)
_POINTS: Mapping[Kind, Sequence[_Point]] = {
    Kind.IVF_PQ: _PQ,
    # Of finer codes no less is found than of ivf-pq's in the same lists.
    Kind.IVF_FLAT: _PQ,
    Kind.IVF_SQ8: _PQ,
    Kind.IVF_RABITQ: (
        (1 / 16, 0.895, 0.787, 0.982, 0.823),
        (1 / 8, 0.923, 0.848, 0.990, 0.866),
        (1 / 4, 0.927, 0.872, 0.995, 0.888),
    ),
}
# Beyond the target, so little is not worth looking at more.
_ENOUGH = 0.005
# Of 80,000 views, at the usual search (ef four times the rows, four rows a document), on the harder corpus alone.
_HNSW = (0.996, 0.986)
# What that says about graphs over more views is nothing.
MOST_LINKED = 1_000_000
SOURCES = {
    Kind.EXACT: "certified",
    Kind.FLAT: "exact",
    Kind.HNSW: "measured at 80,000 views, one corpus",
    Kind.IVF_PQ: "measured at 1.6 and 8 million views",
    Kind.IVF_FLAT: "as ivf-pq, whose codes are coarser",
    Kind.IVF_SQ8: "as ivf-pq, whose codes are coarser",
    Kind.IVF_RABITQ: "measured at 1.6 million views",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A range: on the harder and on the kinder corpus; at: of how many documents; source: what it rests on."""

    low: float
    high: float
    at: int
    source: str


def expected_recall(kind: Kind, num_views: int, share: float, top_k: int) -> Recall:
    """What is found where that share of 4,096 lists or more is looked at; low is 0 where nobody knows.

    Kinds without lists are searched as usual, whatever the share.
    """
    at = measured_at(top_k)
    if kind in (Kind.EXACT, Kind.FLAT):
        return Recall(low=1.0, high=1.0, at=at, source=SOURCES[kind])
    if kind is Kind.HNSW:
        found = _HNSW[at == 100]
        if num_views > MOST_LINKED:
            return Recall(low=0.0, high=found, at=at, source=f"{SOURCES[kind]}; unknown at so many")
        return Recall(low=found, high=found, at=at, source=SOURCES[kind])
    low, high = (_read_off(kind, share, column) for column in _columns(at))
    return Recall(low=low, high=high, at=at, source=SOURCES[kind])


def wanted_share(kind: Kind, target: float, top_k: int) -> float:
    """The least share of 4,096 lists or more at which the harder corpus reaches the target.

    Where it never does, the least that finds nearly as much as any.
    """
    points, (column, _) = _POINTS[kind], _columns(measured_at(top_k))
    shares, found = [point[0] for point in points], [point[column] for point in points]
    reachable = min(target, found[-1] - (_ENOUGH if target > found[-1] else 0.0))
    return float(2.0 ** np.interp(reachable, found, np.log2(shares)))


def share_of(share: float, num_lists: int) -> float:
    """The share of so many lists that finds at least what this share of 4,096 does."""
    return min(1.0, share * max(1.0, math.sqrt(MEASURED_LISTS / num_lists)))


def measured_at(top_k: int) -> int:
    """The number of documents, 10 or 100, that was measured and is nearer to top_k, on a scale of ratios."""
    return 10 if top_k < math.sqrt(10 * 100) else 100


def _columns(at: int) -> tuple[int, int]:
    return (1, 3) if at == 10 else (2, 4)


def _read_off(kind: Kind, share: float, column: int) -> float:
    """Between the points a straight line over the logarithm of the share; beyond them the nearest point."""
    points = _POINTS[kind]
    shares = np.log2([point[0] for point in points])
    return float(np.interp(math.log2(share), shares, [point[column] for point in points]))
