"""Mined negatives against plain slow code: what is removed and counted, sampled, judged and merged."""

import gzip
import math
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.data.records import Example, dump_example
from mvindex_train.negatives.candidates import Candidate, EarlierFile
from mvindex_train.negatives.config import MiningConfig, MiningJob, SourceKind
from mvindex_train.negatives.miner import Miner
from tests.helpers.mining_examples import POSITIVE, example, ids


class Listed:
    """A source of the same documents for every question, in a given order."""

    def __init__(self, documents, name="listed"):
        self._documents, self._name = documents, name

    def search(self, questions, depth):
        ranked = [
            Candidate(document, 1 / rank, rank, self._name) for rank, document in enumerate(self._documents[:depth], 1)
        ]
        return [ranked for _ in questions]


class LengthJudge:
    """Scores a document by the length of its text."""

    def score(self, pairs):
        return [float(len(document.text)) for _, document in pairs]


def mine(examples, sources, *, judge=None, earlier=None, **config):
    miner = Miner(sources, MiningConfig(**config), judge, earlier)
    return list(miner.mine(examples)), miner.counts


def test_mining_removes_and_counts_by_reason():
    documents = [
        Document("p", "the positive"), Document("copy", "the positive"), Document("a", "holds the answer here"),
        Document("b", "one"), Document("c", "two"), Document("d", "three"),
    ]  # fmt: skip
    asked = [example(answers=["answer"]), example(question_id="r")]
    rows, counts = mine(asked, [Listed(documents)], per_question=3, depth=6)
    assert [ids(row.negatives) for row in rows] == [["b", "c", "d"], ["a", "b", "c"]]
    assert [document.metadata["rank"] for document in rows[0].negatives] == [4, 5, 6]
    assert counts == {
        "questions": 2, "removed_positive": 4, "removed_answer": 1, "too_few": 0, "without_answers": 1, "negatives": 6,
    }  # fmt: skip


def test_mined_negatives_take_the_place_of_given_ones_and_too_few_is_counted():
    given_one = Example("q", "what?", (Document("p", "x"),), (Document("old", "y"),), teacher=(1.0, 0.5))
    (row,), counts = mine([given_one], [Listed([Document("n", "z")])], per_question=2, depth=2)
    assert (ids(row.negatives), row.teacher, counts["too_few"]) == (["n"], None, 1)


def test_the_first_ranks_can_be_skipped():
    documents = [Document(str(row), "x") for row in range(1, 9)]
    (row,), _ = mine([example()], [Listed(documents)], per_question=2, depth=6, skip_top=3)
    assert ids(row.negatives) == ["4", "5"]


def test_samples_come_from_all_ranks_alike_and_from_the_seed():
    documents = [Document(str(row), "x") for row in range(20)]
    asked = [example(question_id=str(number)) for number in range(1000)]
    how = {"per_question": 5, "depth": 20, "skip_top": 10, "sample": True}
    rows, _ = mine(asked, [Listed(documents)], seed=1, **how)
    drawn = Counter(doc_id for row in rows for doc_id in ids(row.negatives))
    assert set(drawn) == {str(row) for row in range(10, 20)}
    # 1,000 questions draw 5 of 10: 500 each, with a standard deviation of 16.
    assert all(abs(count - 500) < 5 * 16 for count in drawn.values())
    alone, _ = mine(asked[700:701], [Listed(documents)], seed=1, **how)
    assert alone == rows[700:701]
    assert mine(asked, [Listed(documents)], seed=2, **how)[0] != rows


@given(num_questions=st.integers(0, 9), batch=st.integers(1, 4))
def test_batches_do_not_change_what_is_mined(num_questions, batch):
    documents = [Document(str(row), "x" * row) for row in range(1, 9)]
    asked = [example(question_id=str(number)) for number in range(num_questions)]
    how = {"per_question": 3, "depth": 8, "sample": True, "keep_below": 4.0, "judge": LengthJudge()}
    assert mine(asked, [Listed(documents)], batch_questions=batch, **how) == mine(asked, [Listed(documents)], **how)


def test_candidates_above_the_limit_give_way_to_the_next_ones():
    lengths = [9, 2, 8, 3, 7, 5, 6]
    documents = [Document(str(length), "x" * length) for length in lengths]
    how = {"per_question": 3, "depth": 7, "keep_below": 5.0, "judge": LengthJudge()}
    (row,), counts = mine([example()], [Listed(documents)], **how)
    assert ids(row.negatives) == ["2", "3", "5"]
    # 9, 2, 8 are tried first, then 3, 7, then 5.
    assert (counts["removed_cross_encoder"], counts["too_few"]) == (3, 0)
    (row,), counts = mine([example()], [Listed(documents)], **how | {"keep_below": 2.0})
    assert (ids(row.negatives), counts["removed_cross_encoder"], counts["too_few"]) == (["2"], 6, 1)


