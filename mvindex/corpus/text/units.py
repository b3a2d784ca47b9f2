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

from mvindex.corpus.text.blocks import Kind, Stretch, stretches
from mvindex.corpus.text.sentences import AFTER_UNSPACED, CLOSERS, OPENERS, UNSPACED, is_abbreviation
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
_CLOSING = rf"(?:\s»)?[\"'”’)\]{CLOSERS}]*(?:\[[^\]\n]{{1,30}}\])*"
# A sentence begins with a capital, digit or uncased letter, or with code and its role.
_LOWER = "".join(filter(str.islower, map(chr, [*range(0x80, 0x250), *range(0x400, 0x530)])))
_OPENING = rf"(?:[\"'“‘(\[*{OPENERS}]*(?:(?<=«)\s)?[^\s\Wa-z_{_LOWER}]|(?::[a-z:]{{1,20}})?`)"
# In a text without capitals with a small letter too.
_SMALL_OPENING = rf"[\"'“‘(\[*{OPENERS}]*[^\s\W_]"


def _end_before(opening: str) -> re.Pattern[str]:
    return re.compile(
        r"[.!?。！？\s](?:"
        r"(?<=[\s])(?:(?<!\s.)(?:(?<=\n)|\s*\n)\s*|(?P<gap>\s{6,}(?=\s)))"
        rf"|(?:(?<=[。！？])|(?<=[{UNSPACED}][!?]))[。！？!?]*{AFTER_UNSPACED}"
        r"|(?<=[.!?])(?:"
        rf"(?<![.!?].)(?P<more>[.!?]*){_CLOSING}(?=\s+{opening})"
        r"|[\"'”’)]*(?:\[[^\]\n]{1,30}\])+(?=\s|[A-Z])"  # a note stands for the space
        r"|(?P<marks>[.!?]*(?=[.!?])|))"
        r")",
        re.DOTALL,
    )


_END, _SMALL_END = _end_before(_OPENING), _end_before(_SMALL_OPENING)
# What ends nothing, of a run all but the last: a match, so that the search is beyond it, and other threads have a turn.
_NO_END = ("gap", "marks")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_VISIBLE = re.compile(r"\S")
_MARKED_LINE = re.compile(r"(?:[-*+•–|]|\(?(?:\d{1,3}|[a-z]|#)[.)])\s")
# Stored views were split by these: another pattern would need another version of the splitter.
_MARKED_VIEW = re.compile(r"(?:[-*•–|]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s")
# A shorter line was not wrapped: it ends by itself.
_WRAPPED_CHARS = 50
# A line whose next word would not have fitted into so many characters was wrapped, however short it is.
_WIDTH = 72
# What a sentence goes on with rather than begins: a link, code, a role, a bracket.
_BEGINS_WHOLE = re.compile(r"(?::[a-z:]{1,20})?`{1,2}[^`\s]|\[[^\]\n]{0,200}\](?:[(\[]|$)|\(")
_GOES_ON = tuple(
    f" {word}"
    for word in "a an and as at by for from in into like of on or see than that the to use using via with".split()
)
_ENDS_SENTENCE = (".", "!", "?", ":", ";", "。", "！", "？")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]+\1")
# Two columns of a table without rules: what stands between them is no space behind a sentence.
_COLUMNS = re.compile(r"[^\s.!?:;,] {2,}\S")
_SUBSTITUTION = re.compile(r"(?<!\S)\|[^\s|](?:[^|\n]*[^\s|])?\|_?(?![|\w])")
# Code is cut between lines into parts of up to so many characters; the first goes with the sentence before it.
_LONGEST_CODE_CHARS = 320
# Shorter code is one piece.
_WHOLE_CODE_CHARS = 450
# A longer word is no abbreviation, with the brackets and quotes before it.
_LONGEST_ABBREVIATION = 64
# What may stand between a sentence and its code, beside lines that are marks.
_BETWEEN = " \t\r\n`~:"
_LONGEST_NUMBER = 3
_MORE_ABBREVIATIONS = ("al", "approx", "e.g", "etc", "fig", "i.e", "no", "pp", "sec", "st", "vol")


def split_units(text: str, lines: Iterable[Stretch] | None = None) -> list[Span]:
    """Return the character ranges of a text's citable parts, in order, without outer whitespace.

    They do not overlap, and together hold every letter and digit. lines: stretches(text), where it is known.
    """
    end = _SMALL_END if text.islower() else _END
    row = _row_parts(text, end)
    if row:
        return [unit for begin, end in row for unit in _bare_parts(text, begin, end)]
    lines = stretches(text) if lines is None else lines
    return _joined(text, ((each.kind, unit) for each in lines for unit in _units_of(text, each, end)))


def _units_of(text: str, stretch: Stretch, sentence_end: re.Pattern[str]) -> Iterator[Span]:
    """Yield the parts of lines of one kind: sentences, pieces of code, or a line as a whole."""
    begin, end = stretch.begin, stretch.end
    if stretch.kind is Kind.PROSE:
        part = text[begin:end]
        for first, last in _between(0, _borders(part, sentence_end), len(part)):
            yield from _bare_parts(text, begin + first, begin + last)
    elif stretch.kind is Kind.CODE:
        for first, last in _code_parts(text, begin, end):
            yield from _bare_parts(text, first, last)
    else:
        yield from _bare_parts(text, begin, end)


