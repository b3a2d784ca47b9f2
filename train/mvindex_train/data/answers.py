"""The span of an answer in its passage: DPR's normalised match, as character offsets of the original text."""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mvindex.measure.metrics import TOKEN, TokenText, tokenize
from mvindex.records import Ints, Span
from mvindex_train.data.records import Example
from mvindex_train.data.report import ReadCount, ReadReport


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
