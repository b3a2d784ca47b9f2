"""Documents that are hard to score, and what their scores are by plain slow functions."""

import math

import numpy as np
from hypothesis import strategies as st

from mvindex.kernels.score import Aggregate, document_scores, view_sums

SEEDS = st.integers(0, 2**32 - 1)
TEMPERATURES = st.one_of(st.floats(-2, 1).map(lambda power: 10.0**power), st.sampled_from([1e-6, 1.0, 1e6]))


def true_sums(packed, query):
    """The inner products of a document's views, correctly rounded to float64, and how far float64 sums may be off."""
    products = packed.astype(np.float64) * query.astype(np.float64)
    errors = [len(query) * 2.0**-53 * math.fsum(row) for row in np.abs(products)]
    return np.array([math.fsum(row) for row in products]), np.array(errors)


def true_mean(sums, temperature):
    """DRPQ eq. 4-6."""
    best = max(sums)
    weights = [math.exp(-min((best - each) / temperature, 800)) for each in sums]
    return best - math.fsum(w * (best - each) for w, each in zip(weights, sums, strict=True)) / math.fsum(weights)


def assert_near(documents, query, scoring, found=None):
    """Scores are off by an ulp of float32 at most, beyond what sums in float64 that cancel may lose."""
    found = scored(documents, query, scoring) if found is None else found
    for packed, score, slot in zip(documents, *found, strict=True):
        sums, errors = true_sums(packed, query)
        is_mean = scoring.aggregate is Aggregate.DRPQ
        true = true_mean(sums.tolist(), scoring.temperature) if is_mean else max(sums)
        slack = 4 * errors.max() + len(sums) * 2.0**-46 * np.abs(sums).max()
        assert abs(float(score) - true) <= np.spacing(np.float32(abs(true))) + slack
        assert sums[slot] >= max(sums) - np.spacing(np.float32(np.abs(sums).max())) - 2 * errors.max()


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
    """One document of each kind, of 1 to 64 views but at most 600 numbers (plain functions are slow), and a query."""
    rng = np.random.default_rng(seed)
    most = max(1, min(64, 600 // dim))
    documents = [(kind(rng, rng.integers(1, most + 1), dim) * size).astype(dtype) for kind in KINDS]
    query = rng.integers(-1, 2, dim) if seed % 3 == 0 else rng.standard_normal(dim)
    return documents, query.astype(np.float32)


def scored(documents, query, scoring):
    packed, starts = np.concatenate(documents), np.cumsum([0, *map(len, documents)])
    return document_scores(view_sums(packed, query), starts, scoring)


def assert_same(found, expected):
    """Equal bit for bit: 0.0 is not -0.0."""
    np.testing.assert_array_equal(found.scores.view(np.uint32), expected.scores.view(np.uint32))
    np.testing.assert_array_equal(found.slots, expected.slots)
