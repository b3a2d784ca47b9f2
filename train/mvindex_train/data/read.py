"""Training data in any supported format -> one stream of examples with their answer spans.

The format is detected from the content. An answer is found by DPR's normalised match, as character offsets of the text.
"""

from __future__ import annotations

import enum
import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mvindex.corpus.inputs import stream_name
from mvindex.errors import CorpusError
from mvindex.measure.metrics import TOKEN, TokenText, tokenize
from mvindex.records import Document, Ints, Span, has_visible
from mvindex_train.data.context import ReadContext
from mvindex_train.data.entries import first_object_keys, peek
from mvindex_train.data.formats import (
    is_beir,
    read_beir,
    read_dpr,
    read_pairs,
    read_question_file,
    read_squad,
    read_tevatron,
    read_triple_ids,
    read_triples,
)
from mvindex_train.data.options import ReadCount, ReadOptions, ReadReport, TrainingFormat
from mvindex_train.data.records import ARTICLE, Example, read_examples


class LocateStatus(enum.Enum):
    """The outcome of locating an answer; each is counted in a report."""

    FOUND = ReadCount.SPAN_FOUND
    UNFINDABLE = ReadCount.SPAN_UNFINDABLE
    AMBIGUOUS = ReadCount.SPAN_AMBIGUOUS
    NO_ANSWERS = ReadCount.NO_ANSWERS


@dataclass(frozen=True, slots=True)
class AnswerLocation:
    """The span [begin, end) of an answer in a text, None unless it was found once."""

    span: Span | None
    status: LocateStatus


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """The normalised tokens of a text, and the span [begin, end) of each in the original text, (t, 2)."""

    text: TokenText
    spans: Ints


def locate_answer(text: str, answers: Sequence[str]) -> AnswerLocation:
    """Return the only span in the text that matches an answer.

    Matched like mvindex.measure.metrics: NFD, DPR's tokens, lower case, the answer's tokens in sequence. Overlapping
    matches count as one, such as `the Eiffel Tower` and `Eiffel Tower`; the span is then that of the answer listed
    first. Two matches that do not overlap, of one answer or of two, are ambiguous.
    """
    if not answers:
        return AnswerLocation(None, LocateStatus.NO_ANSWERS)
    tokens = _tokens(text)
    matches = [match for answer in answers for match in _matches(tokens, tokenize(answer))]
    if not matches:
        return AnswerLocation(None, LocateStatus.UNFINDABLE)
    if not _is_one_place(matches):
        return AnswerLocation(None, LocateStatus.AMBIGUOUS)
    return AnswerLocation(matches[0], LocateStatus.FOUND)


def add_answer_span(example: Example, report: ReadReport) -> Example:
    """Return the example with its answer span, located in the first positive's text unless given; count the outcome."""
    if example.answer_span is not None:
        report.add(ReadCount.SPAN_GIVEN)
        return example
    location = locate_answer(example.positives[0].text, example.answers)
    report.add(location.status.value)
    return example if location.span is None else replace(example, answer_span=location.span)


# Questions on the same passage are mostly consecutive.
@lru_cache(maxsize=64)
def _tokens(text: str) -> _Tokens:
    normalised = unicodedata.normalize("NFD", text)
    spans = np.array([token.span() for token in TOKEN.finditer(normalised)], np.int64).reshape(-1, 2)
    if normalised != text:
        spans = _spans_of_original(text, spans)
    return _Tokens(tokenize(text), spans)


def _spans_of_original(text: str, spans: Ints) -> Ints:
    """Map spans (t, 2) of the normalised text to spans of the original.

    Normalisation reorders only the marks of one letter, and a token never ends between two marks: counting the
    characters that each original character decomposes into is enough.
    """
    ends = np.cumsum([1 if char.isascii() else len(unicodedata.normalize("NFD", char)) for char in text])
    first = np.searchsorted(ends, spans[:, 0], side="right")
    last = np.searchsorted(ends, spans[:, 1] - 1, side="right")
    return np.stack([first, last + 1], axis=1)


def _matches(tokens: _Tokens, answer: TokenText) -> Iterator[Span]:
    """Yield the span of each sequence of tokens equal to the answer's, overlapping ones included."""
    num_tokens = answer.count(" ") - 1
    if num_tokens < 1:
        return
    begin = tokens.text.find(answer)
    while begin >= 0:
        # Tokens are separated by single spaces: the spaces before a match count the tokens before it.
        first = tokens.text.count(" ", 0, begin)
        yield int(tokens.spans[first, 0]), int(tokens.spans[first + num_tokens - 1, 1])
        begin = tokens.text.find(answer, begin + 1)


def _is_one_place(matches: Sequence[Span]) -> bool:
    reached = -1
    for begin, end in sorted(matches):
        if reached >= 0 and begin >= reached:
            return False
        reached = max(reached, end)
    return True


