"""Recall with bootstrap intervals, and differences of recall between two ways to search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.measure.analysis.ranks import NOT_FOUND
from mvindex.records import Ints

_DRAWS = 2000


def recalls(ranks: Ints, cutoffs: Sequence[int]) -> dict[str, float]:
    """Return R@k by name: the share of ranks (q,) that are at most k."""
    return {f"R@{k}": float(np.mean(ranks <= k)) for k in cutoffs}


def rank_array(ranks: Sequence[int | None]) -> Ints:
    """Return ranks as an array, with NOT_FOUND for None."""
    return np.array([NOT_FOUND if rank is None else rank for rank in ranks], dtype=np.int64)


def intervals(ranks: Ints, cutoffs: Sequence[int], seed: int) -> dict[str, list[float]]:
    """Return the 95 % bootstrap interval of each R@k.

    A resample of q hits and misses with replacement has a binomial number of hits, which is drawn directly.
    """
    generator, number = np.random.default_rng(seed), len(ranks)
    bounds = {}
    for k in cutoffs:
        draws = generator.binomial(number, np.count_nonzero(ranks <= k) / number, _DRAWS) / number
        bounds[f"R@{k}"] = [float(value) for value in np.quantile(draws, [0.025, 0.975])]
    return bounds


def gain(ranks: Ints, others: Ints, k: int, seed: int) -> tuple[float, float, float]:
    """Return R@k of ranks minus that of others on the same questions, and its paired 95 % bootstrap interval."""
    gained, missed = (ranks <= k) & (others > k), (ranks > k) & (others <= k)
    number = len(ranks)
    won, lost = np.count_nonzero(gained) / number, np.count_nonzero(missed) / number
    draws = np.random.default_rng(seed).multinomial(number, [won, lost, max(0.0, 1 - won - lost)], _DRAWS)
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / number, [0.025, 0.975])
    return won - lost, float(low), float(high)
