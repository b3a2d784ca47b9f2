"""Dense candidates in a toy space, and mining that refreshes inside a run."""

import numpy as np

import mvindex
from mvindex.records import Document
from mvindex_train.negatives.config import MiningConfig
from mvindex_train.negatives.dense import DenseSource, mine_dense
from tests.helpers.mining_examples import example, ids

# Axes of a toy space: a document has one view for each of its words, a question is its words' sum.
AXES = {"cat": 0, "dog": 1, "river": 2, "house": 3}


def word_views(texts):
    return [np.array([np.eye(4)[AXES[word]] for word in text.split() if word in AXES]) for text in texts]


def word_sums(texts):
    return np.array([views.sum(axis=0) for views in word_views(texts)])


ENCODER = mvindex.CallableEncoder(word_views, query_function=word_sums, name="words", dim=4)
TOY = [
    Document("cat", "cat"), Document("both", "dog river cat"), Document("dog", "dog"), Document("house", "house"),
]  # fmt: skip


def test_a_document_is_a_dense_candidate_when_any_view_ranks_it(tmp_path):
    with mvindex.create(tmp_path / "toy.mvx", encoder=ENCODER) as index:
        index.add(TOY)
        (found,) = DenseSource(index, exact=True).search(["river"], 2)
    # Only its second view fits, and only it has one that does; the others follow in the order they were added.
    assert [(c.document.id, c.score, c.rank, c.source) for c in found] == [
        ("both", 1.0, 1, "dense"),
        ("cat", 0.0, 2, "dense"),
    ]


def test_dense_mining_refreshes_inside_the_run_and_leaves_nothing(tmp_path):
    asked = [example("cat dog", [TOY[0]], question_id="1"), example("house", [TOY[3]], question_id="2")]
    config = MiningConfig(per_question=2, depth=4, work_folder=tmp_path)
    rows = mine_dense(ENCODER, iter(TOY), iter(asked), config)
    first = next(rows)
    assert ids(first.negatives) == ["both", "dog"]
    assert [path.name for path in next(tmp_path.iterdir()).iterdir()] == ["documents.mvx"]
    assert ids(next(rows).negatives) == ["cat", "both"]
    assert list(rows) == []
    assert list(tmp_path.iterdir()) == []


def test_a_refresh_that_is_broken_off_leaves_nothing(tmp_path):
    rows = mine_dense(ENCODER, TOY, [example("cat", [TOY[0]])] * 3, MiningConfig(per_question=1, work_folder=tmp_path))
    next(rows)
    rows.close()
    assert list(tmp_path.iterdir()) == []
