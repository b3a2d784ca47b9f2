"""Input files as streams of bytes or lines: plain, gzip or zstd by their first bytes, `-` for stdin."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from mvindex.corpus.inputs import Input
from mvindex.errors import CorpusError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE_BYTES = 16 << 20
UTF8_MARK = b"\xef\xbb\xbf"


def stream_name(path: str) -> str:
    """The name that messages use for a path: the path, or `<stdin>` for `-`."""
    return "<stdin>" if path == "-" else path


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a file, buffered; never seeks, so pipes will do, and leaves stdin open.

    CorpusError, with the path, when it cannot be opened or read, or its compressed data is damaged or cut short.
    """
    file = Input(path)
    try:
        yield cast(BinaryIO, io.BufferedReader(_Named(file.name, file.stream())))
    finally:
        file.close()


def read_lines(path: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, str]]:
    r"""The lines of a UTF-8 file with their numbers from 1, without `\n` or `\r\n` and without a byte-order mark.

    CorpusError, with path and line, for a line over max_bytes, invalid UTF-8 or a NUL; that line and the ones after
    it are lost to the caller.
    """
    name = stream_name(path)
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(max_bytes + 1):
            number += 1
            if len(line) > max_bytes and not line.endswith(b"\n"):
                raise CorpusError(
                    f"{name}:{number}: the line is longer than {max_bytes:,} bytes, the most that is read"
                )
            yield number, _decode_line(line.removeprefix(UTF8_MARK) if number == 1 else line, f"{name}:{number}")


def _decode_line(line: bytes, place: str) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as err:
        raise CorpusError(
            f"{place}: byte {err.start + 1} of the line is {line[err.start]:#04x}, which is not valid UTF-8; "
            "save the file as UTF-8"
        ) from err
    if "\0" in text:
        raise CorpusError(f"{place}: holds a NUL at character {text.index(chr(0)) + 1}; wanted text")
    return text


class _Named(io.RawIOBase):
    """A raw stream over another whose failures become CorpusErrors that name the file."""

    def __init__(self, name: str, stream: io.BufferedReader) -> None:
        self._name, self._stream = name, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            return self._stream.readinto1(buffer)
        except (OSError, EOFError) as err:
            raise CorpusError(f"{self._name}: cannot be read: {err}") from err
