"""Measures between epochs equal those of plain sorts and of hand computation."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from mvindex.errors import CorpusError  # noqa: E402
from mvindex.records import Document, Views  # noqa: E402
from mvindex_train.config import LossConfig  # noqa: E402
from mvindex_train.data import Example  # noqa: E402
from mvindex_train.evaluation import (  # noqa: E402
    DevSet,
    evaluate,
    gold_ranks,
    local_variation,
    make_dev_set,
    view_cosine,
)
from mvindex_train.processes import Processes  # noqa: E402
from mvindex_train.progress import dev_line  # noqa: E402
from tests.helpers.tiny_training import TinyEncoder, make_documents  # noqa: E402

pytestmark = pytest.mark.usefixtures("preserve_random_state")


def test_ranks_are_those_of_a_plain_sort_by_score_then_ordinal():
    random_numbers = np.random.default_rng(3)
    counts = random_numbers.integers(1, 4, 40)
    rows = random_numbers.integers(-2, 3, (counts.sum(), 4)).astype(np.float32)  # small integers: many ties
    views = Views(rows, np.concatenate([[0], np.cumsum(counts)]), np.full((len(rows), 2), -1))
    queries = random_numbers.integers(-2, 3, (25, 4)).astype(np.float32)
    gold = [random_numbers.choice(40, size=1 + question % 3, replace=False) for question in range(25)]
    found = gold_ranks(views, queries, gold, LossConfig())
    for question, query in enumerate(queries):
        scores = [max(rows[views.starts[row] : views.starts[row + 1]] @ query) for row in range(40)]
        order = sorted(range(40), key=lambda row: (-scores[row], row))
        assert found[question] == 1 + min(order.index(row) for row in gold[question])


def test_ranks_follow_the_aggregate_that_is_trained_for():
    # By its best view document 0 wins (3 against 2), by DRPQ at a high temperature document 1 (mean 0 against 2).
    views = Views(np.array([[3.0], [-3.0], [2.0]], np.float32), np.array([0, 2, 3]), np.full((3, 2), -1))
    query, gold = np.ones((1, 1), np.float32), [np.array([1])]
    assert gold_ranks(views, query, gold, LossConfig()).tolist() == [2]
    assert gold_ranks(views, query, gold, LossConfig(aggregate="drpq", drpq_temperature=100.0)).tolist() == [1]


def test_ranks_do_not_depend_on_the_blocks(monkeypatch):
    import mvindex_train.evaluation as evaluation

    random_numbers = np.random.default_rng(4)
    rows = random_numbers.normal(size=(60, 8)).astype(np.float32)
    views = Views(rows, np.arange(0, 61, 2), np.full((60, 2), -1))
    queries = random_numbers.normal(size=(11, 8)).astype(np.float32)
    gold = [random_numbers.choice(30, 2, replace=False) for _ in range(11)]
    whole = gold_ranks(views, queries, gold, LossConfig())
    monkeypatch.setattr(evaluation, "_BLOCK_VIEWS", 5)
    monkeypatch.setattr(evaluation, "_SCORES_AT_ONCE", 20)
    assert gold_ranks(views, queries, gold, LossConfig()).tolist() == whole.tolist()
    assert len(set(whole.tolist())) > 3


def test_lv_and_view_cosine_are_worked_by_hand():
    # Views e1, e2 at right angles, a document of one view, and two views that are the same but for their length.
    rows = np.array([[1, 0], [0, 1], [1, 1], [2, 0], [5, 0]], np.float32)
    views = Views(rows, np.array([0, 2, 3, 5]), np.full((5, 2), -1))
    assert view_cosine(views) == pytest.approx((0 + 1) / 2)
    # Scores log 3 and 0 at scale 1: shares 3/4 and 1/4, LV 1/2; the second question's document has one view.
    queries = np.array([[math.log(3), 0], [7, 7]], np.float32)
    assert local_variation(views, queries, [0, 1], 1.0) == pytest.approx(0.5)
    assert local_variation(views, queries[1:], [1], 1.0) is None
    assert view_cosine(Views(rows[:2], np.array([0, 1, 2]), np.full((2, 2), -1))) is None


def test_an_evaluation_finds_what_the_encoder_was_made_to_find():
    documents = make_documents(30)
    encoder = TinyEncoder(dropout=0.0)
    questions = [documents[row].text.split(".")[0] + "." for row in range(0, 30, 3)]
    dev = DevSet(documents, questions, [np.array([row]) for row in range(0, 30, 3)])
    report = evaluate(encoder.frozen_encoder(), dev, LossConfig(), Processes("cpu"))
    assert report.recall == {1: 1.0, 5: 1.0, 20: 1.0, 100: 1.0}
    assert report.mrr == 1.0
    assert report.views == pytest.approx(2.0)
    assert report.as_json()["R@20"] == 1.0
    assert "R@1 100.00 %" in dev_line({"epoch": 0} | report.as_json())


def test_a_dev_set_takes_the_passages_and_finds_any_positive():
    corpus = make_documents(6)
    dev = make_dev_set([Example("q", "where?", (Document("x", "not there"), corpus[4], corpus[2]))], corpus)
    assert [document.id for document in dev.documents] == [f"d{row}" for row in range(6)]
    assert dev.gold[0].tolist() == [4, 2]
    own = make_dev_set([Example("q", "where?", (corpus[1],), (corpus[3],))], None)
    assert [document.id for document in own.documents] == ["d1", "d3"]


def test_a_dev_set_without_questions_or_without_their_passages_is_refused():
    with pytest.raises(CorpusError, match=r"dev question 'q7': expected one of its passages \('lost'\) in the corpus"):
        make_dev_set([Example("q7", "where?", (Document("lost", "text"),))], make_documents(3))
    with pytest.raises(CorpusError, match="--dev: expected one question or more"):
        make_dev_set([], make_documents(3))