# Keys that identify a format of JSON objects, the most specific first.
FORMAT_KEYS = (
    ({"data"}, TrainingFormat.SQUAD),
    ({"positive_ctxs"}, TrainingFormat.DPR),
    ({"positive_passages"}, TrainingFormat.TEVATRON),
    ({"question_id", "positives"}, TrainingFormat.EXAMPLES),
    ({"passage", "question"}, TrainingFormat.PAIRS),
    ({"passage_id", "question"}, TrainingFormat.QUESTIONS),
    ({"passage_id", "text"}, TrainingFormat.QUESTIONS),
)


def detect(path: str) -> TrainingFormat:
    """Return the format of a file or folder.

    A folder is BEIR's; a JSON array is DPR's; other JSON is recognised by the keys of its first object; three columns
    are triples, of ids where no cell of the first line contains a space.

    Raises:
        CorpusError: The content is in none of these formats; the message says what it contains.

    """
    if is_beir(path):
        return TrainingFormat.BEIR
    if os.path.isdir(path):
        raise CorpusError(f"{path}: expected a BEIR folder, got a folder without corpus.jsonl. Name a file in it")
    start = peek(path)
    if not start:
        raise CorpusError(f"{stream_name(path)}: expected training data, got an empty file")
    if start[:1] == b"[":
        return TrainingFormat.DPR
    return _detect_object(path) if start[:1] == b"{" else _detect_columns(path, start)


def _detect_object(path: str) -> TrainingFormat:
    keys = first_object_keys(path)
    for required, format in FORMAT_KEYS:
        if required <= set(keys):
            return format
    raise CorpusError(
        f'{stream_name(path)}: expected the fields of SQuAD ("data"), DPR ("positive_ctxs"), Tevatron '
        '("positive_passages"), of pairs ("passage" and "question") or of questions ("question" and "passage_id"), '
        f"got {', '.join(keys) or 'none'} in the first object"
    )


def _detect_columns(path: str, start: bytes) -> TrainingFormat:
    cells = start.split(b"\n", 1)[0].strip(b"\r").split(b"\t")
    if len(cells) != 3:
        raise CorpusError(
            f"{stream_name(path)}: expected JSON, or three columns separated by tabs, "
            f"`query<TAB>positive<TAB>negative`; got {len(cells)} columns, {start[:40].decode(errors='replace')!r}"
        )
    has_space = any(len(cell.split()) > 1 for cell in cells)
    return TrainingFormat.TRIPLES if has_space else TrainingFormat.TRIPLE_IDS


def read_training(
    paths: Sequence[str], options: ReadOptions | None = None, report: ReadReport | None = None
) -> Iterator[Example]:
    """Yield the examples of the files in order, each with its answer span where one is found.

    A question without an id takes its number among those without one, so that the same files in the same order give
    the same ids.

    Args:
        paths: Files or folders of training data.
        options: How to read them; None takes the defaults.
        report: Filled while the examples are read.

    Raises:
        CorpusError: A row is invalid, or a file yields no example; the message names file and line or entry.
        ConfigError: A file contains ids, and the passages that they refer to are not given.

    """
    options, report = options or ReadOptions(), report or ReadReport()
    with ExitStack() as resources:
        context = ReadContext(options, report, resources)
        for path in paths:
            yield from _read_file(path, context)


def _read_file(path: str, context: ReadContext) -> Iterator[Example]:
    num_before = context.report.counts[ReadCount.EXAMPLES]
    for example in READERS[context.options.format or detect(path)](path, context):
        context.report.add(ReadCount.EXAMPLES)
        titled = example if context.options.title else _remove_titles(example)
        yield add_answer_span(titled, context.report)
    if context.report.counts[ReadCount.EXAMPLES] == num_before:
        counts = "; ".join(context.report.lines())
        raise CorpusError(f"{stream_name(path)}: expected one example or more, got none{counts and f' ({counts})'}")


def _remove_titles(example: Example) -> Example:
    return replace(
        example,
        positives=tuple(remove_title(document) for document in example.positives),
        negatives=tuple(remove_title(document) for document in example.negatives),
    )


def remove_title(document: Document) -> Document:
    """Return the document without its title, which becomes its article; unchanged where the title is its only text."""
    if not document.title or not has_visible(document.text):
        return document
    return Document(document.id, document.text, "", {ARTICLE: document.title, **document.metadata})


READERS: Mapping[TrainingFormat, Callable[[str, ReadContext], Iterator[Example]]] = {
    TrainingFormat.DPR: read_dpr,
    TrainingFormat.SQUAD: read_squad,
    TrainingFormat.QUESTIONS: read_question_file,
    TrainingFormat.BEIR: read_beir,
    TrainingFormat.TRIPLES: read_triples,
    TrainingFormat.TRIPLE_IDS: read_triple_ids,
    TrainingFormat.TEVATRON: read_tevatron,
    TrainingFormat.PAIRS: read_pairs,
    TrainingFormat.EXAMPLES: lambda path, _: read_examples(path),
}
