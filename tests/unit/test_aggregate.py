"""The one scoring function and the total order."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.aggregate import best_views, top_documents, view_scores
from mvindex.store.views import decode


def exact_scores(packed, query):
    """math.fsum of products that are exact in float64: the correctly rounded sum, one view at a time."""
    wide = query.astype(np.float64)
    return np.array([math.fsum((row.astype(np.float64) * wide).tolist()) for row in packed]).astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 700), st.sampled_from(["<f2", "<f4"]), st.sampled_from([1e-6, 1.0, 50.0])
)
def test_a_score_is_the_exact_sum_rounded_once(seed, dim, dtype, size):
    rng = np.random.default_rng(seed)
    packed = (rng.standard_normal((12, dim)) * size).astype(dtype)
    packed[3] = -packed[2]
    query = rng.standard_normal(dim).astype(np.float32)
    np.testing.assert_array_equal(view_scores(packed, query), exact_scores(packed, query))


def test_sums_that_cancel_are_exact_and_never_minus_zero():
    packed = np.array([[1, 1, 0], [-1, -1, 0], [0, 0, 0], [1, 2**-14, -1]], dtype="<f2")
    query = np.array([1, -1, 1], dtype=np.float32)
    scores = view_scores(packed, query)
    assert scores.tolist() == [0, 0, 0, -(2**-14)]
    assert not np.signbit(scores[:3]).any()


def test_a_score_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    packed = rng.standard_normal((999, 384)).astype("<f2")
    query = rng.standard_normal(384).astype(np.float32)
    together = view_scores(packed, query)
    alone = np.concatenate([view_scores(packed[row : row + 1], query) for row in range(999)])
    np.testing.assert_array_equal(together, alone)


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
