"""The plain truth of what documents score: real numbers rounded once, by whole numbers and decimals where need be."""

from __future__ import annotations

import decimal
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.records import Doubles, Floats, Ints, SearchResult

# As the definition of DRPQ's score has it: a view that far below the best, in temperatures, has no weight.
_CUTOFF = 800
_DIGITS = (60, 1000)


class TrueScores(NamedTuple):
    """What documents score for one query, by plain arithmetic: scores (n,) float32, slots (n,) of their best views.

    lows: (n,) float64, what the real scores, before they are rounded to float32, surely reach.
    """

    scores: Floats
    slots: Ints
    lows: Doubles


def brute_force(  # noqa: PLR0913 - what a search may be asked, and what its index holds
    views: Mapping[str, Floats],
    query: Floats,
    top_k: int,
    ordinals: Mapping[str, int] | None = None,
    *,
    scoring: str = "max",
    temperature: float = 1.0,
    dtype: str = "fp16",
) -> list[tuple[str, np.float32, int]]:
    """The plain truth, (id, score, slot) of the top_k, of what the store holds: fp16 or fp32 views."""
    if not views:
        return []
    stored = [rows.astype(np.float16 if dtype == "fp16" else np.float32) for rows in views.values()]
    starts = np.cumsum([0, *map(len, stored)])
    [found] = true_scores(np.concatenate(stored), starts, query[None], temperature if scoring == "drpq" else None)
    places = [ordinals[doc_id] if ordinals else position for position, doc_id in enumerate(views)]
    columns = zip(-found.scores, places, views, found.slots.tolist(), strict=True)
    return [(doc_id, -score, slot) for score, _, doc_id, slot in sorted(columns)[:top_k]]


def true_scores(
    stored: npt.NDArray[Any], starts: Ints, queries: Floats, temperature: float | None = None
) -> list[TrueScores]:
    """The scores of each query, (q, d) float32, by best view, or by DRPQ's mean at a temperature.

    stored: (r, d) fp16 or fp32, document i owns rows starts[i]:starts[i + 1]. Scores are real numbers rounded once to
    the nearest float32, ties to even: where float64 leaves that open, whole numbers and decimals decide. Zero is 0.0.
    """
    rows, asked = stored.astype(np.float64), queries.astype(np.float64)
    sums = asked @ rows.T
    # Twice what d roundings of exact products may add up to (Higham 2002, eq. 3.5).
    errors = (np.abs(asked) @ np.abs(rows).T) * (2.0**-52 * rows.shape[1])
    sets = [_Views(rows, starts, *each) for each in zip(asked, sums, errors, strict=True)]
    return [_by_best_view(views) if temperature is None else _by_mean(views, temperature) for views in sets]


class _Views(NamedTuple):
    """All views and one query: their inner products in float64, and how far those may be off, (r,) each."""

    rows: Doubles
    starts: Ints
    query: Doubles
    sums: Doubles
    errors: Doubles

    def exact(self, row: int) -> Fraction:
        """The inner product of a row: float32 numbers are whole multiples of 2^-149."""
        view, query = ([int(math.ldexp(x, 149)) for x in vector.tolist()] for vector in (self.rows[row], self.query))
        return Fraction(sum(x * y for x, y in zip(view, query, strict=True)), 2**298)


def _by_best_view(views: _Views) -> TrueScores:
    scores = views.sums.astype(np.float32)
    is_open = (views.sums - views.errors).astype(np.float32) != (views.sums + views.errors).astype(np.float32)
    for row in np.flatnonzero(is_open).tolist():
        scores[row] = nearest_float32(views.exact(row))
    ranges = list(zip(views.starts[:-1].tolist(), views.starts[1:].tolist(), strict=True))
    slots = np.array([scores[begin:end].argmax() for begin, end in ranges])
    lows = np.maximum.reduceat(views.sums - views.errors, views.starts[:-1])
    return TrueScores(scores[views.starts[:-1] + slots] + np.float32(0), slots, lows)


def _by_mean(views: _Views, temperature: float) -> TrueScores:
    """DRPQ eq. 4-6 in float64, by decimals where its rounding to float32 is open."""
    begins, counts = views.starts[:-1], np.diff(views.starts)
    best = np.maximum.reduceat(views.sums, begins)
    gaps = np.repeat(best, counts) - views.sums
    lost = views.errors + np.repeat(np.maximum.reduceat(views.errors, begins), counts)
    with np.errstate(over="ignore", under="ignore"):
        is_far = gaps - lost > 2 * _CUTOFF * temperature
        weights = np.where(is_far, 0, np.exp(-np.minimum(gaps / temperature, _CUTOFF)))
        losses = np.add.reduceat(weights * gaps, begins) / np.add.reduceat(weights, begins)
    # The gradient of the mean is a_j (1 + ln a_j + H): its 1-norm is at most 1 + 2 H, the entropy H at most ln k.
    most, size = (np.maximum.reduceat(np.where(is_far, 0, each), begins) for each in (views.errors, np.abs(views.sums)))
    errors = (1 + 2 * np.log(counts)) * most + (counts + 200) * (2.0**-50 * size + 2.0**-1000 * (1 + temperature))
    lows = best - losses - errors
    scores = lows.astype(np.float32)
    for document in np.flatnonzero(scores != (best - losses + errors).astype(np.float32)).tolist():
        rows = range(views.starts[document], views.starts[document + 1])
        scores[document] = _exact_mean([views.exact(row) for row in rows], Fraction(temperature))
    return TrueScores(scores + np.float32(0), _by_best_view(views).slots, lows)


def _exact_mean(sums: Sequence[Fraction], temperature: Fraction) -> np.float32:
    best = max(sums)
    gaps = [best - each for each in sums if best - each <= _CUTOFF * temperature]
    if not any(gaps):
        return nearest_float32(best)
    for digits in _DIGITS:
        with decimal.localcontext(decimal.Context(digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
            weights = [(-_in_decimals(gap / temperature)).exp() for gap in gaps]
            losses = [weight * _in_decimals(gap) for weight, gap in zip(weights, gaps, strict=True)]
            loss = sum(losses) / sum(weights)
        # Each of the few thousand operations loses its last digit: what follows leaves ten digits for them.
        low, high = (
            nearest_float32(best - Fraction(loss) * (1 + side * Fraction(10) ** (10 - digits))) for side in (1, -1)
        )
        if low == high:
            return low
    raise ArithmeticError(f"{digits} digits leave the mean of {len(gaps)} views open at temperature {temperature}")


def _in_decimals(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def nearest_float32(number: Fraction) -> np.float32:
    """The nearest of the three float32 around; on a tie the one with an even last bit."""
    middle = np.float32(float(number))
    ends = np.float32(-np.inf), np.float32(np.inf)
    around: list[np.float32] = [middle, *(np.nextafter(middle, end) for end in ends)]
    return min(around, key=lambda each: (abs(Fraction(float(each)) - number), int(each.view(np.uint32)) & 1))


def assert_same(result: SearchResult, expected: Sequence[tuple[str, np.float32, int]]) -> None:
    """Nothing; ids, order and scores are those expected, and the result says that it is whole."""
    assert result.short_by == 0
    assert [hit.id for hit in result.hits] == [row[0] for row in expected]
    assert [np.float32(hit.score) for hit in result.hits] == [row[1] for row in expected]
    assert [hit.slot for hit in result.hits] == [row[2] for row in expected]
