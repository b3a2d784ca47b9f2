"""Delimited rows: cells in csv's quotes that may run over several lines, as documents or rejects."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mvindex.corpus.lines import Lines, decode_utf8, reject_oversize, without_line_end
from mvindex.corpus.rows import (
    Reject,
    Row,
    Source,
    SourceLocation,
    cell_text,
    content_id,
    list_names,
    place_row,
    row_text,
)
from mvindex.errors import CorpusError, DocumentError
from mvindex.records import Document, require_text

_QUOTE = b'"'
_PAIR = b'""'
_PADDING = b" "
_LINE_DONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How cells are found, and what they become.

    Attributes:
        delimiter: The character between cells.
        is_padded: Whether blanks around the delimiter are no part of cells, as in `id, text`.
        is_quoted: Whether a cell may be quoted, as the csv module writes it.
        is_sparse: Whether empty cells are missing values, and rows without any other cell are skipped.

    """

    delimiter: bytes = b"\t"
    is_padded: bool = False
    is_quoted: bool = True
    is_sparse: bool = False


def split_simple(line: bytes, layout: Layout) -> list[bytes] | None:
    """Split a row whose quotes close in their own cell; return None for a row that needs QuotedCells.

    Most rows are of the first kind, and this is several times as fast.
    """
    cells = without_line_end(line).split(layout.delimiter)
    if layout.is_padded:
        cells = [cell.strip(_PADDING) for cell in cells]
    if _QUOTE not in line:
        return cells
    for column, cell in enumerate(cells):
        if cell.startswith(_QUOTE):
            inner = cell[1:-1]
            if len(cell) < 2 or not cell.endswith(_QUOTE) or _QUOTE in inner.replace(_PAIR, b""):
                return None
            cells[column] = inner.replace(_PAIR, _QUOTE)
    return cells


class QuotedCells:
    """The cells of one row, fed line by line until no quote is open.

    The csv module is not used: its limit on the size of a field is one setting for the whole process, and it treats a
    lone carriage return as the end of a row.
    """

    def __init__(self, max_cells: int, layout: Layout) -> None:
        self.cells: list[bytes] = []
        self._max_cells, self._delimiter = max_cells, layout.delimiter
        self._is_padded = layout.is_padded
        self._open: bytearray | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the last cell's quote is open, so that the row goes on in the next line."""
        return self._open is not None

    def feed(self, line: bytes) -> None:
        """Add one more line, with its end; raise DocumentError when the quotes or the number of cells are wrong."""
        body_bytes = len(without_line_end(line))
        pos = 0 if self._open is None else self._read_quoted(line, 0, body_bytes)
        while pos != _LINE_DONE:
            if len(self.cells) == self._max_cells:
                raise DocumentError(f"more than {self._max_cells} columns; the header has {self._max_cells}")
            pos = self._behind_padding(line, pos)
            if line[pos : pos + 1] == _QUOTE:
                self._open = bytearray()
                pos = self._read_quoted(line, pos + 1, body_bytes)
            else:
                pos = self._read_plain(line, pos, body_bytes)

    def _behind_padding(self, line: bytes, pos: int) -> int:
        while self._is_padded and line[pos : pos + 1] == _PADDING:
            pos += 1
        return pos

    def _read_plain(self, line: bytes, begin: int, body_bytes: int) -> int:
        end = line.find(self._delimiter, begin, body_bytes)
        cell = line[begin : body_bytes if end < 0 else end]
        self.cells.append(cell.strip(_PADDING) if self._is_padded else cell)
        return _LINE_DONE if end < 0 else end + 1

    def _read_quoted(self, line: bytes, begin: int, body_bytes: int) -> int:
        """Return where the next cell begins; _LINE_DONE when the line ends first, with the quote closed or not."""
        close = _closing_quote(line, begin)
        cell = self._open if self._open is not None else bytearray()
        cell += line[begin:] if close < 0 else line[begin:close]
        if close < 0:
            return _LINE_DONE
        self.cells.append(bytes(cell.replace(_PAIR, _QUOTE)))
        self._open = None
        end = self._behind_padding(line, close + 1)
        if end == body_bytes:
            return _LINE_DONE
        if line[end : end + 1] != self._delimiter:
            raise DocumentError(
                f"column {len(self.cells)}: text after the closing quote; inside quotes a quote is written twice"
            )
        return end + 1


