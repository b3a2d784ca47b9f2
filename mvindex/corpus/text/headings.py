"""Finds the parts of a text that stand above its answers: headings, questions of a FAQ, headers of tables.

Readers keep headings in the text, each format in its own form: `## Name`, an underlined or bold line, or a bare line
that the document's title names. They are never the answer themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from mvindex.records import Span

# A longer line is no heading.
_LONGEST_CHARS = 300
# A bare line of a plain text is taken for one up to so many characters.
_LONGEST_BARE_CHARS = 80
# What joins the headings above a passage in its title.
_TITLE_SEPARATOR = " > "
_RULE_CHARS = frozenset("=-~^\"'`#*+.:_|")
_TABLE_RULE_CHARS = frozenset("|-:+= \t")
_ENDS_SENTENCE = (".", "!", ";", ",", "…", "。", "！", "；", "，")
# Markup around the name of a heading, and its id: ## **Name** {#id}.
_LEADING_MARKS, _TRAILING_MARKS = " \t#=*_`>", " \t#=*_`:"
_ID = re.compile(r"\{#[^{}]{0,100}\}$")
_MARKED = re.compile(r"(?:#{1,6}|={1,6})[ \t]|<(?:h[1-6]|summary|dt|th|caption)\b|(?:```|~~~)", re.IGNORECASE)
_BOLD = re.compile(r"(\*\*|__)[^\n]+\1:?$")
_QUESTION = re.compile(r"[\W_]{0,6}(?:Q|Question)[ \t]?\d{0,3}[*_]{0,2}[.:)]", re.IGNORECASE)
_ANSWER = re.compile(r"[\W_]{0,6}(?:A|Answer)[ \t]?\d{0,3}[*_]{0,2}[.:)]", re.IGNORECASE)
_NUMBER = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){0,5}[.)]?|[A-Z][a-z]+ (?:\d{1,3}|[IVXLC]{1,6})[.:]?)[ \t]+")


class Headed(NamedTuple):
    """The headings and headers above the parts of a text.

    Attributes:
        heads: Whether a part stands above others, of each part.
        headers: The part that is the header of its table, by the numbers of parts in its rows.
        rows: The characters of the row that a part of a table belongs to, by the number of the part.
    """

    heads: list[bool]
    headers: dict[int, int]
    rows: dict[int, Span]


class _Lines(NamedTuple):
    """The parts `first` to `last` (excluded), which begin and end lines, as text; and what lies up to the next ones."""

    first: int
    last: int
    text: str
    gap: str

    @property
    def next_line(self) -> str:
        """The line after it, if that is no part: a rule, or empty."""
        rest = self.gap.split("\n", 2)
        return rest[1].strip() if len(rest) > 1 else ""

    @property
    def is_alone(self) -> bool:
        """Whether an empty line follows."""
        return self.gap.count("\n") > 1 and not self.next_line


def headed_parts(text: str, units: Sequence[Span], title: str) -> Headed:
    """Return what stands above the parts of a text, given by their characters; the title names its headings."""
    found = Headed([False] * len(units), {}, {})
    if "\n" not in text and not _QUESTION.match(text, units[0][0] if units else 0):
        return found
    names = {_name(name) for name in title.split(_TITLE_SEPARATOR)}
    groups = _lines(text, units)
    _mark_headings(groups, names, units, found.heads)
    _mark_tables(groups, units, found)
    _mark_questions(text, groups, units, found.heads)
    return found


def named_cells(text: str, header: Span, row: Span, part: Span) -> str:
    """Return the cells of a row that the part is in, each with the name of its column."""
    names = [text[begin:end] for begin, end in _cells(text, header)]
    shown = []
    for column, (begin, end) in enumerate(_cells(text, row)):
        if end > begin and begin < part[1] and end > part[0]:
            name = names[column] if column < len(names) else ""
            shown.append(f"{name}: {text[begin:end]}" if name else text[begin:end])
    return "; ".join(shown)


def _lines(text: str, units: Sequence[Span]) -> list[_Lines]:
    """Return the parts, those that share a line together."""
    firsts = [at for at, (begin, _) in enumerate(units) if at == 0 or "\n" in text[units[at - 1][1] : begin]]
    groups = []
    for first, last in pairwise([*firsts, len(units)]):
        begin, end = units[first][0], units[last - 1][1]
        stop = units[last][0] if last < len(units) else len(text)
        groups.append(_Lines(first, last, text[begin:end], text[end:stop]))
    return groups


def _mark_headings(groups: Sequence[_Lines], names: Collection[str], units: Sequence[Span], heads: list[bool]) -> None:
    """Mark the parts of lines that are headings; the last line of a text is above nothing."""
    is_below, after = False, ""
    for group in reversed(groups):
        is_heading = bool(after) and len(group.text) <= _LONGEST_CHARS and _is_heading(group, names)
        if not is_heading and after:
            is_heading = _is_bare_heading(group) and (is_below or _is_prose(after))
        if is_heading:
            heads[group.first : group.last] = [True] * (group.last - group.first)
        is_below, after = is_heading, group.text


def _is_heading(group: _Lines, names: Collection[str]) -> bool:
    """Return whether the form of a line, a rule below it or the document's title tells that it is a heading."""
    above, _, line = group.text.partition("\n")
    if _is_rule(above):
        return _is_rule(group.next_line)  # a heading with an overline, or the header of a table of reStructuredText
    line, _, below = group.text.rpartition("\n")
    if _is_rule(below):
        return not line.endswith(_ENDS_SENTENCE)
    is_one = group.last - group.first == 1
    if line:
        return is_one and _asks(group.text)
    if _MARKED.match(group.text) or _name(group.text) in names:
        return True
    if group.text.endswith(_ENDS_SENTENCE):
        return False
    if len(set(group.next_line)) == 1 and _is_rule(group.next_line):
        return True
    return bool(_BOLD.match(group.text)) or (is_one and _asks(group.text))


