"""Splits the sections of an outline into passages of a limited number of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mvindex.corpus.passages.outline import Block, Section, line_spans
from mvindex.corpus.text.snippets import split_sentences
from mvindex.corpus.text.unspaced import UNSPACED
from mvindex.records import Span

# Part of what says whether a file was read the same way: increment it whenever the same file may give other passages.
SPLIT_VERSION = 2
# Two letters of a script without spaces count as a word, as do so many characters without a space.
_LONGEST_WORD = 24
_WORD = re.compile(rf"{UNSPACED.pattern}{{1,2}}|(?:(?!{UNSPACED.pattern})\S){{1,{_LONGEST_WORD}}}")
_ASCII_WORD = re.compile(rf"\S{{1,{_LONGEST_WORD}}}")
# A last passage of less than this share of the limit takes over text from the one before it.
_SMALL_SHARE = 0.25


class _Piece(NamedTuple):
    begin: int
    end: int
    words: int


def split_section(text: str, section: Section, max_words: int) -> list[Span]:
    """Return the characters [begin, end) of a section's passages, without outer whitespace, in order.

    A passage has at most max_words words. It ends between blocks; a longer block is cut between sentences (or lines,
    where it is made of them), and a longer sentence between words.
    """
    pattern = _ASCII_WORD if text.isascii() else _WORD
    pieces = [piece for block in section.blocks for piece in _pieces(text, block, max_words, pattern)]
    groups: list[list[_Piece]] = []
    words = 0
    for piece in pieces:
        if not groups or words + piece.words > max_words:
            groups.append([])
            words = 0
        groups[-1].append(piece)
        words += piece.words
    if len(groups) > 1:
        _balance(groups[-2], groups[-1], max_words)
    return [_strip(text, group[0].begin, group[-1].end) for group in groups]


def _pieces(text: str, block: Block, max_words: int, pattern: re.Pattern[str]) -> Iterator[_Piece]:
    """Yield a block whole, or where it is too long its sentences or lines."""
    words = _count(text, block.begin, block.end, pattern)
    if words <= max_words:
        if words:
            yield _Piece(block.begin, block.end, words)
        return
    part = text[block.begin : block.end]
    spans = line_spans(part) if block.is_lines else split_sentences(part)
    for begin, end in spans:
        yield from _bounded(text, block.begin + begin, block.begin + end, max_words, pattern)


def _bounded(text: str, begin: int, end: int, max_words: int, pattern: re.Pattern[str]) -> Iterator[_Piece]:
    """Yield a sentence or line, cut between words where it is too long."""
    words = [match.span() for match in pattern.finditer(text, begin, end)]
    for first in range(0, len(words), max_words):
        part = words[first : first + max_words]
        yield _Piece(part[0][0], part[-1][1], len(part))


def _balance(before: list[_Piece], last: list[_Piece], max_words: int) -> None:
    """Move pieces from the passage before to a small last one."""
    words = sum(piece.words for piece in last)
    if words >= max_words * _SMALL_SHARE:
        return
    rest = sum(piece.words for piece in before)
    while len(before) > 1 and words + before[-1].words <= rest - before[-1].words:
        piece = before.pop()
        last.insert(0, piece)
        words, rest = words + piece.words, rest - piece.words


def _count(text: str, begin: int, end: int, pattern: re.Pattern[str]) -> int:
    return sum(1 for _ in pattern.finditer(text, begin, end))


def _strip(text: str, begin: int, end: int) -> Span:
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())


def split_outline(text: str, sections: Iterable[Section], max_words: int) -> Iterator[tuple[Section, list[Span]]]:
    """Yield the sections with their passages."""
    for section in sections:
        yield section, split_section(text, section, max_words)
