"""View scores to document scores: the one scoring function.

A view's score is the inner product of the stored view and the query. A document's score is its best view's score, or
DRPQ's softmax mean of them all. Both are float64 sums in one fixed order, rounded once to float32, so that a score
depends on the vectors, the query and the temperature only: not on engine, batch, threads, BLAS or the width of SIMD.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, QueryError
from mvindex.kernels import SUM_LANES
from mvindex.records import Combine, Doubles, Floats, Ints, plain_value, shown

_DENORMAL = np.full(1, 2.0**-140, dtype=np.float32)


class Aggregate(Enum):
    """How the scores of a document's views make its score."""

    MAX = "max"
    DRPQ = "drpq"


_AGGREGATES = {aggregate.value: aggregate for aggregate in Aggregate}


@dataclass(frozen=True, slots=True)
class Scoring:
    """How documents are scored.

    Args:
        aggregate: How view scores make a document's score.
        temperature: Of DRPQ, which divides view scores by it before the softmax (1.0 in the paper); unused by MAX.

    Raises:
        QueryError: If the temperature is not a finite number above 0.

    """

    aggregate: Aggregate = Aggregate.MAX
    temperature: float = 1.0

    def __post_init__(self) -> None:
        value = plain_value(self.temperature)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise QueryError(f"temperature: expected a finite number above 0, got {shown(value)}")
        object.__setattr__(self, "temperature", float(value))


BY_BEST_VIEW = Scoring()


class DocumentScores(NamedTuple):
    """Scores (m,) float32 of m documents and, for each, the slot (m,) int64 of its best view (the first, on a tie)."""

    scores: Floats
    slots: Ints


def parse_aggregate(name: str) -> Aggregate:
    """Return the aggregate of that name.

    Raises:
        QueryError: If there is none.

    """
    if isinstance(name, str) and name in _AGGREGATES:
        return _AGGREGATES[name]
    expected = " or ".join(repr(aggregate.value) for aggregate in Aggregate)
    raise QueryError(f"scoring: expected {expected}, got {name!r:.60}")


def parse_scoring(name: str, temperature: float | None, default_temperature: float = 1.0) -> Scoring:
    """Return the scoring of that name.

    Raises:
        QueryError: If there is none, or a temperature is given without DRPQ.

    """
    aggregate = parse_aggregate(name)
    if aggregate is Aggregate.MAX and temperature is not None:
        raise QueryError("temperature= belongs to scoring='drpq'")
    if aggregate is Aggregate.MAX:
        return BY_BEST_VIEW
    return Scoring(aggregate, default_temperature if temperature is None else temperature)


def for_loops(queries: Floats) -> Floats:
    """Return the queries in float32, copied where they are stored views of fp16, have gaps or cannot be written.

    All these are other types to the compiler.
    """
    if queries.dtype == np.float32 and queries.flags.c_contiguous and queries.flags.writeable:
        return queries
    return np.require(queries, dtype=np.float32, requirements=["C", "W"])


def view_sums(packed: npt.NDArray[Any], query: Floats) -> Doubles:
    """Return the inner products of stored views and a query, (r,) float64, added up in the one fixed order.

    Element i belongs to partial sum i % SUM_LANES. Each partial sum is added from the first element to the last; then
    the upper half of the sums is added to the lower half until one is left. Products of float32 are exact in float64:
    fused multiply-add changes nothing.

    Args:
        packed: (r, d) fp16 or fp32, of norm up to MAX_NORM.
        query: (d,) float32, of norm up to MAX_NORM.

    """
    dim, wide_query, rows = len(query), query.astype(np.float64), decode(packed)
    lanes = np.zeros((len(packed), SUM_LANES))
    for begin in range(0, dim, SUM_LANES):
        columns = slice(begin, min(begin + SUM_LANES, dim))
        block = rows[:, columns].astype(np.float64)
        block *= wide_query[columns]
        lanes[:, : block.shape[1]] += block
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def view_scores(packed: npt.NDArray[Any], query: Floats) -> Floats:
    """Return the score of each stored view, (r,) float32; packed: (r, d) fp16 or fp32, query: (d,) float32."""
    return _rounded(view_sums(packed, query))


def document_scores(sums: Doubles, starts: Ints, scoring: Scoring) -> DocumentScores:
    """Return the scores and winning slots of m documents.

    With s_j the sums of a document's views, the score is, rounded once to the nearest float32 (0.0, never -0.0):

    - MAX: max_j s_j.
    - DRPQ: sum_j a_j s_j, a = softmax(s / T) over the document's views (DRPQ eq. 4-6, there T = 1), at most the score
      of MAX. Views are added from the best to the worst, so that their order in the document does not matter.

    The slot is, for both, the first whose s_j rounded to float32 is highest.

    Args:
        sums: (r,) float64, as view_sums() adds them.
        starts: (m + 1,) int64; document i has the views starts[i]:starts[i + 1], at least one.
        scoring: The aggregate and its temperature.

    Raises:
        DamagedIndex: If a sum is not finite: no index accepts such a view.

    """
    if not np.isfinite(sums).all():
        raise DamagedIndex("a stored view holds NaN or infinity, which mvindex never writes")
    best = best_views(_rounded(sums), starts)
    if scoring.aggregate is Aggregate.MAX:
        return best
    means = _rounded(_soft_means(sums, starts, scoring.temperature))
    return DocumentScores(np.minimum(means, best.scores), best.slots)


