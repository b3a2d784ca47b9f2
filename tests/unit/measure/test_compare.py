"""Comparison of runs: p values against all assignments of signs, Holm by hand, values against pytrec_eval."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from mvindex.errors import ConfigError, CorpusError
from mvindex.measure.compare import compare_runs, holm, randomisation_p, read_run


def by_enumeration(differences):
    """The share of assignments of signs whose sum is as far from 0."""
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(each >= abs(sum(differences)) - 1e-12 for each in sums) / len(sums)


@pytest.mark.parametrize("seed", range(6))
def test_p_is_that_of_all_assignments(seed):
    rng = np.random.default_rng(seed)
    differences = rng.normal(0.1 * seed, 0.3, size=11).round(1)
    assert randomisation_p(differences) == pytest.approx(by_enumeration(differences), abs=1e-12)


def test_drawn_assignments_come_close_and_are_the_same_each_time():
    rng = np.random.default_rng(1)
    differences = rng.normal(0.15, 0.3, size=18)
    assert randomisation_p(differences) == randomisation_p(differences)
    assert randomisation_p(differences) == pytest.approx(by_enumeration(differences), abs=0.005)
    assert 0 < randomisation_p(np.ones(2000)) < 1e-4
    assert randomisation_p(np.zeros(5)) == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def drawn_run(path, rng, tag, shift):
    lines = []
    for question in range(30):
        documents = rng.permutation(20)
        scores = rng.integers(0, 5, 20) + shift * (documents < 4)
        lines += [f"q{question} Q0 d{doc} 1 {score} {tag}" for doc, score in zip(documents, scores, strict=True)]
    return write(path, lines)


def test_figures_are_those_of_trec_eval_ties_and_all(tmp_path):
    rng = np.random.default_rng(5)
    paths = [drawn_run(tmp_path / f"{name}.run", rng, name, shift) for name, shift in (("a", 0), ("b", 3), ("c", 3))]
    qrels = {f"q{number}": {f"d{doc}": int(rng.integers(0, 3)) for doc in range(6)} for number in range(30)}
    qrels["q99"] = {"d1": 1}
    report = compare_runs({path: read_run(path) for path in paths}, qrels, ["nDCG@10", "AP"], all_pairs=True)
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map"})
    values = {}
    for path in paths:
        run = {}
        for line in Path(path).read_text().splitlines():
            question, _, doc, _, score, _ = line.split()
            run.setdefault(question, {})[doc] = float(score)
        found = evaluator.evaluate(run)
        for measure, name in (("nDCG@10", "ndcg_cut_10"), ("AP", "map")):
            values[path, measure] = np.array([found.get(question, {}).get(name, 0) for question in qrels])
    for each in report.runs:
        assert each.mean == pytest.approx(values[each.run, each.measure].mean(), abs=1e-9)
        assert each.missing == 1
    assert len(report.comparisons) == 6
    for each in report.comparisons:
        gaps = values[each.second, each.measure] - values[each.first, each.measure]
        assert each.difference == pytest.approx(gaps.mean(), abs=1e-9)
        assert each.error == pytest.approx(gaps.std(ddof=1) / 31**0.5, abs=1e-9)
        assert (each.better + each.equal + each.worse, each.p <= each.p_corrected) == (31, True)
    assert [each.p_corrected for each in report.comparisons] == holm([each.p for each in report.comparisons])
    first = compare_runs({path: read_run(path) for path in paths}, qrels)
    assert [(each.first, each.second) for each in first.comparisons] == [(paths[0], paths[1]), (paths[0], paths[2])]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q1 Q0 d1 1 0.5"], "1: expected 6 columns"),
        (["q1 Q0 d1 1 0.5 x", "q1 Q0 d1 2 0.4 x"], "2: expected each document once for question 'q1', got 'd1' twice"),
        (["q1 Q0 d1 1 nan x"], "finite number, got 'nan'"),
        (["q1 Q0 d1 1 high x"], "got 'high'"),
        ([], "got none"),
    ],
)
def test_a_bad_run_is_named(tmp_path, lines, message):
    with pytest.raises(CorpusError, match="bad.run") as caught:
        read_run(write(tmp_path / "bad.run", lines))
    assert message in str(caught.value)


def test_misuse_is_named():
    with pytest.raises(ConfigError, match="two runs"):
        compare_runs({"a": {}}, {"q": {"d": 1}})
    for measure in ("goodness@10", "nDCG@ten", ""):
        with pytest.raises(ConfigError, match="measure: expected nDCG"):
            compare_runs({"a": {}, "b": {}}, {"q": {"d": 1}}, [measure])
