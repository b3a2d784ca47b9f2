"""Plain text, reStructuredText and Python as passages, under their headings or definitions.

A tolerant reading by the rules of docutils, whose parser refuses the directives of Sphinx.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import decode_text, passage_format, read_whole
from mvindex.corpus.passages.outline import (
    Block,
    Outline,
    Section,
    SectionBuilder,
    line_spans,
    paragraphs,
    with_encoding,
)
from mvindex.corpus.rows import CorpusOptions
from mvindex.corpus.text.blocks import (
    GRID_RULE,
    SIMPLE_RULE,
    Kind,
    holds_no_prose,
    is_definition,
    parse_directive,
    stretches,
)
from mvindex.corpus.text.headings import table_title
from mvindex.records import Span

_RULE = re.compile(r"([!-/:-@[-`{-~])\1{2,}\s*\Z")
# A label, a field of the whole file, or a directive that only sets what later ones mean.
_SILENT = re.compile(
    r"\.\. _[^:\n]{1,200}:\s*\Z|:(?:orphan|nosearch|nocomments|tocdepth):[^\n]*\s*\Z"
    r"|\.\. (?:currentmodule|py:currentmodule|highlight|default-domain|rst-class)::[^\n]*\s*\Z"
)
_OPTION = re.compile(r"\s*:[a-zA-Z][\w-]*:")
_ITEM = re.compile(r"(?:[-*+•]|\(?(?:\d{1,3}|[a-zA-Z]|#)[.)])\s")
# What begins lines that may be these; what ends the number of an item, if that is a letter.
_WHOLE_SIGNS, _SILENT_SIGNS, _ITEM_ENDS = ("=", "+", ".", ":"), ".:", (".", ")")
_TABLE_SIGNS = ("=", "+", ".. list-table")
# A question of a FAQ that is no heading: a bold line or item. Definitions may stand below it.
_BOLD_QUESTION = re.compile(r"(?:(?:[-*+•]|\(?(?:\d{1,3}|#)[.)])[ \t]+)?\*\*([^*\n]{1,200}\?)\*\*\s*\Z")
_QUESTION_LEVEL = 999
# Around the names of headings: roles and marks of code and emphasis.
_ROLE = re.compile(r"(?::[a-z]+){1,2}:(?=`)")
# Deeper than any heading; a definition inside another is deeper by its indentation.
_DEFINITION_LEVEL = 1_000
# What is nested deeper is part of the definition around it: each passage names all that it is in.
_MOST_OPEN = 3


def outline_rst(text: str) -> Outline:
    """Return the outline of reStructuredText, whose headings are underlined, some of them overlined too.

    A definition that has text, such as `.. py:data:: NAME`, is a section below the heading; its name is the heading.
    """
    return _RstScanner(text).scan()


class _RstScanner:
    """Walks over the lines of a text once, and gives its headings, definitions and paragraphs to the builder."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = line_spans(text)
        self._builder = SectionBuilder()
        self._levels: list[tuple[str, bool]] = []
        # The indents of the definitions that are open.
        self._open: list[int] = []
        # The first line that the builder does not have.
        self._begin = 0

    def scan(self) -> Outline:
        at = 0
        while at < len(self._lines):
            at = self._take(at)
        self._flush(len(self._lines))
        return Outline(
            text=self._text, sections=self._builder.finish(), title=self._builder.first_heading, first_line=1
        )

    def _take(self, at: int) -> int:
        """Take the line at this position, with the one below it where that underlines it; return the next position."""
        line = self._line(at)
        bare = line.lstrip()
        if not bare:
            return at + 1
        indent = len(line) - len(bare)
        while self._open and indent <= self._open[-1]:
            self._flush(at)
            self._builder.end_heading(_DEFINITION_LEVEL + self._open.pop())
        if rule := self._rule_below(at):
            is_over = at > self._begin and self._line(at - 1).strip() == rule[0].strip()
            first = at - is_over
            first = self._labels_above(first, _plain(line))
            self._flush(first)
            if (rule[1], is_over) not in self._levels:
                self._levels.append((rule[1], is_over))
            level = self._levels.index((rule[1], is_over))
            self._builder.add_heading(level, _plain(line), Block(self._lines[first][0], self._lines[at + 1][1]))
            self._begin = at + 2
            return at + 2
        if not indent and "**" in line and (question := _BOLD_QUESTION.match(line)) and self._is_blank(at - 1):
            self._flush(at)
            self._builder.add_heading(_QUESTION_LEVEL, _plain(question[1]), Block(*self._lines[at]))
            self._begin = at + 1
            return at + 1
        is_deep = len(self._open) == _MOST_OPEN
        if not is_deep and bare[0] == "." and (name := _defined(bare)) and self._has_text(at, indent):
            self._flush(at)
            self._builder.add_heading(_DEFINITION_LEVEL + indent, name, Block(*self._lines[at]))
            self._open.append(indent)
            self._begin = at + 1
        return at + 1

    def _labels_above(self, at: int, name: str) -> int:
        """Return the line at which what only labels a heading begins, such as `.. setting:: NAME`; else its own.

        The end of the section above would be found by the name of this one.
        """
        first = at
        for above in range(at - 1, self._begin - 1, -1):
            line = self._line(above)
            if not _is_text(line):
                continue
            _, label = (parse_directive(line) if line[0] == "." else None) or ("", "")
            if not label or name not in (_plain(label), _plain(label.partition(" ")[0])):
                break
            first = above
        return first

    def _rule_below(self, at: int) -> re.Match[str] | None:
        """Return the rule that underlines this line; None where none does."""
        if at + 1 == len(self._lines):
            return None
        sign = self._text[self._lines[at + 1][0]]
        if sign.isalnum() or sign.isspace():  # most lines
            return None
        name, rule = self._line(at).strip(), _RULE.match(self._line(at + 1))
        is_one = rule is not None and not _RULE.match(name) and len(rule[0].rstrip()) >= len(name)
        return rule if is_one else None

    def _has_text(self, at: int, indent: int) -> bool:
        """Return whether more than options stands below a directive."""
        for below in range(at + 1, len(self._lines)):
            line = self._line(below)
            if line.strip() and not _OPTION.match(line):
                return _indent(line) > indent and not parse_directive(line)
        return False

    def _flush(self, end: int) -> None:
        """Give the blocks up to a line to the builder: paragraphs, items of lists, code and tables as a whole."""
        at, end = self._begin, max(self._begin, end)
        while at < end:
            line = self._line(at)
            if line.isspace():
                at += 1
                continue
            stop = self._end_of_whole(at, end) if line.lstrip()[0] in _WHOLE_SIGNS else at
            if stop > at:
                self._add_lines(at, stop)
            elif _is_text(line):
                stop = next((below for below in range(at + 1, end) if self._ends_block(below)), end)
                begun, ended = self._lines[at][0], self._lines[stop - 1][1]
                self._builder.add_block(Block(begun, ended, is_mark=_is_mark(self._text[begun:ended])))
                if self._line(stop - 1).rstrip().endswith("::"):
                    code_end = self._end_of_deeper(stop, end, _indent(line))
                    self._add_lines(stop, code_end)
                    stop = code_end
            at = max(stop, at + 1)
        self._begin = end

    def _add_lines(self, begin: int, end: int) -> None:
        """Give the lines [begin, end) of code or a table to the builder, if there are any."""
        if begin < end:
            first, last = self._lines[begin][0], self._lines[end - 1][1]
            is_table = self._line(begin).lstrip().startswith(_TABLE_SIGNS)
            columns = table_title(self._text[first:last].lstrip()) if is_table else ""
            is_mark = not is_table and _is_mark(self._text[first:last])
            self._builder.add_block(Block(first, last, is_lines=True, columns=columns, is_mark=is_mark))

    def _end_of_whole(self, at: int, end: int) -> int:
        """Return the line after the code, table or list of pages that begins at this line; itself for other text."""
        line = self._line(at)
        bare = line.strip()
        if SIMPLE_RULE.match(bare) or GRID_RULE.match(bare):
            return next((below for below in range(at, end) if not self._line(below).strip()), end)
        directive = parse_directive(bare)
        if bare != "::" and not (directive and (holds_no_prose(directive[0]) or directive[0] == "list-table")):
            return at
        return max(at + 1, self._end_of_deeper(at + 1, end, _indent(line)))

    def _end_of_deeper(self, begin: int, end: int, indent: int) -> int:
        """Return the line after those that are indented by more than this; the first one where none is."""
        last = begin
        for below in range(begin, end):
            line = self._line(below)
            if line.strip():
                if _indent(line) <= indent:
                    break
                last = below + 1
        return last

    def _is_blank(self, at: int) -> bool:
        return at < 0 or not self._line(at).strip()

    def _ends_block(self, at: int) -> bool:
        """Return whether a line below text is not of its block."""
        line = self._line(at)
        bare = line.strip()
        if bare[:1].isalpha() and bare[1:2] not in _ITEM_ENDS:
            return False
        if not _is_text(line) or _ITEM.match(bare):
            return True
        return bare[0] == "." and parse_directive(bare) is not None

    def _line(self, at: int) -> str:
        begin, end = self._lines[at]
        return self._text[begin:end]


