"""Expected recall of each kind, from measurements on two corpora (docs/how-to/scale.md, "Expected recall").

The points are of 384 dimensions: the lower of 1.6 million views in 4,096 lists and of 8 million in 16,384 on the harder
corpus, 1.6 million on the easier one. Recall follows the share of the lists searched, nearly alike at both sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MEASURED_NLIST = 4_096


class _Point(NamedTuple):
    """The share of the lists searched, and (harder, easier) recall of the first 10 and of the first 100 documents."""

    share: float
    at_10: tuple[float, float]
    at_100: tuple[float, float]


_PQ: Sequence[_Point] = (
    _Point(1 / 16, (0.929, 0.986), (0.831, 0.866)),
    _Point(1 / 8, (0.970, 0.993), (0.919, 0.931)),
    _Point(1 / 4, (0.991, 0.999), (0.973, 0.974)),
    _Point(1 / 2, (0.999, 0.999), (0.992, 0.994)),
)
_POINTS: Mapping[str, Sequence[_Point]] = {
    "ivf-pq": _PQ,
    # Finer codes find no less than those of ivf-pq in the same lists.
    "ivf-flat": _PQ,
    "ivf-sq8": _PQ,
    "ivf-rabitq": (
        _Point(1 / 16, (0.895, 0.982), (0.787, 0.823)),
        _Point(1 / 8, (0.923, 0.990), (0.848, 0.866)),
        _Point(1 / 4, (0.927, 0.995), (0.872, 0.888)),
    ),
    # 800,000 views, searched with the defaults (docs/decisions/010).
    "graph": (_Point(1.0, (0.973, 0.999), (0.971, 0.992)),),
    # 80,000 views of the harder corpus, searched with the defaults.
    "hnsw": (_Point(1.0, (0.996, 0.996), (0.986, 0.986)),),
}
# A graph over more views was not measured.
_MAX_GRAPH_VIEWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The expected recall of the first `at` documents on the harder and the easier corpus; low is None if unknown."""

    low: float | None
    high: float
    at: int


def expected_recall(kind: str, num_views: int, target: float, top_k: int) -> tuple[Recall, float]:
    """Return the expected recall, and the least measured share of the lists that reaches the target.

    The largest share is taken where none reaches it. The share is of 4,096 lists or more; see nprobe_for().
    """
    at = 10 if top_k < math.sqrt(10 * 100) else 100
    if kind not in _POINTS:
        return Recall(low=1.0, high=1.0, at=at), 1.0
    chosen = next((point for point in _POINTS[kind] if _at(point, at)[0] >= target), _POINTS[kind][-1])
    low, high = _at(chosen, at)
    is_unknown = kind == "hnsw" and num_views > _MAX_GRAPH_VIEWS
    return Recall(low=None if is_unknown else low, high=high, at=at), chosen.share


def nprobe_for(share: float, nlist: int) -> int:
    """Return how many of nlist lists to search, to find what that share of 4,096 lists finds.

    Below 4,096 lists the number searched per square root of nlist decides, as in the default search.
    """
    return math.ceil(nlist * min(1.0, share * max(1.0, math.sqrt(_MEASURED_NLIST / nlist))))


def _at(point: _Point, at: int) -> tuple[float, float]:
    return point.at_10 if at == 10 else point.at_100
