"""Documents that are hard to score, and what their scores are in plain rational and decimal arithmetic."""

import decimal
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from mvindex.scoring import aggregate
from mvindex.scoring.aggregate import (
    Aggregate,
    document_scores,
    exact_sums,
    view_sums,
)

SEEDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.one_of(st.floats(-2, 1).map(lambda power: 10.0**power), st.sampled_from([1e-6, 1.0, 1e6]))


def true_sums(packed, query):
    wide = [Fraction(float(number)) for number in query]
    return [sum(Fraction(float(x)) * y for x, y in zip(row, wide, strict=True)) for row in packed]


def true_mean(sums, temperature):
    """DRPQ eq. 4-6 in decimals of 80 digits, and of more where the least weight kept would vanish beside 1."""
    best, divisor = max(sums), Fraction(temperature)
    kept = [each for each in sums if (best - each) / divisor <= 800]
    if min(kept) == best:
        return best
    with decimal.localcontext() as context:
        context.prec = 80 + int((best - min(kept)) / divisor)
        weights = [in_decimals((each - best) / divisor).exp() for each in kept]
        parts = [weight * in_decimals(each) for weight, each in zip(weights, kept, strict=True)]
        return Fraction(sum(parts) / sum(weights))


def in_decimals(number):
    return Decimal(number.numerator) / Decimal(number.denominator)


def nearest_float32(number):
    """The nearest of the three float32 around; on a tie the one with an even last bit."""
    middle = np.float32(float(number))
    around = [np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf))]
    nearest = min(around, key=lambda each: (abs(Fraction(float(each)) - number), int(each.view(np.uint32)) & 1))
    return nearest + np.float32(0)


def true_score(packed, query, scoring):
    sums = true_sums(packed, query)
    rounded = [nearest_float32(each) for each in sums]
    slot = rounded.index(max(rounded))
    if scoring.aggregate is Aggregate.MAX:
        return rounded[slot], slot
    return nearest_float32(true_mean(sums, scoring.temperature)), slot


def random_views(rng, k, d):
    return rng.standard_normal((k, d))


def equal_views(rng, k, d):
    return np.repeat(rng.standard_normal((1, d)), k, axis=0)


def opposite_views(rng, k, d):
    return rng.standard_normal(d) * np.where(rng.random((k, 1)) < 0.5, 1, -1)


def denormal_views(rng, k, d):
    return rng.standard_normal((k, d)) * 10.0 ** rng.uniform(-8, -6)


def views_with_a_huge_one(rng, k, d):
    views = rng.standard_normal((k, d))
    views[rng.integers(k)] *= 3000
    return views


def nearly_equal_views(rng, k, d):
    return rng.standard_normal(d) * (1 + 1e-3 * rng.integers(-1, 2, (k, 1)) * (rng.random((k, d)) < 0.1))


def whole_numbers(rng, k, d):
    return rng.integers(-2, 3, (k, d)).astype(float)


def zeros(rng, k, d):
    return np.zeros((k, d))


KINDS = [
    random_views, equal_views, opposite_views, denormal_views, views_with_a_huge_one, nearly_equal_views,
    whole_numbers, zeros,
]  # fmt: skip


def make_documents(seed, dim, dtype, size=1.0):
    """One document of each kind, of 1 to 64 views but not above 600 numbers (the oracle is slow), and a query."""
    rng = np.random.default_rng(seed)
    most = max(1, min(64, 600 // dim))
    documents = [(kind(rng, rng.integers(1, most + 1), dim) * size).astype(dtype) for kind in KINDS]
    query = rng.integers(-1, 2, dim) if seed % 3 == 0 else rng.standard_normal(dim)
    return documents, query.astype(np.float32)


def scored(documents, query, scoring, found=None, calls=None):
    packed, starts = np.concatenate(documents), np.cumsum([0, *map(len, documents)])

    def exactly(rows):
        if calls is not None:
            calls.append(rows.tolist())
        return exact_sums(packed[rows], query)

    return document_scores(view_sums(packed, query) if found is None else found, starts, scoring, exactly)


def assert_same(found, expected):
    """Equal bit for bit: 0.0 is not -0.0."""
    np.testing.assert_array_equal(found.scores.view(np.uint32), expected.scores.view(np.uint32))
    np.testing.assert_array_equal(found.slots, expected.slots)


def assert_true(documents, query, scoring, found=None):
    answer = scored(documents, query, scoring, found)
    pairs = [true_score(packed, query, scoring) for packed in documents]
    scores, slots = np.array([score for score, _ in pairs]), np.array([slot for _, slot in pairs])
    assert_same(answer, aggregate.DocumentScores(scores, slots))
