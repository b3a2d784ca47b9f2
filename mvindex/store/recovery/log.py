"""The write-ahead log beside a database -> versions of pages: those that are committed, and all the others."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from mvindex.store.recovery.files import DataFile, Place

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = 0x377F0682  # the lowest bit tells the byte order of the checksums: 0 little-endian, 1 big-endian
_VERSION = 3_007_000


@dataclass(frozen=True, slots=True)
class Frame:
    """One version of a page; salts tell the run of the log that it belongs to."""

    place: Place
    is_commit: bool
    salts: bytes
    is_vouched: bool  # true to the checksum, as are all before it


class Log:
    """The frames of a log. Its run began when it was last started from the beginning; older frames lie behind."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._header = file.read(0, HEADER_BYTES)

    @cached_property
    def page_bytes(self) -> int | None:
        """The size of pages that the header names; None where it is missing or not true to its checksum."""
        if len(self._header) < HEADER_BYTES:
            return None
        magic, version, page_bytes = struct.unpack_from(">3I", self._header)
        if magic >> 1 != _MAGIC >> 1 or version != _VERSION or not is_page_size(page_bytes):
            return None
        sums = self._extend((0, 0), self._header[:24])
        return page_bytes if sums == struct.unpack_from(">2I", self._header, 24) else None

    def frames(self, page_bytes: int) -> list[Frame]:
        """All frames in the order of the file, the last perhaps cut short."""
        found = []
        sums = struct.unpack_from(">2I", self._header, 24) if self.page_bytes == page_bytes else None
        for at in range(HEADER_BYTES, self._file.size_bytes - FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + page_bytes):
            header = self._file.read(at, FRAME_HEADER_BYTES).ljust(FRAME_HEADER_BYTES, b"\0")
            number, database_pages = struct.unpack_from(">2I", header)
            place = Place(number, self._file, at + FRAME_HEADER_BYTES)
            sums = self._next_sums(sums, header, place, page_bytes)
            found.append(Frame(place, database_pages > 0, header[8:16], sums is not None))
        return found

    def run_salts(self, frames: list[Frame]) -> bytes:
        """The salts of the current run: the header's where it is sound, else those of most frames."""
        if self.page_bytes is not None:
            return self._header[16:24]
        return Counter(frame.salts for frame in frames).most_common(1)[0][0] if frames else b""

    def _next_sums(
        self, sums: tuple[int, ...] | None, header: bytes, place: Place, page_bytes: int
    ) -> tuple[int, ...] | None:
        """The running checksum behind a frame; None from the first frame on that is not true to it."""
        if sums is None or place.number == 0 or header[8:16] != self._header[16:24]:
            return None
        page = place.file.read(place.at, page_bytes)
        if len(page) < page_bytes:
            return None
        sums = self._extend(sums, header[:8] + page)
        return sums if sums == struct.unpack_from(">2I", header, 16) else None

    def _extend(self, sums: tuple[int, ...], data: bytes) -> tuple[int, int]:
        """The running checksum behind more bytes, a multiple of 8."""
        order = ">" if self._header[3] & 1 else "<"
        words = struct.unpack(f"{order}{len(data) // 4}I", data)
        first, second = sums
        for one, two in zip(words[::2], words[1::2], strict=True):
            first = first + one + second & 0xFFFFFFFF
            second = second + two + first & 0xFFFFFFFF
        return first, second


def is_page_size(page_bytes: int) -> bool:
    """True for the sizes that SQLite knows: the powers of two from 512 to 65536."""
    return 512 <= page_bytes <= 65_536 and page_bytes & (page_bytes - 1) == 0
