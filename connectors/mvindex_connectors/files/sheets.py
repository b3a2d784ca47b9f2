"""Excel, by openpyxl: each row of a sheet is a document that names its columns."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages.documents import SectionIds, file_source
from mvindex.corpus.passages.outline import SEPARATOR, Section
from mvindex.corpus.row_texts import cell_text, place_row, row_text
from mvindex.corpus.rows import Row, Source, SourceLocation
from mvindex.errors import CorpusError
from mvindex.records import Document
from mvindex.text.normal import unset
from mvindex_connectors.files.parsing import parser_errors, read_archive, require_parser

XLSX = "xlsx"
# Rows are held in memory in parts of so many; the header is found among those of the first part.
_PART_ROWS = 1_000
# Excel's own limit.
_MAX_ROWS = 1_048_576
# A few cells far apart stand for millions of empty ones.
_MAX_EMPTY_CELLS = 50_000_000
_MAX_NAME_CHARS = 100
_YEARS = range(1900, 2101)


class _Cells(NamedTuple):
    """A row that holds something: its number from 1, and its values by the number of their column, from 0."""

    number: int
    values: dict[int, Any]


def open_xlsx(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row]]:
    """Return how a file is read, and a row for each row of its sheets; CorpusError where it is damaged."""
    return file_source(file, XLSX, options), _read_book(file, options)


FORMAT = BinaryFormat(name=XLSX, matches=lambda head: False, open=open_xlsx, suffixes=(".xlsx", ".xlsm"))


def _read_book(file: Input, options: CorpusOptions) -> Iterator[Row]:
    archive = read_archive(file, options)
    openpyxl = require_parser("openpyxl", file)
    with parser_errors(file):
        book = openpyxl.load_workbook(archive, read_only=True, data_only=True)
    ids = SectionIds(file.label)
    try:
        for sheet in book.worksheets:
            base = ids.begin_section(Section((sheet.title,)), None)
            for number, text, cells in _read_table(_read_cells(sheet, file)):
                metadata = place_row(cells, file=file.relative_path, line=number, headings=sheet.title)
                title = SEPARATOR.join((PurePath(file.relative_path).name, sheet.title))
                document = Document(f"{base}/row-{number}", text, title, metadata)
                yield Row(SourceLocation(file.name, number), document, text.encode())
    finally:
        book.close()


def _read_cells(sheet: Any, file: Input) -> Iterator[_Cells]:
    """Yield the rows of a sheet that hold something; CorpusError where their cells lie too far apart."""
    sheet.reset_dimensions()  # what the file says of its size is often wrong, and would be filled with empty cells
    rows = enumerate(sheet.iter_rows(values_only=True), start=1)
    num_empty = 0
    while True:
        with parser_errors(file):
            part = list(itertools.islice(rows, _PART_ROWS))
        if not part:
            return
        for number, row in part:
            if not row and number <= _MAX_ROWS:
                continue
            values = {column: _value(value) for column, value in enumerate(row) if value is not None}
            num_empty += len(row) - len(values)
            if number > _MAX_ROWS or num_empty > _MAX_EMPTY_CELLS:
                raise CorpusError(
                    f"{file.name}: sheet {sheet.title!r:.60}, row {number}: expected at most {_MAX_ROWS:,} rows and "
                    f"{_MAX_EMPTY_CELLS:,} empty cells; delete the cells that lie far from the others"
                )
            values = {column: value for column, value in values.items() if cell_text(value)}
            if values:
                yield _Cells(number, values)


def _read_table(rows: Iterator[_Cells]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield of each row but the header its number, its text, and its values by the names of their columns."""
    sample = list(itertools.islice(rows, _PART_ROWS))
    header = _find_header(sample)
    for row in itertools.chain(sample, rows):
        if header is None or row.number < header.number:
            yield row.number, row_text(("", value) for value in row.values.values()), {}
        elif row.number > header.number:
            names = [cell_text(header.values.get(column)) or f"column {column + 1}" for column in row.values]
            cells: dict[str, Any] = {}
            for column, name in zip(row.values, names, strict=True):
                cells[f"{name} {column + 1}" if name in cells else name] = row.values[column]
            yield row.number, row_text(zip(names, row.values.values(), strict=True)), cells


def _find_header(sample: Sequence[_Cells]) -> _Cells | None:
    """Return the first row that is as wide as the table, if its cells are names; a list in one column has none."""
    widest = max((len(row.values) for row in sample), default=0)
    at, row = next((at, row) for at, row in enumerate(sample) if 2 * len(row.values) > widest) if sample else (0, None)
    if row is None or widest < 2 or len(row.values) < 2 or at + 1 == len(sample):
        return None
    below = sample[at + 1 :]
    is_data = any(one.values.get(column) == name for column, name in row.values.items() for one in below)
    return None if is_data or not _are_names(row.values.values()) else row


def _are_names(values: Iterable[Any]) -> bool:
    """Return whether all are short texts, or years; dates come as texts."""
    return all(
        (isinstance(value, str) and len(value) <= _MAX_NAME_CHARS) or (type(value) is int and value in _YEARS)
        for value in values
    )


def _value(value: Any) -> Any:
    """Return the value of a cell as one of JSON: dates as ISO texts, fractions to the 15 digits that Excel has."""
    if isinstance(value, str):
        return unset(value.replace("\0", ""))
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.15g}")
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value if isinstance(value, int) else str(value)
