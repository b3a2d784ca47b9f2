"""Word as Markdown, by MarkItDown's parts, but with the cells of tables in their columns. Only a worker runs it."""

from __future__ import annotations

import importlib
import io
from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

# Of a table in Word, at most.
_MOST_COLUMNS = 63
# Characters and cells that may be added to a table, for each of its own and at first.
_MOST_ADDED, _MIN_ADDED = 8, 10_000
_MOST_NAME_CHARS = 60


class _Cell(NamedTuple):
    """A cell that goes over so many rows, from the present one on, and columns."""

    tag: Any
    rows: int = 1
    columns: int = 1


def convert_word(archive: io.BytesIO) -> str:
    """Return a Word file as Markdown."""
    prepared = importlib.import_module("markitdown.converter_utils.docx.pre_process").pre_process_docx(archive)
    found = importlib.import_module("mammoth").convert_to_html(prepared).value
    page = importlib.import_module("bs4").BeautifulSoup(found, "html.parser")
    for table in page.find_all("table"):
        rows = [row for row in table.find_all("tr") if row.find_parent("table") is table]
        _put_in_columns(page, rows)
        # Word tells a header only where it is to be repeated on every page.
        if not table.find("th") and _has_header([row.find_all("td", recursive=False) for row in rows]):
            for cell in rows[0].find_all("td", recursive=False):
                cell.name = "th"
    return str(importlib.import_module("markitdown.converters").HtmlConverter().convert_string(str(page)).markdown)


def _put_in_columns(page: Any, rows: Sequence[Any]) -> None:
    """Give each row one cell a column: what goes over several rows comes in each, over several columns in the first."""
    from_above: dict[int, _Cell] = {}
    room = _MIN_ADDED + _MOST_ADDED * sum(len(row.get_text()) + 1 for row in rows)
    for row in rows:
        own = deque(map(_own_cell, row.find_all(["td", "th"], recursive=False)))
        placed: list[Any] = []
        goes_on: dict[int, _Cell] = {}
        last = max(from_above, default=-1)
        while own or (len(placed) <= last and room > 0):
            column = len(placed)
            cell = from_above.get(column) if room > 0 else None
            if cell is None and own:
                cell = own.popleft()
            else:
                cell = _Cell(page.new_tag("td")) if cell is None else cell._replace(tag=copy(cell.tag))
                room -= len(cell.tag.get_text()) + 1
            if cell.rows > 1:
                goes_on[column] = cell._replace(rows=cell.rows - 1)
            beside = min(cell.columns - 1, max(room, 0))
            room -= beside
            placed += [cell.tag, *(page.new_tag("td") for _ in range(beside))]
        from_above = goes_on
        row.clear()
        row.extend(placed)


def _has_header(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the first row names the columns: names that differ, of three columns or more, or bold.

    Of two columns the first mostly names what the second tells, and no row is a header.
    """
    cells = [[cell for cell in row if cell.get_text().strip()] for row in rows]
    names = [" ".join(cell.get_text(" ").split()) for cell in cells[0]] if cells else []
    if len(rows) < 2 or len(names) < 2 or len(set(names)) < len(names) or not all(map(_may_be_name, names)):
        return False
    is_bold, *others = [all(cell.find("strong") for cell in row) for row in cells]
    return len(names) > 2 or (is_bold and not any(others))


def _may_be_name(text: str) -> bool:
    is_number = not any(map(str.isalpha, text)) and len(text) != 4
    return len(text) <= _MOST_NAME_CHARS and not is_number and not text.endswith((".", "!", "?"))


def _own_cell(tag: Any) -> _Cell:
    rows, columns = (int(tag.attrs.pop(name, 1)) for name in ("rowspan", "colspan"))
    return _Cell(tag, rows, min(columns, _MOST_COLUMNS))
