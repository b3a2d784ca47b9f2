"""Splits a text into the parts that a citation may be: sentences, lines of lists and tables, windows of what is long.

A text that is the row of a table, `part: PX-1037; stock: 583`, is one part, or several of whole cells.

It takes a quarter of the time of `snippets.split_sentences`, and imports no library: citations are chosen while
somebody waits. Both know the same abbreviations, and agree on nearly every sentence of plain English.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import re
from collections.abc import Iterable, Iterator

from mvindex.records import Span

# A longer part is cut into windows of at most so many characters.
LONGEST_CHARS = 600
# Cells of a row are together in a part of up to so many characters.
_LONGEST_ROW_CHARS = 300
_CELL_SEPARATOR = "; "
# A name has no open bracket: "The Normans (French: Normands; Latin: ..." is a sentence.
_NAMED_CELL = re.compile(r"(?=\S)(?:[^:;()\n]|\([^()\n]{0,40}\)){1,80}: ")

# Marks that end a sentence, with quotes, brackets and notes such as [3] or [citation needed] after them. A run of marks
# or of whitespace is tried at its first character only: at each of its characters, a long one would take its square.
# One class stands before all branches, so that what it does not hold is passed over ten times as fast.
_CLOSING = r"[\"'”’)\]]*(?:\[[^\]\n]{1,30}\])*"
_END = re.compile(
    r"[.!?。！？\s](?:"
    r"(?<=[\s])(?:(?<!\s.)(?:(?<=\n)|\s*\n)\s*|(?P<gap>\s{6,}(?=\s)))"
    r"|(?<=[.!?])(?:"
    rf"(?<![.!?].)(?P<more>[.!?]*){_CLOSING}(?=\s+[\"'“‘(\[]*[^\s\Wa-z_])"  # before a capital, digit or uncased letter
    r"|[\"'”’)]*(?:\[[^\]\n]{1,30}\])+(?=\s|[A-Z])"  # a note stands for the space
    r"|(?P<marks>[.!?]*(?=[.!?])|))"
    r"|(?<=[。！？])[。！？]*[」』”’）]*)",
    re.DOTALL,
)
# What ends nothing, of a run all but the last: a match, so that the search is beyond it, and other threads have a turn.
_NO_END = ("gap", "marks")
_VISIBLE = re.compile(r"\S")
_MARKED_LINE = re.compile(r"(?:[-*•–|]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s")
# A shorter line was not wrapped: it ends by itself.
_WRAPPED_CHARS = 50
# A longer word is no abbreviation, with the brackets and quotes before it.
_LONGEST_ABBREVIATION = 64
_MORE_ABBREVIATIONS = ("al", "approx", "e.g", "etc", "fig", "i.e", "no", "pp", "sec", "st", "vol")


def split_units(text: str) -> list[Span]:
    """Return the character ranges of a text's citable parts, in order, without outer whitespace.

    They do not overlap, and together hold every letter and digit.
    """
    units: list[Span] = []
    for begin, end in _row_parts(text) or _between(0, _borders(text), len(text)):
        part = text[begin:end]
        bare = part.strip()
        if bare and (bare[0].isalnum() or any(char.isalnum() for char in bare)):
            first = begin + part.index(bare[0])
            units += [(first, first + len(bare))] if len(bare) <= LONGEST_CHARS else _windows(text, first, len(bare))
    return units


def _between(begin: int, borders: Iterable[int], end: int) -> list[Span]:
    """Return the ranges between the borders."""
    return list(itertools.pairwise([begin, *borders, end]))


def _row_parts(text: str) -> list[Span]:
    """Return the parts of a text that is the row of a table, each of whole cells; none for another text.

    A cell that is longer than a part may be is cut as any text.
    """
    bare = text.strip()
    if "\n" in bare or not _NAMED_CELL.match(bare):
        return []
    starts = [0, *(mark.end() for mark in re.finditer(_CELL_SEPARATOR, text))]
    named = [start for start in starts if _NAMED_CELL.match(text, start)]
    if len(named) < 2 or 2 * len(named) < len(starts):
        return []
    if len(text) <= _LONGEST_ROW_CHARS:
        return [(0, len(text))]
    named[0] = 0
    parts: list[Span] = []
    can_join = False
    for begin, end in _between(0, named[1:], len(text)):
        is_long = end - begin > LONGEST_CHARS
        if is_long:
            parts += _between(begin, (begin + border for border in _borders(text[begin:end])), end)
        elif can_join and end - parts[-1][0] <= _LONGEST_ROW_CHARS:
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((begin, end))
        can_join = not is_long
    return parts


def _borders(text: str) -> Iterator[int]:
    """Yield the positions at which a new part begins."""
    for end in _END.finditer(text):
        if end.lastgroup in _NO_END:
            continue
        if end[0].isspace():
            if ends_line(text, end) or _is_in_table(text, end):
                yield end.end()
        elif end["more"] != "" or end[0][0] != "." or not _is_abbreviation(text, end.start()):
            yield end.end()


def _is_abbreviation(text: str, dot: int) -> bool:
    """Return whether the word before a full stop is an abbreviation or an initial."""
    least = max(0, dot - _LONGEST_ABBREVIATION)
    begin = max(text.rfind(" ", least, dot), text.rfind("\n", least, dot), least - 1) + 1
    word = text[begin:dot].lstrip("(\"'[“‘").lower()
    return word in _abbreviations() or (len(word) == 1 and word.isalpha())


def ends_line(text: str, gap: re.Match[str]) -> bool:
    """Return whether a line break ends a part, rather than wraps it."""
    line, after = _lines_beside(text, gap)
    if gap[0].count("\n") > 1 or "\t" in line or "\t" in after or _MARKED_LINE.match(after):
        return True
    return len(line) < _WRAPPED_CHARS and not after[:1].islower()


def _is_in_table(text: str, gap: re.Match[str]) -> bool:
    """Return whether a line break is between two rows of a table, or below the last."""
    return "|" in _lines_beside(text, gap)[0]


def _lines_beside(text: str, gap: re.Match[str]) -> tuple[str, str]:
    """Return the lines before and after a line break."""
    last, stop = gap.end(), text.find("\n", gap.end())
    line = text[text.rfind("\n", 0, gap.start()) + 1 : gap.start()]
    return line, text[last : len(text) if stop < 0 else stop]


def _windows(text: str, begin: int, length: int) -> Iterator[Span]:
    """Yield a long part in windows, cut after a clause or between words where that is possible."""
    end = begin + length
    while end - begin > LONGEST_CHARS:
        least, most = begin + LONGEST_CHARS // 2, begin + LONGEST_CHARS
        cut = max(text.rfind(mark, least, most) for mark in ("; ", ", "))
        cut = cut + 1 if cut > 0 else text.rfind(" ", least, most)
        cut = cut if cut > 0 else most
        yield begin, begin + len(text[begin:cut].rstrip())
        found = _VISIBLE.search(text, cut, end)
        if found is None:
            return
        begin = found.start()
    yield begin, end


@functools.cache
def _abbreviations() -> frozenset[str]:
    path = importlib.resources.files("mvindex") / "data" / "punkt_tab" / "english" / "abbrev_types.txt"
    return frozenset(path.read_text(encoding="utf-8").split()).union(_MORE_ABBREVIATIONS)
