"""Views of texts that callers give, beside those of a document's own text."""

import json

import numpy as np
import pytest

import mvindex
from mvindex import Document, ViewText
from mvindex.corpus import read_documents
from mvindex.errors import DocumentError, EncoderError, MvindexError

TEXT = "Oil rose. The embargo began in 1973."
WORDS = ("oil", "embargo", "price", "crisis")


def count_words(texts):
    """Return a unit vector per text: how often each of WORDS occurs, and a little of something else."""
    counts = np.array([[0.1, *(text.lower().count(word) for word in WORDS)] for text in texts])
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def encoder():
    return mvindex.CallableEncoder(count_words, name="count_words")


def test_a_hit_by_a_view_text_cites_its_span(tmp_path, encoder):
    asked = ViewText("What was the price in the crisis?", (10, len(TEXT)))
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        report = index.add([Document("a", TEXT, view_texts=[asked, "price"]), Document("b", "oil")])
        assert (report.added, report.views_given, index.info().views) == (2, 4, 4)
        best = index.search("price crisis", top_k=2).hits[0]
        assert (best.id, best.slot, best.span, best.snippet) == ("a", 1, asked.span, TEXT[10:])
        best = index.search(count_words(["price"])[0], top_k=1).hits[0]
        assert (best.id, best.slot, best.span, best.snippet) == ("a", 2, None, None)
        assert sorted(each.slot for each in index.explain("price", "a")) == [0, 1, 2]
        assert index.get("a") == Document("a", TEXT)


def test_other_view_texts_make_a_changed_document(tmp_path, encoder):
    steps = [((), "added"), ((), "unchanged"), (("price",), "replaced"), (("price",), "unchanged")]
    steps += [((ViewText("price", (0, 3)),), "replaced"), ((ViewText("price", (0, 4)),), "replaced"), ((), "replaced")]
    steps += [(np.array(["price", "oil"]), "replaced"), (["price", "oil"], "unchanged")]
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        for view_texts, expected in steps:
            report = index.add([Document("a", TEXT, view_texts=view_texts)])
            assert getattr(report, expected) == 1, view_texts


@pytest.mark.parametrize(
    ("view_texts", "message"),
    [
        ("price", "expected a list of texts, got str 'price'"),
        ([" "], "expected one that says something"),
        (["a\0"], "NUL"),
        ([3], "view text: expected a string, got int"),
    ],
)
def test_a_view_text_that_says_nothing_is_refused(view_texts, message):
    with pytest.raises(DocumentError, match=message):
        Document("a", TEXT, view_texts=view_texts)


@pytest.mark.parametrize("span", [(3, 3), (-1, 2), (0, 1, 2), (0.0, 1.0), (0, 99)])
def test_a_span_outside_the_text_is_refused(span):
    with pytest.raises(DocumentError, match="span"):
        Document("a", TEXT, view_texts=[ViewText("price", span)])


def test_given_views_leave_no_place_for_view_texts(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", dim=2) as index, pytest.raises(EncoderError, match="no view_texts"):
        index.add_views([Document("a", TEXT, view_texts=["price"])], np.ones((1, 2), np.float32))


def test_a_corpus_has_view_texts(tmp_path):
    rows = [
        {"id": "a", "text": TEXT, "view_texts": ["price", {"text": "crisis", "span": [0, 9]}]},
        {"id": "b", "text": "oil"},
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_documents(str(tmp_path / "c.jsonl")))
    assert found[0].own_view_texts == (ViewText("price"), ViewText("crisis", (0, 9)))
    assert found[0].metadata == {} and found[1].view_texts == ()


@pytest.mark.parametrize(
    "given", ["price", [3], [{"text": "a", "spam": 1}], [{"text": "a", "span": 3}], [{"span": [0, 1]}]]
)
def test_a_corpus_row_with_other_view_texts_is_bad(tmp_path, given):
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "a", "text": TEXT, "view_texts": given}) + "\n")
    with pytest.raises(MvindexError, match="view_texts"):
        list(read_documents(str(tmp_path / "c.jsonl")))
