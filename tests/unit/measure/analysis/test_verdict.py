"""The verdict: which figures lead to which level."""

import pytest

from mvindex.measure.analysis.verdict import Gain, judge

GOOD = [Gain(1, 0.05, 0.02, 0.08), Gain(5, 0.01, -0.01, 0.03)]
NONE = [Gain(1, 0.001, -0.004, 0.006), Gain(5, 0.0, -0.002, 0.002)]
WIDE = [Gain(1, 0.02, -0.03, 0.07), Gain(5, 0.0, -0.04, 0.04)]


def report(cosine=0.7, lv=0.4, target="gold"):
    whole = {"R@1": 0.8, "R@5": 0.9}
    row = {"views": 2, "eps": 0.5, **whole}
    return {
        "subject": {"views_per_document": 4.5},
        "similarity": None if cosine is None else {"mean_cosine": cosine},
        "local": {"lv": lv, "ppl": 2.5, "margin": {"p50": 0.03}},
        "recall": {"whole": whole},
        "one_vector": {"name": "the mean of the views", "R@1": 0.75, "R@5": 0.89},
        "questions": {"target": target, "per_document": 3.2},
        "usage": [{"slot": 0, "wins": 0.9, "available": 1.0}, {"slot": 1, "wins": 0.001, "available": 0.5}],
        "pruned": [
            {**row, "eps": 0.3, "share": 0.99},
            {**row, "eps": 0.5, "share": 0.7},
            {**row, "eps": 0.7, "share": 0.4, "R@1": 0.79},
        ],
        "fewer_views": [{**row, "views": 1, "share": 0.2, "R@5": 0.88}, {**row, "views": 2, "share": 0.5}],
    }


@pytest.mark.parametrize(
    ("figures", "gains", "level"),
    [
        (report(), GOOD, "pays"),
        (report(), NONE, "does not pay"),
        (report(), WIDE, "mixed"),
        (report(), [GOOD[0], Gain(5, -0.03, -0.05, -0.01)], "mixed"),
        (report(cosine=0.99), GOOD, "collapsed"),
        (report(lv=0.001), WIDE, "collapsed"),
        (report(cosine=None), [], "unknown"),
        (report(), [], "unknown"),
    ],
)
def test_the_level_follows_from_the_figures(figures, gains, level):
    found = judge(figures, gains)
    assert found["level"] == level
    assert found["headline"].endswith(".")


def test_reasons_name_both_figures_and_the_interval():
    reasons = judge(report(), GOOD)["reasons"]
    assert reasons[0] == (
        "R@1: 80.0 % with all views, 75.0 % with the mean of the views (+5.0 points, 95 % interval +2.0 to +8.0)"
    )


def test_savings_are_those_that_cost_half_a_point_at_most():
    advice = " ".join(judge(report(), GOOD)["advice"])
    assert "--prune-views 0.5` saves 30 %" in advice
    assert "2 views per document, the most different ones, are enough: 50 % fewer bytes" in advice


def test_slots_that_rarely_win_are_named():
    assert any(text.startswith("Slots 1 win fewer") for text in judge(report(), GOOD)["advice"])


def test_a_verdict_without_gold_says_which_documents_count():
    assert any("gold documents or answers" in text for text in judge(report(target="best"), GOOD)["advice"])


def test_without_figures_the_verdict_is_unknown():
    nothing = report(cosine=None) | dict.fromkeys(
        ("local", "recall", "one_vector", "questions", "usage", "pruned", "fewer_views")
    )
    found = judge(nothing, [])
    assert (found["level"], found["reasons"], found["advice"]) == ("unknown", [], [])