def _bare_parts(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the range without outer whitespace, in windows where it is long; nothing without letter or digit."""
    part = text[begin:end]
    bare = part.strip()
    if _LETTER_OR_DIGIT.search(bare):
        first = begin + part.index(bare[0])
        if len(bare) <= LONGEST_CHARS:
            yield first, first + len(bare)
        else:
            yield from _windows(text, first, len(bare))


def _code_parts(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield code whole, or in pieces of whole lines, which end at blank lines where there are any."""
    first = blank = begin
    at = begin if end - begin > _WHOLE_CODE_CHARS else end
    while at < end:
        stop = text.find("\n", at, end) + 1 or end
        if not text[at:stop].strip():
            blank = stop
        elif stop - first > _LONGEST_CODE_CHARS and at > first:
            border = blank if blank > first else at
            yield first, border
            first = border
        at = stop
    yield first, end


def _joined(text: str, units: Iterable[tuple[Kind, Span]]) -> list[Span]:
    """Return the parts, a name joined with the part below it, and code with the sentence before it.

    Marks between them are part of what is joined. Nothing is joined to more than LONGEST_CHARS.
    """
    joined: list[Span] = []
    # Where the part that code may join is, and whether what follows joins it whatever it is; -1 for none.
    opener, is_name, reach = -1, False, 0
    for kind, (begin, end) in units:
        if opener >= 0 and text[reach:begin].strip(_BETWEEN):
            opener = -1
        reach = end
        fits = opener >= 0 and end - joined[opener][0] <= LONGEST_CHARS
        if kind is Kind.MARK:
            joined.append((begin, end))
            continue
        if fits and (kind is Kind.CODE or is_name) and kind is not Kind.HEADING:
            first = joined[opener][0]
            del joined[opener:]
            joined.append((first, end))
            is_name = kind is Kind.NAME
            opener = -1 if kind is Kind.CODE else len(joined) - 1
        else:
            joined.append((begin, end))
            is_name = kind is Kind.NAME
            opener = len(joined) - 1 if kind in (Kind.NAME, Kind.PROSE) else -1
    return joined


def _between(begin: int, borders: Iterable[int], end: int) -> list[Span]:
    """Return the ranges between the borders."""
    return list(itertools.pairwise([begin, *borders, end]))


def _row_parts(text: str, sentence_end: re.Pattern[str]) -> list[Span]:
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
            parts += _between(begin, (begin + border for border in _borders(text[begin:end], sentence_end)), end)
        elif can_join and end - parts[-1][0] <= _LONGEST_ROW_CHARS:
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((begin, end))
        can_join = not is_long
    return parts


def _borders(text: str, sentence_end: re.Pattern[str]) -> Iterator[int]:
    """Yield the positions at which a new part begins."""
    for end in sentence_end.finditer(text):
        if end.lastgroup in _NO_END:
            continue
        if end[0].isspace():
            line, after = lines_beside(text, end)
            is_end = _ends_clearly(end[0], line, after) or _is_in_table(line, after)
            if is_end or (_is_short(line, after) and not _was_wrapped(end[0], line, after)):
                yield end.end()
        elif end["more"] != "" or end[0][0] != "." or not _is_abbreviation(text, end.start()):
            yield end.end()


def _is_abbreviation(text: str, dot: int) -> bool:
    """Return whether the word before a full stop is an abbreviation, an initial or the number of a list's item."""
    least = max(0, dot - _LONGEST_ABBREVIATION)
    line = text.rfind("\n", least, dot) + 1 or least
    begin = max(text.rfind(" ", line, dot) + 1, line)
    written = text[begin:dot].lstrip("(\"'[“‘")
    word = written.lower()
    if word.isdigit() and len(word) <= _LONGEST_NUMBER and not text[line:begin].strip() and (line > least or not least):
        return True
    if word in _abbreviations() or (len(word) == 1 and word.isalpha()):
        return True
    return is_abbreviation(text, written, dot)


def ends_line(gap: str, line: str, after: str) -> bool:
    """Return whether a line break, with the whitespace around it, ends a part rather than wraps it, for views."""
    return _ends_clearly(gap, line, after, _MARKED_VIEW) or _is_short(line, after)


def _ends_clearly(gap: str, line: str, after: str, marked: re.Pattern[str] = _MARKED_LINE) -> bool:
    return gap.count("\n") > 1 or "\t" in line or "\t" in after or marked.match(after) is not None


def _is_short(line: str, after: str) -> bool:
    return len(line) < _WRAPPED_CHARS and not after[:1].islower()


def _was_wrapped(gap: str, line: str, after: str) -> bool:
    """Return whether a line ended since its next word was too long for it, or is a term with its definition below."""
    bare = line.lstrip()
    indent = len(gap) - gap.rindex("\n") - 1
    if bare and indent > len(line) - len(bare) + 1 and not _MARKED_LINE.match(bare):
        return True
    if bare.endswith(_GOES_ON):
        return True
    if _BEGINS_WHOLE.match(after):
        # Lines that begin so, one below the other, are a list.
        return bare.endswith(",") or not (bare.endswith(_ENDS_SENTENCE) or _BEGINS_WHOLE.match(bare))
    if len(line) + len(after) < _WIDTH:
        return False
    word = after.split(maxsplit=1)[0] if after else ""
    return len(line) + 1 + len(word) > _WIDTH


def _is_in_table(line: str, after: str) -> bool:
    """Return whether a line break is between two rows of a table, below the last, or beside the rule of one."""
    if "|" in line and "|" in _SUBSTITUTION.sub("", _CODE_SPAN.sub("", line)):
        return True
    if "  " in after and _COLUMNS.search(after) and _COLUMNS.search(line):
        return True
    return any(" " in each.strip() and not each.strip("= ") for each in (line, after) if " " in each)


def lines_beside(text: str, gap: re.Match[str]) -> tuple[str, str]:
    """Return the lines before and after a line break."""
    first, last = gap.span()
    stop = text.find("\n", last)
    return text[text.rfind("\n", 0, first) + 1 : first], text[last : len(text) if stop < 0 else stop]


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
