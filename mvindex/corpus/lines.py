"""Lines of a byte stream in bounded memory, which can be pushed back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mvindex.corpus.ids import FileIds
from mvindex.corpus.rows import SourceLocation
from mvindex.errors import CorpusError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE_BYTES = 2**20
_MAX_BLANK_BYTES = 2**20
_PROBE_LINES = 1000
_PROBE_BYTES = 2**20
_BOM = b"\xef\xbb\xbf"


class Lines:
    r"""The lines of a stream, ended by b"\n" and nothing else (texts hold U+2028, U+0085 and lone \r).

    number: the line taken last, counted from 1. is_cut: it is over max_bytes (its newline not counted), and only its
    first max_bytes + 1 bytes were taken. ids: makes the ids of the file's rows; by default those of stdin.
    """

    def __init__(self, stream: io.BufferedReader, path: str, max_bytes: int, ids: FileIds | None = None) -> None:
        self.path = path
        self.ids = ids or FileIds(file=path)
        self.max_bytes = max_bytes
        self.number = 0
        self._stream = stream
        self._replay: io.BytesIO | None = None
        self.is_cut = False
        self._has_rest = False

    @property
    def location(self) -> SourceLocation:
        """Return the location of the line taken last."""
        return SourceLocation(self.path, self.number)

    def take(self) -> bytes:
        """Return the next line with its end, b"" after the last.

        After a line that is_cut, what `rest` has not read of it is skipped. Raises CorpusError where the input cannot
        be read.
        """
        if self.is_cut:
            self._skip_rest()
        self.number += 1
        line = self._read(self.max_bytes + 1)
        if len(line) > self.max_bytes and not line.endswith(b"\n"):
            self.is_cut = self._has_rest = True
        return line

    def is_over(self, row: bytes | bytearray) -> bool:
        """Return whether a row of several lines is longer than max_bytes, or ends in a line that is cut."""
        return self.is_cut or len(row) - row.endswith(b"\n") > self.max_bytes

    def rest(self, number: int) -> Iterator[bytes]:
        """Yield the rest of line `number` in pieces, until a later line is taken."""
        while self._has_rest and self.number == number:
            piece = self._read(_PIECE_BYTES)
            self._has_rest = bool(piece) and not piece.endswith(b"\n")
            yield piece

    def push_back(self, taken: bytes, number: int) -> None:
        """Return the bytes taken last to the stream; their first line is taken next, as line number + 1."""
        self.number = number
        self.is_cut = self._has_rest = False
        if self._replay is None:
            self._replay = io.BytesIO(taken)
        else:  # all of it came from there, since _read drops what it has emptied
            self._replay.seek(-len(taken), io.SEEK_CUR)

    def has_returns(self, first: bytes) -> bool:
        r"""Return whether lines end in a lone \r, as on an old Mac: none ends in \n, and the parts look like lines.

        In a line without a header, such as MS MARCO's, a \r may be part of the text: its parts have no tab then.
        """
        if self.is_cut or b"\n" in first or b"\r" not in first.rstrip(b"\r"):
            return False
        begin, *rest = first.rstrip(b"\r").split(b"\r")
        return b"\t" not in begin or all(b"\t" in part for part in rest)

    def end_at_returns(self) -> None:
        r"""End lines at a lone \r from here on."""
        self._stream = io.BufferedReader(_Translated(self._replay, self._stream))
        self._replay = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes that no line has taken, in pieces; CorpusError where the input cannot be read."""
        if self._replay is not None:
            while piece := self._replay.read(_PIECE_BYTES):
                yield piece
            self._replay = None
        try:
            while piece := self._stream.read1(_PIECE_BYTES):
                yield piece
        except (OSError, EOFError) as err:
            raise CorpusError(f"{self.path}: cannot be read: {err}") from err

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


class _Translated(io.RawIOBase):
    r"""A stream over others, one after the other, with \n for each \r."""

    def __init__(self, *streams: io.BufferedIOBase | None) -> None:
        self._streams = [stream for stream in streams if stream is not None]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while self._streams:
            if piece := self._streams[0].read1(len(view)):
                view[: len(piece)] = piece.replace(b"\r", b"\n")
                return len(piece)
            del self._streams[0]
        return 0


def without_line_end(line: bytes) -> bytes:
    r"""Return the line without its \n or \r\n, or without the \r that a file of \r\n lines may end with."""
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith((b"\n", b"\r")) else line


def take_first_line(lines: Lines) -> tuple[bytes, bytes]:
    """Take the first line that is not blank, without a byte order mark; return it and the blank lines before it."""
    blank, line = bytearray(), lines.take().removeprefix(_BOM)
    while line.isspace() and not lines.is_cut:
        blank += line
        if len(blank) > _MAX_BLANK_BYTES:
            raise CorpusError(f"{lines.path}: begins with over {_MAX_BLANK_BYTES:,} bytes of blank lines: no documents")
        line = lines.take()
    if not line:
        raise CorpusError(f"{lines.path}: is empty: no documents")
    return line, bytes(blank)


def take_probe(lines: Lines, first: bytes) -> list[bytes]:
    """Take the next lines, enough to see a file's fields even if some rows are bad; return them below the first."""
    probe, num_bytes = [first], len(first)
    while len(probe) < _PROBE_LINES and num_bytes < _PROBE_BYTES:
        # A line that was cut off must stay the last one taken, so that its rest can still be read.
        if lines.is_cut or not (line := lines.take()):
            break
        probe.append(line)
        num_bytes += len(line)
    return probe
