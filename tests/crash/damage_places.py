"""What every byte of a sound index belongs to, by the formats' own rules: no part of the store is asked.

SQLite's file format: https://www.sqlite.org/fileformat2.html, sections 1.5 to 1.6 and 4.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from damage_files import Role, files_of

_OF_DOCUMENTS = ("documents", "texts", "metadata")
_LEAF_TABLE, _INTERIOR_TABLE, _LEAF_INDEX, _INTERIOR_INDEX = 0x0D, 0x05, 0x0A, 0x02


class Page(NamedTuple):
    """A page of the database as the last commit left it: in which file, and where there."""

    role: Role
    at: int
    data: bytes


class Places:
    """owners: of each byte of a file the document row that it belongs to, -1 for none; areas: what the bytes hold."""

    def __init__(self, index: Path) -> None:
        files = files_of(index)
        sizes = {role: path.stat().st_size for role, path in files.items()}
        self.owners = {role: np.full(size, -1, dtype=np.int64) for role, size in sizes.items()}
        self.areas = {role: np.full(size, "", dtype="U32") for role, size in sizes.items()}
        self._pages = committed_pages(files)
        for page in self._pages.values():
            self.areas[page.role][page.at : page.at + len(page.data)] = "free page"
        with closing(sqlite3.connect(f"{files[Role.CATALOG].absolute().as_uri()}?mode=ro", uri=True)) as connection:
            roots = [("schema", 1), *connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0")]
            starts = connection.execute("SELECT doc_row, view_start, num_views FROM documents").fetchall()
            (dim,) = connection.execute("SELECT value FROM settings WHERE key = 'dim'").fetchone()
        for name, root in roots:
            self._walk(root, name)
        self.areas[Role.CATALOG][:100] = "file header"
        for role in (Role.CATALOG, Role.LOG):
            if role in files:
                self.areas[role][self.areas[role] == ""] = "superseded"
        row_bytes = int(dim) * (4 if files[Role.VIEWS].suffix == ".f32" else 2)
        for doc_row, begin, count in starts:
            self.owners[Role.VIEWS][begin * row_bytes : (begin + count) * row_bytes] = doc_row

    def somewhere(self, role: Role, generator: random.Random) -> int | None:
        """A byte of the file in an area drawn first, so that small areas are hit as often as large; None for none."""
        names = sorted(set(self._names(role)) - {""})
        if not names:
            return None
        name = generator.choice(names)
        return int(generator.choice(np.flatnonzero(self.areas[role] == name)))

    @lru_cache  # noqa: B019 - a case lives as long as its process
    def _names(self, role: Role) -> frozenset[str]:
        return frozenset(np.unique(self.areas[role]).tolist())

    def _walk(self, number: int, name: str) -> None:
        page = self._pages[number]
        head = page.at + (100 if number == 1 else 0)
        kind = page.data[head - page.at]
        size = 12 if kind in (_INTERIOR_TABLE, _INTERIOR_INDEX) else 8
        count = int.from_bytes(page.data[head - page.at + 3 : head - page.at + 5], "big")
        self._mark(page, page.at, page.at + len(page.data), f"{name}: free")
        self._mark(page, head, head + size, f"{name}: page header")
        self._mark(page, head + size, head + size + 2 * count, f"{name}: cell pointers")
        pointers = np.frombuffer(page.data, ">u2", count, head - page.at + size).tolist()
        for begin in pointers:
            self._cell(page, kind, begin, name)
        if size == 12:
            children = [int.from_bytes(page.data[begin : begin + 4], "big") for begin in pointers]
            last = head - page.at + 8
            for child in [*children, int.from_bytes(page.data[last : last + 4], "big")]:
                self._walk(child, name)

    def _cell(self, page: Page, kind: int, begin: int, name: str) -> None:
        """One cell, and the overflow pages of its payload."""
        at = begin + (4 if kind in (_INTERIOR_TABLE, _INTERIOR_INDEX) else 0)
        if kind == _INTERIOR_TABLE:
            _, at = varint(page.data, at)
            return self._mark(page, page.at + begin, page.at + at, f"{name}: interior cell")
        size, at = varint(page.data, at)
        owner = -1
        if kind == _LEAF_TABLE:
            rowid, at = varint(page.data, at)
            owner = rowid if name in _OF_DOCUMENTS else -1
        local = local_bytes(size, len(page.data), kind == _LEAF_TABLE)
        end = at + local + (4 if local < size else 0)
        self._mark(page, page.at + begin, page.at + end, f"{name}: cell", owner)
        left, number = size - local, int.from_bytes(page.data[end - 4 : end], "big")
        while left > 0:
            more = self._pages[number]
            used = min(left, len(more.data) - 4)
            self._mark(more, more.at, more.at + len(more.data), f"{name}: free")
            # The number of the next page is part of the record only where there is one.
            self._mark(more, more.at + (4 if left == used else 0), more.at + 4 + used, f"{name}: overflow", owner)
            left, number = left - used, int.from_bytes(more.data[:4], "big")
        return None

    def _mark(self, page: Page, begin: int, end: int, area: str, owner: int = -1) -> None:
        self.areas[page.role][begin:end] = area
        self.owners[page.role][begin:end] = owner


def committed_pages(files: dict[Role, Path]) -> dict[int, Page]:
    """The pages of the last commit by number: of the log where it has them, else of the main file."""
    main = files[Role.CATALOG].read_bytes()
    size = int.from_bytes(main[16:18], "big") or 65_536
    size = 65_536 if size == 1 else size
    found = {at // size + 1: Page(Role.CATALOG, at, main[at : at + size]) for at in range(0, len(main), size)}
    pending = {}
    for number, at, data, is_commit in _frames(files[Role.LOG].read_bytes() if Role.LOG in files else b"", size):
        pending[number] = Page(Role.LOG, at, data)
        if is_commit:
            found |= pending
            pending = {}
    return found


def _frames(log: bytes, size: int) -> Iterator[tuple[int, int, bytes, bool]]:
    """The frames of a sound log's last run: page number, where the page begins, the page, whether it is a commit."""
    for at in range(32, len(log) - size - 23, size + 24):
        if log[at + 8 : at + 16] != log[16:24]:
            return
        number, after = (int.from_bytes(log[at + skip : at + skip + 4], "big") for skip in (0, 4))
        yield number, at + 24, log[at + 24 : at + 24 + size], after > 0


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint's value, and where it ends."""
    value = 0
    for position in range(at, at + 8):
        value = value << 7 | data[position] & 0x7F
        if data[position] < 0x80:
            return value, position + 1
    return value << 8 | data[at + 8], at + 9


def local_bytes(size: int, page_bytes: int, is_table: bool) -> int:
    """How much of a payload of that size stands in its cell; the rest is in overflow pages."""
    most = page_bytes - 35 if is_table else (page_bytes - 12) * 64 // 255 - 23
    least = (page_bytes - 12) * 32 // 255 - 23
    if size <= most:
        return size
    part = least + (size - least) % (page_bytes - 4)
    return part if part <= most else least
