"""The choice of how much of what LoRA learnt is kept."""

import numpy as np
import pytest

from mvindex_train.scaling import Trial, choose_scale


def trials(*rows):
    """Return trials of (scale, recall, {set: values})."""
    return [
        Trial(scale, recall, {name: np.array(values) for name, values in judged.items()})
        for scale, recall, judged in rows
    ]


BASE = (0.0, 0.5, {"a": [0.5, 0.5, 0.5, 0.5], "b": [0.4, 0.6, 0.4, 0.6]})
SAME = BASE[2]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([(0.5, 0.6, {}), (1.0, 0.7, {})], (1.0, True)),
        ([(0.5, 0.7, {}), (1.0, 0.7, {})], (0.5, True)),
        ([(0.5, 0.6, SAME), (1.0, 0.7, SAME)], (1.0, True)),
        # The mean over the sets is below the base's.
        ([(0.5, 0.6, SAME), (1.0, 0.7, SAME | {"a": [0.5, 0.5, 0.5, 0.4]})], (0.5, True)),
        # One set is down by more than its standard error, though the mean is up.
        ([(0.5, 0.6, SAME), (1.0, 0.7, {"a": [0.4, 0.4, 0.4, 0.4], "b": [0.9, 0.9, 0.9, 0.9]})], (0.5, True)),
        # Down by less than a standard error, and the mean is up.
        ([(0.5, 0.6, SAME), (1.0, 0.7, {"a": [0.1, 0.9, 0.4, 0.5], "b": [0.5, 0.7, 0.5, 0.7]})], (1.0, True)),
        ([(0.5, 0.6, {"a": [0.0] * 4, "b": [0.0] * 4}), (1.0, 0.7, {"a": [0.0] * 4, "b": [0.0] * 4})], (0.5, False)),
    ],
)
def test_the_best_recall_wins_among_scales_that_keep_the_judged_sets(rows, wanted):
    base = BASE if rows[0][2] else (0.0, 0.5, {})
    assert choose_scale(trials(base, *rows)) == wanted


def test_a_trial_is_shown_with_its_figures():
    (trial,) = trials((0.5, 0.61234, {"a": [0.5, 0.25]}))
    assert str(trial) == "scale 0.5: recall 61.23 %, a nDCG@10 37.50 %"
    assert trial.as_json() == {"scale": 0.5, "recall": 0.6123, "nDCG@10": {"a": 0.375}}
