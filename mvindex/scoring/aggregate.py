"""View scores to document scores: the ONE scoring function, and the total order of documents.

A view's score is the inner product of the stored view and the query. A document's score is its best view's score, or
DRPQ's softmax mean of them all; both are real numbers, rounded once to float32, to nearest even. Float64 sums come
with proven error bounds; where an error could change the float32, exact arithmetic decides. So a score depends on
the vectors, the query and the temperature only: not on engine, batch, thread, BLAS or the width of SIMD.
"""

from __future__ import annotations

import decimal
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, QueryError
from mvindex.records import Doubles, Floats, Ints
from mvindex.store.views import decode, row_norms

_UNIT_ROUNDOFF = 2.0**-53
# A view further than this many temperatures below the best has weight zero by definition: exp(-745.2) already
# vanishes in float64, and so the digits that exact arithmetic may need are bounded.
_CUTOFF = 800
# From this many temperatures on, weight and term are lost in _UNDERFLOW (exp(-700) < 2^-1009).
_FAR = 700
_UNDERFLOW = 2.0**-990
_FIRST_DIGITS = 30


class Aggregate(Enum):
    """How the scores of a document's views make its score."""

    MAX = "max"
    DRPQ = "drpq"


@dataclass(frozen=True, slots=True)
class Scoring:
    """The aggregate, and the temperature that DRPQ's softmax divides view scores by (1.0 in the paper; MAX has none).

    QueryError unless the temperature is a finite number above 0.
    """

    aggregate: Aggregate = Aggregate.MAX
    temperature: float = 1.0

    def __post_init__(self) -> None:
        given = self.temperature
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= sys.float_info.max:
            raise QueryError(f"temperature is {given!r:.60}; wanted a finite number above 0")
        object.__setattr__(self, "temperature", float(given))


class ViewSums(NamedTuple):
    """Inner products (r,) float64 of views and a query, and upper bounds (r,) float64 of |sum - true inner product|."""

    sums: Doubles
    errors: Doubles


class _Bounds(NamedTuple):
    lows: Doubles
    highs: Doubles


class DocumentScores(NamedTuple):
    """Scores (m,) float32 of m documents and, for each, the slot (m,) int64 of its best view (the first, on a tie)."""

    scores: Floats
    slots: Ints


def parse_aggregate(name: str) -> Aggregate:
    """The aggregate of that name; QueryError for any other."""
    for aggregate in Aggregate:
        if aggregate.value == name:
            return aggregate
    wanted = " or ".join(repr(aggregate.value) for aggregate in Aggregate)
    raise QueryError(f"scoring is {name!r:.60}; wanted {wanted}")


def parse_scoring(name: str, temperature: float | None, usual: float = 1.0) -> Scoring:
    """The scoring of that name, at the usual temperature where none is given. QueryError: temperature without DRPQ."""
    aggregate = parse_aggregate(name)
    if aggregate is Aggregate.MAX and temperature is not None:
        raise QueryError("temperature= belongs to scoring='drpq'")
    return Scoring(aggregate, usual if temperature is None else temperature)


def view_sums(packed: npt.NDArray[Any], query: Floats) -> ViewSums:
    """The inner products of stored views, (r, d) fp16 or fp32, and a query (d,) float32, all of norm up to MAX_NORM.

    Products of float32 are exact in float64, and for any order of summation
    |fl(x . y) - x . y| <= d u / (1 - d u) sum |x_i y_i| (Higham 2002, eq. 3.5). The errors take the product of the
    norms, which is cheap, for that sum, and the sum itself only where the former leaves the view's float32 open.
    """
    narrow, wide_query = decode(packed), query.astype(np.float64)
    rows = narrow.astype(np.float64)
    sums: Doubles = rows @ wide_query
    # A little more than d u, for the 1 - d u and for the rounding of the errors themselves.
    slack = len(query) * _UNIT_ROUNDOFF * (1 + 2.0**-10)
    errors: Doubles = row_norms(narrow) * (slack * np.linalg.norm(wide_query))
    lows, highs = _rounded(*_bounds(sums, errors))
    open_rows = np.flatnonzero(lows != highs)
    errors[open_rows] = slack * (np.abs(rows[open_rows]) @ np.abs(wide_query))
    return ViewSums(sums, errors)


def exact_sums(packed: npt.NDArray[Any], query: Floats) -> list[Fraction]:
    """The exact inner products of stored views (r, d), fp16 or fp32, and a query (d,) float32, as rational numbers."""
    rows, wide_query = decode(packed).astype(np.float64), query.astype(np.float64)
    return [_exact_sum((row * wide_query).tolist()) for row in rows]


def view_scores(packed: npt.NDArray[Any], query: Floats) -> Floats:
    """The score of each stored view, (r,) float32, for a query (d,) float32; packed: (r, d) fp16 or fp32."""
    each = np.arange(len(packed) + 1)
    found = view_sums(packed, query)
    return document_scores(found, each, Scoring(), lambda rows: exact_sums(packed[rows], query)).scores