def _is_rule(line: str) -> bool:
    """Return whether a line is made of one sign, as what underlines a heading or, with gaps, the columns of a table."""
    signs = set(line) - {" "}
    return len(line) > 1 and len(signs) == 1 and signs <= _RULE_CHARS


def _asks(line: str) -> bool:
    """Return whether a line is a question; one that ends in a quotation mark tells of a question."""
    bare = _ID.sub("", line).rstrip(_TRAILING_MARKS)
    return bare.endswith(("?", "？", "؟"))


def _is_bare_heading(group: _Lines) -> bool:
    """Return whether a line without any mark looks like a heading: short, by itself, and no sentence or value."""
    line, numbers = _NUMBER.subn("", group.text, count=1)
    return (
        group.last - group.first <= 1 + numbers
        and group.is_alone
        and len(line) <= _LONGEST_BARE_CHARS
        and line[:1].isalpha()
        and not line[0].islower()
        and not line.endswith((*_ENDS_SENTENCE, ":", "：", '"', "”"))
        and not any(sign in line for sign in ("\n", "\t", "|", ": "))
        and not _has_digit(line)
    )


def _is_prose(text: str) -> bool:
    """Return whether a text goes on as one does below a heading: in sentences, or in a list."""
    return len(text) > _LONGEST_BARE_CHARS or text.endswith((*_ENDS_SENTENCE, ":", "?", ")", '"', "”"))


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _mark_questions(text: str, groups: Sequence[_Lines], units: Sequence[Span], heads: list[bool]) -> None:
    """Mark the parts of a question that begins with "Q:", up to its answer, which may follow on the same line."""
    for group in groups:
        if not _QUESTION.match(group.text):
            continue
        for place in range(group.first, group.last):
            begin, end = units[place]
            if place > group.first and _ANSWER.match(text, begin, end):
                break
            heads[place] = place + 1 < len(units)


def _mark_tables(groups: Sequence[_Lines], units: Sequence[Span], found: Headed) -> None:
    """Mark the headers of tables, and note their rows: the lines up to an empty one."""
    header = -1
    for group in groups:
        span = units[group.first][0], units[group.last - 1][1]
        line, _, below = group.text.partition("\n")
        if header < 0 and "|" in line and _is_table_rule(below.strip() or group.next_line):
            header = group.first
            found.heads[header : group.last] = [True] * (group.last - header)
        elif header >= 0:
            found.headers.update(dict.fromkeys(range(group.first, group.last), header))
            found.rows.update(dict.fromkeys(range(group.first, group.last), span))
        if group.is_alone:
            header = -1


def _is_table_rule(line: str) -> bool:
    """Return whether a line divides the header of a table from its rows: |---|:-:|, or +===+===+ of a grid."""
    return (
        len(line) > 1
        and set(line) <= _TABLE_RULE_CHARS
        and (("|" in line and "-" in line) or ("+" in line and "=" in line))
    )


def _cells(text: str, line: Span) -> list[Span]:
    r"""Return the characters of the cells of a row, without the signs between them; "\|" is no such sign."""
    begin, end = line
    stop = text.find("\n", begin, end)
    end = end if stop < 0 else stop
    begin += text[begin:end].startswith("|")
    cells, at = [], begin
    while at < end:
        bar = text.find("|", at, end)
        while bar > begin and text[bar - 1] == "\\":
            bar = text.find("|", bar + 1, end)
        stop = end if bar < 0 else bar
        cell = text[at:stop]
        first = at + len(cell) - len(cell.lstrip())
        cells.append((first, max(first, at + len(cell.rstrip()))))
        at = stop + 1
    return cells


def _name(heading: str) -> str:
    """Return a heading without its marks, to compare it with others."""
    bare = _ID.sub("", heading.strip()).lstrip(_LEADING_MARKS).rstrip(_TRAILING_MARKS)
    return " ".join(bare.replace("*", "").replace("`", "").split()).casefold()
