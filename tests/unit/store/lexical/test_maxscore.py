"""The compiled search for the best documents, against the scores of all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.store.lexical.reader import PostingsCache, TermPostings

pytest.importorskip("numba", reason="NOT RUN: needs numba (the extra fast)")

from mvindex.kernels.maxscore import WINDOW  # noqa: E402 - needs numba
from mvindex.search.terms import BestMatches, Saturation, WeightedTerm  # noqa: E402 - needs numba


def collection_of(rng, num_rows, num_terms, most):
    """Return lengths, and rows and counts of each term: of one document up to all, in some windows or in all."""
    lengths = rng.integers(0, 50, num_rows).astype(np.uint32)
    terms = []
    for _ in range(num_terms):
        begin, end = np.sort(rng.integers(0, num_rows + 1, 2))
        rows = np.flatnonzero(rng.random(num_rows) < rng.choice([0.0005, 0.01, 0.3, 1.0])).astype(np.uint32)
        rows = rows[(rows >= begin) & (rows < end)]
        terms.append((rows, rng.integers(1, most, len(rows)).astype(np.min_scalar_type(most - 1))))
    return lengths, terms


def all_scores(lengths, terms, weights, saturation):
    """Return every document's score, by plain sums."""
    k1, b, mean = saturation
    total = np.zeros(len(lengths))
    for (rows, counts), weight in zip(terms, weights, strict=True):
        times = counts.astype(np.float64)
        total[rows] += weight * times / (times + k1 * (1 - b + b * lengths[rows] / mean))
    return total


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_parts=st.integers(1, 3),
    num_terms=st.sampled_from([1, 2, 5, 12, 70]),
    limit=st.sampled_from([1, 3, 10, 100, 5000]),
    most=st.sampled_from([2, 4, 300, 70_000]),
    allowed_part=st.sampled_from([1.0, 0.9, 0.1, 0.0]),
)
def test_the_best_documents_are_found_with_their_scores(seed, num_parts, num_terms, limit, most, allowed_part):
    rng = np.random.default_rng(seed)
    saturation = Saturation(float(rng.choice([0.0, 1.2, 2.0])), float(rng.choice([0.0, 0.75, 1.0])), 25.0)
    # Few values, so that scores tie.
    weights = rng.choice([0.01, 0.5, 1.0, 6.0], num_terms)
    best, found, first = BestMatches(limit, saturation), {}, 0
    every = []
    for _ in range(num_parts):
        num_rows = int(rng.choice([1, WINDOW - 1, WINDOW, 3 * WINDOW + 5]))
        lengths, terms = collection_of(rng, num_rows, num_terms, most)
        # Made when the mean was another, and for later snapshots too.
        held, cache = num_rows + int(rng.integers(0, 3)), PostingsCache()
        cache.lengths = np.append(lengths, np.zeros(held - num_rows, np.uint32))
        allowed = rng.random(num_rows) < allowed_part
        scores = np.where(allowed, all_scores(lengths, terms, weights, saturation), 0)
        weighted = [
            WeightedTerm(number, float(weight), TermPostings(rows, counts, held), len(rows))
            for number, (weight, (rows, counts)) in enumerate(zip(weights, terms, strict=True))
        ]
        for mean in (24.0, 26.0):
            BestMatches(limit, saturation._replace(mean=mean)).find(weighted, cache, allowed)
        rows, sums = best.find(weighted, cache, allowed)
        assert len(np.unique(rows)) == len(rows)
        np.testing.assert_allclose(sums, scores[rows], rtol=1e-9)
        found |= dict(zip((first + rows).tolist(), sums.tolist(), strict=True))
        every.append(scores)
        first += num_rows
    total = np.concatenate(every)
    matches = np.flatnonzero(total > 0)
    if len(matches) > limit:
        lowest = np.sort(total)[-limit]
        assert best.lowest == pytest.approx(lowest, rel=2e-6)
        matches = matches[total[matches] >= lowest]
    else:
        assert best.lowest == 0 or len(matches) == limit
    assert set(matches.tolist()) <= found.keys()


def test_windows_that_cannot_matter_are_skipped():
    """Behind a window whose documents are the best by far, common terms alone bring nothing."""
    num_rows = 8 * WINDOW
    cache = PostingsCache()
    cache.lengths = np.full(num_rows, 10, dtype=np.uint32)
    common = TermPostings(np.arange(num_rows, dtype=np.uint32), np.ones(num_rows, np.uint8), num_rows)
    rare = TermPostings(np.arange(20, dtype=np.uint32), np.ones(20, np.uint8), num_rows)
    terms = [WeightedTerm(1, 0.1, common, num_rows), WeightedTerm(2, 9.0, rare, 20)]
    rows, _ = BestMatches(10, Saturation(1.2, 0.75, 10.0)).find(terms, cache, np.ones(num_rows, dtype=bool))
    assert np.sort(rows).tolist() == list(range(20))
