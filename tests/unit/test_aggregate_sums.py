"""The sums under the scores: exact where they must be, rounded once."""

import math
from fractions import Fraction

import numpy as np
import pytest
from aggregate_cases import SEEDS, make_documents, nearest_float32, true_sums
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.scoring import aggregate
from mvindex.scoring.aggregate import (
    exact_sums,
    view_scores,
    view_sums,
)
from mvindex.store.views import decode


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


def test_decoding_gives_every_fp16_number():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    decoded = decode(finite)
    np.testing.assert_array_equal(decoded, finite.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(decoded), np.signbit(finite))
