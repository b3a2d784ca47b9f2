"""The one scoring function, against plain slow functions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.errors import DamagedIndex, QueryError
from mvindex.kernels import SUM_LANES
from mvindex.kernels import score as aggregate
from mvindex.kernels.score import (
    Aggregate,
    Scoring,
    best_views,
    decode,
    document_scores,
    lipschitz_constant,
    parse_aggregate,
    view_scores,
    view_sums,
    view_weights,
)
from tests.helpers.aggregate_cases import (
    SEEDS,
    TEMPERATURES,
    assert_near,
    assert_same,
    make_documents,
    scored,
    true_sums,
)


@settings(max_examples=60)
@given(SEEDS, st.sampled_from([1, 1, 2, 3, 8, 30]), st.sampled_from(["<f2", "<f4"]), TEMPERATURES)
def test_scores_are_those_of_real_numbers_but_for_rounding(seed, dim, dtype, temperature):
    documents, query = make_documents(seed, dim, dtype)
    assert_near(documents, query, Scoring(Aggregate.DRPQ, temperature))
    assert_near(documents, query, Scoring())


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([1e-38, 1e-20, 1e-3, 1e10, 3e13]), TEMPERATURES)
def test_scores_are_true_at_any_size(seed, size, temperature):
    documents, query = make_documents(seed, 4, "<f4", size)
    for length in [1.0, 1e-30, 1e17]:
        assert_near(documents, (query * np.float32(length)), Scoring(Aggregate.DRPQ, temperature))


@pytest.mark.parametrize("dim", [384, 4096])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_scores_of_long_vectors_are_true(dim, temperature):
    documents, query = make_documents(7, dim, "<f2")
    assert_near(documents, query, Scoring(Aggregate.DRPQ, temperature))
    assert_near(documents, query, Scoring())


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 400), st.sampled_from(["<f2", "<f4"]))
def test_sums_are_added_in_the_one_order(seed, dim, dtype):
    documents, query = make_documents(seed, dim, dtype)
    packed = np.concatenate(documents)
    for found, row in zip(view_sums(packed, query), packed, strict=True):
        lanes = [0.0] * SUM_LANES
        for element in range(dim):
            lanes[element % SUM_LANES] += float(row[element]) * float(query[element])
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [low + high for low, high in zip(lanes[:half], lanes[half:], strict=True)]
        assert found == lanes[0]


@settings(max_examples=100)
@given(SEEDS, st.integers(1, 400), st.sampled_from(["<f2", "<f4"]), st.sampled_from([1e-6, 1.0, 3.0]))
def test_sums_are_near_the_exact_ones(seed, dim, dtype, size):
    documents, query = make_documents(seed, dim, dtype, size)
    packed = np.concatenate(documents)
    true, errors = true_sums(packed, query)
    assert (np.abs(view_sums(packed, query) - true) <= errors).all()


def test_sums_that_cancel_are_never_minus_zero():
    packed = np.array([[1, 1, 0], [-1, -1, 0], [0, 0, 0], [1, 2**-14, -1]], dtype="<f2")
    query = np.array([1, -1, 1], dtype=np.float32)
    scores = view_scores(packed, query)
    assert scores.tolist() == [0, 0, 0, -(2**-14)]
    assert not np.signbit(scores[:3]).any()
    found = scored([packed[:3], packed[:2]], query, Scoring(Aggregate.DRPQ))
    assert not np.signbit(found.scores).any()


def test_decoding_gives_every_fp16_number():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    decoded = decode(finite)
    np.testing.assert_array_equal(decoded, finite.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(decoded), np.signbit(finite))


@settings(max_examples=50)
@given(SEEDS, TEMPERATURES)
def test_a_document_score_does_not_depend_on_its_neighbours(seed, temperature):
    documents, query = make_documents(seed, 24, "<f2")
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ, temperature)]:
        together = scored(documents, query, scoring)
        single = [scored([packed], query, scoring) for packed in documents]
        assert_same(together, aggregate.DocumentScores(*map(np.concatenate, zip(*single, strict=True))))


def test_a_view_score_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    packed = rng.standard_normal((999, 384)).astype("<f2")
    query = rng.standard_normal(384).astype(np.float32)
    together = view_scores(packed, query)
    single = np.concatenate([view_scores(packed[row : row + 1], query) for row in range(999)])
    np.testing.assert_array_equal(together, single)


@settings(max_examples=50)
@given(SEEDS, TEMPERATURES)
def test_a_score_does_not_depend_on_the_order_of_the_views(seed, temperature):
    documents, query = make_documents(seed, 12, "<f4")
    shuffled = [packed[np.random.default_rng(seed).permutation(len(packed))] for packed in documents]
    scoring = Scoring(Aggregate.DRPQ, temperature)
    straight, mixed = scored(documents, query, scoring), scored(shuffled, query, scoring)
    np.testing.assert_array_equal(straight.scores, mixed.scores)


@settings(max_examples=100)
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
    plain = [true_sums(packed, query)[0].mean() for packed in ordinary]
    np.testing.assert_allclose(hot.scores, plain, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e300, 1.7e308, 10**30])
def test_any_finite_temperature_is_taken(temperature):
    documents, query = make_documents(6, 3, "<f4")
    assert_near(documents[:4], query, Scoring(Aggregate.DRPQ, temperature))


def test_no_documents_have_no_scores():
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ)]:
        found = document_scores(np.empty(0), np.zeros(1, dtype=np.int64), scoring)
        assert (len(found.scores), len(found.slots)) == (0, 0)


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf, True, "1", None, 10**400])
def test_a_temperature_is_a_finite_number_above_zero(temperature):
    with pytest.raises(QueryError, match="expected a finite number above 0"):
        Scoring(Aggregate.DRPQ, temperature)


def test_aggregates_have_names():
    assert [parse_aggregate("max"), parse_aggregate("drpq")] == [Aggregate.MAX, Aggregate.DRPQ]
    for name in ["mean", "", "MAX", None]:
        with pytest.raises(QueryError, match="expected 'max' or 'drpq'"):
            parse_aggregate(name)


def test_the_best_view_is_the_first_of_the_highest():
    scores = np.array([1, 3, 3, -2, 5, 5], dtype=np.float32)
    found = best_views(scores, np.array([0, 3, 4, 6]))
    assert found.scores.tolist() == [3, -2, 5]
    assert found.slots.tolist() == [1, 0, 0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scoring", [Scoring(), Scoring(aggregate=Aggregate.DRPQ)])
def test_a_stored_view_that_holds_no_number_is_damage(number, scoring):
    with pytest.raises(DamagedIndex, match="NaN or infinity"):
        document_scores(np.array([1.0, number]), np.array([0, 2]), scoring)


# --- how far DRPQ's mean moves with the scores of the views ----------------------------------------------------------


def mean_of(scores, temperature):
    weights = np.exp((scores - scores.max()) / temperature)
    return float(weights @ scores / weights.sum())


def worst_mass(num_views):
    """Return the mass A of the low views in the worst case: L = 1 / (1 - 2 A)."""
    return (1 - 1 / lipschitz_constant(num_views)) / 2


def test_the_lipschitz_constant_is_the_maximum_of_its_bound_over_the_mass():
    masses = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    for num_views in [2, 3, 8, 64, 4096]:
        inner = np.log((num_views - 1) / masses) + np.log1p(-masses)
        largest = float(np.max((1 - masses) * masses * inner - masses))
        assert 1 + 2 * largest <= lipschitz_constant(num_views) <= 1 + 2 * largest + 1e-9


def test_the_lipschitz_constant_rises_with_the_views():
    assert lipschitz_constant(1) == 1
    # The root of coth(x) = x.
    assert lipschitz_constant(2) == pytest.approx(1.1996786402577338, abs=1e-11)
    values = [lipschitz_constant(num_views) for num_views in range(1, 200)]
    assert all(low < high for low, high in zip(values[:-1], values[1:], strict=True))


@settings(max_examples=1000)
@given(SEEDS, st.integers(1, 64), TEMPERATURES, st.floats(-6, 2))
def test_a_mean_moves_at_most_by_its_lipschitz_constant(seed, num_views, temperature, power):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(num_views) * temperature * 10.0 ** rng.uniform(-1, 1.5)
    step = temperature * 10.0**power
    mean = mean_of(scores, temperature)
    weights = view_weights(scores, temperature)
    steepest = np.sign(1 + (scores - mean) / temperature)
    for moves in [rng.uniform(-1, 1, num_views), rng.choice([-1, 1], num_views), steepest, -steepest]:
        change = abs(mean_of(scores + step * moves, temperature) - mean)
        assert change <= lipschitz_constant(num_views) * step * np.abs(moves).max() + 1e-12 * np.abs(scores).max()
    assert weights.sum() == pytest.approx(1)
    assert weights @ scores == pytest.approx(mean, rel=1e-9, abs=1e-12 * np.abs(scores).max())


@pytest.mark.parametrize("num_views", [2, 8, 64, 1000])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e6])
def test_the_lipschitz_constant_is_reached_by_one_view_above_equal_others(num_views, temperature):
    mass = worst_mass(num_views)
    gap = math.log((num_views - 1) * (1 - mass) / mass)
    scores = np.array([gap, *[0.0] * (num_views - 1)]) * temperature
    for step in [1e-5 * temperature, -1e-5 * temperature]:
        moved = scores + step * np.array([1.0, *[-1.0] * (num_views - 1)])
        change = abs(mean_of(moved, temperature) - mean_of(scores, temperature)) / abs(step)
        assert 0.999 * lipschitz_constant(num_views) <= change <= lipschitz_constant(num_views) + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_the_compiled_loop_finds_the_best_views_bit_for_bit(seed):
    pytest.importorskip("numba")
    from mvindex.kernels.sums import best_of_documents

    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, 200)
    starts = np.concatenate([[0], np.cumsum(counts)])
    # Ties, zeros of both signs, and sums that differ only beyond float32.
    numbers = rng.choice([-0.0, 0.0, -1.5, 1.5, 3e30, -3e30], starts[-1])
    views = np.stack([numbers, rng.choice([0.0, 1e-12], starts[-1])], axis=1).astype(np.float32)
    query = np.ones((1, 2), dtype=np.float32)
    expected = document_scores(view_sums(views, query[0]), starts, Scoring())
    which, scores, slots = np.zeros(200, dtype=np.int64), np.empty(200, dtype=np.float32), np.empty(200, dtype=np.int64)
    assert best_of_documents(views, starts[:-1], starts[1:], query, which, scores, slots)
    assert scores.tobytes() == expected.scores.tobytes()
    assert slots.tolist() == expected.slots.tolist()
    views[17] = np.nan
    assert not best_of_documents(views, starts[:-1], starts[1:], query, which, scores, slots)