def _is_mark(block: str) -> bool:
    """Return whether a block is a directive without content, such as `.. autofunction:: NAME`, or a list of pages."""
    return block.lstrip().startswith("..") and all(each.kind is Kind.MARK for each in stretches(block))


def _is_text(line: str) -> bool:
    return not line.isspace() and not (line[0] in _SILENT_SIGNS and _SILENT.match(line))


def _defined(line: str) -> str:
    """Return what a line defines, without its arguments; "" for another line."""
    directive = parse_directive(line)
    if directive is None or not is_definition(directive[0]):
        return ""
    return directive[1].partition("(")[0].strip() or directive[1]


def _plain(heading: str) -> str:
    """Return a heading without roles, emphasis and escapes."""
    name = heading.strip()
    if "`" in name:
        name = _ROLE.sub("", name).replace("`", "")
    return name.replace("*", "").replace("\\", "")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# A definition of fewer lines is part of what stands above it: a passage of a line or two says too little.
_LEAST_LINES = 8
# Longer files are read as any code is: the tree takes up to a thousand times the memory of the text.
_MOST_CHARS = 1 << 18
# Python 3.11 takes a fifth of a nanosecond for each brace of an f-string and each character of it: half a second.
_MOST_BRACES_BY_CHARS = 2_500_000_000
_F_STRING = re.compile(r"[fF][rR]?['\"]")
# What is nested deeper is part of the class or function around it.
_MOST_DEPTH = 3

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def outline_python(text: str) -> Outline | None:
    """Return the outline of Python source; None where it cannot be parsed."""
    tree = _parse(text)
    lines = line_spans(text)
    # A carriage return or form feed may end a line for the parser only: its numbers are then not ours.
    if tree is None or len(text.splitlines()) != len(lines):
        return None
    scanner = _PythonScanner(text, lines)
    scanner.add(tree.body, 0, len(lines), 0)
    return Outline(text=text, sections=scanner.builder.finish(), first_line=1)


