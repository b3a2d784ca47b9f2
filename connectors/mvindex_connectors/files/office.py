"""Word, PowerPoint and EPUB, by MarkItDown: converted to Markdown, which is then split as any."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages import Outline, passage_format
from mvindex.corpus.passages.markdown import outline_markdown
from mvindex.corpus.rows import CorpusOptions
from mvindex.corpus.text.words import unset
from mvindex_connectors.files.parsing import parse_file

_SLIDE = re.compile(r"^<!-- Slide number: (\d+) -->$", re.MULTILINE)
# Before the chapters MarkItDown writes title, authors and more, a line each.
_EPUB_HEAD = re.compile(r"\A\s*(?:\*\*\w+:\*\*.*\n)+")
_EPUB_TITLE = re.compile(r"\*\*Title:\*\* (.+)")


def read_docx(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of a Word file."""
    yield outline_markdown(_convert(file, options, "docx"))


def read_epub(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of a book."""
    text = _convert(file, options, "epub")
    head = _EPUB_HEAD.match(text)
    title = _EPUB_TITLE.search(head[0]) if head else None
    yield outline_markdown(text[head.end() :] if head else text, title=title[1].strip() if title else "")


def read_pptx(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outline of each slide."""
    text = _convert(file, options, "pptx")
    _, *parts = _SLIDE.split(text)
    title = ""
    for number, slide in zip(parts[::2], parts[1::2], strict=True):
        outline = outline_markdown(slide, page=int(number))
        title = title or outline.title
        yield outline_markdown(slide, page=int(number), title=title)


def _convert(file: Input, options: CorpusOptions, form: str) -> str:
    """Return a file as Markdown."""
    return unset("".join(parse_file(file, options, form)).replace("\0", ""))


DOCX = passage_format("docx", (".docx",), read_docx)
PPTX = passage_format("pptx", (".pptx",), read_pptx)
EPUB = passage_format("epub", (".epub",), read_epub)
