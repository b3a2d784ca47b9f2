"""HTML as text: headings are kept, a row of a table is a line; scripts, styles and navigation are left out.

A rule below the header of a table tells it from the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import decode_html, passage_format, read_whole
from mvindex.corpus.passages.markdown import front_matter
from mvindex.corpus.passages.outline import Block, Outline, SectionBuilder, fit_fields, with_encoding
from mvindex.corpus.rows import CorpusOptions
from mvindex.corpus.text.headings import table_title
from mvindex.corpus.text.words import unset

_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "nav", "button"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_BLOCKS = frozenset(
    "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption figure footer form "
    "head header hgroup hr html label legend li main ol optgroup option p section select summary table tbody textarea "
    "tfoot thead ul".split()
)
_DEFINITIONS = frozenset(("dt", "dd"))
# Between a term and its definition: as in reStructuredText, so that both are one fact.
_DEFINITION_GAP = "\n    "
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_TABLE_TAGS = frozenset(("table", "tr", "td", "th"))
# Up to their end tag there is text only, whatever it looks like.
_RAW_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "iframe", "title", "textarea")
}
_SPACES = re.compile(r"[ \t\r\n\f]+")
_MARKUP = re.compile("<[A-Za-z/!?]")
# Bounded: what never ends would be read from each of its characters on.
_TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]{0,63})")
# What ends a tag, or begins a value in which ">" does not.
_IN_TAG = re.compile(r">|=\s*([\"'])")
_TAG_END = re.compile(">")
_COMMENT_END = re.compile("--!?>")
# A number of no character: int() refuses to read a long one.
_HUGE_NUMBER = re.compile("&#(?:[0-9]{8,}|[xX][0-9A-Fa-f]{7,});?")


class _TextOfHtml:
    """Collects the text of a page as blocks that blank lines separate."""

    def __init__(self) -> None:
        self.builder = SectionBuilder()
        self._title: list[str] = []
        self._first_h1 = ""
        self.parts: list[str] = []
        self._length = 0
        self._block: list[str] = []
        # The elements that are open inside one that is left out, and how many there are of each name.
        self._skipped: list[str] = []
        self._num_skipped: Counter[str] = Counter()
        self._heading: int | None = None
        # "dt" or "dd" where the open block, and where the last one, is a term or its definition.
        self._part, self._last_part = "", ""
        self._in_title = False
        self._pre_depth = 0
        self._table_depth = 0
        # The tags of the cells of the row that is open, and whether the table may still have a header.
        self._cells: list[str] = []
        self._may_have_header = False

    def begin_tag(self, tag: str) -> None:
        if self._skipped or tag in _SKIPPED:
            if tag not in _VOID:
                self._skipped.append(tag)
                self._num_skipped[tag] += 1
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
            self._part = tag if tag in _DEFINITIONS else self._part if tag == "p" else ""

    def _begin_table_part(self, tag: str) -> None:
        if tag == "table":
            self._end_block()
            self._table_depth += 1
            self._cells, self._may_have_header = [], True
        elif tag == "tr":
            self._end_row()
            self._block.append("\n")
        else:
            self._block.append(" | " if self._cells else "")
            self._cells.append(tag)

    def _end_row(self) -> None:
        """End a row; below a first one of `th` alone comes the rule that tells it from the others."""
        if self._cells and self._may_have_header:
            if len(self._cells) > 1 and set(self._cells) == {"th"}:
                self._block.append("\n" + " | ".join(["---"] * len(self._cells)))
            self._may_have_header = False
        self._cells = []

    def end_tag(self, tag: str) -> None:
        if self._skipped:
            # An end tag closes what is open inside it; one that nothing opened is ignored.
            closed = "" if self._num_skipped[tag] else tag
            while closed != tag:
                closed = self._skipped.pop()
                self._num_skipped[closed] -= 1
        elif tag == "title":
            self._in_title = False
        elif tag in _HEADINGS:
            self._end_block()
            self._heading = None
        elif tag == "pre":
            self._end_block()
            self._pre_depth = max(0, self._pre_depth - 1)
        elif tag == "table":
            self._end_row()
            self._table_depth = max(0, self._table_depth - 1)
            self._end_block(is_lines=True)
        elif tag in _BLOCKS and not self._table_depth:
            self._end_block()

    def add_text(self, data: str) -> None:
        if self._skipped:
            return
        data = unset(unescape(_HUGE_NUMBER.sub("\ufffd", data)))
        if self._in_title:
            self._title.append(data)
        else:
            self._block.append(data if self._pre_depth else _SPACES.sub(" ", data))

    def finish(self) -> Outline:
        self._end_block()
        title = " ".join("".join(self._title).split()) or self._first_h1
        return Outline(text="".join(self.parts), sections=self.builder.finish(), title=title)

    def _end_block(self, *, is_lines: bool = False) -> None:
        text = "".join(self._block)
        self._block = []
        if not self._pre_depth:
            text = "\n".join(line for line in (_SPACES.sub(" ", one).strip() for one in text.split("\n")) if line)
        text = text.strip("\r\n")
        if not text.strip() or text == "-":
            return
        is_defined = self._part == "dd" and self._last_part == "dt" and self._heading is None
        self._part, self._last_part = "", self._part
        if self.parts:
            gap = _DEFINITION_GAP if is_defined else "\n\n"
            self.parts.append(gap)
            self._length += len(gap)
        columns = table_title(text) if is_lines else ""
        block = Block(self._length, self._length + len(text), is_lines or bool(self._pre_depth), columns)
        self.parts.append(text)
        self._length += len(text)
        if is_defined:
            self.builder.extend_block(block.end)
        elif self._heading is None:
            self.builder.add_block(block)
        else:
            name = " ".join(text.split())
            self.builder.add_heading(self._heading, name, block)
            self._first_h1 = self._first_h1 or (name if self._heading == 1 else "")


class _Scanner:
    """Gives the tags and texts of a page to a collector, and reads no character more than a few times.

    It follows the HTML standard, except that what never ends is text: a comment without "-->", a tag without ">".
    What was looked for in vain up to the end of the page is not looked for again.
    """

    def __init__(self, source: str, collector: _TextOfHtml) -> None:
        self._source = source
        self._collector = collector
        self._absent: set[re.Pattern[str]] = set()
        self._has_open_value = False

    def scan(self) -> None:
        begin = at = 0
        while found := _MARKUP.search(self._source, at):
            self._add_text(begin, found.start())
            begin = self._take(found.start())
            at = max(begin, found.end())
        self._add_text(begin, len(self._source))

    def _add_text(self, begin: int, end: int) -> None:
        if begin < end:
            self._collector.add_text(self._source[begin:end])

    def _take(self, begin: int) -> int:
        """Take the tag or comment that begins here; return where it ends, or begin where it is text."""
        source = self._source
        if source.startswith("<!--", begin):
            # "<!-->" is a whole comment.
            end = self._find(_COMMENT_END, begin + 2)
        elif name := _TAG_NAME.match(source, begin):
            return self._take_tag(name[1].lower(), begin, self._end_of_tag(name.end()))
        elif source.startswith(("<!", "<?", "</"), begin):
            end = self._find(_TAG_END, begin)
        else:
            return begin
        return begin if end is None else end.end()

    def _take_tag(self, name: str, begin: int, end: int | None) -> int:
        source = self._source
        if end is None:
            return begin
        if source.startswith("</", begin):
            self._collector.end_tag(name)
        elif not source.endswith("/>", begin, end) or name in _VOID:
            return self._take_start(name, end)
        return end

    def _take_start(self, name: str, end: int) -> int:
        """Take a start tag that ends here, and the text behind it where that holds no tags; return where it ends."""
        if name not in _RAW_ENDS:
            self._collector.begin_tag(name)
            return end
        closing = self._find(_RAW_ENDS[name], end)
        if closing is None and name not in _SKIPPED:
            return end
        self._collector.begin_tag(name)
        raw_end = len(self._source) if closing is None else closing.start()
        self._add_text(end, raw_end)
        return raw_end

    def _end_of_tag(self, at: int) -> int | None:
        """Return where the tag with a name up to here ends; None where it does not."""
        tag_end = at
        while not self._has_open_value and (found := self._find(_IN_TAG, tag_end)):
            if found[1] is None:
                return found.end()
            tag_end = self._source.find(found[1], found.end()) + 1
            self._has_open_value = tag_end == 0
        # Where a quote is never closed, none after it is trusted.
        found = self._find(_TAG_END, at)
        return None if found is None else found.end()

    def _find(self, pattern: re.Pattern[str], begin: int) -> re.Match[str] | None:
        if pattern in self._absent:
            return None
        found = pattern.search(self._source, begin)
        if found is None:
            self._absent.add(pattern)
        return found


def outline_html(source: str) -> Outline:
    """Return the outline of an HTML page; its text has line breaks of its own, so it knows no lines."""
    collector = _TextOfHtml()
    _Scanner(source, collector).scan()
    return collector.finish()


def _read(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    source, encoding = decode_html(read_whole(file, options), file.name)
    # Of the pages of a site generator.
    fields, begin = front_matter(source, lambda *_: None)
    metadata = fit_fields(fields, lambda message: file.warn(1, f"front matter: {message}"))
    outline = outline_html(source[begin:])
    title = str(metadata.pop("title", None) or outline.title)
    yield with_encoding(replace(outline, title=title, metadata=metadata), encoding)


FORMATS = (passage_format("html", (".html", ".htm", ".xhtml"), _read),)
