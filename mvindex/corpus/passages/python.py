"""Python source: its larger classes and functions are sections, so that each passage names where it stands."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

from mvindex.corpus.passages.outline import Block, Outline, SectionBuilder, line_spans, paragraphs

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
    scanner = _Scanner(text, lines)
    scanner.add(tree.body, 0, len(lines), 0)
    return Outline(text=text, sections=scanner.builder.finish(), first_line=1)


class _Scanner:
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
