"""Opens input files as streams of bytes or lines: plain, gzip or zstd by their first bytes, `-` for stdin."""

from __future__ import annotations

import io
import logging
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from mvindex.corpus.folder import FolderFile
from mvindex.corpus.paths import STDIN, is_remote, open_address, shown_address, total_bytes
from mvindex.corpus.rows import FileIds
from mvindex.errors import CorpusError
from mvindex.paths import expand_home

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Endings of compressed files; whether a file is compressed, its first bytes say.
COMPRESSED_SUFFIXES = (".gz", ".zst")
_BLOCK_BYTES = 256 * 1024
# A zstd block of 4 bytes can stand for 128 KiB, so 2 KiB of input give at most 64 MiB at once, and gzip far less.
# Larger pieces would let a small hostile or very uniform file fill the memory.
_PIECE_BYTES = 2048
_HEAD_BYTES = 8


class _Decoder(Protocol):
    """A decoder of zlib or zstandard for one member (gzip) or frame (zstd)."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class Input:
    """One open file, of this machine or behind an address, or stdin.

    head: its first 8 stored bytes. bytes_read: stored bytes read so far, compressed where the file is.
    relative_path, label: its name in metadata and in the ids of its passages, below the folder that was named, if any.
    ids: makes the ids of its rows. on_warning: called with what warn() reports; by default it is logged.
    """

    def __init__(self, path: str, in_folder: FolderFile | None = None) -> None:
        self.path = path = expand_home(path)
        self.name = "stdin" if path == STDIN else shown_address(path)
        self.relative_path = in_folder.file if in_folder else _plain_path(self.name)
        self.label = in_folder.label if in_folder else self.relative_path
        label = None if path == STDIN else self.label
        self.ids = FileIds(file=self.relative_path, label=label, in_folder=in_folder is not None)
        self.on_warning: Callable[[str], None] = logger.warning
        self.bytes_read = 0
        self.size_bytes = total_bytes([path])
        self._is_ours = path != STDIN
        try:
            self.file = _open(path) if self._is_ours else sys.stdin.buffer
        except OSError as err:
            raise CorpusError(f"{self.name}: cannot be opened: {err.strerror}") from err
        try:
            self.head = self._read_head()
        except OSError as err:
            self.close()
            raise CorpusError(f"{self.name}: cannot be read: {err.strerror or err}") from err

    @property
    def is_seekable(self) -> bool:
        """Return whether any part of the file can be read, which is not so for stdin and pipes."""
        return self.size_bytes is not None and self.file.seekable()

    def warn(self, line: int, message: str) -> None:
        """Report something in the file that is read all the same."""
        self.on_warning(f"{self.name}:{line}: {message}")

    def rewind(self) -> None:
        """Go back to the beginning of a file that is seekable."""
        self.file.seek(0)
        self.bytes_read = 0
        self.head = self._read_head()

    def stream(self) -> io.BufferedReader:
        """Return the decompressed content; reading raises OSError or EOFError where the stored bytes are damaged."""
        return io.BufferedReader(_PieceStream(self._content()), _BLOCK_BYTES)

    def close(self) -> None:
        """Close the file; leave stdin open, since it is not ours."""
        if self._is_ours:
            self.file.close()

    def _content(self) -> Iterator[bytes]:
        # By the first bytes and not by the name, which is often wrong after a download.
        if self.head.startswith(GZIP_MAGIC):
            return _decompress(self._stored(), "gzip", lambda: zlib.decompressobj(wbits=31))
        if _is_zstd(self.head):
            return _decompress(self._stored(), "zstd", _zstd_decoder)
        return self._stored()

    def _stored(self) -> Iterator[bytes]:
        yield self.head
        while block := self._read(_BLOCK_BYTES):
            yield block

    def _read_head(self) -> bytes:
        head = b""
        while len(head) < _HEAD_BYTES and (more := self._read(_HEAD_BYTES - len(head))):
            head += more
        return head

    def _read(self, num_bytes: int) -> bytes:
        # read1 returns what a pipe holds now; read would wait for all of num_bytes.
        read = getattr(self.file, "read1", self.file.read)
        block = cast(bytes, read(num_bytes))
        self.bytes_read += len(block)
        return block


def _open(path: str) -> BinaryIO:
    return open_address(path) if is_remote(path) else cast(BinaryIO, open(path, "rb", buffering=0))


def _plain_path(name: str) -> str:
    """Return a path with "/" between its parts, without "." and ".."; an address as it is."""
    return name if is_remote(name) else PurePath(os.path.normpath(name)).as_posix()


class _PieceStream(io.RawIOBase):
    """A readable stream over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        size = min(len(view), len(self._piece))
        view[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size


def _decompress(stored: Iterator[bytes], codec: str, new_decoder: Callable[[], _Decoder]) -> Iterator[bytes]:
    """Yield the content of one member or frame after another.

    Raises OSError where the bytes are damaged, EOFError where the last member has no end.
    """
    decoder: _Decoder | None = None
    done_bytes = 0
    for piece in _cut(stored):
        rest = piece if decoder or not done_bytes else piece.lstrip(b"\0")  # tape blocks pad gzip with zeros
        while rest:
            decoder = decoder or new_decoder()
            try:
                yield decoder.decompress(rest)
            except _decoder_errors() as err:
                raise OSError(f"{codec} data is damaged near byte {done_bytes}: {err}") from err
            rest = b""
            if decoder.eof:
                rest, decoder = decoder.unused_data.lstrip(b"\0"), None
        done_bytes += len(piece)
    if decoder:
        raise EOFError(f"{codec} data is cut short after byte {done_bytes}; copy or download the file again")


def _cut(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for begin in range(0, len(block), _PIECE_BYTES):
            yield block[begin : begin + _PIECE_BYTES]


def _is_zstd(head: bytes) -> bool:
    # pzstd and seekable zstd begin with a frame to be skipped, whose magic is 0x184D2A50 to 0x184D2A5F.
    return head.startswith(ZSTD_MAGIC) or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


def _zstd_decoder() -> _Decoder:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _decoder_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return (zlib.error, zstandard.ZstdError)


MAX_LINE_BYTES = 16 << 20
UTF8_MARK = b"\xef\xbb\xbf"


def stream_name(path: str) -> str:
    """Return the name that messages use for a path: the path, or `<stdin>` for `-`."""
    return "<stdin>" if path == "-" else path


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """Open the decompressed bytes of a file, buffered; pipes work, since it never seeks, and stdin stays open.

    Raises:
        CorpusError: The file cannot be opened or read, or its compressed data is damaged or cut short.

    """
    file = Input(path)
    try:
        yield cast(BinaryIO, io.BufferedReader(_Named(file.name, file.stream())))
    finally:
        file.close()


def read_lines(path: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file with their numbers from 1, without line ends and byte order mark.

    Raises:
        CorpusError: A line is over max_bytes, holds invalid UTF-8 or a NUL; the message names path and line, and
            reading stops there.

    """
    name = stream_name(path)
    with open_bytes(path) as stream:
        number = 0
        while line := stream.readline(max_bytes + 1):
            number += 1
            if len(line) > max_bytes and not line.endswith(b"\n"):
                raise CorpusError(f"{name}:{number}: expected a line of at most {max_bytes:,} bytes, got a longer one")
            yield number, _decode_line(line.removeprefix(UTF8_MARK) if number == 1 else line, f"{name}:{number}")


def _decode_line(line: bytes, location: str) -> str:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as err:
        raise CorpusError(
            f"{location}: byte {err.start + 1} of the line is {line[err.start]:#04x}, which is not valid UTF-8; "
            "save the file as UTF-8"
        ) from err
    if "\0" in text:
        raise CorpusError(f"{location}: holds a NUL at character {text.index(chr(0)) + 1}; expected text")
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
