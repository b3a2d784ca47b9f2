"""The two files of a database, and the states of it that they hold: which bytes each page number stands for."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mvindex.errors import StoreError
from mvindex.store.recovery.pages import Cell

# A page belongs to one chain, but copies of a cell on older pages name the same one. The bound keeps a scan's time
# linear in the file's size, whatever its bytes are.
_MAX_USES = 64


class DataFile:
    """A file read at offsets; one that is missing is empty, and bytes that the disk will not give are missing.

    What is no regular file counts as missing: a pipe would be waited for, a link may lead anywhere.
    """

    def __init__(self, path: Path) -> None:
        try:
            is_regular = os.path.lexists(path) and stat.S_ISREG(os.lstat(path).st_mode)
            self._file = open(path, "rb", buffering=0) if is_regular else None
        except OSError as err:
            raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
        self.is_missing = self._file is None
        self.size_bytes = os.fstat(self._file.fileno()).st_size if self._file else 0

    def read(self, at: int, size_bytes: int) -> bytes:
        """The bytes at an offset, fewer where the file ends. Not by mmap: there an I/O error kills the process."""
        try:
            return os.pread(self._file.fileno(), size_bytes, at) if self._file else b""
        except OSError:
            return b""

    def __enter__(self) -> DataFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


class Place(NamedTuple):
    """Where a version of a page stands."""

    number: int
    file: DataFile
    at: int


class State:
    """One state of the database: the pages of the main file, some of them replaced."""

    def __init__(self, main: DataFile, page_bytes: int, replaced: Mapping[int, Place]) -> None:
        self.page_bytes = page_bytes
        self.num_pages = max(-(-main.size_bytes // page_bytes), max(replaced, default=0))
        self.claimed: set[int] = set()  # overflow pages of records that were read
        self._main = main
        self._replaced = replaced
        self._uses: Counter[int] = Counter()

    def places(self) -> Iterator[Place]:
        """Where each page of this state stands, in the order of their numbers."""
        num_main = -(-self._main.size_bytes // self.page_bytes)
        behind = sorted(number for number in self._replaced if number > num_main)
        return map(self.place, chain(range(1, num_main + 1), behind))

    def place(self, number: int) -> Place:
        """Where the page of that number stands in this state."""
        found = self._replaced.get(number)
        return found or Place(number, self._main, (number - 1) * self.page_bytes)

    def read(self, place: Place) -> bytes:
        """The page's bytes; fewer, or none, where its file ends."""
        return place.file.read(place.at, self.page_bytes)

    def payload(self, cell: Cell) -> tuple[bytes, list[int]]:
        """The whole payload of a cell, and the overflow pages it runs through; ValueError where the chain breaks."""
        if len(cell.local) == cell.size:
            return cell.local, []
        parts, pages, number = [cell.local], dict[int, None](), cell.overflow
        wanted = -(-(cell.size - len(cell.local)) // (self.page_bytes - 4))
        try:
            while len(pages) < wanted:
                if not 1 < number <= self.num_pages or number in pages or self._uses[number] >= _MAX_USES:
                    raise ValueError(f"no chain of overflow pages goes through page {number}")
                pages[number] = None
                page = self.read(self.place(number))
                parts.append(page[4:])
                number = int.from_bytes(page[:4], "big")
        finally:
            self._uses.update(pages.keys())
        payload = b"".join(parts)
        if len(payload) < cell.size:
            raise ValueError("an overflow page is cut short")
        return payload[: cell.size], list(pages)
