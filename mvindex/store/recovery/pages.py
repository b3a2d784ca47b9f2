"""Bytes of a b-tree page -> its cells, and whether the page's account of its own bytes adds up."""

from __future__ import annotations

import struct
from typing import NamedTuple

from mvindex.store.recovery.records import Kind
from mvindex.store.recovery.values import as_signed, read_varint

_TABLE_INTERIOR, _TABLE_LEAF = 0x05, 0x0D
_KINDS = {0x02: Kind.INDEX, _TABLE_INTERIOR: None, 0x0A: Kind.INDEX, _TABLE_LEAF: Kind.TABLE}
_INTERIOR = frozenset((0x02, _TABLE_INTERIOR))
PAGE_TYPES = frozenset(_KINDS)
_FILE_HEADER_BYTES = 100
_HEADER_BYTES = 12  # of an interior page; a leaf's has no right-most child and is 4 bytes shorter
_MIN_CELL_BYTES = 4


class Cell(NamedTuple):
    """A record's place: the bytes [begin, end) of its page, and the first overflow page or 0.

    size: of the whole payload, of which `local` is what stands on the page itself.
    """

    begin: int
    end: int
    rowid: int | None
    size: int
    local: bytes
    overflow: int


class BtreePage(NamedTuple):
    """The cells that could be read, how many could not, and whether cells and free space fill the page exactly."""

    kind: Kind | None
    cells: list[Cell]
    num_skipped: int
    adds_up: bool


def read_page(page: bytes, number: int, page_bytes: int) -> BtreePage | None:
    """What a b-tree page holds; None when it says it is something else. A page cut short is padded by no one."""
    header = _FILE_HEADER_BYTES if number == 1 else 0
    if len(page) < header + _HEADER_BYTES or page[header] not in PAGE_TYPES:
        return None
    kind, is_interior = _KINDS[page[header]], page[header] in _INTERIOR
    free, num_cells, content, fragments = struct.unpack_from(">HHHB", page, header + 1)
    array = header + (_HEADER_BYTES if is_interior else _HEADER_BYTES - 4)
    num_listed = min(num_cells, (len(page) - array) // 2)
    floor = array + 2 * num_listed
    cells = []
    for begin in struct.unpack_from(f">{num_listed}H", page, array):
        try:
            cells.append(_read_listed(page, begin if begin >= floor else len(page), kind, is_interior, page_bytes))
        except (ValueError, IndexError):
            continue
    is_whole = len(page) == page_bytes and len(cells) == num_cells
    taken = [(cell.begin, cell.end) for cell in cells] + _free_blocks(page, free)
    adds_up = is_whole and _fills(taken, content or 65_536, page_bytes, fragments)
    return BtreePage(kind, cells, num_listed - len(cells), adds_up)


def read_cell(page: bytes, begin: int, kind: Kind, page_bytes: int) -> Cell:
    """The cell of a leaf that begins at the offset; ValueError or IndexError when the page ends before it does."""
    size, at = read_varint(page, begin)
    rowid = None
    if kind is Kind.TABLE:
        number, at = read_varint(page, at)
        rowid = as_signed(number)
    end = at + _local_size(size, kind, page_bytes)
    local, overflow = page[at:end], 0
    if end - at < size:
        overflow = int.from_bytes(page[end : end + 4], "big")
        end += 4
    if end > len(page):
        raise ValueError("the cell ends behind its page")
    return Cell(begin, max(end, begin + _MIN_CELL_BYTES), rowid, size, local, overflow)


def _read_listed(page: bytes, begin: int, kind: Kind | None, is_interior: bool, page_bytes: int) -> Cell:
    """The cell at a listed offset; an interior page's begins with the number of a child page."""
    if kind is None:
        _, end = read_varint(page, begin + 4)
        return Cell(begin, end, None, 0, b"", 0)
    if not is_interior:
        return read_cell(page, begin, kind, page_bytes)
    return read_cell(page, begin + 4, kind, page_bytes)._replace(begin=begin)


def _local_size(size: int, kind: Kind, page_bytes: int) -> int:
    """How much of a payload stands on the page itself; names in the file format: X, M and K."""
    most = page_bytes - 35 if kind is Kind.TABLE else (page_bytes - 12) * 64 // 255 - 23
    if size <= most:
        return size
    least = (page_bytes - 12) * 32 // 255 - 23
    wanted = least + (size - least) % (page_bytes - 4)
    return wanted if wanted <= most else least


def _free_blocks(page: bytes, at: int) -> list[tuple[int, int]]:
    """The chain of free blocks as [begin, end), which must rise; a broken chain ends in one that fits nowhere."""
    blocks: list[tuple[int, int]] = []
    while at:
        if at + 4 > len(page) or (blocks and at < blocks[-1][1]):
            return [*blocks, (at, at + (1 << 16))]
        following, size = struct.unpack_from(">HH", page, at)
        blocks.append((at, at + max(size, _MIN_CELL_BYTES)))
        at = following
    return blocks


def _fills(taken: list[tuple[int, int]], begin: int, end: int, fragments: int) -> bool:
    """True when the spans overlap nowhere and fill [begin, end) but for the fragments: SQLite's own integrity check."""
    spans = sorted([(0, begin), *taken])
    if any(start < before for (_, before), (start, _) in zip(spans, spans[1:], strict=False)):
        return False
    return sum(stop - start for start, stop in spans) + fragments == end
