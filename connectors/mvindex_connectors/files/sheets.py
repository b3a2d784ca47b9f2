"""Excel, by openpyxl: each row of a sheet is a document that names its columns."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import SectionIds, file_source
from mvindex.corpus.passages.outline import SEPARATOR, Section, shorten
from mvindex.corpus.rows import CorpusOptions, Row, Source, SourceLocation, cell_text, place_row, row_text
from mvindex.corpus.text.words import unset
from mvindex.records import Document
from mvindex_connectors.files.parsing import parse_file

XLSX = "xlsx"
# The header is found among so many first rows, which are held in memory.
_SAMPLE_ROWS = 1_000
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
    ids = SectionIds(file.label)
    for full_title, rows in _sheets(parse_file(file, options, XLSX)):
        base = ids.begin_section(Section((full_title,)), None)
        title = shorten(full_title)
        for number, text, cells in _read_table(rows):
            metadata = place_row(cells, file=file.relative_path, line=number, headings=title)
            document = Document(
                f"{base}/row-{number}", text, SEPARATOR.join((PurePath(file.relative_path).name, title)), metadata
            )
            yield Row(SourceLocation(file.name, number), document, text.encode())


def _sheets(parts: Iterator[Any]) -> Iterator[tuple[str, Iterator[_Cells]]]:
    """Yield the title of each sheet, and its rows that hold something."""
    for is_title, group in itertools.groupby(parts, key=lambda part: isinstance(part, str)):
        if is_title:
            *_, title = group  # those before it are of empty sheets
        else:
            yield title, filter(lambda row: row.values, itertools.starmap(_cells, group))


def _cells(number: int, columns: list[int], values: list[Any]) -> _Cells:
    cleaned = (unset(value.replace("\0", "")) if isinstance(value, str) else value for value in values)
    return _Cells(number, {column: value for column, value in zip(columns, cleaned, strict=True) if cell_text(value)})


def _read_table(rows: Iterator[_Cells]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield of each row but the header its number, its text, and its values by the names of their columns."""
    sample = list(itertools.islice(rows, _SAMPLE_ROWS))
    header = _find_header(sample)
    for row in itertools.chain(sample, rows):
        if header is None or row.number < header.number:
            yield row.number, row_text(("", value) for value in row.values.values()), {}
        elif row.number > header.number and row.values != header.values:
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
    # A header may come again, as for printing, and a name be a value somewhere; of what are no names some come often.
    counts = Counter(
        column
        for one in below
        if one.values != row.values
        for column, name in row.values.items()
        if one.values.get(column) == name
    )
    most = max(counts.values(), default=0)
    is_data = 2 * most >= len(below) or (most > 1 and 20 * most >= len(below))
    return None if is_data or not _are_names(row.values.values()) else row


def _are_names(values: Iterable[Any]) -> bool:
    """Return whether all are short texts, or years; dates come as texts."""
    return all(
        (isinstance(value, str) and len(value) <= _MAX_NAME_CHARS) or (type(value) is int and value in _YEARS)
        for value in values
    )
