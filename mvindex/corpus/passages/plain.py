"""Plain text, reStructuredText and source code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages.decode import decode_text
from mvindex.corpus.passages.documents import passage_format, read_whole
from mvindex.corpus.passages.outline import (
    Block,
    Outline,
    Section,
    SectionBuilder,
    line_spans,
    paragraphs,
    with_encoding,
)

_CODE_SUFFIXES = tuple(
    ".adb .asm .bash .bat .c .cc .clj .cmake .cpp .cs .css .cxx .dart .el .erl .ex .exs .f90 .fs .go .gradle .graphql "
    ".groovy .h .hpp .hs .ini .java .jl .js .jsx .kt .kts .lisp .lua .m .make .mjs .ml .nim .nix .pas .php .pl .pm "
    ".proto .ps1 .py .pyi .r .rb .rs .sass .scala .scm .scss .sh .sql .swift .tcl .tex .tf .toml .ts .tsx .vb .vim "
    ".vue .yaml .yml .zig .zsh .cfg .conf".split()
)
_RULE = re.compile(r"([!-/:-@[-`{-~])\1{2,}\s*\Z")


def outline_text(text: str, *, is_lines: bool = False) -> Outline:
    """Return the outline of a text without headings; blank lines separate its blocks."""
    section = Section((), list(paragraphs(text, line_spans(text), is_lines=is_lines)))
    return Outline(text=text, sections=[section], first_line=1)


def outline_rst(text: str) -> Outline:
    """Return the outline of reStructuredText, whose headings are underlined, some of them overlined too."""
    builder = SectionBuilder()
    lines = line_spans(text)
    levels: list[tuple[str, bool]] = []
    begin = 0
    at = 0
    while at + 1 < len(lines):
        rule, name = _RULE.match(_cut(text, lines[at + 1])), _cut(text, lines[at]).strip()
        if rule is None or not name or _RULE.match(name) or len(rule[0].rstrip()) < len(name):
            at += 1
            continue
        is_over = at > 0 and _cut(text, lines[at - 1]).strip() == rule[0].strip()
        first = at - is_over
        for block in paragraphs(text, lines[begin:first]):
            builder.add_block(block)
        if (rule[1], is_over) not in levels:
            levels.append((rule[1], is_over))
        builder.add_heading(levels.index((rule[1], is_over)), name, Block(lines[first][0], lines[at + 1][1]))
        begin = at = at + 2
    for block in paragraphs(text, lines[begin:]):
        builder.add_block(block)
    return Outline(text=text, sections=builder.finish(), title=builder.first_heading, first_line=1)


def _cut(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]]


def _reader(outline_of: Callable[[str], Outline]) -> Callable[[Input, CorpusOptions], Iterator[Outline]]:
    def read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
        text, encoding = decode_text(read_whole(file, options), file.name)
        yield with_encoding(outline_of(text), encoding)

    return read


CODE = passage_format("code", _CODE_SUFFIXES, _reader(lambda text: outline_text(text, is_lines=True)))
FORMATS = (
    passage_format("text", (".txt", ".text", ".log", ".org", ".adoc"), _reader(outline_text)),
    passage_format("rst", (".rst",), _reader(outline_rst)),
    CODE,
)
