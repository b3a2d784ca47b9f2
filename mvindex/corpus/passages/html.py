"""HTML as text: headings are kept, a row of a table is a line; scripts, styles and navigation are left out.

A rule below the header of a table tells it from the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
_CELLS = frozenset(("td", "th"))
_SPANS = re.compile(r"\s(row|col)span\s*=\s*[\"']?\s*([0-9]{1,4})", re.IGNORECASE)
# So many characters may be added for each of a table, by cells that go over several rows or columns, and some at first.
_MOST_ADDED, _MIN_ADDED = 8, 10_000
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


@dataclass(slots=True)
class _Cell:
    """A cell of a table. tag: td or th; rows, columns: over how many it goes; parts: of its text."""

    tag: str
    rows: int
    columns: int
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text as one line of a table's."""
        return " ".join("".join(self.parts).split()).replace("|", r"\|")


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
        # The cells of the row that is open, what goes on from rows above by its column, and the rows of the header.
        self._row: list[_Cell] = []
        self._from_above: dict[int, _Cell] = {}
        self._header_rows: list[int] | None = None
        # Characters that rows may still get beside their own: what goes on from above, and empty cells.
        self._most_added = _MIN_ADDED

    def begin_tag(self, tag: str, source: str = "") -> None:
        """Take a start tag. source: the tag with its attributes, of a cell."""
        if self._skipped or tag in _SKIPPED:
            if tag not in _VOID:
                self._skipped.append(tag)
                self._num_skipped[tag] += 1
        elif tag == "title":
            self._in_title = True
        elif tag == "br":
            self._put("\n")
        elif tag in _HEADINGS:
            self._end_block()
            self._heading = _HEADINGS[tag]
        elif tag == "pre":
            self._end_block()
            self._pre_depth += 1
        elif tag in _TABLE_TAGS:
            self._begin_table_part(tag, source)
        elif tag in _BLOCKS:
            self._begin_block(tag)

    def _begin_block(self, tag: str) -> None:
        if self._table_depth:
            self._put(" ")
            return
        self._end_block()
        if tag == "li":
            self._block.append("- ")
        self._part = tag if tag in _DEFINITIONS else self._part if tag == "p" else ""

    def _put(self, text: str) -> None:
        (self._row[-1].parts if self._row else self._block).append(text)

    def _begin_table_part(self, tag: str, source: str) -> None:
        if tag == "table":
            self._end_block()
            self._table_depth += 1
            self._from_above, self._header_rows = {}, []
        elif tag == "tr":
            self._end_row()
            self._block.append("\n")
        else:
            spans = {name.lower(): int(number) for name, number in _SPANS.findall(source)}
            self._row.append(_Cell(tag, spans.get("row", 1), max(1, spans.get("col", 1))))

    def _end_row(self) -> None:
        """End a row, as a line of its cells in their columns."""
        if not self._row:
            return
        cells = self._in_columns()
        is_header, self._row = len(cells) > 1 and {cell.tag for cell in self._row} == {"th"}, []
        if not any(cells):
            return
        if self._header_rows is not None and not is_header:
            self._end_header()
        # A bar in front keeps an empty first cell.
        line = ("" if cells[0] else "| ") + " | ".join(cells)
        self._block.append(f"\n{line}")
        if self._header_rows is not None:
            self._header_rows.append(len(self._block))

    def _end_header(self) -> None:
        """Put the rule that tells a header from the rows below the rows of `th` alone with which a table begins."""
        if self._header_rows:
            line = self._block[self._header_rows[-1] - 1]
            self._block.insert(self._header_rows[-1], "\n" + " | ".join(["---"] * (line.count(" | ") + 1)))
        self._header_rows = None

    def _in_columns(self) -> list[str]:
        """Return the texts of the open row by column; a cell that goes over several rows comes in each of them."""
        texts: dict[int, str] = {}
        column = 0
        from_above, self._from_above = self._from_above, {}
        self._most_added += _MOST_ADDED * sum(len(cell.text) + 1 for cell in self._row)
        # What goes on from above fills its columns before each cell, and behind the last one.
        for cell in (*self._row, None):
            while (above := from_above.pop(column, None)) is not None and len(texts) < self._most_added:
                self._most_added -= len(above.text) + 1
                texts[column] = above.text if self._most_added > 0 else ""
                self._go_on(column, above)
                column += above.columns
            if cell is not None:
                texts[column] = cell.text
                self._go_on(column, cell)
                column += cell.columns
        self._most_added -= max(texts) + 1 - len(texts)
        if self._most_added <= 0:
            return list(texts.values())
        return [texts.get(place, "") for place in range(max(texts) + 1)]

    def _go_on(self, column: int, cell: _Cell) -> None:
        if cell.rows > 1:
            self._from_above[column] = replace(cell, rows=cell.rows - 1)

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
            if self._header_rows is not None and len(self._header_rows) > 1:
                del self._header_rows[1:]
                self._end_header()
            self._header_rows = None
            self._table_depth = max(0, self._table_depth - 1)
            self._end_block(is_lines=True)
        elif tag in _TABLE_TAGS or (tag in _BLOCKS and self._table_depth):
            self._put(" ")
        elif tag in _BLOCKS:
            self._end_block()

    def add_text(self, data: str) -> None:
        if self._skipped:
            return
        data = unset(unescape(_HUGE_NUMBER.sub("\ufffd", data)))
        if self._in_title:
            self._title.append(data)
        else:
            self._put(data if self._pre_depth else _SPACES.sub(" ", data))

    def finish(self) -> Outline:
        self._end_block()
        title = " ".join("".join(self._title).split()) or self._first_h1
        return Outline(text="".join(self.parts), sections=self.builder.finish(), title=title)

    def _end_block(self, *, is_lines: bool = False) -> None:
        self._end_row()
        if self._header_rows:
            self._end_header()
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
            return self._take_start(name, begin, end)
        return end

    def _take_start(self, name: str, begin: int, end: int) -> int:
        """Take a start tag, and the text behind it where that holds no tags; return where it ends."""
        if name not in _RAW_ENDS:
            self._collector.begin_tag(name, self._source[begin:end] if name in _CELLS else "")
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
