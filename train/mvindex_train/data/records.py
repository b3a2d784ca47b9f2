"""Example, a question with its positives and negatives, and its JSON row.

`mvindex mine` writes such rows, and the example store uses them. One object a line, described by
schemas/records/training_example.schema.json:

    {"question_id": "q1", "question": "Who wrote it?",
     "positive_ids": ["7"],
     "positives": [{"id": "7", "title": "A book", "text": "Ada wrote it."}],
     "negatives": [{"id": "9", "title": "", "text": "Bob read it.", "score": 12.5, "rank": 3, "source": "bm25"}],
     "answers": ["Ada"], "answer_span": [0, 3], "teacher": [0.9, null]}

positive_ids: the ids of the positives in order, for tools that need no text; optional, and checked. Optional are
also negatives, answers, answer_span (characters [begin, end) of the first positive's text) and teacher (one score
a document, positives then negatives; null where unknown). A document may have score (a number, higher is nearer), rank
(from 1), source (which miner found it) and article (which it is a part of, where that is not its title): in memory
they are entries of Document.metadata under the same names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import xxhash

from mvindex.corpus.inputs import read_lines, stream_name
from mvindex.corpus.rows import MAX_ROW_BYTES
from mvindex.errors import DocumentError
from mvindex.records import Document, Span, has_visible
from mvindex_train.data.entries import Entry, load_entry

ARTICLE = "article"
SOURCE = "source"
NUMBERS = ("score", "rank")


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its positives and negatives.

    positives: at least one; the first is trained on. negatives: hard negatives. answers: strings that answer the
    question. answer_span: characters of positives[0].text; None: unknown, not found or ambiguous. teacher: scores of
    positives + negatives, in that order, NaN where unknown. Raises DocumentError for other values.
    """

    question_id: str
    question: str
    positives: tuple[Document, ...]
    negatives: tuple[Document, ...] = ()
    answers: tuple[str, ...] = ()
    answer_span: Span | None = None
    teacher: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        # The id and text of a question follow the same rules as those of a document.
        Document(self.question_id, self.question)
        if not has_visible(self.question):
            raise DocumentError(f"question {self.question_id!r}: expected visible text, got {self.question[:40]!r}")
        if not self.positives:
            raise DocumentError(f"question {self.question_id!r}: expected a positive or more, got no positive")
        _check_span(self.answer_span, self.positives[0], self.question_id)
        _check_teacher(self.teacher, len(self.positives) + len(self.negatives), self.question_id)

    @property
    def documents(self) -> tuple[Document, ...]:
        """Positives, then negatives: the order of `teacher`."""
        return self.positives + self.negatives

    def scores(self) -> dict[tuple[str, str], float]:
        """Return the teacher's known scores by content; of documents with the same content, that of the first."""
        if self.teacher is None:
            return {}
        # Reversed, so that the first of equal passages wins.
        scored = zip(reversed(self.documents), reversed(self.teacher), strict=True)
        return {content_key(document): score for document, score in scored if not math.isnan(score)}


def content_key(document: Document) -> tuple[str, str]:
    """Return title and text, by which two documents are the same passage whatever their ids."""
    return document.title, document.text


def unique_documents(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    """Return the documents by content, in order; of documents with the same content, the first."""
    unique: dict[tuple[str, str], Document] = {}
    for document in documents:
        unique.setdefault(content_key(document), document)
    return unique


def content_hash(document: Document) -> int:
    """Return a 64-bit hash of title and text; 20 million passages collide with a probability of 1 in 90,000."""
    return hash_text(f"{document.title}\0{document.text}")


def content_id(title: str, text: str) -> str:
    """Return an id for a passage without one: a 128-bit hash, so that equal passages have equal ids."""
    return xxhash.xxh3_128_hexdigest(f"{title}\0{text}".encode())


def hash_text(text: str) -> int:
    """Return a 64-bit hash of the text."""
    return xxhash.xxh3_64_intdigest(text.encode())


def article_of(document: Document) -> str:
    """Return the article of a passage: that of its metadata, else its title; empty where neither is known."""
    return str(document.metadata.get(ARTICLE, document.title))


def write_example(example: Example, file: BinaryIO) -> int:
    """Append the example's row to an open file; return its length in bytes."""
    return file.write(dump_example(example))


def dump_example(example: Example) -> bytes:
    """Return the example as one line of JSON with a newline."""
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
    """Yield the examples of a file of rows, plain or compressed; raise CorpusError with file and line for a bad row."""
    return (example for _, example in read_numbered_examples(path))


def read_numbered_examples(path: str) -> Iterator[tuple[int, Example]]:
    """Yield the same examples as read_examples(), each with its line number."""
    name = stream_name(path)
    for number, line in read_lines(path, MAX_ROW_BYTES):
        if line.strip():
            yield number, load_example(line, f"{name}:{number}")


def load_example(line: str, place: str) -> Example:
    """Return the example of a row; raise CorpusError, which begins with the place, for an invalid one."""
    return example_of(load_entry(line, place))


def example_of(entry: Entry) -> Example:
    """Return the example of an object in our own format; raise CorpusError with its place for an invalid one."""
    positives = tuple(document_of(document) for document in entry.entries("positives"))
    ids = entry.ids("positive_ids")
    if ids is not None and list(ids) != [document.id for document in positives]:
        raise entry.error(f'"positive_ids": expected the ids of "positives" in order, or no such field, got {ids}')
    with entry.prefix_errors():
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
    """Return the document of an entry of positives or negatives; raise CorpusError with its place for a bad one."""
    metadata = {name: entry.fields[name] for name in (*NUMBERS, SOURCE, ARTICLE) if entry.fields.get(name) is not None}
    for name, value in metadata.items():
        if name in NUMBERS and not _is_number(value):
            raise entry.error(f'"{name}": expected a finite number, got {value!r:.60}')
        if name not in NUMBERS and not isinstance(value, str):
            raise entry.error(f'"{name}": expected a string, got {value!r:.60}')
    with entry.prefix_errors():
        document = Document(entry.id("id"), entry.text("text"), entry.text("title"), metadata)
    if not (has_visible(document.text) or has_visible(document.title)):
        raise entry.error("expected a visible text or title, got neither")
    return document


def _document_row(document: Document) -> dict[str, Any]:
    metadata = {name: document.metadata[name] for name in (*NUMBERS, SOURCE, ARTICLE) if name in document.metadata}
    return {"id": document.id, "title": document.title, "text": document.text, **metadata}


def _read_span(entry: Entry) -> Span | None:
    value = entry.fields.get("answer_span")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(end) is int for end in value):
        raise entry.error(f'"answer_span": expected two whole numbers, [begin, end], got {value!r:.60}')
    return value[0], value[1]


def _check_span(span: Span | None, document: Document, question_id: str) -> None:
    if span is not None and not 0 <= span[0] < span[1] <= len(document.text):
        raise DocumentError(
            f"question {question_id!r}: expected an answer span with 0 <= begin < end <= {len(document.text)}, the "
            f"length "
            f"of the text of {document.id!r}, got {list(span)}"
        )


def _check_teacher(teacher: tuple[float, ...] | None, num_documents: int, question_id: str) -> None:
    if teacher is None:
        return
    if len(teacher) != num_documents:
        raise DocumentError(
            f"question {question_id!r}: expected {num_documents} teacher scores, one for each positive and "
            f"negative, got "
            f"{len(teacher)}"
        )
    if any(math.isinf(score) for score in teacher):
        raise DocumentError(f"question {question_id!r}: expected finite teacher scores, got an infinite one")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
