"""Finds the parts of a text that stand above its answers: headings, questions of a FAQ, headers of tables.

Readers keep headings in the text, each format in its own form: `## Name`, an underlined or bold line, or a bare line
that the document's title names. They are never the answer themselves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from mvindex.corpus.text.blocks import GRID_RULE, HEADER_RULE, is_mark
from mvindex.corpus.text.words import SHORT_CHARS
from mvindex.records import Span

# A longer line is no heading.
_LONGEST_CHARS = 300
# A bare line of a plain text is taken for one up to so many characters.
_LONGEST_BARE_CHARS = 80
# What joins the headings above a passage in its title.
_TITLE_SEPARATOR = " > "
_RULE_CHARS = frozenset("=-~^\"'`#*+.:_|")
# Between the names of the columns of a table, at the end of the title of a passage that begins inside it.
COLUMN_SEPARATOR = " | "
# The header, by the numbers of parts, of rows whose header is not in the text.
NO_PART = -1
_MOST_HEADER_LINES = 20
_HAS_HEADER = ":header-rows: 1"
_GAP = re.compile(r"\s{2,}")
_OPTION = re.compile(r":[a-zA-Z][\w-]*:")
# Where the cells of a row of a list-table begin: the first, and the others.
_FIRST_CELL = re.compile(r"[*+-][ \t]+-(?=\s)")
_NEXT_CELL = re.compile(r"^[ \t]+-(?=\s|$)", re.MULTILINE)
_TABLE_RULE_CHARS = frozenset("|-:+= \t")
_ENDS_SENTENCE = (".", "!", ";", ",", "…", "。", "！", "；", "，")
# Markup around the name of a heading, and its id: ## **Name** {#id}.
_LEADING_MARKS, _TRAILING_MARKS = " \t#=*_`>", " \t#=*_`:"
_ATTRIBUTES = re.compile(r"\{:?\s{0,3}[#.][^{}]{0,200}\}$")
_MARKED = re.compile(
    r"(?:#{1,6}|={1,6})[ \t]|(?:<details[^<>]{0,100}>\s?)?<(?:h[1-6]|summary|dt|th|caption)\b", re.IGNORECASE
)
_BOLD = re.compile(r"(\*\*|__)[^\n]+\1:?$")
_QUESTION = re.compile(r"[\W_]{0,6}(?:Q|Question)[ \t]?\d{0,3}[*_]{0,2}[.:)]", re.IGNORECASE)
_ANSWER = re.compile(r"[\W_]{0,6}(?:A|Answer)[ \t]?\d{0,3}[*_]{0,2}[.:)]", re.IGNORECASE)
_ANSWERED = re.compile(r"[?？؟][\W_]{1,6}(?:A|Answer)[ \t]?\d{0,3}[*_]{0,2}[.:)]", re.IGNORECASE)
_NUMBER = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){0,5}[.)]?|[A-Z][a-z]+ (?:\d{1,3}|[IVXLC]{1,6})[.:]?)[ \t]+")


class Headed(NamedTuple):
    """The headings and headers above the parts of a text.

    Attributes:
        heads: Whether a part stands above others, of each part.
        headers: The part that is the header of its table, by the numbers of parts in its rows.
        rows: The characters of the row that a part of a table belongs to, by the number of the part.
        columns: The names of the columns of a table that begins before the text; its rows have the header NO_PART.
    """

    heads: list[bool]
    headers: dict[int, int]
    rows: dict[int, Span]
    columns: list[str]


class _Lines(NamedTuple):
    """Parts that begin and end lines together.

    Attributes:
        first: The number of the first part.
        last: The number after that of the last one.
        text: Their characters.
        next_line: The line after them, if that is no part: a rule, or empty.
        is_alone: Whether an empty line follows.
        is_last: Whether an empty line, or none, follows after next_line, if that is not empty.
    """

    first: int
    last: int
    text: str
    next_line: str
    is_alone: bool
    is_last: bool


def headed_parts(text: str, units: Sequence[Span], title: str) -> Headed:
    """Return what stands above the parts of a text, given by their characters; the title names its headings.

    The title of a passage that begins inside a table ends in the names of the columns, as table_title() gives them.
    """
    path = title.split(_TITLE_SEPARATOR)
    columns = path[-1].split(COLUMN_SEPARATOR) if COLUMN_SEPARATOR in path[-1] else []
    found = Headed([False] * len(units), {}, {}, columns)
    if "?" in text or "？" in text or "؟" in text:
        _mark_asked(text, units, found)
    if "\n" not in text and not columns and not _QUESTION.match(text, units[0][0] if units else 0):
        return found
    names = frozenset(_name(name) for name in path)
    groups = _lines(text, units)
    _mark_headings(groups, names, found.heads)
    _mark_tables(groups, units, found)
    _mark_questions(text, groups, units, found.heads)
    return found


def named_cells(text: str, header: Span | list[str], row: Span, part: Span) -> str:
    """Return the cells of a row that the part is in, each with the name of its column.

    header: the characters of the header, or the names of the columns.
    """
    if isinstance(header, list):
        names, cells = header, _cells_without_header(text, row, part, len(header))
    elif columns := _columns(text, header):
        names, cells = _column_texts(text, header, columns), _column_texts(text, row, columns)
    else:
        names = [text[begin:end] for begin, end in _cells(text, header)]
        cells = [text[begin:end] if begin < part[1] and end > part[0] else "" for begin, end in _cells(text, row)]
    pairs = itertools.zip_longest(names[: len(cells)], cells, fillvalue="")
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell).replace(r"\|", "|")


def _cells_without_header(text: str, row: Span, part: Span, count: int) -> list[str]:
    """Return the cells of a row of so many columns, whose header is not in the text."""
    lines = text[row[0] : row[1]].split("\n")
    if len(lines) > 1 and all(line.lstrip().startswith("|") for line in lines):
        cut = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
        return [" ".join(filter(None, cells)) for cells in itertools.zip_longest(*cut, fillvalue="")]
    if "|" not in lines[0] and not _FIRST_CELL.match(text, row[0], row[1]):
        return _GAP.split(text[row[0] : row[1]], maxsplit=count - 1)
    return [text[begin:end] if begin < part[1] and end > part[0] else "" for begin, end in _cells(text, row)]


def table_title(table: str) -> str:
    """Return the names of the columns of a table, given by its text, as the end of a title; "" for one without."""
    lines = table.split("\n", _MOST_HEADER_LINES)
    # In HTML a header may have several rows, of which the last names the columns.
    rule = next((at for at, line in enumerate(lines) if at and _is_table_rule(line.strip())), 0)
    if rule and all("|" in line for line in lines[:rule]):
        names = [lines[rule - 1][begin:end] for begin, end in _cells(lines[rule - 1], (0, len(lines[rule - 1])))]
    elif table.startswith(".. list-table") and (first := _FIRST_CELL.search(table)) and _HAS_HEADER in table:
        second = _FIRST_CELL.search(table, first.end())
        row = first.start(), len(table[: second.start() if second else None].rstrip())
        names = [table[begin:stop] for begin, stop in _cells(table, row)]
    else:
        rules = [at for at, line in enumerate(lines[:-1]) if _is_column_rule(line.strip())]
        if len(rules) < 2 or rules[0] or not lines[rules[1] + 1].strip() or "=" not in lines[rules[1]]:
            return ""
        begin = table.index("\n") + 1
        end = sum(len(line) + 1 for line in lines[: rules[1]]) - 1
        names = _column_texts(table, (begin, end), _columns(table, (begin, end)))
    return COLUMN_SEPARATOR.join(" ".join(name.split()) for name in names) if len(names) > 1 else ""


def _is_column_rule(line: str) -> bool:
    return bool(HEADER_RULE.match(line) or GRID_RULE.match(line))


def _lines(text: str, units: Sequence[Span]) -> list[_Lines]:
    """Return the parts, those that share a line together."""
    firsts = [at for at, (begin, _) in enumerate(units) if at == 0 or "\n" in text[units[at - 1][1] : begin]]
    groups = []
    for first, last in itertools.pairwise([*firsts, len(units)]):
        begin, end = units[first][0], units[last - 1][1]
        stop = units[last][0] if last < len(units) else len(text)
        rest = text[end:stop].split("\n", 3)
        next_line = rest[1].strip() if len(rest) > 1 else ""
        is_last = bool(next_line) and (len(rest) < 3 or (not rest[2].strip() and (len(rest) > 3 or stop == len(text))))
        groups.append(_Lines(first, last, text[begin:end], next_line, len(rest) > 2 and not next_line, is_last))
    return groups


def _mark_headings(groups: Sequence[_Lines], names: frozenset[str], heads: list[bool]) -> None:
    """Mark the parts of lines that are headings; those of others that stand above something."""
    is_below, after = False, ""
    for group in reversed(groups):
        is_heading = len(group.text) <= _LONGEST_CHARS and (
            _is_mark(group) or (_is_heading(group, names) if after else _is_cut_off(group))
        )
        if not is_heading and after:
            is_heading = _is_bare_heading(group) and (is_below or _is_prose(after))
        if is_heading:
            heads[group.first : group.last] = [True] * (group.last - group.first)
        is_below, after = is_heading, group.text
    # Headings without text are each cited; others than the last one would not be.
    is_underlined = bool(groups) and _is_underline(groups[-1].next_line) and not _ends_code(groups[-1].next_line)
    if is_underlined and all(heads[: groups[-1].first]):
        heads[groups[-1].first :] = [True] * (len(heads) - groups[-1].first)


def _ends_code(line: str) -> bool:
    """Return whether a line that may underline a heading is rather the fence below code."""
    return line.startswith("```") or line == "~~~"


def _is_mark(group: _Lines) -> bool:
    """Return whether a line only steers what follows; it is never cited, wherever it stands."""
    if "\n" in group.text:
        return False
    return (_is_short_mark if len(group.text) <= SHORT_CHARS else is_mark)(group.text)


_is_short_mark = lru_cache(1 << 14)(is_mark)


def _is_heading(group: _Lines, names: frozenset[str]) -> bool:
    """Return whether the form of a line, a rule below it or the document's title tells that it is a heading."""
    is_short = len(group.text) + len(group.next_line) <= SHORT_CHARS
    is_heading = _has_form_of_heading if is_short else _has_form_of_heading.__wrapped__
    return is_heading(group.text, group.next_line, names, group.last - group.first == 1)