class _PythonScanner:
    """Gives the definitions of a file, and the lines between them, to a builder."""

    def __init__(self, text: str, lines: Sequence[tuple[int, int]]) -> None:
        self.builder = SectionBuilder()
        self._text, self._lines = text, lines

    def add(self, body: Sequence[ast.stmt], begin: int, end: int, depth: int) -> None:
        """Add the lines [begin, end), which hold these statements; the definitions among them are sections."""
        for node in body if depth < _MOST_DEPTH else ():
            if not isinstance(node, _Definition):
                continue
            last = node.end_lineno or node.lineno
            first = self._first_line(node, begin)
            if last - first < _LEAST_LINES:
                continue
            self._add_lines(begin, first)
            head = Block(self._lines[first][0], self._lines[node.lineno - 1][1], is_lines=True)
            self.builder.add_heading(depth, node.name, head)
            self.add(node.body, node.lineno, last, depth + 1)
            self.builder.end_heading(depth)
            begin = last
        self._add_lines(begin, end)

    def _first_line(self, node: _Definition, least: int) -> int:
        """Return the line that a definition begins at, with its decorators and the comments above it."""
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
        while first > least and self._text.startswith("#", self._indented(first - 1)):
            first -= 1
        return first

    def _indented(self, line: int) -> int:
        begin, end = self._lines[line]
        part = self._text[begin:end]
        return begin + len(part) - len(part.lstrip())

    def _add_lines(self, begin: int, end: int) -> None:
        for block in paragraphs(self._text, self._lines[begin:end], is_lines=True):
            self.builder.add_block(block)


