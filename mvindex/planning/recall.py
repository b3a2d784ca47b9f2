"""What share of the exact documents a kind may find: measured once, on two corpora, and read off between the points.

The points (docs/scale.md, "Planning") are of 1.6 million views of 384 dimensions in 4,096 lists. Effort is lists looked
at per square root of their number, which is how the usual search grows with an index: for other numbers of lists the
figures are an extrapolation, and `mvindex tune` measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.engines.base import Kind
from mvindex.engines.lists import USUAL_EFFORT

MEASURED_VIEWS = 1_600_000
# Effort; recall of 10 and of 100 documents on the harder corpus; the same on the kinder one.
_Point = tuple[float, float, float, float, float]
_PQ: Sequence[_Point] = (
    (4, 0.818, 0.712, 0.969, 0.803),
    (8, 0.916, 0.863, 0.991, 0.919),
    (16, 0.969, 0.946, 0.994, 0.970),
    (32, 0.989, 0.988, 0.997, 0.992),
)
_POINTS: Mapping[Kind, Sequence[_Point]] = {
    Kind.IVF_PQ: _PQ,
    # Measured without scoring all views of what was found: lower by two to five hundredths than as searched here. Of
    # finer codes no less is found than of ivf-pq's at the same effort.
    Kind.IVF_FLAT: _PQ,
    Kind.IVF_SQ8: _PQ,
    Kind.IVF_RABITQ: ((8, 0.888, 0.743, 0.986, 0.831),),
}
# Of 80,000 views, at the usual search (ef four times the rows, four rows a document), on the harder corpus alone.
_HNSW = (0.996, 0.986)
# What that says about graphs over more views is nothing.
MOST_LINKED = 1_000_000
SOURCES = {
    Kind.EXACT: "certified",
    Kind.FLAT: "exact",
    Kind.HNSW: "measured at 80,000 views, one corpus",
    Kind.IVF_PQ: "measured at 1.6 million views",
    Kind.IVF_FLAT: "as ivf-pq, whose codes are coarser",
    Kind.IVF_SQ8: "as ivf-pq, whose codes are coarser",
    Kind.IVF_RABITQ: "measured at 1.6 million views, effort 8 only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A range: on the harder and on the kinder corpus; at: of how many documents; source: what it rests on."""

    low: float
    high: float
    at: int
    source: str


def expected_recall(kind: Kind, num_views: int, effort: float, top_k: int) -> Recall:
    """What is found at that effort (of ivf kinds; other kinds are searched as usual); low is 0 where nobody knows."""
    at = measured_at(top_k)
    if kind in (Kind.EXACT, Kind.FLAT):
        return Recall(low=1.0, high=1.0, at=at, source=SOURCES[kind])
    if kind is Kind.HNSW:
        found = _HNSW[at == 100]
        if num_views > MOST_LINKED:
            return Recall(low=0.0, high=found, at=at, source=f"{SOURCES[kind]}; unknown at so many")
        return Recall(low=found, high=found, at=at, source=SOURCES[kind])
    low, high = (_read_off(kind, effort, column) for column in _columns(at))
    return Recall(low=low, high=high, at=at, source=SOURCES[kind])


def wanted_effort(kind: Kind, target: float, top_k: int) -> float:
    """The least effort from the points at which the harder corpus reaches the target; the most where none does."""
    points, (column, _) = _POINTS[kind], _columns(measured_at(top_k))
    efforts, found = [point[0] for point in points], [point[column] for point in points]
    if len(points) == 1:
        return float(USUAL_EFFORT)
    wanted = float(np.interp(target, found, np.log2(efforts)))
    return min(float(2.0**wanted), efforts[-1])


def measured_at(top_k: int) -> int:
    """The number of documents, 10 or 100, that was measured and is nearer to top_k, on a scale of ratios."""
    return 10 if top_k < math.sqrt(10 * 100) else 100


def _columns(at: int) -> tuple[int, int]:
    return (1, 3) if at == 10 else (2, 4)


def _read_off(kind: Kind, effort: float, column: int) -> float:
    """Between the points a straight line over the logarithm of the effort; beyond them the nearest point."""
    points = _POINTS[kind]
    efforts = np.log2([point[0] for point in points])
    return float(np.interp(math.log2(effort), efforts, [point[column] for point in points]))
