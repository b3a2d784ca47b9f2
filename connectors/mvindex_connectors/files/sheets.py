"""Excel, by openpyxl: each row of a sheet is a line that names its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusOptions
from mvindex.corpus.passages import Block, Outline, Section, passage_format
from mvindex_connectors.files.parsing import parser_errors, read_archive, require_parser

# Rows are held in memory in parts of so many.
_PART_ROWS = 1_000


def read_xlsx(file: Input, options: CorpusOptions) -> Iterator[Outline]:
    """Yield the outlines of the sheets, in parts; a passage's line is the number of its first row."""
    archive = read_archive(file, options)
    openpyxl = require_parser("openpyxl", file)
    with parser_errors(file):
        book = openpyxl.load_workbook(archive, read_only=True, data_only=True)
    try:
        for sheet in book.worksheets:
            yield from _read_sheet(sheet, file)
    finally:
        book.close()


def _read_sheet(sheet: Any, file: Input) -> Iterator[Outline]:
    rows = enumerate(sheet.iter_rows(values_only=True), start=1)
    header: list[str] = []
    while True:
        with parser_errors(file):
            part = list(islice(rows, _PART_ROWS))
        if not part:
            return
        lines = []
        for _, values in part:
            cells = [_text(value) for value in values]
            if not header and any(cells):
                header = cells
                lines.append(" | ".join(filter(None, cells)))
            else:
                lines.append(" | ".join(_named(header, cells)))
        if any(lines):
            yield _outline(sheet.title, lines, part[0][0])


def _named(header: list[str], cells: Iterable[str]) -> Iterator[str]:
    """Yield the cells that hold something, each below the name of its column."""
    for column, cell in enumerate(cells):
        name = header[column] if column < len(header) else ""
        if cell:
            yield f"{name}: {cell}" if name else cell


def _outline(sheet: str, lines: list[str], first_row: int) -> Outline:
    blocks, begin = [], 0
    for line in lines:
        if line:
            blocks.append(Block(begin, begin + len(line), is_lines=True))
        begin += len(line) + 1
    return Outline(text="\n".join(lines), sections=[Section((sheet,), blocks)], first_line=first_row)


def _text(value: Any) -> str:
    """Return a cell as a text of one line."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return " ".join(str(value).replace("\0", "").split())


FORMAT = passage_format("xlsx", (".xlsx", ".xlsm"), read_xlsx)