def document_scores(
    found: ViewSums, starts: Ints, scoring: Scoring, exact_sums: Callable[[Ints], list[Fraction]]
) -> DocumentScores:
    """Scores and winning slots of m documents; starts: (m + 1,) int64, no document without a view.

    exact_sums gives the exact inner products at positions (int64, rising) of found; it is called once at most, and
    only where an error could change a float32. With s_j the exact inner products of a document's views, the score is,
    rounded once to the nearest float32, ties to even (and 0.0, never -0.0):

    - MAX: max_j s_j.
    - DRPQ: sum_j a_j s_j, a = softmax(s / T) over the document's views (DRPQ eq. 4-6, there T = 1); a_j is 0 where
      s_j lies more than 800 T below the best. Being a mean, it never exceeds the score of MAX.

    The slot is, for both, the first whose s_j rounded to float32 is highest. DamagedIndex for a sum that is no number:
    no index takes such a view.
    """
    if not np.isfinite(found.sums).all():
        raise DamagedIndex("a stored view holds NaN or infinity; whatever wrote it, it was not mvindex")
    bounds = _bounds(*found)
    scores, ceilings = _rounded(*bounds)
    counts, temperature = np.diff(starts), float(scoring.temperature)
    # A view that lies surely below another of its document needs no exact score.
    is_open = (scores != ceilings) & (ceilings >= np.repeat(np.maximum.reduceat(scores, starts[:-1]), counts))
    means, open_documents = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    if scoring.aggregate is Aggregate.DRPQ:
        means, upper_means = _rounded(*_bounds(*_soft_means(found, bounds, starts, temperature)))
        open_documents = np.flatnonzero(means != upper_means)
        is_open |= np.repeat(means != upper_means, counts)
    open_rows = np.flatnonzero(is_open)
    exact = dict(zip(open_rows.tolist(), exact_sums(open_rows), strict=True)) if len(open_rows) else {}
    scores[open_rows] = [_nearest_float32(score) for score in exact.values()]
    best = best_views(scores, starts)
    if scoring.aggregate is Aggregate.MAX:
        return best
    for document in open_documents.tolist():
        rows = range(starts[document], starts[document + 1])
        means[document] = _exact_soft_mean([exact[row] for row in rows], temperature)
    return DocumentScores(means, best.slots)


def best_views(scores: Floats, starts: Ints) -> DocumentScores:
    """Each document's best view. scores: (r,) float32; starts: (m + 1,) int64, no document without a view."""
    best = np.maximum.reduceat(scores, starts[:-1])
    counts = np.diff(starts)
    slots = np.arange(len(scores)) - np.repeat(starts[:-1], counts)
    is_best = scores == np.repeat(best, counts)
    return DocumentScores(best, np.minimum.reduceat(np.where(is_best, slots, len(scores)), starts[:-1]))


def top_documents(scores: Floats, ordinals: Ints, top_k: int) -> Ints:
    """The positions of the top_k documents in the total order: score falling, then ordinal rising."""
    if len(scores) > 4 * top_k:
        threshold = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        kept = np.flatnonzero(scores >= threshold)
        return kept[np.lexsort((ordinals[kept], -scores[kept]))[:top_k]]
    return np.lexsort((ordinals, -scores))[:top_k]


def view_weights(scores: npt.NDArray[np.floating[Any]], temperature: float) -> Doubles:
    """The softmax (k,) float64 of one document's view scores (k,) over the temperature (DRPQ eq. 4, there 1)."""
    wide = scores.astype(np.float64)
    weights, _ = _soft_weights(wide.max() - wide, temperature)
    shares: Doubles = weights / weights.sum()
    return shares


@lru_cache
def sensitivity(num_views: int) -> float:
    """The least L, rounded up, with |y(s) - y(s')| <= L max_j |s_j - s'_j| for DRPQ's score y of k views and any T.

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


def _bounds(values: Doubles, errors: Doubles) -> _Bounds:
    """What is within errors of values lies surely between these."""
    return _Bounds(np.nextafter(values - errors, -np.inf), np.nextafter(values + errors, np.inf))


def _rounded(lows: Doubles, highs: Doubles) -> tuple[Floats, Floats]:
    # Adding zero turns -0.0 into 0.0: the two are equal in order and must print alike.
    return lows.astype(np.float32) + np.float32(0), highs.astype(np.float32) + np.float32(0)


def _soft_weights(gaps: Doubles, temperature: float) -> tuple[Doubles, Doubles]:
    """exp(-gap / T), and gap / T up to the cutoff, where the weight is 0; both have the gaps' shape."""
    with np.errstate(over="ignore", under="ignore"):
        exponents = np.minimum(gaps / temperature, _CUTOFF)
        return np.exp(-exponents), exponents