def _closing_quote(line: bytes, begin: int) -> int:
    """Return the position of the first quote that is not one of a pair, -1 where there is none."""
    pos = line.find(_QUOTE, begin)
    while pos >= 0 and line[pos + 1 : pos + 2] == _QUOTE:
        pos = line.find(_QUOTE, pos + 2)
    return pos


MAX_HEADER_CELLS = 10_000
_BLANK = frozenset({b"\n", b"\r\n", b"\r"})
_MAX_BLANK_RUN = 10_000
# As JSON writes numbers; a longer integer is an id and not an amount.
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)


def read_rows(lines: Lines, source: Source, layout: Layout) -> Iterator[Row | Reject]:
    """Yield the rows below the header, in order.

    Blank lines that end the file are skipped, and so are repeats of the header, as `cat a.tsv b.tsv` leaves them.
    """
    reader = _Reader(lines, source, layout)
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif len(line) <= 2 and line in _BLANK:
            if not layout.is_sparse:
                yield from _blank_run(lines, line)
        elif not reader.is_header(line) and (row := reader.read_row(line)) is not None:
            yield row


def split_header(line: bytes, layout: Layout) -> list[bytes] | None:
    """Return the cells of a line that holds whole rows only; None where its quotes make no sense or stay open.

    Of more than MAX_HEADER_CELLS one more is returned.
    """
    row = QuotedCells(MAX_HEADER_CELLS + 1, layout)
    try:
        row.feed(line)
    except DocumentError:
        return row.cells if len(row.cells) > MAX_HEADER_CELLS else None
    return None if row.is_open else row.cells


def sample_cells(probe: Sequence[bytes], width: int, layout: Layout) -> Iterator[list[str]]:
    """Yield the cells of the whole rows among the first lines of a file; others are left out."""
    row = QuotedCells(width, layout)
    for line in probe:
        cells = None if row.is_open else split_simple(line, layout)
        if cells is None:
            try:
                row.feed(line)
            except DocumentError:
                row = QuotedCells(width, layout)
                continue
            if row.is_open:
                continue
            cells, row = row.cells, QuotedCells(width, layout)
        if len(cells) == width:
            yield [cell.decode(errors="replace") for cell in cells]


def is_number(cell: str) -> bool:
    """Return whether a cell is a number as JSON writes it."""
    return not isinstance(_number(cell), str)


def _number(cell: str) -> int | float | str:
    """Return the number of a cell; the cell itself where it is none."""
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return cell
    if found.lastindex == 1:
        return int(cell)
    value = float(cell)
    return value if math.isfinite(value) else cell


