"""Postings: which documents have which terms, in segments of consecutive document rows inside the catalog.

A commit appends a segment; eight small ones are merged into one, so that there are few. A segment does not know which
documents are live: a reader counts those of its own snapshot. A segment's terms are split by their hash into blocks of
some ten KiB, each with a checksum: a term is looked up in one block of each segment.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex
from mvindex.lexical.tokenizer import Hashes, Tokens
from mvindex.records import Bools, Ints
from mvindex.store.rows import row_checksum

SCHEMA = """
CREATE TABLE lexical_segments(first_row INTEGER PRIMARY KEY, num_rows INTEGER NOT NULL, num_blocks INTEGER NOT NULL,
    num_terms INTEGER NOT NULL, lengths BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE lexical_blocks(key INTEGER PRIMARY KEY, num_postings INTEGER NOT NULL, postings BLOB NOT NULL,
    checksum INTEGER NOT NULL);
"""
TABLES = ("lexical_segments", "lexical_blocks")
# Rows inside a segment are kept in 16 bits.
MAX_ROWS = 1 << 16
# A merge takes some 75 bytes for each: half a GB. Of long documents fewer rows become one segment.
_MAX_POSTINGS = 6 << 20
_MAX_BLOCKS = 1 << 10
_ROWS_PER_BLOCK = 128
# So many segments of about one size are merged: below 8 rows, 64, and so on.
_MERGED = 8
_SIZES = (8, 64, 512, 4096, 16_384)
_HEADER = np.dtype([("terms", "<u4"), ("postings", "<u4"), ("size_bytes", "<u4"), ("code_bytes", "<u4")])
_WAY_OUT = "`mvindex build --lexical` makes the lexical index again"


class Segment(NamedTuple):
    """Document rows [first_row, first_row + num_rows), their terms in num_blocks blocks (a power of two)."""

    first_row: int
    num_rows: int
    num_blocks: int

    @property
    def end(self) -> int:
        """The first row behind the segment."""
        return self.first_row + self.num_rows

    def block_of(self, term: int) -> int:
        """Return the number of the block that holds a term's hash."""
        return term * self.num_blocks >> 64


class Postings(NamedTuple):
    """Terms, by rising hash, with the rows that have them, rising, and how often; one entry a pair, (p,) each."""

    hashes: Hashes
    rows: Ints
    counts: Ints

    def part(self, at: slice | Ints) -> Postings:
        """Return the postings at these positions."""
        return Postings(self.hashes[at], self.rows[at], self.counts[at])


def postings_of(tokens: Tokens, rows: Sequence[int] | Ints) -> Postings:
    """Return the postings of texts that belong to these rows, which rise."""
    hashes = np.repeat(tokens.hashes, np.diff(tokens.starts))
    return Postings(hashes, np.asarray(rows, dtype=np.int64)[tokens.texts], tokens.counts)


def append_segment(connection: sqlite3.Connection, first_row: int, tokens: Tokens) -> None:
    """Add the terms of the texts of the rows from first_row on, inside the caller's transaction.

    DamagedIndex when the lexical index does not end just before first_row.
    """
    segments = read_segments(connection)
    if (segments[-1].end if segments else 0) != first_row:
        raise DamagedIndex(f"the lexical index does not end at row {first_row}; {_WAY_OUT}")
    rows = np.arange(first_row, first_row + len(tokens.lengths))
    _write(connection, first_row, tokens.lengths, postings_of(tokens, rows))
    while (tail := _mergeable(read_segments(connection))) and _num_postings(connection, tail) <= _MAX_POSTINGS:
        _merge(connection, tail)


def read_segments(connection: sqlite3.Connection) -> list[Segment]:
    """Return the segments in order; DamagedIndex when they do not follow each other from row 0 on."""
    rows = connection.execute("SELECT first_row, num_rows, num_blocks FROM lexical_segments ORDER BY first_row")
    segments = [Segment(*row) for row in rows]
    end = 0
    for segment in segments:
        if not all(type(number) is int for number in segment) or segment.first_row != end or segment.num_rows < 1:
            raise DamagedIndex(f"the segments of the lexical index do not follow each other; {_WAY_OUT}")
        end = segment.end
    return segments


def read_lengths(connection: sqlite3.Connection, segment: Segment) -> npt.NDArray[np.uint32]:
    """Return the number of terms of each document of the segment, (num_rows,); DamagedIndex on a checksum mismatch."""
    query = "SELECT lengths, checksum FROM lexical_segments WHERE first_row = ?"
    blob, checksum = connection.execute(query, (segment.first_row,)).fetchone()
    if row_checksum(*segment, blob) != checksum:
        raise DamagedIndex(f"{_describe(segment)} does not match its checksum; {_WAY_OUT}")
    return np.frombuffer(blob, dtype="<u4")


def read_block(connection: sqlite3.Connection, segment: Segment, block: int) -> Block:
    """Return the block; DamagedIndex when it is missing or does not match its checksum."""
    key = segment.first_row * _MAX_BLOCKS + block
    found = connection.execute("SELECT postings, checksum FROM lexical_blocks WHERE key = ?", (key,)).fetchone()
    return _checked(segment, block, found)


def read_blocks(
    connection: sqlite3.Connection, segments: Sequence[Segment], term: int
) -> Iterator[tuple[Segment, Block]]:
    """Yield each segment with the block that holds a term's hash; DamagedIndex as for read_block()."""
    blocks = [segment.block_of(term) for segment in segments]
    keys = [segment.first_row * _MAX_BLOCKS + block for segment, block in zip(segments, blocks, strict=True)]
    query = "SELECT key, postings, checksum FROM lexical_blocks WHERE key IN (SELECT value FROM json_each(?))"
    found = {key: (blob, checksum) for key, blob, checksum in connection.execute(query, (str(keys),))}
    for segment, block, key in zip(segments, blocks, keys, strict=True):
        yield segment, _checked(segment, block, found.get(key))


def _checked(segment: Segment, block: int, found: tuple[bytes, int] | None) -> Block:
    """Return a block that was found with its checksum; DamagedIndex when it is missing or does not match it."""
    if found is None or row_checksum(*segment, block, found[0]) != found[1]:
        raise DamagedIndex(f"block {block} of {_describe(segment)} does not match its checksum; {_WAY_OUT}")
    return Block(found[0])


class Block:
    """Some terms of a segment, by their hashes.

    A blob is a header, the hashes, and three streams of numbers of 7 bits a byte, the lowest first, the eighth bit set
    in all bytes but the last (LEB128): how many documents have each term; for each of these, by term and row, twice how
    many rows lie between it and the one before, plus 1 where the term occurs more than once; and for those how often,
    less 2.
    """

    def __init__(self, blob: bytes) -> None:
        header = np.frombuffer(blob, dtype=_HEADER, count=1)[0]
        num_terms, _, size_bytes, code_bytes = (int(number) for number in header)
        at = _HEADER.itemsize
        self.hashes: Hashes = np.frombuffer(blob, "<u8", num_terms, at)
        at += 8 * num_terms
        packed = np.frombuffer(blob, np.uint8)
        self._sizes = _unpacked(packed[at : at + size_bytes])
        self._ends = np.cumsum(self._sizes)
        at += size_bytes
        self._codes, self._more = packed[at : at + code_bytes], packed[at + code_bytes :]

    def find(self, term: int) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the rows, inside the segment and rising, that have the term, and how often; (p,) each."""
        place = int(np.searchsorted(self.hashes, np.uint64(term)))
        if place == len(self.hashes) or int(self.hashes[place]) != term:
            return np.empty(0, np.int64), np.empty(0, np.uint8)
        end = int(self._ends[place])
        begin = end - int(self._sizes[place])
        bounds = _bounds(self._codes)
        codes = _unpacked(self._codes[bounds[begin] : bounds[end]])
        num_before = int(np.count_nonzero(self._codes[bounds[:begin]] & 1))
        rows, counts = (codes >> 1) + 1, np.ones(len(codes), np.uint8)
        is_more = codes & 1 == 1
        if is_more.any():
            bounds = _bounds(self._more)
            more = self._more[bounds[num_before] : bounds[num_before + int(np.count_nonzero(is_more))]]
            counts = _counts(is_more, _unpacked(more))
        return np.cumsum(rows) - 1, counts

    def all(self, first_row: int) -> Postings:
        """Return all postings of the block; first_row: of the segment."""
        codes, firsts = _unpacked(self._codes), self._ends - self._sizes
        gaps = (codes >> 1) + 1
        sums = np.cumsum(gaps)
        rows = sums - 1 - np.repeat(sums[firsts] - gaps[firsts], self._sizes)
        counts = _counts(codes & 1 == 1, _unpacked(self._more))
        return Postings(np.repeat(self.hashes, self._sizes), rows + first_row, counts.astype(np.int64))


def _counts(is_more: Bools, more: Ints) -> npt.NDArray[Any]:
    """Return how often terms occur, of the smallest unsigned type; more: where more than once, less 2."""
    counts = np.ones(len(is_more), np.min_scalar_type(int(more.max(initial=0)) + 2))
    counts[is_more] = more + 2
    return counts


def _write(connection: sqlite3.Connection, first_row: int, lengths: Ints, postings: Postings) -> None:
    """Write a segment of these rows, which must not exist yet."""
    num_blocks = 1
    while num_blocks * _ROWS_PER_BLOCK < len(lengths):
        num_blocks *= 2
    segment = Segment(first_row, len(lengths), num_blocks)
    blob = lengths.astype("<u4").tobytes()
    values = (*segment, int(lengths.sum()), blob, row_checksum(*segment, blob))
    connection.execute("INSERT INTO lexical_segments VALUES (?, ?, ?, ?, ?, ?)", values)
    firsts = [np.uint64((block << 64) // num_blocks) for block in range(num_blocks)]
    bounds = np.append(np.searchsorted(postings.hashes, np.array(firsts)), len(postings.hashes)).tolist()
    for block, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        blob = _encoded(postings.part(slice(begin, end)), first_row)
        row = (first_row * _MAX_BLOCKS + block, end - begin, blob, row_checksum(*segment, block, blob))
        connection.execute("INSERT INTO lexical_blocks VALUES (?, ?, ?, ?)", row)


def _encoded(postings: Postings, first_row: int) -> bytes:
    """Return the postings as Block reads them."""
    firsts = np.append(0, np.flatnonzero(np.diff(postings.hashes)) + 1)[: len(postings.hashes)]
    rows = postings.rows - first_row
    gaps = np.diff(rows, prepend=-1) - 1
    gaps[firsts] = rows[firsts]
    is_more = postings.counts > 1
    sizes = _packed(np.diff(firsts, append=len(rows)))
    codes = _packed(2 * gaps + is_more)
    header = np.array([(len(firsts), len(rows), len(sizes), len(codes))], dtype=_HEADER)
    more = _packed(postings.counts[is_more] - 2)
    return b"".join([header.tobytes(), postings.hashes[firsts].astype("<u8").tobytes(), sizes, codes, more])


def _packed(numbers: Ints) -> bytes:
    """Return numbers from 0 on in LEB128."""
    num_bytes = np.ones(len(numbers), dtype=np.int64)
    for bits in range(7, 64, 7):
        longer = numbers >> bits > 0
        if not longer.any():
            break
        num_bytes += longer
    ends = np.cumsum(num_bytes)
    packed = np.empty(ends[-1] if len(ends) else 0, dtype=np.uint8)
    for place in range(int(num_bytes.max(initial=0))):
        has_byte = num_bytes > place
        is_last = num_bytes[has_byte] == place + 1
        low = numbers[has_byte] >> 7 * place & 127
        packed[(ends - num_bytes)[has_byte] + place] = np.where(is_last, low, low | 128)
    return packed.tobytes()


def _bounds(packed: npt.NDArray[np.uint8]) -> Ints:
    """Return where each number in LEB128 begins, and where the last one ends."""
    return np.append(0, np.flatnonzero(packed < 128) + 1)


def _unpacked(packed: npt.NDArray[np.uint8]) -> Ints:
    """Return numbers in LEB128."""
    bounds = _bounds(packed)
    starts, num_bytes = bounds[:-1], np.diff(bounds)
    numbers: Ints = (packed[starts] & 127).astype(np.int64)
    for place in range(1, int(num_bytes.max(initial=1))):
        has_byte = np.flatnonzero(num_bytes > place)
        numbers[has_byte] |= (packed[starts[has_byte] + place] & 127).astype(np.int64) << 7 * place
    return numbers


def _mergeable(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the last segments where they are to be merged; an empty sequence otherwise.

    They are eight of the last one's size, or smaller ones among such: so a row is rewritten once per size, and segments
    stay few whatever the commits are.
    """
    tail = segments[-_MERGED:]
    if len(tail) < _MERGED or sum(segment.num_rows for segment in tail) > MAX_ROWS:
        return []
    sizes = [bisect_right(_SIZES, segment.num_rows) for segment in tail]
    return tail if max(sizes) == sizes[-1] else []


def _num_postings(connection: sqlite3.Connection, segments: Sequence[Segment]) -> int:
    """Return how many postings these segments, which follow each other, have together."""
    query = "SELECT total(num_postings) FROM lexical_blocks WHERE key >= ? AND key < ?"
    (count,) = connection.execute(query, _keys(segments)).fetchone()
    return int(count)


def _keys(segments: Sequence[Segment]) -> tuple[int, int]:
    """Return the first key of the segments' blocks, and the first behind them."""
    return segments[0].first_row * _MAX_BLOCKS, segments[-1].end * _MAX_BLOCKS


def _merge(connection: sqlite3.Connection, segments: Sequence[Segment]) -> None:
    """Merge these segments, which follow each other, into one."""
    lengths: Ints = np.concatenate([read_lengths(connection, segment) for segment in segments]).astype(np.int64)
    parts = [
        read_block(connection, segment, block).all(segment.first_row)
        for segment in segments
        for block in range(segment.num_blocks)
    ]
    joined = Postings(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.argsort(joined.hashes, kind="stable")
    first, end = segments[0].first_row, segments[-1].end
    connection.execute("DELETE FROM lexical_segments WHERE first_row >= ? AND first_row < ?", (first, end))
    connection.execute("DELETE FROM lexical_blocks WHERE key >= ? AND key < ?", _keys(segments))
    _write(connection, first, lengths, joined.part(order))


def _describe(segment: Segment) -> str:
    return f"the lexical index of document rows {segment.first_row} to {segment.end - 1}"