@lru_cache(1 << 14)
def _has_form_of_heading(text: str, next_line: str, names: frozenset[str], is_one: bool) -> bool:
    """Return what _is_heading() does. is_one: whether the text is one part."""
    above, has_more, _ = text.partition("\n")
    if _is_rule(above):
        return _is_rule(next_line)  # a heading with an overline, or the header of a table of reStructuredText
    if has_more:
        if above.startswith(".. ") and _is_underline(next_line):
            return True  # a label, joined with the heading below it
        line, _, below = text.rpartition("\n")
        if _is_rule(below) and not below[0].isspace():
            return not line.endswith(_ENDS_SENTENCE)
        return is_one and _asks(text)
    if _MARKED.match(text) or _name(text) in names:
        return True
    if text.endswith(_ENDS_SENTENCE):
        return False
    if _is_underline(next_line):
        return True
    return bool(_BOLD.match(text)) or (is_one and _asks(text))


def _is_cut_off(group: _Lines) -> bool:
    """Return whether the last line of a text is a heading or a question whose answer is in the next passage.

    A tab or a comment that stands with its code in one part is none.
    """
    return (
        "\n" not in group.text
        and bool(_MARKED.match(group.text))
        or (group.last - group.first == 1 and _asks(group.text))
    )


def _is_rule(line: str) -> bool:
    """Return whether a line is made of one sign, as what underlines a heading or, with gaps, the columns of a table."""
    sign = line.lstrip(" ")[:1]
    return sign in _RULE_CHARS and len(line) > 1 and line not in ("::", "...") and not line.strip(f"{sign} ")


