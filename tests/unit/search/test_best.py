"""The best documents so far, whatever comes in which portions: falling scores, then rising ordinals."""

import numpy as np
import pytest

from mvindex.kernels.score import Scoring
from mvindex.search.exact import Best
from mvindex.search.ranking import ScoredPairs

# Zeros of both signs tie; so do many of these.
SCORES = np.array([0, -0.0, 1, -1, 2.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, 0.1], dtype=np.float32)


def drawn(rng, num_queries, count, first_row):
    which = np.sort(rng.integers(0, num_queries, count))
    rows, ordinals = first_row + np.arange(count), rng.permutation(10_000)[:count]
    return ScoredPairs(which, rows, rng.choice(SCORES, count), np.zeros(count, dtype=np.int64), ordinals)


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_portions_are_those_of_sorting_all(seed):
    rng = np.random.default_rng(seed)
    num_queries, top_k = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    portions = [drawn(rng, num_queries, count, 1000 * n) for n, count in enumerate(rng.integers(0, 200, 3).tolist())]
    best = Best(None, np.zeros((num_queries, 4), dtype=np.float32), top_k, Scoring())
    for portion in portions:
        best.take(portion)
    which, rows, scores, _, ordinals = map(np.concatenate, zip(*portions, strict=True))
    for query, (found, found_scores, _) in enumerate(best.each()):
        order = np.lexsort((ordinals[which == query], -scores[which == query]))[:top_k]
        assert found.tolist() == rows[which == query][order].tolist()
        assert np.array_equal(found_scores, scores[which == query][order])
        assert best.thresholds[query] == (found_scores[-1] if len(found) == top_k else -np.inf)
