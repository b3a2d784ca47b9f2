"""Compressed corpora with the compressed bytes changed: damage is named, and what can be read is what gzip and
zstandard themselves read.
"""  # noqa: D205, D400 - the first sentence takes two lines

import gzip
import io
import re
import struct
import zlib
from pathlib import Path

import zstandard

from fuzz_parts.target import Limits, WrongAnswer, require
from mvindex.corpus import CorpusOptions, Row, open_corpus
from mvindex.errors import CorpusError

_ROWS = b"".join(b"%d\tdocument %d\n" % (number, number) for number in range(40))
# One row may be as large; what a bomb holds beyond is passed over piece by piece.
_ROW_BYTES = 1 << 20
_MOST_CHECKED = 1 << 24
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"

_FRAME = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
# The reader passes over zeros between frames, as gzip does between members.
_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")


def open_target(name: str, folder: Path):
    return CorpusPacked(folder)


class CorpusPacked(Limits):
    """An MS MARCO collection in gzip or zstd, read to its end."""

    name = "corpus-packed"
    refusals = (CorpusError,)
    # 2 KiB of zstd stand for up to 64 MiB, which are taken at once.
    extra_mib = 200
    seconds = 10.0
    tokens = (_ZSTD, _GZIP, _GZIP + b"\x08", b"\x50\x2a\x4d\x18\4\0\0\0abcd", b"\0" * 16, b"\xff\xff\xff\xff",
              struct.pack("<I", zlib.crc32(b"")), gzip.compress(b"9\tx\n"), zstandard.compress(b"9\tx\n"))  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._path = folder / "corpus"

    def seeds(self) -> list[bytes]:
        whole = zstandard.ZstdCompressor(level=1, write_checksum=True)
        unknown = zstandard.ZstdCompressor(write_content_size=False)
        bomb = b"1\t" + b"a" * (1 << 22)
        return [
            gzip.compress(_ROWS), gzip.compress(b"1\ta\n") + gzip.compress(b"2\tb\n"), gzip.compress(_ROWS) + b"\0" * 9,
            zlib.compress(_ROWS), whole.compress(_ROWS), unknown.compressobj().compress(_ROWS) + b"",
            whole.compress(b"1\ta\n") + whole.compress(b"2\tb\n"), b"\x53\x2a\x4d\x18\2\0\0\0ab" + whole.compress(b""),
            gzip.compress(bomb), whole.compress(bomb), gzip.compress(gzip.compress(_ROWS)),
        ]  # fmt: skip

    def check(self, data: bytes) -> None:
        self._path.write_bytes(data)
        options = CorpusOptions(format="msmarco", max_row_bytes=_ROW_BYTES)
        rows = []
        with open_corpus(str(self._path), options) as corpus:
            for row in corpus:
                rows.append(row.raw if isinstance(row, Row) else None)
        content = _unpacked(data)
        if content is not None:
            wanted = [line if _is_good(line) else None for line in _lines(content)]
            require(rows == wanted, "the content gives", wanted, "and the reader", rows)


def _unpacked(data: bytes) -> bytes | None:
    """Decompress the bytes; return None where they are too many to be checked, or not compressed at all."""
    try:
        if data.startswith(_GZIP):
            content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_MOST_CHECKED)
        elif _FRAME.match(data):
            content = _unframed(data)
        else:
            return None
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as err:
        raise WrongAnswer(f"the library refuses what was read: {err}") from err
    return content if len(content) < _MOST_CHECKED else None


def _unframed(data: bytes) -> bytes:
    """Return the content of all Zstandard frames; zeros may stand between and behind them, as in padded archives."""
    content = b""
    while (rest := data.lstrip(b"\0")) and len(content) < _MOST_CHECKED:
        if _SKIPPED.match(rest):
            data = rest[8 + int.from_bytes(rest[4:8], "little") :]
            continue
        frame = zstandard.ZstdDecompressor().decompressobj()
        for begin in range(0, len(rest), 256):
            content += frame.decompress(rest[begin : begin + 256])
            if frame.eof or len(content) >= _MOST_CHECKED:
                data = frame.unused_data + rest[begin + 256 :]
                break
        else:
            raise EOFError("the last frame has no end")
    return content


def _lines(content: bytes) -> list[bytes]:
    """Return the lines, without the blank ones that end the file."""
    lines = io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")).readlines()
    while lines and lines[-1] in (b"\n", b"\r\n", b"\r"):
        lines.pop()
    return lines


def _is_good(line: bytes) -> bool:
    """Return whether a row is good: of the seeds, all of two columns are; the others are judged in corpus-msmarco."""
    cells = line.rstrip(b"\r\n").split(b"\t")
    is_plain = line.isascii() and line.strip().replace(b"\t", b"").decode().isprintable()
    return (
        len(cells) == 2 and bool(cells[0].strip()) and is_plain and len(line) <= _ROW_BYTES and bool(cells[1].strip())
    )
