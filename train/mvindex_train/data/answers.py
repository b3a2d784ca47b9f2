"""Where in a passage its answer stands: DPR's normalised match, with character offsets of the text as it is."""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mvindex.eval.answers import TOKEN, TokenText, tokenize
from mvindex.records import Ints, Span
from mvindex_train.data.records import Example
from mvindex_train.data.report import Count, Report


class Reason(enum.Enum):
    """Why an answer has a span or has none; each is counted in a report."""

    FOUND = Count.SPAN_FOUND
    UNFINDABLE = Count.SPAN_UNFINDABLE
    AMBIGUOUS = Count.SPAN_AMBIGUOUS
    NO_ANSWERS = Count.NO_ANSWERS


@dataclass(frozen=True, slots=True)
class Located:
    """An answer's characters [begin, end) of a text, or None and the reason."""

    span: Span | None
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """A text's normalised tokens, and the characters [begin, end) of the text that each stands for: (t, 2)."""

    text: TokenText
    spans: Ints


def locate(text: str, answers: Sequence[str]) -> Located:
    """The one place in the text where an answer stands.

    Matched as mvindex.eval.answers does: NFD, DPR's tokens, lower case, an answer's tokens one after the other. Matches that
    overlap are one place, as `the Eiffel Tower` and `Eiffel Tower` are; its span is then that of the answer given
    first. Two matches apart, of one answer or of two, make it ambiguous.
    """
    if not answers:
        return Located(None, Reason.NO_ANSWERS)
    tokens = _tokens(text)
    matches = [match for answer in answers for match in _matches(tokens, tokenize(answer))]
    if not matches:
        return Located(None, Reason.UNFINDABLE)
    if not _is_one_place(matches):
        return Located(None, Reason.AMBIGUOUS)
    return Located(matches[0], Reason.FOUND)


def with_span(example: Example, report: Report) -> Example:
    """The example with its answer's place, found in the first positive's text unless it is given; counted."""
    if example.answer_span is not None:
        report.add(Count.SPAN_GIVEN)
        return example
    located = locate(example.positives[0].text, example.answers)
    report.add(located.reason.value)
    return example if located.span is None else replace(example, answer_span=located.span)


def with_spans(examples: Iterable[Example], report: Report) -> Iterator[Example]:
    """The examples, each with its answer's place where there is one."""
    return (with_span(example, report) for example in examples)


# A passage's questions mostly come one after the other.
@lru_cache(maxsize=64)
def _tokens(text: str) -> _Tokens:
    normalised = unicodedata.normalize("NFD", text)
    spans = np.array([token.span() for token in TOKEN.finditer(normalised)], np.int64).reshape(-1, 2)
    if normalised != text:
        spans = _spans_of_original(text, spans)
    return _Tokens(tokenize(text), spans)


def _spans_of_original(text: str, spans: Ints) -> Ints:
    """The characters of the text whose decompositions hold the normalised spans (t, 2).

    Normalisation puts marks into another order, but only among the marks of one letter, and a token never ends between
    two marks: so it is enough to count the characters that each one decomposes into.
    """
    ends = np.cumsum([1 if char.isascii() else len(unicodedata.normalize("NFD", char)) for char in text])
    first = np.searchsorted(ends, spans[:, 0], side="right")
    last = np.searchsorted(ends, spans[:, 1] - 1, side="right")
    return np.stack([first, last + 1], axis=1)


def _matches(tokens: _Tokens, answer: TokenText) -> Iterator[Span]:
    """The characters of each run of tokens that equals the answer's tokens, overlapping ones too."""
    num_tokens = answer.count(" ") - 1
    if num_tokens < 1:
        return
    begin = tokens.text.find(answer)
    while begin >= 0:
        # The tokens stand between single spaces, so that those before a match count the tokens before it.
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
