"""How far DRPQ's mean moves with the scores of the views."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.scoring.aggregate import (
    lipschitz_constant,
    view_weights,
)
from tests.helpers.aggregate_cases import SEEDS, TEMPERATURES


def mean_of(scores, temperature):
    weights = np.exp((scores - scores.max()) / temperature)
    return float(weights @ scores / weights.sum())


def most_sensitive_mass(num_views):
    """The mass A of the low views in the worst case: L = 1 / (1 - 2 A)."""
    return (1 - 1 / lipschitz_constant(num_views)) / 2


def test_sensitivity_is_the_maximum_of_its_bound_over_the_mass():
    masses = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    for num_views in [2, 3, 8, 64, 4096]:
        inner = np.log((num_views - 1) / masses) + np.log1p(-masses)
        largest = float(np.max((1 - masses) * masses * inner - masses))
        assert 1 + 2 * largest <= lipschitz_constant(num_views) <= 1 + 2 * largest + 1e-9


def test_sensitivity_rises_with_the_views():
    assert lipschitz_constant(1) == 1
    # The root of coth(x) = x.
    assert lipschitz_constant(2) == pytest.approx(1.1996786402577338, abs=1e-11)
    values = [lipschitz_constant(num_views) for num_views in range(1, 200)]
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
        assert change <= lipschitz_constant(num_views) * step * np.abs(moves).max() + 1e-12 * np.abs(scores).max()
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
        assert 0.999 * lipschitz_constant(num_views) <= change <= lipschitz_constant(num_views) + 1e-6
