"""Splits the sections of an outline into passages of a limited number of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mvindex.corpus.passages.outline import Block, Section, line_spans
from mvindex.corpus.text.blocks import introduces
from mvindex.corpus.text.snippets import split_sentences, without_whitespace
from mvindex.corpus.text.unspaced import UNSPACED
from mvindex.records import Span

# Part of what says whether a file was read the same way: increment it whenever the same file may give other passages.
SPLIT_VERSION = 4
# Two letters of a script without spaces count as a word, as do so many characters without a space.
_LONGEST_WORD = 24
_WORD = re.compile(rf"{UNSPACED.pattern}{{1,2}}|(?:(?!{UNSPACED.pattern})\S){{1,{_LONGEST_WORD}}}")
_ASCII_WORD = re.compile(rf"\S{{1,{_LONGEST_WORD}}}")
# At most this share of a passage is moved to the next one as what introduces it.
_LEADS_SHARE = 0.5
# A line in bold, or a question by itself, with its number: a heading in all but name.
_TITLE_LINE = re.compile(
    r"(?:(?:[-*+]|\(?(?:\d{1,3}|#)[.)])[ \t]+)?(?:\*\*[^*\n]{1,200}\*\*|__[^_\n]{1,200}__|[^.!?\n]{1,200}\?)\Z"
)
# What begins a row of a table, by the beginning of the table: a grid, a simple table, a list-table.
_GRID_ROW, _TEXT_ROW, _LIST_ROW = re.compile(r"\+"), re.compile(r"\S"), re.compile(r"\s*[*+-]\s+-(?:\s|$)")
_ROW_BEGINS = {"+-": _GRID_ROW.match, "==": _TEXT_ROW.match, ".. list-table": _LIST_ROW.match}
# A directive with more lines of options is cut like any text.
_MOST_OPTIONS = 20


class _Piece(NamedTuple):
    begin: int
    end: int
    words: int


def split_section(text: str, section: Section, max_words: int) -> list[Span]:
    """Return the characters [begin, end) of a section's passages, without outer whitespace, in order.

    A passage has at most max_words words; those of a section are about equally long. It ends between blocks; a longer
    block is cut between sentences (or lines, where it is made of them), and a longer sentence between words.
    """
    pattern = _ASCII_WORD if text.isascii() else _WORD
    pieces = [piece for block in section.blocks for piece in _pieces(text, block, max_words, pattern)]
    words, rest, target = 0, sum([piece.words for piece in pieces]), 0.0
    if 0 < rest <= max_words:
        return [_strip(text, pieces[0].begin, pieces[-1].end)]
    groups: list[list[_Piece]] = []
    for piece in pieces:
        is_nearer = words + piece.words - target > abs(words - target)
        if not groups or words + piece.words > max_words or (is_nearer and not _leads(text, groups[-1][-1])):
            groups.append(_taken_leads(text, groups[-1], max_words - piece.words) if groups else [])
            words = sum(each.words for each in groups[-1])
            target = (rest + words) / -(-(rest + words) // max_words)
        groups[-1].append(piece)
        words, rest = words + piece.words, rest - piece.words
    return [_strip(text, group[0].begin, group[-1].end) for group in groups]


def _taken_leads(text: str, group: list[_Piece], max_words: int) -> list[_Piece]:
    """Take from the end of a passage what only introduces the next one, but not all of it; return it.

    That is a sentence that ends in a colon, or a directive without its content, of at most max_words words and of a
    part of the passage, so that no text is moved again and again.
    """
    max_words = min(max_words, int(_LEADS_SHARE * sum(piece.words for piece in group)))
    first = len(group)
    while first > 1 and _leads(text, group[first - 1]):
        max_words -= group[first - 1].words
        if max_words < 0:
            break
        first -= 1
    taken = group[first:]
    del group[first:]
    return taken


def _leads(text: str, piece: _Piece) -> bool:
    part = text[piece.begin : piece.end].strip()
    if part.endswith((":", "：")) or _TITLE_LINE.match(part):
        return True
    first, *others = part.split("\n", _MOST_OPTIONS)
    return introduces(first.strip()) and all(line.lstrip().startswith(":") for line in others)


def _pieces(text: str, block: Block, max_words: int, pattern: re.Pattern[str]) -> Iterator[_Piece]:
    """Yield a block whole, or where it is too long its sentences or lines."""
    words = _count(text, block.begin, block.end, pattern)
    if words <= max_words:
        if words:
            yield _Piece(block.begin, block.end, words)
        return
    part = text[block.begin : block.end]
    for span in _row_spans(part) if block.is_lines else split_sentences(part):
        begin, end = block.begin + span[0], block.begin + span[1]
        words = _count(text, begin, end, pattern)
        if 0 < words <= max_words:
            yield _Piece(begin, end, words)
        elif words:
            # A sentence or line of more words is cut between them.
            places = [match.span() for match in pattern.finditer(text, begin, end)]
            for first in range(0, words, max_words):
                last = min(first + max_words, words)
                yield _Piece(places[first][0], places[last - 1][1], last - first)


def _row_spans(part: str) -> list[Span]:
    """Return the characters of the lines of a table or code; those of one row of reStructuredText together."""
    begins_row = next((begins for sign, begins in _ROW_BEGINS.items() if part.startswith(sign)), None)
    spans: list[Span] = []
    for begin, end in line_spans(part):
        if begins_row and spans and not begins_row(part, begin, end):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))
    return spans


def _count(text: str, begin: int, end: int, pattern: re.Pattern[str]) -> int:
    return len(pattern.findall(text, begin, end))


def _strip(text: str, begin: int, end: int) -> Span:
    return without_whitespace(begin, text[begin:end])


def split_outline(text: str, sections: Iterable[Section], max_words: int) -> Iterator[tuple[Section, list[Span]]]:
    """Yield the sections with their passages."""
    for section in sections:
        yield section, split_section(text, section, max_words)