def _soft_means(found: ViewSums, bounds: _Bounds, starts: Ints, temperature: float) -> tuple[Doubles, Doubles]:
    """DRPQ's score of each document in float64, and a bound of its distance from the true one; (m,) each.

    y = M - N / D with M = max_j s_j, g_j = M - s_j, w_j = exp(-g_j / T), N = sum_j w_j g_j, D = sum_j w_j >= 1: no term
    is negative, so that nothing cancels but in the last step. With u = 2^-53 and q = N / D the bound adds up:

    - The errors of the sums: sensitivity(k) times their maximum over the document's views.
    - Rounding. g / T is off by 2 u of itself, which exp turns into 2 u g / T; np.exp is trusted to 4 units in the last
      place, 8 u. So a term of N is off by (2 g / T + 10) u of itself, the sum by (k - 1) u more, D likewise, the
      quotient by u more: in all by 2 u sum_j w_j g_j (g_j / T) / D + 2 u q^2 / T + (2 k + 17) u q, where q^2 / T is at
      most the first sum over D (Cauchy-Schwarz). The last step adds u |y|. The factors below leave room for u^2.
    - Views with g_j / T > 700, where exp may underflow and the cutoff may make w_j zero. Whatever becomes of one, N and
      q D change by at most 700 T exp(-700), as q <= T ln k. So where the bounds of the sums prove that a view is one of
      these, its own error, which may be large, does not count.
    """
    begins, counts = starts[:-1], np.diff(starts)
    is_far = np.repeat(np.maximum.reduceat(bounds.lows, begins), counts) - bounds.highs > _FAR * temperature
    given = sensitivity(int(counts.max(initial=1))) * np.maximum.reduceat(np.where(is_far, 0, found.errors), begins)
    best = np.maximum.reduceat(found.sums, begins)
    gaps = np.repeat(best, counts) - found.sums
    weights, exponents = _soft_weights(gaps, temperature)
    losses = weights * gaps
    total, loss, spread = (np.add.reduceat(terms, begins) for terms in (weights, losses, losses * exponents))
    loss /= total
    means: Doubles = best - loss
    rounding = 8 * spread / total + (2 * counts + 32) * loss + 2 * np.abs(means)
    return means, given + _UNIT_ROUNDOFF * rounding + (counts * (temperature * _UNDERFLOW) + _UNDERFLOW)


def _exact_sum(products: list[float]) -> Fraction:
    """The exact sum: what fsum, correctly rounded, leaves over is summed again until nothing is left."""
    negated: list[float] = []
    while part := math.fsum([*products, *negated]):
        negated.append(-part)
    return -sum(map(Fraction, negated), Fraction())


def _nearest_float32(value: Fraction) -> float:
    """The float32 nearest to a rational number, ties to even, rounded once."""
    # Numbers in [2^(e - 1), 2^e) are spaced by 2^(e - 24), denormals by 2^-149. float() may round a number up to 2^e,
    # but only one so close that it becomes 2^e with either spacing.
    exponent = math.frexp(float(value))[1]
    spacing = Fraction(2) ** max(exponent - 24, -149)
    return float(round(value / spacing) * spacing)


def _exact_soft_mean(sums: Sequence[Fraction], temperature: float) -> float:
    """DRPQ's score, correctly rounded to float32, from the exact sums of one document.

    Where the views within the cutoff are of one score, y is that. Otherwise y is transcendental, thus no boundary
    between two float32, and some precision decides: were y algebraic, sum_j (g_j - M + y) exp(-g_j / T) = 0 would be a
    combination of exponentials of algebraic numbers, and so every g_j = M - y (Lindemann-Weierstrass), one score.
    As exp(-800) > 10^-348, views close to the cutoff ask for some 400 digits, not for millions.
    """
    best = max(sums)
    gaps = [best - each for each in sums if best - each <= _CUTOFF * Fraction(temperature)]
    if not any(gaps):
        return _nearest_float32(best)
    digits = _FIRST_DIGITS
    while True:
        low, high = map(_nearest_float32, _decimal_bounds(best, gaps, temperature, digits))
        if low == high:
            return low
        digits *= 2


def _decimal_bounds(best: Fraction, gaps: list[Fraction], temperature: float, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds of the softmax mean best - sum_j w_j g_j / sum_j w_j, with no g_j beyond the cutoff.

    Decimals of so many digits; every operation, exp included, is correctly rounded, off by v = 10^(1 - digits) / 2 of
    itself. As in _soft_means, the quotient is off by less than (4 * 800 + 2 k + 20) v of itself.
    """
    context = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, clamp=0, flags=[], traps=[]
    )
    with decimal.localcontext(context):
        wide = [Decimal(gap.numerator) / gap.denominator for gap in gaps]
        weights = [(-gap / Decimal(temperature)).exp() for gap in wide]
        losses = [weight * gap for weight, gap in zip(weights, wide, strict=True)]
        loss = sum(losses, Decimal()) / sum(weights, Decimal())
        centre = Decimal(best.numerator) / best.denominator
        error = (2 * abs(centre) + (2 * _CUTOFF + len(gaps) + 10) * 2 * loss) * Decimal(10) ** (1 - digits)
        return Fraction(centre - loss - error), Fraction(centre - loss + error)
