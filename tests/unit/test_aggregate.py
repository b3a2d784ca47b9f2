"""The one scoring function and the total order, against plain rational and decimal arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from aggregate_cases import (
    SEEDS,
    TEMPERATURES,
    assert_same,
    assert_true,
    make_documents,
    scored,
    true_mean,
    true_sums,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.errors import DamagedIndex, QueryError
from mvindex.scoring import aggregate
from mvindex.scoring.aggregate import (
    Aggregate,
    Scoring,
    ViewSums,
    best_views,
    document_scores,
    parse_aggregate,
    top_documents,
    view_scores,
    view_sums,
)


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=50, deadline=None)
@given(SEEDS, TEMPERATURES, st.sampled_from([1e-15, 1e-9, 1e-4]))
def test_scores_do_not_depend_on_whose_sums_they_start_from(seed, temperature, error):
    documents, query = make_documents(seed, 16, "<f4")
    sums = view_sums(np.concatenate(documents), query)
    errors = sums.errors + error * np.random.default_rng(seed).random(len(sums.sums))
    moved = sums.sums + (errors - sums.errors) * np.random.default_rng(seed).choice([-0.99, 0.99], len(errors))
    for scoring in [Scoring(), Scoring(Aggregate.DRPQ, temperature)]:
        expected = scored(documents, query, scoring)
        assert_same(scored(documents, query, scoring, ViewSums(moved, errors)), expected)


@settings(max_examples=40, deadline=None)
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


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf, True, "1", None, 10**400])
def test_a_temperature_is_a_finite_number_above_zero(temperature):
    with pytest.raises(QueryError, match="wanted a finite number above 0"):
        Scoring(Aggregate.DRPQ, temperature)


def test_aggregates_have_names():
    assert [parse_aggregate("max"), parse_aggregate("drpq")] == [Aggregate.MAX, Aggregate.DRPQ]
    for name in ["mean", "", "MAX", None]:
        with pytest.raises(QueryError, match="wanted 'max' or 'drpq'"):
            parse_aggregate(name)


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


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scoring", [Scoring(), Scoring(aggregate=Aggregate.DRPQ)])
def test_a_stored_view_that_holds_no_number_is_damage_and_not_added_up_for_ever(number, scoring):
    found = ViewSums(np.array([1.0, number]), np.array([1e-9, np.inf]))
    with pytest.raises(DamagedIndex, match="NaN or infinity"):
        document_scores(found, np.array([0, 2]), scoring, lambda rows: [])