def _is_underline(line: str) -> bool:
    """Return whether a line underlines a heading."""
    return len(set(line)) == 1 and _is_rule(line)


def _asks(line: str) -> bool:
    """Return whether a line is a question; one that ends in a quotation mark tells of a question."""
    bare = without_attributes(line).rstrip(_TRAILING_MARKS)
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
        and not any(map(str.isdigit, line))
    )


def _is_prose(text: str) -> bool:
    """Return whether a text goes on as one does below a heading: in sentences, or in a list."""
    return len(text) > _LONGEST_BARE_CHARS or text.endswith((*_ENDS_SENTENCE, ":", "?", ")", '"', "”"))


def _mark_questions(text: str, groups: Sequence[_Lines], units: Sequence[Span], heads: list[bool]) -> None:
    """Mark the parts of questions that begin with "Q:", up to their answers, which may follow on the same line.

    A part that holds both, where no sentence ends between them, is left to be cited.
    """
    for group in groups:
        if not _QUESTION.match(group.text):
            continue
        is_question = True
        for place in range(group.first, group.last):
            begin, end = units[place]
            is_question = bool(
                _QUESTION.match(text, begin, end) or (is_question and not _ANSWER.match(text, begin, end))
            )
            if is_question:
                heads[place] = place + 1 < len(units) and not _ANSWERED.search(text, begin, end)


