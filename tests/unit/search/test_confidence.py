"""Confidence: features of a hit, the model that reads them, and what is kept of it."""

import math

import numpy as np
import pytest

import mvindex
from mvindex.encoder import load_encoder
from mvindex.errors import DamagedIndex, NotCalibrated, QueryError
from mvindex.records import Hit, SearchResult
from mvindex.search.confidence import (
    FEATURES,
    Calibration,
    Evidence,
    Model,
    calibration_of,
    confident,
    features_of,
    packaged_calibration,
    parse_calibration,
)
from mvindex.search.fusion import Mode

EVIDENCE = Evidence(dense=(0.8, 0.5), lexical=(6.0, 2.0), ceiling=10.0)


def test_features_are_those_worked_by_hand():
    # The best by both: 0.3 and 4 of 10 ahead of the second; a share of .6 of the ceiling.
    assert features_of(Mode.HYBRID, 0.8, 6.0, EVIDENCE) == pytest.approx((0.8, 0.6, 0.48 * 0.3, 0.48 * 0.4))
    # Another document is behind the best.
    assert features_of(Mode.HYBRID, 0.5, 2.0, EVIDENCE) == pytest.approx((0.5, 0.2, 0.1 * -0.3, 0.1 * -0.4))
    assert features_of(Mode.DENSE, 0.5, 0.0, Evidence((0.8,))) == pytest.approx((0.5, -0.3))
    assert features_of(Mode.DENSE, 0.8, 0.0, Evidence((0.8,))) == (0.8, 0.0)
    assert features_of(Mode.LEXICAL, 0.0, 2.0, Evidence((), (6.0,), 10.0)) == pytest.approx((0.2, -0.4))
    # A query without terms has no share.
    assert features_of(Mode.HYBRID, 0.8, 0.0, Evidence((0.8, 0.5), (0.0, 0.0), 0.0)) == (0.8, 0.0, 0.0, 0.0)


def test_a_probability_is_that_of_the_logistic_function():
    assert Model((2.0, -1.0), 0.5).probability((1.0, 1.5)) == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert [Model((1e9,), 0.0).probability((value,)) for value in (-1e9, 0.0, 1e9)] == pytest.approx([0, 0.5, 1])


def test_the_packaged_calibration_is_that_of_the_default_encoder():
    calibration = packaged_calibration()
    assert calibration.encoder == load_encoder("minilm-views").fingerprint
    assert set(calibration.models) == set(FEATURES)
    assert parse_calibration(calibration.as_setting()) == calibration


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"format_version": 2, "encoder": "e", "models": {}},
        {"format_version": 1, "encoder": 3, "models": {}},
        {"format_version": 1, "encoder": "e", "models": {"other": {}}},
        {"format_version": 1, "encoder": "e", "models": {"dense": {"dense": 1.0, "bias": 0.0}}},
        {"format_version": 1, "encoder": "e", "models": {"dense": {"dense": "1", "dense_margin": 0.0, "bias": 0.0}}},
        {"format_version": 1, "encoder": "e", "models": {"dense": {"dense": math.nan, "dense_margin": 0, "bias": 0}}},
    ],
    ids=str,
)
def test_what_is_no_calibration_is_refused(wrong):
    assert parse_calibration(wrong) is None
    if wrong is not None:
        with pytest.raises(DamagedIndex, match="setting 'confidence'"):
            calibration_of(wrong, None, "here")


def test_a_calibration_belongs_to_one_encoder():
    own = Calibration("mine", {Mode.DENSE: Model((1.0, 0.0), 0.0)})
    assert calibration_of(own.as_setting(), {"source": "x", "fingerprint": "mine"}, "here") == own
    assert calibration_of(own.as_setting(), {"source": "x", "fingerprint": "another"}, "here") is None
    assert calibration_of(None, {"source": "minilm-views", "fingerprint": "another"}, "here") is None
    assert calibration_of(None, None, "here") is None


def test_hits_below_are_left_out_and_counted():
    hits = tuple(Hit(str(number), 1.0, 0, None, None, "", "", {}, confidence=number / 4) for number in (3, 1, 2))
    result = SearchResult(hits, True, 0, 1)
    [found] = confident([result], 0.5)
    assert ([hit.id for hit in found], found.below_confidence, found.short_by) == (["3", "2"], 1, 0)


def test_an_index_of_vectors_has_no_confidence(tmp_path):
    with mvindex.create(tmp_path / "v.mvx", dim=4) as index:
        index.add_views([mvindex.Document("a", "oil")], np.ones((1, 1, 4), dtype=np.float32))
        vector = np.ones(4, dtype=np.float32)
        assert index.search(vector)[0].confidence is None
        with pytest.raises(NotCalibrated, match="tune --confidence"):
            index.search(vector, min_confidence=0.5)


@pytest.mark.needs("minilm")
def test_a_confidence_does_not_depend_on_the_page(tmp_path):
    texts = ["Oil rose in 1973.", "Gold fell in 1980.", "An embargo began in October 1973.", "Cars became smaller."]
    with mvindex.create(tmp_path / "a.mvx", encoder="minilm-views", lexical="english") as index:
        index.add([mvindex.Document(str(number), text) for number, text in enumerate(texts)])
        for mode in ("hybrid", "dense"):
            whole = index.search("when did the embargo begin?", 4, mode=mode)
            pages = [index.search("when did the embargo begin?", 1, mode=mode, offset=at, fields=()) for at in range(4)]
            assert [page[0].confidence for page in pages] == [hit.confidence for hit in whole]
            assert whole[0].confidence > 0.4 > whole[3].confidence > 0
        assert index.search("which battery fits the camera?")[0].confidence < 0.1
        whole = index.search("when did the embargo begin?", 4)
        least = sorted(hit.confidence for hit in whole)[2]
        kept = {hit.id for hit in whole if hit.confidence >= least}
        for options in (
            {"diversity": 0.5},
            {"cursor": ""},
            {"fusion": "rrf"},
            {"rerank": lambda query, hits: [len(hits) - place for place in range(len(hits))]},
        ):
            found = index.search("when did the embargo begin?", 4, min_confidence=least, **options)
            assert ({hit.id for hit in found}, found.below_confidence, found.short_by) == (kept, 2, 0), options
            assert {hit.confidence for hit in found} == {hit.confidence for hit in whole if hit.id in kept}
        # Scores of other kinds mean something else.
        assert index.search("oil", scoring="drpq")[0].confidence is None
        assert index.search(mvindex.QueryGroup(["oil", "gold"]))[0].confidence is None
        for options in ({"scoring": "drpq"}, {"query": mvindex.QueryGroup(["oil", "gold"])}):
            with pytest.raises(NotCalibrated):
                index.search(**{"query": "oil", **options}, min_confidence=0.5)
        with pytest.raises(QueryError, match="documents stand for the query"):
            index.search(like="1", min_confidence=0.5)
