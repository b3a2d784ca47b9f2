"""Cells of a csv-quoted row that may run over several lines."""

from __future__ import annotations

from mvindex.corpus.lines import without_line_end
from mvindex.errors import DocumentError

_QUOTE = b'"'
_PAIR = b'""'
_LINE_DONE = -1


def split_simple(line: bytes, delimiter: bytes) -> list[bytes] | None:
    """Split a row whose quotes close in their own cell; return None for a row that needs QuotedCells.

    Most rows are of the first kind, and this is several times as fast.
    """
    cells = without_line_end(line).split(delimiter)
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

    def __init__(self, max_cells: int, delimiter: bytes) -> None:
        self.cells: list[bytes] = []
        self._max_cells, self._delimiter = max_cells, delimiter
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
            if line[pos : pos + 1] == _QUOTE:
                self._open = bytearray()
                pos = self._read_quoted(line, pos + 1, body_bytes)
            else:
                pos = self._read_plain(line, pos, body_bytes)

    def _read_plain(self, line: bytes, begin: int, body_bytes: int) -> int:
        end = line.find(self._delimiter, begin, body_bytes)
        self.cells.append(line[begin : body_bytes if end < 0 else end])
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
        if close + 1 == body_bytes:
            return _LINE_DONE
        if line[close + 1 : close + 2] != self._delimiter:
            raise DocumentError(
                f"column {len(self.cells)}: text after the closing quote; inside quotes a quote is written twice"
            )
        return close + 2


def _closing_quote(line: bytes, begin: int) -> int:
    """Return the position of the first quote that is not one of a pair, -1 where there is none."""
    pos = line.find(_QUOTE, begin)
    while pos >= 0 and line[pos + 1 : pos + 2] == _QUOTE:
        pos = line.find(_QUOTE, pos + 2)
    return pos
