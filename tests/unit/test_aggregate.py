"""The one scoring function and the total order, against plain rational and decimal arithmetic."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex import aggregate
from mvindex.aggregate import (
    Aggregate,
    Scoring,
    ViewSums,
    best_views,
    document_scores,
    exact_sums,
    parse_aggregate,
    sensitivity,
    top_documents,
    view_scores,
    view_sums,
    view_weights,
)
from mvindex.errors import QueryError
from mvindex.store.views import decode

SEEDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.one_of(st.floats(-2, 1).map(lambda power: 10.0**power), st.sampled_from([1e-6, 1.0, 1e6]))


# --- the oracle ------------------------------------------------------------------------------------------------------


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


# --- documents -------------------------------------------------------------------------------------------------------


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


# --- scores are the real numbers, rounded once -----------------------------------------------------------------------


@settings(max_examples=250, deadline=None)
@given(SEEDS, st.sampled_from([1, 1, 2, 3, 8, 30]), st.sampled_from(["<f2", "<f4"]), TEMPERATURES)
def test_scores_are_true_to_the_last_bit(seed, dim, dtype, temperature):
    documents, query = make_documents(seed, dim, dtype)
    assert_true(documents, query, Scoring(Aggregate.DRPQ, temperature))
    assert_true(documents, query, Scoring())


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from([1e-38, 1e-20, 1e-3, 1e10, 3e13]), TEMPERATURES)
def test_scores_are_true_at_any_size(seed, size, temperature):
    documents, query = make_documents(seed, 4, "<f4", size)
    for length in [1.0, 1e-30, 1e17]:
        assert_true(documents, (query * np.float32(length)), Scoring(Aggregate.DRPQ, temperature))


@pytest.mark.parametrize("dim", [384, 4096])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_scores_of_long_vectors_are_true(dim, temperature):
    documents, query = make_documents(7, dim, "<f2")
    assert_true(documents, query, Scoring(Aggregate.DRPQ, temperature))
    assert_true(documents, query, Scoring())


@settings(max_examples=100, deadline=None)
@given(SEEDS, TEMPERATURES, st.sampled_from([1e-15, 1e-9, 1e-4]))
def test_scores_do_not_depend_on_whose_sums_they_start_from(seed, temperature, error):
    documents, query = make_documents(seed, 16, "<f4")
    sums = view_sums(np.concatenate(documents), query)
    errors = sums.errors + error * np.random.default_rng(seed).random(len(sums.sums))
    moved = sums.sums + (errors - sums.errors) * np.random.default_rng(seed).choice([-0.99, 0.99], len(errors))
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ, temperature)]:
        expected = scored(documents, query, scoring)
        assert_same(scored(documents, query, scoring, ViewSums(moved, errors)), expected)


@settings(max_examples=100, deadline=None)
@given(SEEDS, TEMPERATURES)
def test_the_float64_mean_is_within_its_bound(seed, temperature):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 20, 12)
    starts = np.concatenate([[0], np.cumsum(counts)])
    sums = rng.standard_normal(starts[-1]) * temperature * 10.0 ** rng.uniform(-2, 3)
    errors = (
        rng.random(len(sums)) * temperature * 10.0 ** rng.uniform(-17, -1) * np.repeat(rng.random(12) < 0.5, counts)
    )
    moved = sums + 0.99 * errors * rng.choice([-1, 0, 1], len(sums))
    # Rounded up where not zero: documents without errors show the bound of the rounding alone.
    found = ViewSums(moved, np.where(moved == sums, 0, np.nextafter(np.abs(moved - sums), np.inf)))
    means, bounds = aggregate._soft_means(found, aggregate._bounds(*found), starts, temperature)
    for document, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        true = true_mean([Fraction(each) for each in sums[begin:end].tolist()], temperature)
        assert abs(Fraction(means[document]) - true) <= Fraction(bounds[document])


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(1, 700), st.sampled_from(["<f2", "<f4"]), st.sampled_from([1e-6, 1.0, 50.0]))
def test_a_view_score_is_the_exact_sum_rounded_once(seed, dim, dtype, size):
    rng = np.random.default_rng(seed)
    packed = (rng.standard_normal((12, dim)) * size).astype(dtype)
    packed[3] = -packed[2]
    query = rng.standard_normal(dim).astype(np.float32)
    expected = [nearest_float32(each) for each in exact_sums(packed, query)]
    np.testing.assert_array_equal(view_scores(packed, query), expected)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 400), st.sampled_from(["<f2", "<f4"]))
def test_sums_are_within_their_errors(seed, dim, dtype):
    documents, query = make_documents(seed, dim, dtype)
    packed = np.concatenate(documents)
    found = view_sums(packed, query)
    for total, error, true in zip(*found, exact_sums(packed, query), strict=True):
        assert abs(Fraction(total) - true) <= Fraction(error)


@pytest.mark.parametrize("size", [1e-42, 1e-20, 1.0, 1e17])
def test_exact_sums_are_exact(size):
    rng = np.random.default_rng(2)
    packed = (rng.standard_normal((6, 40)) * 10.0 ** rng.uniform(-9, 0, (6, 40)) * size).astype("<f4")
    packed[1] = -packed[0]
    packed[2] = 0
    query = (rng.standard_normal(40) * 10.0 ** rng.uniform(-9, 0, 40)).astype(np.float32)
    assert exact_sums(packed, query) == true_sums(packed, query)
    assert exact_sums(packed, query)[2] == 0


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 2**60), st.integers(-230, 60))
def test_fractions_are_rounded_to_the_nearest_float32(numerator, power):
    for number in [Fraction(numerator), Fraction(numerator >> 36), Fraction(numerator, 3)]:
        for signed in [number * Fraction(2) ** power, -number * Fraction(2) ** power]:
            assert np.float32(aggregate._nearest_float32(signed)) == nearest_float32(signed)


def test_fractions_half_way_between_two_float32_go_to_the_even_one():
    above, tiny = Fraction(2) ** -24, Fraction(2) ** -149
    assert aggregate._nearest_float32(1 + above) == 1
    assert aggregate._nearest_float32(1 + 3 * above) == 1 + 2**-22
    # Rounded to float64 first, this would lie half way, and then go down.
    assert aggregate._nearest_float32(1 + above + Fraction(2) ** -80) == 1 + 2**-23
    assert aggregate._nearest_float32(2 - Fraction(2) ** -80) == 2
    assert aggregate._nearest_float32(tiny / 2) == 0
    assert aggregate._nearest_float32(tiny * 3 / 2) == 2 * 2.0**-149
    assert math.copysign(1, aggregate._nearest_float32(-tiny / 2)) == 1


def test_sums_that_cancel_are_exact_and_never_minus_zero():
    packed = np.array([[1, 1, 0], [-1, -1, 0], [0, 0, 0], [1, 2**-14, -1]], dtype="<f2")
    query = np.array([1, -1, 1], dtype=np.float32)
    scores = view_scores(packed, query)
    assert scores.tolist() == [0, 0, 0, -(2**-14)]
    assert not np.signbit(scores[:3]).any()


def test_a_score_is_not_rounded_to_float64_on_its_way():
    # The sum, 1 + 2^-24 + 2^-80, rounds to 1 + 2^-24 in float64: half way between two float32, of which 1 is even.
    packed = np.array([[1, 2**-24, 2**-40]], dtype="<f4")
    query = np.array([1, 1, 2**-40], dtype=np.float32)
    assert view_scores(packed, query).tolist() == [1 + 2**-23]


# --- what float64 cannot decide --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", [Scoring(), Scoring(Aggregate.DRPQ)])
def test_equal_views_half_way_between_two_float32_are_decided_exactly_and_without_decimals(scoring, monkeypatch):
    monkeypatch.delattr(aggregate, "_decimal_bounds")
    query, calls = np.ones(2, dtype=np.float32), []
    documents = [np.array([[1, below]] * 3, dtype="<f4") for below in [2**-24, 3 * 2**-24, 2**-25]]
    found = scored(documents, query, scoring, calls=calls)
    assert found.scores.tolist() == [1, 1 + 2**-22, 1]
    assert found.slots.tolist() == [0, 0, 0]
    assert calls == [[0, 1, 2, 3, 4, 5]]


def test_many_documents_of_one_view_or_of_equal_sums_need_no_decimals(monkeypatch):
    monkeypatch.delattr(aggregate, "_decimal_bounds")
    rng = np.random.default_rng(3)
    query = rng.integers(-1, 2, 64).astype(np.float32)
    singles = [rng.integers(-1, 2, (1, 64)).astype("<f2") for _ in range(300)]
    equals = [np.repeat(single, 8, axis=0) for single in singles]
    for documents in [singles, equals]:
        assert_same(scored(documents, query, Scoring(Aggregate.DRPQ)), scored(documents, query, Scoring()))


@pytest.mark.parametrize("scores", [(1.0, 0.5), (0.75, -0.25, 0.5), (3.0, -3.0)])
def test_means_beside_the_middle_of_two_float32_are_decided_in_decimals(scores):
    """Bisection finds neighbouring temperatures between which the mean crosses the middle of two float32."""
    packed, query = np.array(scores, dtype="<f4").reshape(-1, 1), np.ones(1, dtype=np.float32)
    sums = [Fraction(score) for score in scores]
    start = nearest_float32(true_mean(sums, 1.0))
    after = np.nextafter(start, np.float32(-np.inf))
    middle = (Fraction(float(start)) + Fraction(float(after))) / 2
    low, high = 0.9, 1.1
    while math.nextafter(low, 2) < high:
        between = (low + high) / 2
        low, high = (between, high) if true_mean(sums, between) > middle else (low, between)
    answers, calls = [], []
    for temperature in [low, high]:
        answers.append(scored([packed], query, Scoring(Aggregate.DRPQ, temperature), calls=calls).scores[0])
    assert answers == [start, after]
    assert calls == [list(range(len(scores)))] * 2


def test_a_weight_counts_up_to_800_temperatures_and_not_beyond():
    # The best view lies half way between 1 + 2^-23 and 1 + 2^-22, which is even; the least weight pulls it down.
    packed = np.array([[1, 3 * 2**-24], [0, 3 * 2**-24]], dtype="<f4")
    query = np.ones(2, dtype=np.float32)
    temperatures = [1 / 600, 1 / 799, 1 / 801, 1e-5]
    scores = [scored([packed], query, Scoring(Aggregate.DRPQ, each)).scores[0] for each in temperatures]
    assert scores == [1 + 2**-23, 1 + 2**-23, 1 + 2**-22, 1 + 2**-22]


def test_only_views_that_can_win_are_summed_exactly():
    documents = [np.array([[1, 2**-24], [0.5, 2**-25], [1, 2**-24]], dtype="<f4")]
    calls = []
    found = scored(documents, np.ones(2, dtype=np.float32), Scoring(), calls=calls)
    assert (found.scores.tolist(), found.slots.tolist()) == ([1], [0])
    assert calls == [[0, 2]]


def test_a_view_that_may_tie_with_the_best_is_summed_exactly():
    # 1 + 3 * 2^-24 rounds to 1 + 2^-22, which is the second view's score: the first of the highest wins.
    documents = [np.array([[1, 3 * 2**-24], [1, 2**-22]], dtype="<f4")]
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ)]:
        assert scored(documents, np.ones(2, dtype=np.float32), scoring).slots.tolist() == [0]


def test_the_winning_view_is_decided_exactly_where_the_mean_is_decided_already():
    # 1 + 2^-23, and 1 + 3 * 2^-24, which rounds to 1 + 2^-22.
    documents, calls = [np.array([[1, 2**-23], [1, 3 * 2**-24]], dtype="<f4")], []
    found = scored(documents, np.ones(2, dtype=np.float32), Scoring(Aggregate.DRPQ), calls=calls)
    assert (found.scores.tolist(), found.slots.tolist()) == ([1 + 2**-23], [1])
    assert calls == [[1]]


def test_what_float64_decides_is_never_summed_again():
    rng = np.random.default_rng(4)
    documents = [rng.standard_normal((5, 8)).astype("<f2") for _ in range(100)]
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ)]:
        calls = []
        scored(documents, rng.standard_normal(8).astype(np.float32), scoring, calls=calls)
        assert calls == []


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(SEEDS, TEMPERATURES)
def test_a_document_score_does_not_depend_on_its_neighbours(seed, temperature):
    documents, query = make_documents(seed, 24, "<f2")
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ, temperature)]:
        together = scored(documents, query, scoring)
        alone = [scored([packed], query, scoring) for packed in documents]
        assert_same(together, aggregate.DocumentScores(*map(np.concatenate, zip(*alone, strict=True))))


def test_a_view_score_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    packed = rng.standard_normal((999, 384)).astype("<f2")
    query = rng.standard_normal(384).astype(np.float32)
    together = view_scores(packed, query)
    alone = np.concatenate([view_scores(packed[row : row + 1], query) for row in range(999)])
    np.testing.assert_array_equal(together, alone)


@settings(max_examples=50, deadline=None)
@given(SEEDS, TEMPERATURES)
def test_a_score_does_not_depend_on_the_order_of_the_views(seed, temperature):
    documents, query = make_documents(seed, 12, "<f4")
    shuffled = [packed[np.random.default_rng(seed).permutation(len(packed))] for packed in documents]
    scoring = Scoring(Aggregate.DRPQ, temperature)
    straight, mixed = scored(documents, query, scoring), scored(shuffled, query, scoring)
    np.testing.assert_array_equal(straight.scores, mixed.scores)


@settings(max_examples=100, deadline=None)
@given(SEEDS, TEMPERATURES)
def test_a_mean_never_exceeds_the_best_view(seed, temperature):
    documents, query = make_documents(seed, 6, "<f4")
    best, mean = scored(documents, query, Scoring()), scored(documents, query, Scoring(Aggregate.DRPQ, temperature))
    assert (mean.scores <= best.scores).all()
    np.testing.assert_array_equal(mean.slots, best.slots)


def test_a_cold_mean_is_the_best_view_and_a_hot_one_the_plain_mean():
    documents, query = make_documents(5, 6, "<f4")
    best, cold = scored(documents, query, Scoring()), scored(documents, query, Scoring(Aggregate.DRPQ, 1e-9))
    np.testing.assert_array_equal(cold.scores, best.scores)
    ordinary = documents[:3]
    hot = scored(ordinary, query, Scoring(Aggregate.DRPQ, 1e12))
    plain = [np.mean([float(each) for each in true_sums(packed, query)]) for packed in ordinary]
    np.testing.assert_allclose(hot.scores, plain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e300, 1.7e308, 10**30])
def test_any_finite_temperature_is_taken(temperature):
    documents, query = make_documents(6, 3, "<f4")
    assert_true(documents[:4], query, Scoring(Aggregate.DRPQ, temperature))


def test_no_documents_have_no_scores():
    nothing = ViewSums(np.empty(0), np.empty(0))
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ)]:
        found = document_scores(nothing, np.zeros(1, dtype=np.int64), scoring, lambda rows: [])
        assert (len(found.scores), len(found.slots)) == (0, 0)


# --- how far a mean moves with the scores ----------------------------------------------------------------------------


def mean_of(scores, temperature):
    weights = np.exp((scores - scores.max()) / temperature)
    return float(weights @ scores / weights.sum())


def most_sensitive_mass(num_views):
    """The mass A of the low views in the worst case: L = 1 / (1 - 2 A)."""
    return (1 - 1 / sensitivity(num_views)) / 2


def test_sensitivity_is_the_maximum_of_its_bound_over_the_mass():
    masses = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    for num_views in [2, 3, 8, 64, 4096]:
        inner = np.log((num_views - 1) / masses) + np.log1p(-masses)
        largest = float(np.max((1 - masses) * masses * inner - masses))
        assert 1 + 2 * largest <= sensitivity(num_views) <= 1 + 2 * largest + 1e-9


def test_sensitivity_rises_with_the_views():
    assert sensitivity(1) == 1
    # The root of coth(x) = x.
    assert sensitivity(2) == pytest.approx(1.1996786402577338, abs=1e-11)
    values = [sensitivity(num_views) for num_views in range(1, 200)]
    assert all(low < high for low, high in zip(values[:-1], values[1:], strict=True))


@settings(max_examples=1000, deadline=None)
@given(SEEDS, st.integers(1, 64), TEMPERATURES, st.floats(-6, 2))
def test_a_mean_moves_at_most_by_its_sensitivity(seed, num_views, temperature, power):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(num_views) * temperature * 10.0 ** rng.uniform(-1, 1.5)
    step = temperature * 10.0**power
    mean = mean_of(scores, temperature)
    weights = view_weights(scores, temperature)
    steepest = np.sign(1 + (scores - mean) / temperature)
    for moves in [rng.uniform(-1, 1, num_views), rng.choice([-1, 1], num_views), steepest, -steepest]:
        change = abs(mean_of(scores + step * moves, temperature) - mean)
        assert change <= sensitivity(num_views) * step * np.abs(moves).max() + 1e-12 * np.abs(scores).max()
    assert weights.sum() == pytest.approx(1)
    assert weights @ scores == pytest.approx(mean, rel=1e-9, abs=1e-12 * np.abs(scores).max())


@pytest.mark.parametrize("num_views", [2, 8, 64, 1000])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e6])
def test_the_sensitivity_is_reached_by_one_view_above_equal_others(num_views, temperature):
    mass = most_sensitive_mass(num_views)
    gap = math.log((num_views - 1) * (1 - mass) / mass)
    scores = np.array([gap, *[0.0] * (num_views - 1)]) * temperature
    for step in [1e-5 * temperature, -1e-5 * temperature]:
        moved = scores + step * np.array([1.0, *[-1.0] * (num_views - 1)])
        change = abs(mean_of(moved, temperature) - mean_of(scores, temperature)) / abs(step)
        assert 0.999 * sensitivity(num_views) <= change <= sensitivity(num_views) + 1e-6


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf, True, "1", None, 10**400])
def test_a_temperature_is_a_finite_number_above_zero(temperature):
    with pytest.raises(QueryError, match="wanted a finite number above 0"):
        Scoring(Aggregate.DRPQ, temperature)


def test_aggregates_have_names():
    assert [parse_aggregate("max"), parse_aggregate("drpq")] == [Aggregate.MAX, Aggregate.DRPQ]
    for name in ["mean", "", "MAX", None]:
        with pytest.raises(QueryError, match="wanted 'max' or 'drpq'"):
            parse_aggregate(name)


# --- decoding, best views, order -------------------------------------------------------------------------------------


def test_decoding_gives_every_fp16_number():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    decoded = decode(finite)
    np.testing.assert_array_equal(decoded, finite.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(decoded), np.signbit(finite))


def test_the_best_view_is_the_first_of_the_highest():
    scores = np.array([1, 3, 3, -2, 5, 5], dtype=np.float32)
    found = best_views(scores, np.array([0, 3, 4, 6]))
    assert found.scores.tolist() == [3, -2, 5]
    assert found.slots.tolist() == [1, 0, 0]


@pytest.mark.parametrize("top_k", [1, 3, 10, 100, 1000])
def test_the_order_is_score_falling_then_ordinal_rising(top_k):
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 5, 500).astype(np.float32)
    ordinals = rng.permutation(500)
    plain = sorted(range(500), key=lambda row: (-scores[row], ordinals[row]))[:top_k]
    assert top_documents(scores, ordinals, top_k).tolist() == plain
