"""An example's row: what is written is what is read, and the schema says yes and no where the reader does."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import CorpusError, DocumentError
from mvindex.records import Document
from mvindex_train.data.records import (
    Example,
    article_of,
    content_hash,
    content_id,
    dump_example,
    load_example,
    read_examples,
    write_example,
)

POSITIVE = {"id": "7", "title": "T", "text": "Ada wrote it."}
ROW = {"question_id": "q1", "question": "Who?", "positives": [POSITIVE]}
NEGATIVE = {"id": "9", "text": "Bob.", "score": 1.5, "rank": 3, "source": "bm25"}

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
documents = st.builds(
    lambda name, text, title, notes: Document(f"d{name}", f"x{text}", title, notes),
    st.integers(0, 9),
    words,
    words,
    st.fixed_dictionaries(
        {},
        optional={
            "score": st.floats(allow_nan=False, allow_infinity=False),
            "rank": st.integers(1, 99),
            "source": words,
            "article": words,
        },
    ),
)


@st.composite
def examples(draw):
    positives = tuple(draw(st.lists(documents, min_size=1, max_size=3)))
    negatives = tuple(draw(st.lists(documents, max_size=3)))
    size = len(positives) + len(negatives)
    scores = st.none() | st.floats(allow_nan=False, allow_infinity=False)
    teacher = draw(st.none() | st.lists(scores, min_size=size, max_size=size))
    end = draw(st.integers(1, len(positives[0].text)))
    return Example(
        question_id=f"q{draw(st.integers(0, 99))}",
        question=f"w{draw(words)}",
        positives=positives,
        negatives=negatives,
        answers=tuple(draw(st.lists(words, max_size=2))),
        answer_span=draw(st.none() | st.just((draw(st.integers(0, end - 1)), end))),
        teacher=None if teacher is None else tuple(math.nan if score is None else score for score in teacher),
    )


def same(first, second):
    # NaN differs from itself; its repr does not.
    return repr(first.teacher) == repr(second.teacher) and replace(first, teacher=None) == replace(second, teacher=None)


@given(examples())
def test_an_example_written_and_read_is_the_same(example):
    row = dump_example(example)
    assert row.count(b"\n") == 1
    assert same(load_example(row.decode(), "file:1"), example)


def test_a_file_of_examples_is_read_in_order(tmp_path):
    path = tmp_path / "mined.jsonl"
    given_examples = [Example(f"q{row}", "Who?", (Document("1", "Ada"),)) for row in range(3)]
    with path.open("wb") as file:
        lengths = [write_example(example, file) for example in given_examples]
    assert list(read_examples(str(path))) == given_examples
    assert sum(lengths) == path.stat().st_size


def test_the_row_has_the_fields_that_the_docstring_shows():
    example = Example(
        "q1",
        "Who?",
        (Document("7", "Ada wrote it.", "T"),),
        (Document("9", "Bob.", metadata={"score": 1.5, "rank": 3, "source": "bm25", "year": 1}),),
        ("Ada",),
        (0, 3),
        (0.5, math.nan),
    )
    file = io.BytesIO()
    write_example(example, file)
    assert json.loads(file.getvalue()) == {
        "question_id": "q1",
        "question": "Who?",
        "positive_ids": ["7"],
        "positives": [POSITIVE],
        "negatives": [{**NEGATIVE, "title": ""}],
        "answers": ["Ada"],
        "answer_span": [0, 3],
        "teacher": [0.5, None],
    }


def test_equal_title_and_text_are_one_content_whatever_the_id():
    assert content_hash(Document("1", "b", "a")) == content_hash(Document("2", "b", "a"))
    assert content_hash(Document("1", "b", "a")) != content_hash(Document("1", "ab", ""))
    assert content_id("a", "b") == content_id("a", "b") != content_id("", "ab")


def test_the_article_is_the_title_unless_one_is_named():
    assert article_of(Document("1", "b", "a")) == "a"
    assert article_of(Document("1", "b", "", {"article": "c"})) == "c"
    assert article_of(Document("1", "b")) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positives": ()}, "no positive"),
        ({"question": " \n"}, "expected visible text"),
        ({"question": "a\0"}, "NUL"),
        ({"question_id": ""}, "non-empty id"),
        ({"answer_span": (2, 2)}, r"expected an answer span with 0 <= begin < end <= 3, .* got \[2, 2\]"),
        ({"answer_span": (0, 4)}, "with 0 <= begin < end <= 3"),
        ({"teacher": (1.0, 2.0)}, "expected 1 teacher scores, .* got 2"),
        ({"teacher": (math.inf,)}, "infinite"),
    ],
)
def test_an_example_that_could_not_be_trained_on_is_refused(change, message):
    fields = {"question_id": "q", "question": "Who?", "positives": (Document("1", "Ada"),), **change}
    with pytest.raises(DocumentError, match=message):
        Example(**fields)


GOOD = [
    ROW,
    {**ROW, "question_id": 17},
    {**ROW, "positive_ids": ["7"], "negatives": [NEGATIVE], "answers": ["Ada"]},
    {**ROW, "positive_ids": None, "negatives": None, "answers": None, "answer_span": None, "teacher": None},
    {**ROW, "negatives": [{"id": 9, "title": "only a title", "text": None}], "teacher": [1, None]},
    {**ROW, "answer_span": [0, 13], "extra": 1},
    {**ROW, "positives": [{**POSITIVE, "article": "A", "score": None}]},
]
BAD = [
    ["q1"],
    {name: ROW[name] for name in ("question", "positives")},
    {name: ROW[name] for name in ("question_id", "positives")},
    {name: ROW[name] for name in ("question_id", "question")},
    {**ROW, "question_id": " "},
    {**ROW, "question_id": 1.5},
    {**ROW, "question": None},
    {**ROW, "question": "\n"},
    {**ROW, "positives": []},
    {**ROW, "positives": ["Ada"]},
    {**ROW, "positives": [{"text": "no id"}]},
    {**ROW, "positives": [{"id": "1", "text": "", "title": " "}]},
    {**ROW, "positives": [{"id": "1", "text": "a\0"}]},
    {**ROW, "negatives": {"id": "1", "text": "a"}},
    {**ROW, "negatives": [{**NEGATIVE, "score": "high"}]},
    {**ROW, "negatives": [{**NEGATIVE, "rank": True}]},
    {**ROW, "negatives": [{**NEGATIVE, "source": 3}]},
    {**ROW, "answers": "Ada"},
    {**ROW, "answers": [1]},
    {**ROW, "answer_span": [1]},
    {**ROW, "answer_span": [-1, 2]},
    {**ROW, "answer_span": [0.5, 2]},
    {**ROW, "teacher": ["1"]},
]


@pytest.mark.parametrize("row", GOOD + BAD, ids=lambda row: json.dumps(row)[:70])
def test_schema_and_reader_agree(row):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(__file__).parents[3].joinpath("schemas/records/training_example.schema.json").read_text())
    assert jsonschema.Draft202012Validator(schema).is_valid(row) == is_read(row) == (row in GOOD)


def is_read(row):
    try:
        load_example(json.dumps(row), "file:3")
    except CorpusError as err:
        assert str(err).startswith("file:3: ")
        return False
    return True


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question_id": "q"', r"^f:3: .*invalid JSON"),
        ('{"question_id": NaN}', r"^f:3: .*invalid JSON: NaN"),
        (json.dumps({**ROW, "positive_ids": ["8"]}), r'^f:3: "positive_ids": expected .*\'8\''),
        (
            json.dumps({**ROW, "negatives": [NEGATIVE, {"id": "2"}]}),
            r"^f:3: negatives\[1\]: expected a visible text or title",
        ),
        (json.dumps({**ROW, "teacher": [10**400]}), r"^f:3: .*401 digits"),
        (json.dumps({**ROW, "positives": [{"id": "1", "text": "\ud800"}]}), r"^f:3: positives\[0\]: .*surrogate"),
    ],
)
def test_a_bad_row_is_named_with_its_place(row, message):
    with pytest.raises(CorpusError, match=message):
        load_example(row, "f:3")
