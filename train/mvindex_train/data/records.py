"""Example, a question with what trains on it, and its JSON row.

`mvindex mine` writes such rows, the example store keeps its examples so, and both can be trained on. One object a line,
described by schemas/records/training_example.schema.json:

    {"question_id": "q1", "question": "Who wrote it?",
     "positive_ids": ["7"],
     "positives": [{"id": "7", "title": "A book", "text": "Ada wrote it."}],
     "negatives": [{"id": "9", "title": "", "text": "Bob read it.", "score": 12.5, "rank": 3, "source": "bm25"}],
     "answers": ["Ada"], "answer_span": [0, 3], "teacher": [0.9, null]}

positive_ids: the ids of the positives in order, for tools that need no text; left out, or equal to theirs. Optional
are also negatives, answers, answer_span (characters [begin, end) of the first positive's text) and teacher (one score
a document, positives then negatives; null where unknown). A document may have score (a number, higher is nearer), rank
(from 1), source (who found it) and article (what it is a part of, where that is not its title): in memory they are
entries of Document.metadata under the same names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import xxhash

from mvindex.corpus.streams import read_lines, stream_name
from mvindex.errors import DocumentError
from mvindex.records import Document, Span, has_visible
from mvindex_train.data.entries import Entry, load_entry

ARTICLE = "article"
SOURCE = "source"
NUMBERS = ("score", "rank")
# A row with its texts may be longer than a line of a corpus: a question with 200 negatives of 10,000 characters.
MAX_ROW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Example:
    """A question with what trains on it.

    positives: at least one, the first is the one trained on; negatives: given hard negatives; answers: strings that
    answer it. answer_span: characters of positives[0].text; None: unknown, unfindable or ambiguous. teacher: scores of
    positives + negatives, in that order, NaN where unknown. Raises DocumentError where that does not hold.
    """

    question_id: str
    question: str
    positives: tuple[Document, ...]
    negatives: tuple[Document, ...] = ()
    answers: tuple[str, ...] = ()
    answer_span: Span | None = None
    teacher: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        # A question's id and text obey the rules of a document's.
        Document(self.question_id, self.question)
        if not has_visible(self.question):
            raise DocumentError(f"question {self.question_id!r} is {self.question[:40]!r}; wanted something visible")
        if not self.positives:
            raise DocumentError(f"question {self.question_id!r} has no positive; it needs one")
        _check_span(self.answer_span, self.positives[0], self.question_id)
        _check_teacher(self.teacher, len(self.positives) + len(self.negatives), self.question_id)

    @property
    def documents(self) -> tuple[Document, ...]:
        """Positives, then negatives: the documents that `teacher` speaks of."""
        return self.positives + self.negatives

    def scores(self) -> dict[tuple[str, str], float]:
        """The teacher's known scores by content; of documents that are the same passage, the first one's."""
        if self.teacher is None:
            return {}
        # Backwards, so that the first of equal passages is the one that stays.
        scored = zip(reversed(self.documents), reversed(self.teacher), strict=True)
        return {content_of(document): score for document, score in scored if not math.isnan(score)}


def content_of(document: Document) -> tuple[str, str]:
    """What makes two documents the same passage: title and text, whatever their ids."""
    return document.title, document.text


def distinct(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    """The documents by content, in their order; of those that are the same passage, the first."""
    kept: dict[tuple[str, str], Document] = {}
    for document in documents:
        kept.setdefault(content_of(document), document)
    return kept


def content_hash(document: Document) -> int:
    """A 64-bit hash of title and text; of 20 million passages, two share one with a chance of 1 in 90,000."""
    return hash_text(f"{document.title}\0{document.text}")


def content_id(title: str, text: str) -> str:
    """An id for a passage that has none: 128 bits of its content, so that equal passages have equal ids."""
    return xxhash.xxh3_128_hexdigest(f"{title}\0{text}".encode())


def hash_text(text: str) -> int:
    """A 64-bit hash of the text."""
    return xxhash.xxh3_64_intdigest(text.encode())


def article_of(document: Document) -> str:
    """What the passage is a part of: its metadata's article, else its title; empty where neither is known."""
    return str(document.metadata.get(ARTICLE, document.title))


def write_example(example: Example, file: BinaryIO) -> int:
    """Append the example's row to an open file; returns its length in bytes."""
    return file.write(dump_example(example))


