"""Tab-separated rows: DPR's (a header, csv quoting) and MS MARCO's (two columns, no header, no quoting)."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.corpus.cells import QuotedCells, split_simple
from mvindex.corpus.fields import decode_utf8, reject_oversize
from mvindex.corpus.lines import Lines, without_line_end
from mvindex.corpus.options import CorpusFormat
from mvindex.corpus.rows import Place, Reject, Row, Source
from mvindex.errors import DocumentError
from mvindex.records import Document, require_text

_BLANK = frozenset({b"\n", b"\r\n", b"\r"})
_MAX_BLANK_RUN = 10_000


def read_tsv(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    """The rows below the header, in order.

    Blank lines that end the file are skipped, and so are repeats of the header, as `cat a.tsv b.tsv` leaves them.
    """
    reader = _TsvReader(lines, source)
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif len(line) <= 2 and line in _BLANK:
            yield from _blank_run(lines, line)
        elif not reader.is_header(line):
            yield reader.read_row(line)


class _TsvReader:
    """Lines -> documents, by the columns of the source."""

    def __init__(self, lines: Lines, source: Source) -> None:
        self._lines = lines
        self._columns = source.columns
        self._header = None if source.header is None else without_line_end(source.header)
        self._is_quoted = source.format is CorpusFormat.DPR
        self._id_at = source.columns.index(source.id_field)
        self._text_at = source.columns.index(source.text_field)
        self._title_at = None if source.title_field is None else source.columns.index(source.title_field)
        self._metadata_at = [(name, source.columns.index(name)) for name in source.metadata_columns]

    def is_header(self, line: bytes) -> bool:
        return self._header is not None and line.startswith(self._header) and without_line_end(line) == self._header

    def read_row(self, line: bytes) -> Row | Reject:
        place, raw = self._lines.place, line
        try:
            if self._is_quoted and b'"' in line:
                raw, stored = self._read_quoted(line)
                cells = _decode_cells(raw, stored)
            else:
                cells = decode_utf8(without_line_end(line)).split("\t")
            return Row(place, self._document(cells), raw)
        except DocumentError as err:
            return Reject(place, str(err), (raw,))

    def _document(self, cells: list[str]) -> Document:
        if len(cells) != len(self._columns):
            found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise DocumentError(f"{found}; wanted {len(self._columns)} ({', '.join(self._columns)})")
        title = "" if self._title_at is None else cells[self._title_at]
        metadata = {name: cells[column] for name, column in self._metadata_at} if self._metadata_at else {}
        return require_text(Document(cells[self._id_at], cells[self._text_at], title, metadata))

    def _read_quoted(self, first: bytes) -> tuple[bytes, list[bytes]]:
        """The bytes and cells of a row that holds a quote, over as many lines as the quote runs."""
        cells = split_simple(first)
        if cells is not None:
            return first, cells
        row = QuotedCells(len(self._columns))
        row.feed(first)
        raw = self._close_quote(row, first) if row.is_open else first
        return raw, row.cells

    def _close_quote(self, row: QuotedCells, first: bytes) -> bytes:
        """The bytes of the row whose first line leaves a quote open; DocumentError when nothing closes it.

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
    """A reject for each of the blank lines that begin here, none where they end the file."""
    first, run = lines.number, [line]
    while (line := lines.take()) in _BLANK and len(run) < _MAX_BLANK_RUN:
        run.append(line)
    if not line:
        return
    lines.push_back(line, lines.number - 1)
    for offset, blank in enumerate(run):
        yield Reject(Place(lines.path, first + offset), "blank line; every row needs an id and a text", (blank,))