def _mark_asked(text: str, units: Sequence[Span], found: Headed) -> None:
    """Mark the questions inside a paragraph, which the sentence after each answers."""
    for place, ((begin, end), (after, _)) in enumerate(itertools.pairwise(units)):
        if text[end - 1] not in "?？؟" or place in found.headers:
            continue
        num_breaks = text.count("\n", end, after)
        # Of lines below each other that are questions each may be asked for.
        is_wrapped = num_breaks == 1 and ("\n" in text[begin:end] or not _begins_line(text, begin))
        if not num_breaks or is_wrapped:
            found.heads[place] = True


def _begins_line(text: str, begin: int) -> bool:
    """Return whether nothing but some blanks stands before a part in its line."""
    before = text[max(0, begin - _LONGEST_BARE_CHARS) : begin]
    return not before[before.rfind("\n") + 1 :].strip()


def _mark_tables(groups: Sequence[_Lines], units: Sequence[Span], found: Headed) -> None:
    """Mark the headers of tables, and note their rows: the lines up to an empty one."""
    header, has_header_row, is_above = NO_PART, False, bool(found.columns)
    for group in groups:
        span = units[group.first][0], units[group.last - 1][1]
        line, _, below = group.text.partition("\n")
        if _OPTION.match(line):
            has_header_row = has_header_row or line.startswith(_HAS_HEADER)
            continue
        if header < 0 and (has_header_row or _begins_table(line, below.strip(), group)):
            header = group.first
            found.heads[header : group.last] = [True] * (group.last - header)
        elif header >= 0 or is_above:
            found.headers.update(dict.fromkeys(range(group.first, group.last), header))
            found.rows.update(dict.fromkeys(range(group.first, group.last), span))
            # The rule below the last row of a simple table.
            if HEADER_RULE.match(group.next_line):
                header, is_above = NO_PART, False
        has_header_row = False
        if group.is_alone:
            header, is_above = NO_PART, False


