"""Tab-separated rows: DPR's (a header, csv quoting) and MS MARCO's (two columns, no header, no quoting)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mvindex.corpus.cells import QuotedCells, split_simple
from mvindex.corpus.fields import decode_utf8, list_names, missing_field, reject_oversize, title_column
from mvindex.corpus.formats import TextFormat
from mvindex.corpus.lines import Lines, take_first_line, without_line_end
from mvindex.corpus.options import MSMARCO, CorpusOptions
from mvindex.corpus.rows import Reject, Row, Source, SourceLocation
from mvindex.errors import CorpusError, DocumentError
from mvindex.records import Document, require_text

DPR = "dpr"
_SUFFIX = ".tsv"
_BLANK = frozenset({b"\n", b"\r\n", b"\r"})
_MAX_BLANK_RUN = 10_000
_MAX_HEADER_CELLS = 10_000
_ID_NAMES = frozenset(
    "#id _id did doc_id docid docno document_id guid id key passage_id passageid pid uid uuid".split()
)
_WORD = re.compile(r"[^\W\d][\w.#-]*")
_HEADING = re.compile(r"[^\W\d][\w.#-]*( [\w.#-]+){0,2}")


def open_tsv(lines: Lines, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, found in its first line, and the rows below the header, in order.

    Blank lines that end the file are skipped, and so are repeats of the header, as `cat a.tsv b.tsv` leaves them.
    """
    first, blank = take_first_line(lines)
    cells = _split_header(first)
    if _has_header(lines.path, first, cells, options):
        source = _header_source(lines, first, cells, options)
        return source, _read_rows(lines, source)
    lines.push_back(blank + first, 0)
    source = Source(
        path=lines.path,
        format=MSMARCO,
        is_detected=options.format is None,
        id_field="id",
        text_field="text",
        title_field=None,
        columns=("id", "text"),
        rejects_suffix=_SUFFIX,
    )
    return source, _read_rows(lines, source)


# What no other format matches is opened as DPR's, which tells MS MARCO by its missing header.
FORMATS = (
    TextFormat(name=DPR, matches=lambda first_line: True, open=open_tsv),
    TextFormat(name=MSMARCO, matches=lambda first_line: False, open=open_tsv),
)


def _read_rows(lines: Lines, source: Source) -> Iterator[Row | Reject]:
    reader = _TsvReader(lines, source)
    while line := lines.take():
        if lines.is_cut:
            yield reject_oversize(lines, line)
        elif len(line) <= 2 and line in _BLANK:
            yield from _blank_run(lines, line)
        elif not reader.is_header(line):
            yield reader.read_row(line)


class _TsvReader:
    """Makes documents from lines, by the columns of the source."""

    def __init__(self, lines: Lines, source: Source) -> None:
        self._lines = lines
        self._columns = source.columns
        self._header = None if source.header is None else without_line_end(source.header)
        self._is_quoted = source.format == DPR
        self._id_at = source.columns.index(source.id_field)
        self._text_at = source.columns.index(source.text_field)
        self._title_at = None if source.title_field is None else source.columns.index(source.title_field)
        self._metadata_at = [(name, source.columns.index(name)) for name in source.metadata_columns]

    def is_header(self, line: bytes) -> bool:
        return self._header is not None and line.startswith(self._header) and without_line_end(line) == self._header

    def read_row(self, line: bytes) -> Row | Reject:
        location, raw = self._lines.location, line
        try:
            if self._is_quoted and b'"' in line:
                raw, stored = self._read_quoted(line)
                cells = _decode_cells(raw, stored)
            else:
                cells = decode_utf8(without_line_end(line)).split("\t")
            return Row(location, self._document(cells), raw)
        except DocumentError as err:
            return Reject(location, str(err), (raw,))

    def _document(self, cells: list[str]) -> Document:
        if len(cells) != len(self._columns):
            names = ", ".join(self._columns)
            raise DocumentError(f"expected {len(self._columns)} columns ({names}), got {len(cells)}")
        title = "" if self._title_at is None else cells[self._title_at]
        metadata = {name: cells[column] for name, column in self._metadata_at} if self._metadata_at else {}
        return require_text(Document(cells[self._id_at], cells[self._text_at], title, metadata))

    def _read_quoted(self, first: bytes) -> tuple[bytes, list[bytes]]:
        """Return the bytes and cells of a row that holds a quote, over all lines that the quote spans."""
        cells = split_simple(first)
        if cells is not None:
            return first, cells
        row = QuotedCells(len(self._columns))
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


def _split_header(first: bytes) -> tuple[str, ...]:
    row = QuotedCells(_MAX_HEADER_CELLS)
    try:
        row.feed(first)
        cells = row.cells if not row.is_open else without_line_end(first).split(b"\t")
    except DocumentError:  # no header, then: a first row that is not quoted csv
        cells = without_line_end(first).split(b"\t")
    return tuple(cell.decode(errors="replace").strip() for cell in cells)


def _has_header(path: str, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> bool:
    """Return whether the file has DPR's header, or rows of two columns without one; raise CorpusError otherwise."""
    if options.format:
        return options.format == DPR
    if options.names_fields or {"id", "text"} <= set(cells):
        return True
    num_columns = first.count(b"\t") + 1
    if num_columns == 1:
        commas = "; comma-separated files are not read, write it with tabs" if b"," in first else ""
        raise CorpusError(f"{path}: has no tab and no JSON object in its first line; give --format if it has{commas}")
    if _looks_like_header(cells):
        raise CorpusError(
            f'{path}: the first line looks like a header without "id" and "text" (columns: {list_names(cells)}); '
            "name them with --id-field and --text-field, or give --format msmarco if it is a document"
        )
    if num_columns != 2 or " " in cells[0]:
        raise CorpusError(
            f"{path}: has no header, and its {num_columns} columns are not an id and a text "
            f"(columns: {list_names(cells)}); "
            "add a first line that names them, id and text and title with tabs between, or give --format"
        )
    return False


def _looks_like_header(cells: tuple[str, ...]) -> bool:
    """Return whether the cells read like names of columns; in doubt True: a header stored as a document stays."""
    if cells[0].casefold() in _ID_NAMES:
        return True
    if not all(len(cell) <= 40 and _HEADING.fullmatch(cell) for cell in cells):
        return False
    # The first cell of a row is an id, which mostly has a digit (n00001740, doc-7); the name of a column rarely has.
    return bool(_WORD.fullmatch(cells[0])) and not any(char.isdigit() for char in cells[0])


def _header_source(lines: Lines, first: bytes, cells: tuple[str, ...], options: CorpusOptions) -> Source:
    source = Source(
        path=lines.path,
        format=DPR,
        is_detected=options.format is None,
        id_field=options.id_field or "id",
        text_field=options.text_field or "text",
        title_field=title_column(cells, options),
        columns=cells,
        header=without_line_end(first) + b"\n",
        rejects_suffix=_SUFFIX,
    )
    _check_header(source)
    if lines.is_cut:
        raise CorpusError(f"{lines.location}: the header is over {lines.max_bytes:,} bytes (max_row_bytes)")
    return source


def _check_header(source: Source) -> None:
    for name in (source.id_field, source.text_field, source.title_field):
        if name is not None and name not in source.columns:
            raise CorpusError(missing_field(source.path, "column", name, source.columns))
    if len(set(source.columns)) < len(source.columns) or "" in source.columns:
        raise CorpusError(
            f"{source.path}: every column of the header needs a name of its own (columns: {list_names(source.columns)})"
        )
