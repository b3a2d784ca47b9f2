"""Mining of negatives: candidates united and filtered, dense ranking, output that can be resumed."""

from collections import Counter

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.records import Document
from mvindex_train.data.records import Example, dump_example, load_example
from mvindex_train.negatives.candidates import (
    Candidate,
    CandidateFilter,
    candidate_of,
    interleave,
    is_positive,
    merge_duplicates,
)
from mvindex_train.negatives.config import MiningConfig
from mvindex_train.negatives.miner import DenseSource, mine_dense
from mvindex_train.negatives.output import ResumableOutput
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


class TestResumableOutput:
    """A part, its state, and what may go on with it."""

    SETTINGS = {"seed": 0, "depth": 200}

    def begin(self, path, num_batches, settings=SETTINGS, **options):
        """Write so many batches and stop as if killed: without an end."""
        with ResumableOutput(path, settings, **options) as output:
            first = output.finished
            for number in range(first, num_batches):
                output.add([b"%d\n" % number], 1, {"negatives": number + 1})
            return first, dict(output.counts)

    def test_goes_on_after_the_last_batch_and_drops_what_follows_it(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with (tmp_path / "out.jsonl.part").open("ab") as file:
            file.write(b"half a li")
        assert self.begin(path, 3) == (2, {"negatives": 3})
        assert (tmp_path / "out.jsonl.part").read_bytes() == b"0\n1\n2\n"

    def test_the_end_leaves_the_file_alone(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS) as output:
            output.work_folder.mkdir()
            output.add([b"row\n"], 1, {})
            output.finish()
        assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]
        assert path.read_bytes() == b"row\n"

    def test_other_settings_are_named_and_force_begins_anew(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with pytest.raises(ConfigError, match="expected a run with depth 100, got 200. .*--force"):
            self.begin(path, 3, {"seed": 0, "depth": 100})
        assert self.begin(path, 2) == (2, {"negatives": 2})
        assert self.begin(path, 1, {"seed": 0, "depth": 100}, force=True) == (0, {"negatives": 1})

    def test_force_goes_on_with_equal_settings(self, tmp_path):
        self.begin(tmp_path / "out.jsonl", 2)
        assert self.begin(tmp_path / "out.jsonl", 2, force=True) == (2, {"negatives": 2})

    def test_an_output_or_a_foreign_part_is_not_overwritten(self, tmp_path):
        path, part = tmp_path / "out.jsonl", tmp_path / "other.jsonl.part"
        path.write_text("mine", encoding="utf-8")
        part.write_text("someone's", encoding="utf-8")
        with pytest.raises(ConfigError, match="exists already. Choose another name"):
            self.begin(path, 1)
        with pytest.raises(ConfigError, match="is not its state"):
            self.begin(tmp_path / "other.jsonl", 1)
        assert (path.read_text(encoding="utf-8"), part.read_text(encoding="utf-8")) == ("mine", "someone's")

    def test_two_writers_exclude_each_other(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS), pytest.raises(ConfigError, match="another process is writing"):
            self.begin(path, 1)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match="nowhere.*cannot be written"):
            self.begin(tmp_path / "nowhere" / "out.jsonl", 1)