def dump_example(example: Example) -> bytes:
    """The example as one line of JSON, ended by a newline."""
    row: dict[str, Any] = {
        "question_id": example.question_id,
        "question": example.question,
        "positive_ids": [document.id for document in example.positives],
        "positives": [_document_row(document) for document in example.positives],
        "negatives": [_document_row(document) for document in example.negatives],
    }
    if example.answers:
        row["answers"] = example.answers
    if example.answer_span is not None:
        row["answer_span"] = example.answer_span
    if example.teacher is not None:
        row["teacher"] = [None if math.isnan(score) else score for score in example.teacher]
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_examples(path: str) -> Iterator[Example]:
    """The examples of a file of rows, plain or compressed; CorpusError, with file and line, for a row that is none."""
    return (example for _, example in numbered_examples(path))


def numbered_examples(path: str) -> Iterator[tuple[int, Example]]:
    """As read_examples(), each with the number of its line."""
    name = stream_name(path)
    for number, line in read_lines(path, MAX_ROW_BYTES):
        if line.strip():
            yield number, load_example(line, f"{name}:{number}")


def load_example(line: str, place: str) -> Example:
    """The example that a row holds; CorpusError, which begins with the place, when it holds none."""
    return example_of(load_entry(line, place))


def example_of(entry: Entry) -> Example:
    """The example that an object in our own format holds; CorpusError with its place when it holds none."""
    positives = tuple(document_of(document) for document in entry.entries("positives"))
    ids = entry.ids("positive_ids")
    if ids is not None and list(ids) != [document.id for document in positives]:
        raise entry.error(f'"positive_ids" is {ids}; wanted the ids of "positives" in their order, or no such field')
    with entry.located():
        return Example(
            question_id=entry.id("question_id"),
            question=entry.string("question"),
            positives=positives,
            negatives=tuple(document_of(document) for document in entry.entries("negatives", optional=True)),
            answers=entry.strings("answers"),
            answer_span=_read_span(entry),
            teacher=entry.numbers("teacher"),
        )


def document_of(entry: Entry) -> Document:
    """The document that one entry of positives or negatives holds; CorpusError with its place when it holds none."""
    notes = {name: entry.fields[name] for name in (*NUMBERS, SOURCE, ARTICLE) if entry.fields.get(name) is not None}
    for name, value in notes.items():
        if name in NUMBERS and not _is_number(value):
            raise entry.error(f'"{name}" is {value!r:.60}; wanted a finite number')
        if name not in NUMBERS and not isinstance(value, str):
            raise entry.error(f'"{name}" is {value!r:.60}; wanted a string')
    with entry.located():
        document = Document(entry.id("id"), entry.text("text"), entry.text("title"), notes)
    if not (has_visible(document.text) or has_visible(document.title)):
        raise entry.error("text and title are both empty; one of them must say something")
    return document


def _document_row(document: Document) -> dict[str, Any]:
    notes = {name: document.metadata[name] for name in (*NUMBERS, SOURCE, ARTICLE) if name in document.metadata}
    return {"id": document.id, "title": document.title, "text": document.text, **notes}


def _read_span(entry: Entry) -> Span | None:
    value = entry.fields.get("answer_span")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(end) is int for end in value):
        raise entry.error(f'"answer_span" is {value!r:.60}; wanted two whole numbers, [begin, end]')
    return value[0], value[1]


def _check_span(span: Span | None, document: Document, question_id: str) -> None:
    if span is not None and not 0 <= span[0] < span[1] <= len(document.text):
        raise DocumentError(
            f"question {question_id!r}: the answer span is {list(span)}; wanted 0 <= begin < end <= "
            f"{len(document.text)}, the length of the text of {document.id!r}"
        )


def _check_teacher(teacher: tuple[float, ...] | None, num_documents: int, question_id: str) -> None:
    if teacher is None:
        return
    if len(teacher) != num_documents:
        raise DocumentError(
            f"question {question_id!r} has {len(teacher)} teacher scores; wanted {num_documents}, one for "
            "each positive and each negative"
        )
    if any(math.isinf(score) for score in teacher):
        raise DocumentError(f"question {question_id!r} has an infinite teacher score; wanted finite ones")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