def _begins_table(line: str, below: str, group: _Lines) -> bool:
    """Return whether a line, and what its group has below it, is the header of a table, by the rule below it."""
    if not below and not group.next_line:
        return False
    is_rule = _is_table_rule(group.next_line) or _is_table_rule(below)
    # A rule above a blank line ends a table without a header.
    return ("|" in line and is_rule) or bool(HEADER_RULE.match(group.next_line) and not group.is_last)


def _is_table_rule(line: str) -> bool:
    """Return whether a line divides the header of a table from its rows: |---|:-:|, or +===+===+ of a grid."""
    return (
        len(line) > 1
        and set(line) <= _TABLE_RULE_CHARS
        and (("|" in line and "-" in line) or ("+" in line and "=" in line))
    )


def _columns(text: str, header: Span) -> list[tuple[int, int | None]]:
    """Return the columns of a table of reStructuredText, from the rule below its header; none for other tables."""
    at = text.find("\n", header[1]) + 1
    stop = text.find("\n", at)
    rule = text[at : len(text) if stop < 0 else stop] if at else ""
    if GRID_RULE.match(rule.strip()):
        above = text[text.rfind("\n", 0, header[1]) + 1 : header[1]]
        runs = [run.span() for run in re.finditer("[=-]+", rule)]
        return [*runs] if len(above) == len(rule.rstrip()) else []
    if not HEADER_RULE.match(rule.strip()):
        return []
    firsts = [run.start() for run in re.finditer("[=-]+", rule)]
    return [*itertools.pairwise(firsts), (firsts[-1], None)]


def _column_texts(text: str, row: Span, columns: Sequence[tuple[int, int | None]]) -> list[str]:
    """Return what a row has in each column, which may go on in further lines."""
    begin = text.rfind("\n", 0, row[0]) + 1
    lines = text[begin : row[1]].split("\n")
    cells: list[list[str]] = [[] for _ in columns]
    for line in lines:
        # Of short lines the columns beyond their end are not looked at: a table may have many of both.
        for cell, (first, last) in zip(cells, columns, strict=True):
            if first >= len(line):
                break
            cell.append(line[first:last])
    return [" ".join(" ".join(cell).split()) for cell in cells]


def _cells(text: str, line: Span) -> list[Span]:
    r"""Return the characters of the cells of a row, without the signs between them; "\|" is no such sign."""
    begin, end = line
    if mark := _FIRST_CELL.match(text, begin, end):
        marks = [mark, *_NEXT_CELL.finditer(text, mark.end(), end)]
        stops = [*(mark.start() for mark in marks[1:]), end]
        return [_bare(text, mark.end(), stop) for mark, stop in zip(marks, stops, strict=True)]
    stop = text.find("\n", begin, end)
    end = end if stop < 0 else stop
    begin += text[begin:end].startswith("|")
    cells: list[Span] = []
    at = begin
    while at < end:
        bar = text.find("|", at, end)
        while bar > begin and text[bar - 1] == "\\":
            bar = text.find("|", bar + 1, end)
        stop = end if bar < 0 else bar
        cells.append(_bare(text, at, stop))
        at = stop + 1
    return cells


def _bare(text: str, begin: int, end: int) -> Span:
    """Return the range without outer whitespace."""
    cell = text[begin:end]
    first = begin + len(cell) - len(cell.lstrip())
    return first, max(first, begin + len(cell.rstrip()))


def without_attributes(heading: str) -> str:
    """Return a heading without the id and classes behind it, `{#id}` or `{ #id .class }`."""
    return _ATTRIBUTES.sub("", heading).rstrip() if heading.endswith("}") else heading


def _name(heading: str) -> str:
    """Return a heading without its marks, to compare it with others."""
    bare = without_attributes(heading.strip()).lstrip(_LEADING_MARKS).rstrip(_TRAILING_MARKS)
    return " ".join(bare.replace("*", "").replace("`", "").split()).casefold()