def _parse(text: str) -> ast.Module | None:
    if len(text) > _MOST_CHARS:
        return None
    if text.count("{") * len(text) > _MOST_BRACES_BY_CHARS and _F_STRING.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings with odd escapes
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_QUESTION = re.compile(r"(?:Q|Question)[ \t]?\d{0,3}[.:)][ \t]+([^\n]{1,200}\?)\s*\Z", re.IGNORECASE)
_PYTHON = (".py", ".pyi")
_CODE_SUFFIXES = tuple(
    ".adb .asm .bash .bat .c .cc .clj .cmake .cpp .cs .css .cxx .dart .el .erl .ex .exs .f90 .fs .go .gradle .graphql "
    ".groovy .h .hpp .hs .ini .java .jl .js .jsx .kt .kts .lisp .lua .m .make .mjs .ml .nim .nix .pas .php .pl .pm "
    ".proto .ps1 .py .pyi .r .rb .rs .sass .scala .scm .scss .sh .sql .swift .tcl .tex .tf .toml .ts .tsx .vb .vim "
    ".vue .yaml .yml .zig .zsh .cfg .conf".split()
)


def outline_text(text: str) -> Outline:
    """Return the outline of a text, whose blocks blank lines separate; its only headings are "Q: How ...?" of a FAQ."""
    lines, begin, builder = line_spans(text), 0, SectionBuilder()
    for at, (first, last) in enumerate(lines):
        if text[first] in "qQ" and (question := _QUESTION.match(text, first, last)):
            _add_blocks(builder, text, lines[begin:at])
            builder.add_heading(1, question[1], Block(first, last))
            begin = at + 1
    _add_blocks(builder, text, lines[begin:])
    return Outline(text=text, sections=builder.finish(), first_line=1)


def _add_blocks(builder: SectionBuilder, text: str, lines: Sequence[Span]) -> None:
    for block in paragraphs(text, lines):
        builder.add_block(block)


def outline_code(text: str) -> Outline:
    """Return the outline of source code, whose blocks are cut between lines."""
    section = Section((), list(paragraphs(text, line_spans(text), is_lines=True)))
    return Outline(text=text, sections=[section], first_line=1)


def _reader(outline_of: Callable[[str], Outline]) -> Callable[[Input, CorpusOptions], Iterator[Outline]]:
    def read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
        text, encoding = decode_text(read_whole(file, options), file.name)
        yield with_encoding(outline_of(text), encoding)

    return read


def _read_code(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of a file of code, whose title is its path: many are of one name."""
    text, encoding = decode_text(read_whole(file, options), file.name)
    path = PurePath(file.relative_path)
    outline = (outline_python(text) if path.name.endswith(_PYTHON) else None) or outline_code(text)
    title = path.name if path.is_absolute() else path.as_posix()
    yield replace(with_encoding(outline, encoding), title=title)


CODE = passage_format("code", _CODE_SUFFIXES, _read_code)
FORMATS = (
    passage_format("text", (".txt", ".text", ".log", ".org", ".adoc"), _reader(outline_text)),
    passage_format("rst", (".rst",), _reader(outline_rst)),
    CODE,
)