def best_views(scores: Floats, starts: Ints) -> DocumentScores:
    """Return each document's best view. scores: (r,) float32; starts: (m + 1,) int64, no document without a view."""
    begins = starts[:-1]
    best = np.maximum.reduceat(scores, begins)
    (at_best,) = (scores == best.repeat(starts[1:] - begins)).nonzero()
    return DocumentScores(best, at_best[at_best.searchsorted(begins)] - begins)


def view_weights(scores: npt.NDArray[np.floating[Any]], temperature: float) -> Doubles:
    """Return the softmax (k,) float64 of one document's view scores (k,) over T (DRPQ eq. 4)."""
    wide = scores.astype(np.float64)
    weights = _soft_weights(wide.max() - wide, temperature)
    shares: Doubles = weights / weights.sum()
    return shares


@lru_cache
def lipschitz_constant(num_views: int) -> float:
    """Return the least L, rounded up, with |y(s) - y(s')| <= L max_j |s_j - s'_j| for DRPQ's score y and any T.

    L is the supremum of sum_j |r_j|, r_j = dy / ds_j = a_j (1 + (s_j - y) / T) (DRPQ eq. 11). The r_j sum to 1, so
    L = 1 + 2 sup sum_N |r_j|, N the views with r_j < 0. Let A be the mass of N under a, n <= k - 1 its size (the best
    view has r_j > 0), H the entropy of a and H_N the part of N in it. As (s_j - y) / T = ln a_j + H,

        sum_N |r_j| = H_N - A - A H,   H >= H_N - (1 - A) ln(1 - A),   H_N <= A ln(n / A), so
        sum_N |r_j| <= F(A) = (1 - A) A ln(n / A) - A + A (1 - A) ln(1 - A),

    with equality where one view has the mass 1 - A and n views A / n each. F is concave below A = 1/2; above, it falls,
    then may rise to -1. So its maximum is where F' = (1 - 2 A) ln(n (1 - A) / A) - 2 vanishes below 1/2: there
    F = A / (1 - 2 A) and L = 1 / (1 - 2 A), the root of 2 L - ln((L + 1) / (L - 1)) = ln(k - 1), which rises in L.
    """
    if num_views == 1:
        return 1.0
    low, high = 1.0, 2.0 + math.log(num_views)
    for _ in range(60):
        middle = (low + high) / 2
        if 2 * middle - math.log((middle + 1) / (middle - 1)) < math.log(num_views - 1):
            low = middle
        else:
            high = middle
    # The left side rises by more than 2 per unit of L, so that its rounding moves the root by a few units of 2^-52.
    return high * (1 + 2.0**-40)


def _rounded(values: Doubles) -> Floats:
    """Round to float32. Adding zero turns -0.0 into 0.0: the two are equal in order and must print alike."""
    return values.astype(np.float32) + np.float32(0)


def _soft_weights(gaps: Doubles, temperature: float) -> Doubles:
    """Return exp(-gap / T), of the gaps' shape."""
    with np.errstate(over="ignore", under="ignore"):
        weights: Doubles = np.exp(-gaps / temperature)
    return weights


def _soft_means(sums: Doubles, starts: Ints, temperature: float) -> Doubles:
    """Return DRPQ's score of each document, (m,) float64, before it is rounded.

    y = M - N / D with M = max_j s_j, g_j = M - s_j, w_j = exp(-g_j / T), N = sum_j w_j g_j, D = sum_j w_j >= 1: no term
    is negative, so that nothing cancels but in the last step.
    """
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    falling = sums[np.lexsort((-sums, owners))]
    best = falling[starts[:-1]]
    gaps = best[owners] - falling
    weights = _soft_weights(gaps, temperature)
    # bincount adds one element after the other, in the order of the array.
    loss, total = (np.bincount(owners, terms, len(best)) for terms in (weights * gaps, weights))
    means: Doubles = best - loss / total
    return means


def decode(packed: npt.NDArray[Any]) -> Floats:
    """Return stored views, finite fp16 or fp32, as float32, exactly.

    NumPy's own fp16 cast takes eight times as long: here the bits are moved to their place in a float32, which is
    then off by the difference of the exponents' biases, 2^112; the product with that power of two is exact.
    """
    if packed.dtype != np.float16 or _flushes_denormals():
        return packed.astype(np.float32)
    bits = np.ascontiguousarray(packed).view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # 0x8FFFE000: the sign, five bits of exponent and ten of mantissa
    decoded = bits.view(np.float32)
    decoded *= np.float32(2.0**112)
    return decoded


def _flushes_denormals() -> bool:
    """Return whether this thread treats float32 numbers below the normal range as zero."""
    return bool(np.multiply(_DENORMAL, np.float32(1))[0] == 0)


def combine_scores(scores: Floats, combine: Combine) -> Floats:
    """Return the combined scores, (n,), of (m, n) float32: added one vector after the other in float64, then rounded.

    Never falls where a score rises, and is the score itself where m is 1.
    """
    if combine is Combine.MAX:
        highest: Floats = scores.max(axis=0)
        return highest
    # np.sum() adds in an order that depends on the shape.
    total = scores[0].astype(np.float64)
    for more in scores[1:]:
        total += more
    if combine is Combine.MEAN:
        total /= len(scores)
    with np.errstate(over="ignore"):
        rounded: Floats = total.astype(np.float32)
    return rounded
