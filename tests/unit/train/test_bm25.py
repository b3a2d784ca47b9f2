"""BM25 candidates against the formula in plain Python, and the documents that are stored for them."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.mining_examples import ids

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

from mvindex.errors import ConfigError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from mvindex_train.negatives.bm25 import Bm25Source, StoredDocuments, best_rows, build_bm25, write_documents  # noqa: E402 - as above  # noqa: E402 - as above

FP32_RTOL = 1e-5
DOCUMENTS = [
    Document("1", "The crisis began when oil was embargoed; oil prices rose.", "1973 oil crisis"),
    Document("2", "The river flows past the old house."),
    Document("3", "Embargoes on oil exports ended in March."),
    Document("4", "An old crisis of the old house.", "house"),
    Document("5", "!!", "?"),
    Document("6", "The river flows past the old house."),
]


@pytest.fixture(scope="module")
def bm25(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bm25") / "index"
    build_bm25(iter(DOCUMENTS), folder)
    source = Bm25Source(folder)
    yield source
    source.close()


def slow_bm25(question, documents):
    """Lucene's BM25 (Kamphuis et al., 2020) over stems, stop words left out: one score a document."""
    import Stemmer
    from bm25s.stopwords import STOPWORDS_EN

    stem = Stemmer.Stemmer("english").stemWord

    def tokens(text):
        words = re.findall(r"\b\w\w+\b", text.lower())
        return [stem(word) for word in words if word not in STOPWORDS_EN]

    bags = [tokens(f"{document.title}\n{document.text}") for document in documents]
    # bm25s gives a document without any word the empty token, which counts as its length.
    lengths = [max(len(bag), 1) for bag in bags]
    scores = []
    for bag, length in zip(bags, lengths, strict=True):
        score = 0.0
        for term in tokens(question):
            frequency = sum(term in other for other in bags)
            if frequency:
                idf = math.log(1 + (len(bags) - frequency + 0.5) / (frequency + 0.5))
                count = bag.count(term)
                score += idf * count / (count + 0.9 * (1 - 0.4 + 0.4 * length / (sum(lengths) / len(bags))))
        scores.append(score)
    return scores


@pytest.mark.parametrize(
    "question", ["When did the oil crisis begin?", "an old old house by a river", "embargo exported"]
)
def test_bm25_scores_as_the_formula_says(bm25, question):
    wanted = slow_bm25(question, DOCUMENTS)
    order = sorted(
        (row for row in range(len(wanted)) if wanted[row] > 0), key=lambda row: (-round(wanted[row], 6), row)
    )
    (found,) = bm25.search([question], 10)
    assert ids(candidate.document for candidate in found) == [DOCUMENTS[row].id for row in order]
    np.testing.assert_allclose([c.score for c in found], [wanted[row] for row in order], rtol=FP32_RTOL)
    assert [(c.rank, c.source) for c in found] == [(rank, "bm25") for rank in range(1, len(order) + 1)]


def test_a_question_without_a_known_word_has_no_candidate(bm25):
    assert bm25.search(["the of and", "zebra?", "", "river"], 1)[:3] == [[], [], []]


def test_equal_bm25_scores_stand_in_the_order_of_the_documents(bm25):
    (found,) = bm25.search(["river"], 10)
    assert ids(candidate.document for candidate in found) == ["2", "6"]
    assert found[0].score == found[1].score
    assert [c.document.id for c in bm25.search(["river"], 1)[0]] == ["2"]


def test_batches_do_not_change_bm25_candidates(bm25):
    questions = ["old oil", "river house", "crisis", "zebra", "march"] * 5
    assert bm25.search(questions, 3) == [bm25.search([question], 3)[0] for question in questions]


def test_bm25_refuses_no_documents_and_a_folder_that_is_there(tmp_path):
    with pytest.raises(ConfigError, match="one document or more to mine"):
        build_bm25(iter([]), tmp_path / "index")
    assert not (tmp_path / "index").exists()
    build_bm25(iter(DOCUMENTS), tmp_path / "index")
    with pytest.raises(ConfigError, match="got an existing one"):
        build_bm25(iter(DOCUMENTS), tmp_path / "index")


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 12))
def test_best_rows_are_those_of_a_full_sort(scores, depth):
    array = np.array(scores, dtype=np.float32)
    wanted = sorted((row for row, score in enumerate(scores) if score > 0), key=lambda row: (-scores[row], row))
    assert best_rows(array, depth).tolist() == wanted[:depth]


@settings(max_examples=30)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))
def test_stored_documents_come_back(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("documents")
    documents = [Document(f"d {row}", text, text[:3]) for row, text in enumerate(texts)]
    assert list(write_documents(documents, folder)) == documents
    stored = StoredDocuments(folder)
    assert [stored[row] for row in range(len(stored))] == documents
    stored.close()
