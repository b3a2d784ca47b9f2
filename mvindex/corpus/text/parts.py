"""Splits a text into the parts that its views stand for, one a fact: sentences, items of lists, lines, clauses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from enum import Enum

from mvindex.corpus.text.sentences import SPLITTER_VERSION, split_in_languages, split_sentences, stripped
from mvindex.corpus.text.units import ends_line, lines_beside
from mvindex.errors import ConfigError
from mvindex.records import Span

# A longer part is halved, again and again.
LONGEST_CHARS = 240
# A sentence of at least so many short items is a list.
LEAST_ITEMS = 5
LONGEST_ITEM_CHARS = 40

# Tried at the first character of whitespace only: at each, long whitespace would take its square.
_LINE_BREAK = re.compile(r"(?<!\s)\s*\n\s*")
_SEPARATOR = re.compile(r"[,;]\s+|[、，；]\s*")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_LAST_AND = re.compile(r"\s(?=(?:and|or|&)\s)")
# Where a long part may be cut, the best first: lines, clauses, enumerations, words.
_CUTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\n\s*",
        r"[;:]\s+|\s[-–—]+\s+|[；：]",
        r",\s+(?=(?:and|but|or|so|yet|which|who|whom|whose|where|when|while|although|because|since|after|before)\s)",
        r",\s+|[、，]",
        r"\s+",
    )
)


class Splitter(Enum):
    """How a text is split before its views are made; an index records it and splits later documents alike.

    SENTENCES is for English, LANGUAGES for those of other languages too.
    """

    SENTENCES = "sentences-1"
    LANGUAGES = "sentences-2"
    PARTS = "parts-1"

    @property
    def version(self) -> str:
        """Return its name in the fingerprints of encoders."""
        return SPLITTER_VERSION if self is Splitter.SENTENCES else self.value

    def split(self, text: str) -> list[Span]:
        """Return the character ranges, in order, disjoint, without outer whitespace; they hold all that is visible."""
        if self is Splitter.PARTS:
            return split_parts(text)
        return split_in_languages(text) if self is Splitter.LANGUAGES else split_sentences(text)


def split_parts(text: str) -> list[Span]:
    """Split a text into parts of about one fact each: character ranges without outer whitespace.

    A sentence that is a list falls into its items, one of several list items, table rows or short lines into these,
    and what is longer than LONGEST_CHARS into clauses or, without any, windows of words of about equal length.
    """
    parts: list[Span] = []
    for begin, end in split_sentences(text):
        for first, last in _lines(text, begin, end):
            if last - first < LEAST_ITEMS:
                _append(text, parts, (first, last))
                continue
            for item in _items(text, first, last) or [(first, last)]:
                for part in _halves(text, *item):
                    _append(text, parts, part)
    return parts


def _lines(text: str, begin: int, end: int) -> list[Span]:
    """Return the lines of a list, of a table or otherwise short ones in a sentence, or the whole of it."""
    if text.find("\n", begin, end) < 0:
        return [(begin, end)]
    gaps = _LINE_BREAK.finditer(text, begin, end)
    borders = [begin, *(gap.end() for gap in gaps if ends_line(gap[0], *lines_beside(text, gap))), end]
    return [stripped(text, first, last) for first, last in itertools.pairwise(borders)]


def _items(text: str, begin: int, end: int) -> list[Span]:
    """Return the items where the range is a list: many, and most of them short."""
    starts = [begin, *(mark.end() for mark in _SEPARATOR.finditer(text, begin, end - 1))]
    if len(starts) < LEAST_ITEMS:
        return []
    last_and = [mark.end() for mark in _LAST_AND.finditer(text, starts[-1], end)]
    starts += last_and[-1:]
    borders = [*starts, end]
    items = [stripped(text, first, last) for first, last in zip(borders, borders[1:], strict=False)]
    lengths = sorted(last - first for first, last in items)
    return items if lengths[len(lengths) // 2] <= LONGEST_ITEM_CHARS else []


def _halves(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the range, or where it is long its halves, cut at what separates most near the middle."""
    if end - begin <= LONGEST_CHARS:
        yield begin, end
        return
    cut = _middle_cut(text, begin, end)
    yield from _halves(text, *stripped(text, begin, cut))
    yield from _halves(text, *stripped(text, cut, end))


def _middle_cut(text: str, begin: int, end: int) -> int:
    third, middle = (end - begin) // 3, (begin + end) // 2
    for cuts in _CUTS:
        found = [mark.end() for mark in cuts.finditer(text, begin + third, end - third)]
        if found:
            return min(found, key=lambda place: abs(place - middle))
    return middle


def _append(text: str, parts: list[Span], part: Span) -> None:
    """Append a part; one without letter or digit joins the part before it."""
    begin, end = part
    if parts and not _LETTER_OR_DIGIT.search(text, begin, end):
        parts[-1] = (parts[-1][0], end)
    elif end > begin:
        parts.append(part)


def parse_splitter(name: object) -> Splitter:
    """Return the splitter of that name; ConfigError lists the known ones."""
    try:
        return Splitter(name)
    except ValueError as err:
        known = " or ".join(repr(splitter.value) for splitter in Splitter)
        raise ConfigError(f"splitter: expected {known}, got {name!r:.60}") from err
