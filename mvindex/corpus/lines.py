"""Lines of a byte stream in bounded memory, with a way back."""

from __future__ import annotations

import io
from collections.abc import Iterator

from mvindex.corpus.rows import Place
from mvindex.errors import CorpusError

_PIECE_BYTES = 2**20


class Lines:
    r"""The lines of a stream, ended by b"\n" and nothing else (texts hold U+2028, U+0085 and lone \r).

    number: the line taken last, counted from 1. is_cut: it is over max_bytes (its newline not counted), and only its
    first max_bytes + 1 bytes were taken.
    """

    def __init__(self, stream: io.BufferedReader, path: str, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.number = 0
        self._stream = stream
        self._replay: io.BytesIO | None = None
        self.is_cut = False
        self._has_rest = False

    @property
    def place(self) -> Place:
        """Where the line taken last stands."""
        return Place(self.path, self.number)

    def take(self) -> bytes:
        """The next line with its end, b"" after the last.

        After a line that is_cut, what `rest` was not asked for is skipped. Raises CorpusError where the input cannot
        be read on.
        """
        if self.is_cut:
            self._skip_rest()
        self.number += 1
        line = self._read(self.max_bytes + 1)
        if len(line) > self.max_bytes and not line.endswith(b"\n"):
            self.is_cut = self._has_rest = True
        return line

    def is_over(self, row: bytes | bytearray) -> bool:
        """True when a row of several lines is longer than max_bytes, or ends in a line that is cut."""
        return self.is_cut or len(row) - row.endswith(b"\n") > self.max_bytes

    def rest(self, number: int) -> Iterator[bytes]:
        """What take left of line `number`, in pieces; nothing more once a later line was taken."""
        while self._has_rest and self.number == number:
            piece = self._read(_PIECE_BYTES)
            self._has_rest = bool(piece) and not piece.endswith(b"\n")
            yield piece

    def push_back(self, taken: bytes, number: int) -> None:
        """Give back the bytes taken last; the line that begins them is taken next, as line number + 1."""
        self.number = number
        self.is_cut = self._has_rest = False
        if self._replay is None:
            self._replay = io.BytesIO(taken)
        else:  # all of it came from there, since _read drops what it has emptied
            self._replay.seek(-len(taken), io.SEEK_CUR)

    def _skip_rest(self) -> None:
        for _ in self.rest(self.number):
            pass
        self.is_cut = False

    def _read(self, max_bytes: int) -> bytes:
        try:
            if self._replay is None:
                return self._stream.readline(max_bytes)
            line = self._replay.readline(max_bytes)
            if line.endswith(b"\n") or len(line) == max_bytes:
                return line
            self._replay = None
            return line + self._stream.readline(max_bytes - len(line))
        except (OSError, EOFError) as err:
            raise CorpusError(f"{self.path}:{self.number}: cannot be read: {err}") from err


def without_line_end(line: bytes) -> bytes:
    r"""The line without its \n or \r\n, or without the \r that a file of \r\n lines may end with."""
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith((b"\n", b"\r")) else line
