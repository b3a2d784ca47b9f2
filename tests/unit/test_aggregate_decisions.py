"""What float64 cannot decide about a score is decided exactly; the rest is never summed again."""

import math
from fractions import Fraction

import numpy as np
import pytest
from aggregate_cases import assert_same, nearest_float32, scored, true_mean

from mvindex.scoring import aggregate
from mvindex.scoring.aggregate import (
    Aggregate,
    Scoring,
)


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
