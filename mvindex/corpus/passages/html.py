"""HTML as text: headings are kept, a row of a table is a line; scripts, styles and navigation are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages.decode import decode_html
from mvindex.corpus.passages.documents import passage_format, read_whole
from mvindex.corpus.passages.outline import Block, Outline, SectionBuilder, with_encoding
from mvindex.errors import CorpusError

_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "nav", "button"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_BLOCKS = frozenset(
    "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption figure footer form "
    "head header hgroup hr html legend li main ol p section summary table tbody tfoot thead ul".split()
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_TABLE_TAGS = frozenset(("table", "tr", "td", "th"))
_SPACES = re.compile(r"[ \t\r\n\f]+")


class _TextOfHtml(HTMLParser):
    """Collects the text of a page as blocks that blank lines separate."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.builder = SectionBuilder()
        self.title = ""
        self.parts: list[str] = []
        self._length = 0
        self._block: list[str] = []
        self._skipped: list[str] = []
        self._heading: int | None = None
        self._in_title = False
        self._pre_depth = 0
        self._table_depth = 0
        self._is_first_cell = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped or tag in _SKIPPED:
            if tag not in _VOID:
                self._skipped.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "br":
            self._block.append("\n")
        elif tag in _HEADINGS:
            self._end_block()
            self._heading = _HEADINGS[tag]
        elif tag == "pre":
            self._end_block()
            self._pre_depth += 1
        elif tag in _TABLE_TAGS:
            self._begin_table_part(tag)
        elif tag in _BLOCKS and not self._table_depth:
            self._end_block()
            if tag == "li":
                self._block.append("- ")

    def _begin_table_part(self, tag: str) -> None:
        if tag == "table":
            self._end_block()
            self._table_depth += 1
        elif tag == "tr":
            self._block.append("\n")
            self._is_first_cell = True
        else:
            self._block.append("" if self._is_first_cell else " | ")
            self._is_first_cell = False

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            # An end tag closes what is open inside it; one that nothing opened is ignored.
            if tag in self._skipped:
                del self._skipped[len(self._skipped) - 1 - self._skipped[::-1].index(tag) :]
        elif tag == "title":
            self._in_title = False
        elif tag in _HEADINGS:
            self._end_block()
            self._heading = None
        elif tag == "pre":
            self._end_block()
            self._pre_depth = max(0, self._pre_depth - 1)
        elif tag == "table":
            self._table_depth = max(0, self._table_depth - 1)
            self._end_block(is_lines=True)
        elif tag in _BLOCKS and not self._table_depth:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        if self._in_title:
            self.title += data
        else:
            self._block.append(data if self._pre_depth else _SPACES.sub(" ", data))

    def finish(self) -> Outline:
        self.close()
        self._end_block()
        title = " ".join(self.title.split()) or self.builder.first_heading
        return Outline(text="".join(self.parts), sections=self.builder.finish(), title=title)

    def _end_block(self, *, is_lines: bool = False) -> None:
        text = "".join(self._block)
        self._block = []
        if not self._pre_depth:
            text = "\n".join(line for line in (_SPACES.sub(" ", one).strip() for one in text.split("\n")) if line)
        text = text.strip("\r\n")
        if not text.strip() or text == "-":
            return
        if self.parts:
            self.parts.append("\n\n")
            self._length += 2
        block = Block(self._length, self._length + len(text), is_lines or bool(self._pre_depth))
        self.parts.append(text)
        self._length += len(text)
        if self._heading is None:
            self.builder.add_block(block)
        else:
            self.builder.add_heading(self._heading, " ".join(text.split()), block)


def outline_html(source: str) -> Outline:
    """Return the outline of an HTML page; its text has line breaks of its own, so it knows no lines."""
    parser = _TextOfHtml()
    parser.feed(source)
    return parser.finish()


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    source, encoding = decode_html(read_whole(file, options), file.name)
    try:
        yield with_encoding(outline_html(source), encoding)
    except AssertionError as err:  # html.parser's own, for declarations that it does not know
        raise CorpusError(f"{file.name}: cannot be read as HTML: {err}") from err


FORMATS = (passage_format("html", (".html", ".htm", ".xhtml"), _read),)
