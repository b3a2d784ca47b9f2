"""Candidates of several sources united, and those left out that answer the question."""

from collections import Counter

import pytest

from mvindex.records import Document
from mvindex_train.data.records import Example, dump_example, load_example
from mvindex_train.negatives.candidates import Candidate, candidate_of, interleave, merge_duplicates
from mvindex_train.negatives.filters import CandidateFilter, is_positive
from tests.helpers.mining_examples import example, ids


def test_sources_take_turns_and_a_document_of_both_names_both():
    first = [Candidate(Document(doc_id, "x"), 1.0, rank, "bm25") for rank, doc_id in enumerate("abc", 1)]
    second = [Candidate(Document(doc_id, "x"), 9.0, rank, "dense") for rank, doc_id in enumerate("bd", 1)]
    found = [(c.document.id, c.rank, c.score, c.source) for c in interleave([first, second])]
    assert found == [("a", 1, 1.0, "bm25"), ("b", 1, 9.0, "dense+bm25"), ("d", 2, 9.0, "dense"), ("c", 3, 1.0, "bm25")]


def test_uniting_keeps_one_of_each_document_and_is_done_once():
    given_one = Candidate(Document("a", "x"))
    once = merge_duplicates(
        [given_one, Candidate(Document("a", "x"), 2.0, 1, "bm25"), Candidate(Document("b", "x"), 1.0, 2, "bm25")]
    )
    assert [(c.document.id, c.source) for c in once] == [("a", "bm25"), ("b", "bm25")]
    assert merge_duplicates([*once, *once]) == once


def test_a_candidate_comes_back_from_its_row():
    candidate = Candidate(Document("a", "x", "t"), 0.1234564, 3, "bm25")
    mined = Example("q", "what?", (Document("p", "y"),), (candidate.to_document(),))
    (document,) = load_example(dump_example(mined).decode(), "here").negatives
    back = candidate_of(document)
    assert (back.document.id, back.score, back.rank, back.source) == ("a", 0.123456, 3, "bm25")


@pytest.mark.parametrize(
    ("document", "positive", "wanted"),
    [
        (Document("p", "other"), Document("p", "text"), True),
        (Document("x", "the text ", "title"), Document("p", "the  text", "title"), True),
        (Document("x", "the text", ""), Document("p", "the text", "title"), True),
        (Document("x", "the text", "another"), Document("p", "the text", "title"), False),
        (Document("x", "the text goes on", "title"), Document("p", "the text", "title"), False),
        (Document("x", "The text", "title"), Document("p", "the text", "title"), False),
        (Document("x", "", "one"), Document("p", "", "two"), False),
    ],
)
def test_a_positive_is_known_by_id_or_by_text_and_title(document, positive, wanted):
    assert is_positive(document, [Document("q", "nothing of it"), positive]) is wanted


def test_candidates_with_an_answer_are_left_out_by_words_not_by_letters():
    texts = ["began in October 1973.", "in OCTOBER  1973!", "in October of 1973", "in 19734", "October 1973x"]
    documents = [Document(str(row), text, "October 1973") for row, text in enumerate(texts)]
    counts = Counter()
    candidates = [Candidate(document, 1.0, 1, "bm25") for document in documents]
    kept = CandidateFilter().filter(example(answers=["October 1973"]), candidates, counts)
    assert ids(candidate.document for candidate in kept) == ["2", "3", "4"]
    assert counts == {"removed_answer": 2}


def test_patterns_are_answers_only_where_they_are_asked_for():
    candidates = [Candidate(Document("a", "in 1973"), 1.0, 1, "bm25"), Candidate(Document("b", r"\d+"), 1.0, 2, "bm25")]
    asked = example(answers=[r"\d+"])
    plain = CandidateFilter(patterns=False).filter(asked, candidates, Counter())
    patterns = CandidateFilter(patterns=True).filter(asked, candidates, Counter())
    assert ids(c.document for c in plain) == ["a"]
    assert ids(c.document for c in patterns) == ["b"]