class _Reader:
    """Makes documents from lines, by the columns of the source."""

    def __init__(self, lines: Lines, source: Source, layout: Layout) -> None:
        self._lines, self._layout = lines, layout
        self._columns = source.columns
        header = (source.header or b"").removesuffix(b"\n").split(b"\n")
        self._header = frozenset(header) - {b""}
        self._header_bytes = max(map(len, header), default=0)
        self._roles = roles = source.roles
        place = {name: column for column, name in enumerate(source.columns)}
        self._id_at = None if roles.id is None else place[roles.id]
        self._text_at = [] if roles.is_row else [place[name] for name in roles.text]
        self._title_at = None if roles.title is None else place[roles.title]
        numbers = frozenset(source.numbers)
        self._metadata_at = [(name, place[name], name in numbers) for name in source.metadata_columns]
        self._kept = [(name, place[name]) for name in source.columns if name not in source.left_out]
        self._ids = lines.ids
        self._has_content_ids = source.makes_content_ids

    def is_header(self, line: bytes) -> bool:
        return len(line) <= self._header_bytes + 2 and without_line_end(line) in self._header

    def read_row(self, line: bytes) -> Row | Reject | None:
        location, raw = self._lines.location, line
        try:
            if self._layout.is_quoted and b'"' in line:
                raw, stored = self._read_quoted(line)
                cells = _decode_cells(raw, stored)
            else:
                cells = decode_utf8(without_line_end(line)).split(self._layout.delimiter.decode())
                if self._layout.is_padded:
                    cells = [cell.strip(_PADDING.decode()) for cell in cells]
            if self._layout.is_sparse and not any(cells):
                return None
            return Row(location, self._document(cells, location.line), raw, has_made_id=self._has_content_ids)
        except DocumentError as err:
            return Reject(location, str(err), (raw,))

    def _document(self, cells: list[str], line: int) -> Document:
        if len(cells) != len(self._columns):
            raise DocumentError(
                f"expected {len(self._columns)} columns ({list_names(self._columns)}), got {len(cells)}"
            )
        title = "" if self._title_at is None else cells[self._title_at]
        metadata = {
            name: _number(cells[column]) if has_numbers else cells[column]
            for name, column, has_numbers in self._metadata_at
            if cells[column] or not self._layout.is_sparse
        }
        if self._roles.is_row:
            title = cell_text(title)
            text = row_text((name, cells[column]) for name, column in self._kept)
            metadata = place_row(metadata, file=self._ids.file, line=line)
        else:
            text = self._roles.join_text([cells[column] for column in self._text_at])
        if self._id_at is None:
            doc_id = self._ids.of_row(line) or content_id(title, text)
        else:
            doc_id = self._ids.of_key(cells[self._id_at])
        return require_text(Document(doc_id, text, title, metadata))

    def _read_quoted(self, first: bytes) -> tuple[bytes, list[bytes]]:
        """Return the bytes and cells of a row that holds a quote, over all lines that the quote spans."""
        cells = split_simple(first, self._layout)
        if cells is not None:
            return first, cells
        row = QuotedCells(len(self._columns), self._layout)
        row.feed(first)
        raw = self._close_quote(row, first) if row.is_open else first
        return raw, row.cells

    def _close_quote(self, row: QuotedCells, first: bytes) -> bytes:
        """Return the bytes of a row whose first line leaves a quote open; raise DocumentError when it is never closed.

        Only the first line is bad then: the rows after it are read again on their own. The header line ends any open
        quote, so that rejects written one below the other cannot swallow each other.
        """
        lines, number, raw = self._lines, self._lines.number, bytearray(first)
        column = len(row.cells) + 1
        while line := lines.take():
            raw += line
            if lines.is_over(raw) or self.is_header(line) or not _goes_on(row, line):
                break
            if not row.is_open:
                return bytes(raw)
        lines.push_back(bytes(raw[len(first) :]), number)
        raise DocumentError(f"column {column}: the quote that begins it is never closed; close it or take it away")


def _goes_on(row: QuotedCells, line: bytes) -> bool:
    try:
        row.feed(line)
    except DocumentError:  # this line is a row of its own: its quotes make no sense inside the open one
        return False
    return True


def _decode_cells(raw: bytes, cells: list[bytes]) -> list[str]:
    if not raw.isascii():
        decode_utf8(raw)  # refuses with the position in the row, which the cells do not know
    return [cell.decode() for cell in cells]


def _blank_run(lines: Lines, line: bytes) -> Iterator[Reject]:
    """Yield a reject for each of the blank lines that begin here, none where they end the file."""
    first, run = lines.number, [line]
    while (line := lines.take()) in _BLANK and len(run) < _MAX_BLANK_RUN:
        run.append(line)
    if not line:
        return
    lines.push_back(line, lines.number - 1)
    for offset, blank in enumerate(run):
        yield Reject(
            SourceLocation(lines.path, first + offset), "blank line; every row needs an id and a text", (blank,)
        )


def check_names(source: Source) -> None:
    """Raise CorpusError where two columns have the same name, or one has none and is not left out."""
    if len(set(source.columns)) < len(source.columns) or "" in source.columns:
        raise CorpusError(
            f"{source.path}: expected a name of its own for every column of the header, "
            f"got {list_names(source.columns)}; rename them"
        )