def test_a_teacher_scores_positives_then_negatives_earlier_ones_too(tmp_path):
    earlier = Example(
        "q", "what?", (Document("p", "x"),), (Candidate(Document("e", "y" * 7), 3.0, 2, "bm25").to_document(),)
    )
    path = tmp_path / "earlier.jsonl"
    path.write_bytes(dump_example(earlier))
    file = EarlierFile(str(path))
    sources = [Listed([Document("n", "z" * 4)], "dense")]
    positives = (Document("p", "x"), Document("p2", "xx"))
    asked = [example(positives=positives)]
    (row,), counts = mine(asked, sources, per_question=1, depth=1, teacher=True, judge=LengthJudge(), earlier=file)
    file.close()
    assert [(d.id, d.metadata["source"]) for d in row.negatives] == [("n", "dense"), ("e", "bm25")]
    assert (row.teacher, counts["merged"]) == ((1.0, 2.0, 4.0, 7.0), 1)


def test_merging_joins_rows_of_a_question_and_names_a_wrong_line(tmp_path):
    path = tmp_path / "earlier.jsonl"
    rows = [
        Example("q", "what?", (Document("p", "x"),), (Document(doc_id, "y", metadata={"source": "bm25"}),))
        for doc_id in "abb"
    ]
    other = Example("r", "who?", (Document("p", "x"),))
    path.write_bytes(b"\n".join([b"", *map(dump_example, [*rows, other])]))
    file = EarlierFile(str(path))
    sources = [Listed([Document("b", "y")], "dense")]
    (row, unknown), counts = mine([example(), example(question_id="s")], sources, per_question=1, depth=1, earlier=file)
    assert [(d.id, d.metadata["source"]) for d in row.negatives] == [("b", "dense+bm25"), ("a", "bm25")]
    assert (ids(unknown.negatives), counts["merged"]) == (["b"], 1)
    with pytest.raises(CorpusError, match=r"earlier\.jsonl:8: question 'r': expected 'what\?', got 'who\?'"):
        mine([example(question_id="r")], sources, per_question=1, depth=1, earlier=file)
    file.close()
    path.write_text('{"question": "what?"}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r'earlier\.jsonl:1: expected "positives"'):
        EarlierFile(str(path))


def test_an_earlier_file_may_be_compressed(tmp_path):
    path = tmp_path / "earlier.jsonl.gz"
    rows = [Example("q", "what?", (POSITIVE,), (Document(doc_id, "y"),)) for doc_id in "ab"]
    path.write_bytes(gzip.compress(b"".join(map(dump_example, rows))))
    with closing(EarlierFile(str(path))) as file:
        assert [candidate.document.id for candidate in file.negatives_of(example())] == ["a", "b"]
        assert file.negatives_of(example(question_id="s")) == []
    with pytest.raises(CorpusError, match=r"none\.jsonl: cannot be read: No such file"):
        EarlierFile(str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"per_question": 0}, "per_question: expected 1 or more"),
        ({"skip_top": -1}, "skip_top: expected 0 or more, got -1"),
        ({"depth": 30, "skip_top": 5}, "got 25 at depth 30"),
        ({"keep_below": math.nan}, "keep_below: expected a finite score, got nan"),
    ],
)
def test_settings_that_cannot_be_are_named(config, message):
    with pytest.raises(ConfigError, match=message):
        MiningConfig(**config)


def test_a_judge_is_needed_for_what_only_it_can_do():
    with pytest.raises(ConfigError, match="expected a cross-encoder"):
        Miner([], MiningConfig(teacher=True))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({}, "expected documents to mine"),
        ({"passages": "p", "source": SourceKind.BOTH}, "expected --encoder without an index"),
        ({"passages": "p", "encoder": "minilm"}, "expected --source dense or both"),
        ({"passages": "p", "cross_encoder": "c"}, "expected --cross-encoder together"),
        ({"passages": "p", "config": MiningConfig(teacher=True)}, "expected --cross-encoder together"),
    ],
)
def test_a_job_that_cannot_be_is_refused(tmp_path, job, message):
    with pytest.raises(ConfigError, match=message):
        MiningJob(questions=("q",), out=tmp_path / "out", **job)
