"""Plain text, reStructuredText and source code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

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
from mvindex.corpus.passages.python import outline_python
from mvindex.corpus.passages.rst import outline_rst
from mvindex.records import Span

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
