"""The store of examples: what goes in comes out by row, whatever interrupts a write, in bounded memory."""

import json
from pathlib import Path

import numpy as np
import pytest

from mvindex.errors import CorpusError, DamagedIndex, StoreError
from mvindex.records import Document
from mvindex_train.data.context import DocumentLookup
from mvindex_train.data.records import Example
from mvindex_train.data.store import ExampleStore, JoinReport, group_examples, join_negatives


def example(number, text="Text", title="", **fields):
    return Example(f"q{number}", f"Question {number}?", (Document(f"p{number}", text, title),), **fields)


EXAMPLES = [example(0, "A", "T"), example(1, "\u00e9\u2028\U0001f600"), example(2, "A", "T"), example(3, "B", "T")]


def test_every_row_is_what_was_written(tmp_path):
    store = ExampleStore.write(tmp_path / "run", iter(EXAMPLES))
    assert len(store) == 4
    assert [store[row] for row in (3, 0, 2, 1)] == [EXAMPLES[row] for row in (3, 0, 2, 1)]
    assert list(ExampleStore.open(tmp_path / "run")) == EXAMPLES
    for row in (-1, 4):
        with pytest.raises(IndexError):
            store[row]


def test_more_examples_than_are_indexed_at_once(tmp_path):
    store = ExampleStore.write(tmp_path, (example(number, f"Text {number}") for number in range(4100)))
    assert len(store) == 4100
    assert [store[row].question_id for row in (0, 4095, 4096, 4099)] == ["q0", "q4095", "q4096", "q4099"]
    assert next(tmp_path.glob("*.index")).stat().st_size == 32 * 4100


def test_equal_passages_and_articles_have_equal_hashes_whatever_their_ids(tmp_path):
    store = ExampleStore.write(tmp_path, EXAMPLES)
    assert store.passages[0] == store.passages[2] != store.passages[3]
    assert store.articles[0] == store.articles[2] == store.articles[3]
    assert store.articles[1] == store.passages[1]


def test_the_fingerprint_is_of_the_content(tmp_path):
    first, again = (ExampleStore.write(tmp_path / name, EXAMPLES) for name in "ab")
    other = ExampleStore.write(tmp_path / "c", EXAMPLES[::-1])
    assert first.fingerprint == again.fingerprint != other.fingerprint
    first.verify()


def test_an_interrupted_write_leaves_the_store_of_before(tmp_path):
    def interrupted():
        yield example(8)
        raise KeyboardInterrupt

    ExampleStore.write(tmp_path, EXAMPLES)
    with pytest.raises(KeyboardInterrupt):
        ExampleStore.write(tmp_path, interrupted())
    assert list(ExampleStore.open(tmp_path)) == EXAMPLES


@pytest.mark.parametrize("last_rename", [1, 2, 3])
def test_a_write_killed_at_any_rename_leaves_one_whole_store(tmp_path, monkeypatch, last_rename):
    ExampleStore.write(tmp_path, EXAMPLES)
    renames, real = [], Path.replace

    def rename(source, target):
        renames.append(target)
        if len(renames) == last_rename:
            raise KeyboardInterrupt
        return real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", rename)
        with pytest.raises(KeyboardInterrupt):
            ExampleStore.write(tmp_path, EXAMPLES[:2])
    assert list(ExampleStore.open(tmp_path)) == EXAMPLES
    assert list(ExampleStore.write(tmp_path, EXAMPLES[:2])) == EXAMPLES[:2]


def test_a_new_content_takes_the_place_of_the_old(tmp_path):
    ExampleStore.write(tmp_path, EXAMPLES)
    store = ExampleStore.write(tmp_path, EXAMPLES[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"examples-{store.fingerprint}.index",
        f"examples-{store.fingerprint}.jsonl",
        "examples.json",
    ]


def test_no_example_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="one example or more to write"):
        ExampleStore.write(tmp_path, [])
    with pytest.raises(StoreError, match=r"examples\.json: no such file"):
        ExampleStore.open(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        ExampleStore.write(tmp_path / "file" / "run", EXAMPLES)


def test_damage_is_found(tmp_path):
    store = ExampleStore.write(tmp_path, EXAMPLES)
    rows = tmp_path / f"examples-{store.fingerprint}.jsonl"
    content = rows.read_bytes()
    rows.write_bytes(content.replace(b'"A"', b'"C"', 1))
    with pytest.raises(DamagedIndex, match="Write the examples again"):
        ExampleStore.open(tmp_path).verify()
    rows.write_bytes(b"x" + content[1:])
    with pytest.raises(DamagedIndex, match=r"jsonl:1: the example was changed"):
        ExampleStore.open(tmp_path)[0]
    rows.write_bytes(content[:-1])
    with pytest.raises(DamagedIndex, match=f"expected {len(content)} bytes, got {len(content) - 1}"):
        ExampleStore.open(tmp_path)


@pytest.mark.parametrize(
    ("header", "error"), [("{", DamagedIndex), ("[]", StoreError), (json.dumps({"format_version": 2}), StoreError)]
)
def test_a_header_that_is_none_is_refused(tmp_path, header, error):
    (tmp_path / "examples.json").write_text(header)
    with pytest.raises(error, match=r"examples\.json"):
        ExampleStore.open(tmp_path)


def test_a_question_is_found_by_id_and_text(tmp_path):
    store = ExampleStore.write(tmp_path, [*EXAMPLES, example(1, "later")])
    assert [store.row_of(f"q{n}", f"Question {n}?") for n in range(4)] == [0, 1, 2, 3]
    assert store.row_of("q0", "Question 1?") is None
    assert store.row_of("q9", "Question 9?") is None


def test_groups_number_passages_and_articles_as_they_appear():
    passages = np.array([9, 4, 9, 7, 4], np.uint64)
    articles = np.array([2, 1, 2, 2, 1], np.uint64)
    groups = group_examples(passages, articles)
    assert groups.rows.tolist() == [0, 2, 1, 4, 3]
    assert groups.starts.tolist() == [0, 2, 4, 5]
    assert groups.articles.tolist() == [0, 1, 0]


def test_mined_negatives_join_the_example_with_their_question(tmp_path):
    hard, own, positive = Document("h", "hard"), Document("o", "own"), Document("p0", "A", "T")
    mined = ExampleStore.write(
        tmp_path,
        [
            Example(
                "q0",
                "Question 0?",
                (Document("other id", "A", "T"), Document("x", "also right")),
                (hard, Document("o2", "own"), positive, Document("x2", "also right"), Document("h2", "hard")),
                teacher=(9.0, 8.0, 1.0, 2.0, 9.0, 8.0, 1.0),
            )
        ],
    )
    report = JoinReport()
    given = [example(0, "A", "T", negatives=(own,), teacher=(7.0, float("nan"))), example(1)]
    joined = list(join_negatives(given, mined, report))
    assert joined[0].negatives == (own, hard)
    assert joined[0].teacher == (7.0, 2.0, 1.0)
    assert joined[1] == given[1]
    assert (report.joined, report.unmatched) == (1, 1)


def test_documents_are_found_by_id():
    documents = [Document(str(number), f"Text {number}", "T") for number in range(50)]
    with DocumentLookup([*documents, documents[3]], "corpus") as file:
        assert [file.find(str(number)) for number in range(50)] == documents
        assert file.find("50") is None
        with pytest.raises(CorpusError, match="f:1: expected the id of a row of corpus, got '50'"):
            file.get("50", "f:1")
