"""Models of confidence: fitted on judged questions, measured, and kept in an index."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.search.tuning.fusion import auroc, calibration_error, fit_model, probabilities, refused_share
from mvindex.testing import unit


def test_a_fit_finds_the_weights_that_made_the_answers():
    rng = np.random.default_rng(3)
    features = rng.standard_normal((40_000, 2)) * [1.0, 0.1] + [0.5, 3.0]
    logits = 2.0 * features[:, 0] - 10.0 * features[:, 1] + 29.0
    answers = rng.random(len(logits)) < 1 / (1 + np.exp(-logits))
    model = fit_model(features, answers, np.ones(len(answers)))
    assert model.weights == pytest.approx((2.0, -10.0), rel=0.1) and model.bias == pytest.approx(29.0, rel=0.1)
    found = probabilities(model, features)
    assert calibration_error(found, answers, np.ones(len(answers))) < 0.02


def test_a_weight_counts_as_so_many_hits():
    features, answers = np.array([[0.0], [1.0], [2.0], [0.5]]), np.array([False, True, True, True])
    weights = np.array([3.0, 1.0, 2.0, 1.0])
    rows = np.repeat(np.arange(4), weights.astype(int))
    one, other = fit_model(features, answers, weights), fit_model(features[rows], answers[rows], np.ones(len(rows)))
    assert one.weights == pytest.approx(other.weights) and one.bias == pytest.approx(other.bias)


def test_features_that_separate_all_have_finite_weights():
    model = fit_model(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([False, True]), np.ones(2))
    assert np.isfinite([*model.weights, model.bias]).all()


def test_measures_are_those_worked_by_hand():
    answerable, others = np.array([0.9, 0.5, 0.5]), np.array([0.5, 0.1])
    # Of six pairs four are right, and two are ties.
    assert auroc(answerable, others) == pytest.approx(5 / 6)
    assert refused_share(np.linspace(0, 1, 101), np.array([0.01, 0.04, 0.06, 0.5])) == 0.5
    # The bin of .95 is right half of the time, that of .05 never.
    found, answers = np.array([0.95, 0.95, 0.05, 0.05]), np.array([True, False, False, False])
    assert calibration_error(found, answers, np.ones(4)) == pytest.approx((2 * 0.45 + 2 * 0.05) / 4)


@pytest.mark.parametrize("lexical", [None, "english"])
def test_an_index_keeps_what_was_fitted(tmp_path, lexical):
    rng = np.random.default_rng(5)
    count = 40
    views = unit(rng.standard_normal((count, 1, 8)))
    questions = [f"what is word{number}?" for number in range(count)]
    relevant = [{f"d{number}": 1.0} for number in range(count - 5)] + [{}] * 5
    queries = unit(views[:, 0] + 0.1 * rng.standard_normal((count, 8)))
    with mvindex.create(tmp_path / "v.mvx", dim=8, lexical=lexical) as index:
        index.add_views([mvindex.Document(f"d{number}", f"word{number} is here") for number in range(count)], views)
        assert index.search(queries[0], text=questions[0])[0].confidence is None
        for wrong, match in (((questions, relevant[:3]), "for each"), ((questions[:9], relevant[:9]), "20 at least")):
            with pytest.raises(ConfigError, match=match):
                index.admin.tune_confidence(*wrong, vectors=queries[: len(wrong[0])])
        report = index.admin.tune_confidence(questions, relevant, vectors=queries)
        modes = ["dense"] if lexical is None else ["dense", "lexical", "hybrid"]
        assert [point.mode for point in report.points] == modes
        assert (report.answerable, report.unanswerable) == (35, 40)
        assert all(point.auroc > 0.8 for point in report.points)
        assert index.info().confidence["encoder"] is None
        for mode in modes:
            query = questions[0] if mode == "lexical" else queries[0]
            text = {} if mode in ("dense", "lexical") else {"text": questions[0]}
            found = index.search(query, 5, mode=mode, **text)
            assert found[0].id == "d0" and found[0].confidence > 0.5
            assert 0 <= min(hit.confidence for hit in found) < 0.5
            kept = index.search(query, 5, mode=mode, min_confidence=0.5, **text)
            assert kept.hits == tuple(hit for hit in found if hit.confidence >= 0.5)
            assert kept.below_confidence == len(found) - len(kept)
        expected = index.search(queries[0], 3)
    with mvindex.open(tmp_path / "v.mvx") as index:
        assert [hit.confidence for hit in index.search(queries[0], 3)] == [hit.confidence for hit in expected]


def test_scores_that_are_too_small_are_refused_and_nothing_is_kept(tmp_path):
    rng = np.random.default_rng(5)
    views = unit(rng.standard_normal((30, 1, 8))) * np.float32(1e-3)
    with mvindex.create(tmp_path / "v.mvx", dim=8, dtype="fp32") as index:
        index.add_views([mvindex.Document(f"d{number}", "x") for number in range(30)], views)
        relevant = [{f"d{number}": 1.0} for number in range(30)]
        with pytest.raises(ConfigError, match="weights of up to 1e9"):
            index.admin.tune_confidence(["x"] * 30, relevant, vectors=views[:, 0] * np.float32(1e-9))
        assert index.info().confidence is None and index.search(views[0, 0])[0].confidence is None
