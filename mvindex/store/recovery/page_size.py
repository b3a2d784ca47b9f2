"""The page size of a damaged database: what its pages agree on, rather than what its header says."""

from __future__ import annotations

from collections import Counter

from mvindex.store.recovery.files import DataFile
from mvindex.store.recovery.log import FRAME_HEADER_BYTES, HEADER_BYTES, Log, is_page_size
from mvindex.store.recovery.pages import PAGE_TYPES, read_page

_SIZES = tuple(512 << power for power in range(8))
_DEFAULT = 4096
_BLOCK_BYTES = _SIZES[-1]
_MAX_BLOCKS = 256


def find_page_size(main: DataFile, log: DataFile) -> int:
    """The log's page size where its checksum holds; else the one that most pages fit; else the header's, else 4096.

    One flipped bit makes another valid page size of the header's; no page adds up by chance.
    """
    known = Log(log).page_bytes
    if known is not None:
        return known
    votes = _votes(main)
    votes.update({size: _log_votes(log, size) for size in _SIZES})
    said = _said_by_header(main)
    return max((said, *_SIZES), key=lambda size: votes[size])


def _said_by_header(main: DataFile) -> int:
    number = int.from_bytes(main.read(16, 2), "big")
    size = 65_536 if number == 1 else number
    return size if is_page_size(size) else _DEFAULT


def _votes(main: DataFile) -> Counter[int]:
    """How many b-tree pages of each size add up, in blocks spread over the whole file."""
    votes: Counter[int] = Counter()
    num_blocks = -(-main.size_bytes // _BLOCK_BYTES)
    for begin in range(0, main.size_bytes, _BLOCK_BYTES * max(1, num_blocks // _MAX_BLOCKS)):
        block = main.read(begin, _BLOCK_BYTES)
        for size in _SIZES:
            votes[size] += sum(_is_sound(block[at : at + size], begin + at, size) for at in range(0, len(block), size))
    return votes


def _log_votes(log: DataFile, size: int) -> int:
    stride = FRAME_HEADER_BYTES + size
    most = min(log.size_bytes, _BLOCK_BYTES * _MAX_BLOCKS)
    starts = range(HEADER_BYTES + FRAME_HEADER_BYTES, most, stride)
    return sum(_is_sound(log.read(at, size), at, size) for at in starts)


def _is_sound(page: bytes, at: int, page_bytes: int) -> bool:
    """True for a b-tree page of that size that adds up; the first of a file has the file's header before it."""
    number = 1 if at == 0 else 2
    if number > 1 and (not page or page[0] not in PAGE_TYPES):
        return False
    found = read_page(page, number, page_bytes)
    return found is not None and found.adds_up
