"""Postings of terms: how they are packed, and how those of a commit are made.

A commit appends a segment; eight small ones are merged into one, so that there are few. A segment does not know which
documents are live: a reader counts those of its own snapshot. A segment's terms are split by their hash into blocks of
some ten KiB, each with a checksum: a term is looked up in one block of each segment.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex
from mvindex.records import Bools, Hashes, Ints
from mvindex.store.lexical.tokenizer import LOADING, Tokens
from mvindex.store.rows import row_checksum

# Terms, postings, bytes of the first two streams of numbers.
_HEADER = Struct("<IIII")
WAY_OUT = "`mvindex build --lexical` makes the lexical index again"
# Of a number below 2^63 in LEB128.
_MOST_BYTES = 9


class Postings(NamedTuple):
    """Terms, by rising hash, with the rows of a segment that have them, rising, and how often.

    hashes: (t,); rows[starts[i]:starts[i + 1]] have hashes[i], as often as counts gives, (p,).
    """

    hashes: Hashes
    starts: Ints
    rows: Ints
    counts: Ints

    def part(self, begin: int, end: int) -> Postings:
        """Return the postings of these terms."""
        first, behind = self.starts[begin], self.starts[end]
        starts = self.starts[begin : end + 1] - first
        return Postings(self.hashes[begin:end], starts, self.rows[first:behind], self.counts[first:behind])


def encode(postings: Postings, num_blocks: int) -> list[bytes]:
    """Return a segment's blocks, a power of two of them, as PackedBlock reads them."""
    bounds = bounds_of(postings.hashes, num_blocks)
    return encode_compiled(postings, bounds) if LOADING.has_loaded else encode_plainly(postings, bounds)


def encode_plainly(postings: Postings, bounds: Ints) -> list[bytes]:
    """Return blocks by NumPy, the i-th of the terms from bounds[i] to bounds[i + 1]."""
    return [_encoded(postings.part(*pair)) for pair in pairwise(bounds.tolist())]


def encode_compiled(postings: Postings, bounds: Ints) -> list[bytes]:
    """Do what encode_plainly() does, by compiled loops."""
    from mvindex.kernels.postings import encode_blocks

    hashes, starts, rows, counts = (np.ascontiguousarray(column) for column in postings)
    room = _HEADER.size * len(bounds) + (8 + _MOST_BYTES) * len(hashes) + 2 * _MOST_BYTES * len(rows)
    out = np.empty(room, dtype=np.uint8)
    ends = encode_blocks(hashes, starts, rows, counts, bounds, out)
    return [out[begin:end].tobytes() for begin, end in pairwise([0, *ends.tolist()])]


def merge(segments: Sequence[tuple[Sequence[bytes], int]], num_blocks: int) -> list[bytes]:
    """Return the blocks of the segment that has the rows of these, which follow each other.

    Args:
        segments: The blocks of each segment, and its number of rows.
        num_blocks: How many blocks are made, a power of two.

    Raises:
        DamagedIndex: Where a block is none.

    """
    return merge_compiled(segments, num_blocks) if LOADING.has_loaded else merge_plainly(segments, num_blocks)


def merge_plainly(segments: Sequence[tuple[Sequence[bytes], int]], num_blocks: int) -> list[bytes]:
    """Do what merge() does, by NumPy."""
    parts, first_row = [], 0
    for blobs, num_rows in segments:
        own = [PackedBlock(blob).all() for blob in blobs]
        parts += [each._replace(rows=each.rows + first_row) for each in own]
        first_row += num_rows
    hashes, sizes = (
        np.concatenate(each) for each in zip(*((own.hashes, np.diff(own.starts)) for own in parts), strict=True)
    )
    rows, counts = (np.concatenate(each) for each in zip(*((own.rows, own.counts) for own in parts), strict=True))
    order = np.argsort(hashes, kind="stable")
    begins, sizes, hashes = (np.cumsum(sizes) - sizes)[order], sizes[order], hashes[order]
    starts = np.append(0, np.cumsum(sizes))
    places = np.repeat(begins - starts[:-1], sizes) + np.arange(starts[-1])
    firsts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))[: len(hashes)]
    postings = Postings(hashes[firsts], starts[np.append(firsts, len(hashes))], rows[places], counts[places])
    return encode_plainly(postings, bounds_of(postings.hashes, num_blocks))


def merge_compiled(segments: Sequence[tuple[Sequence[bytes], int]], num_blocks: int) -> list[bytes]:
    """Do what merge() does, by compiled loops."""
    from mvindex.kernels.postings import Blocks, Streams, merge_blocks

    blobs = [blob for own, _ in segments for blob in own]
    headers = np.array([_HEADER.unpack_from(blob) for blob in blobs], dtype=np.int64)
    packed, num_rows = np.frombuffer(b"".join(blobs), np.uint8), np.array([rows for _, rows in segments])
    blocks = Blocks(
        packed=packed,
        ends=np.cumsum([len(blob) for blob in blobs]),
        headers=headers,
        firsts=np.cumsum([0, *(len(own) for own, _ in segments)]),
        num_rows=num_rows,
        shifts=np.cumsum(num_rows) - num_rows,
    )
    # A term's first code in a segment may grow.
    most = len(packed) // 8
    streams = Streams(
        np.empty(most, np.uint64), *(np.empty(len(packed) + _MOST_BYTES * most, np.uint8) for _ in Streams._fields[1:])
    )
    lasts, bounds = _last_hashes(num_blocks), np.empty((num_blocks, 5), dtype=np.int64)
    if not merge_blocks(blocks, lasts, streams, bounds) or bounds[-1, 4] != headers[:, 1].sum():
        raise DamagedIndex(f"a block of the lexical index does not hold what its header says; {WAY_OUT}")
    made, begins = [], [0] * 5
    for ends in bounds.tolist():
        parts = [stream[begin:end].tobytes() for stream, begin, end in zip(streams, begins, ends[:4], strict=False)]
        header = _HEADER.pack(ends[0] - begins[0], ends[4] - begins[4], len(parts[1]), len(parts[2]))
        made.append(b"".join([header, *parts]))
        begins = ends
    return made


def num_postings_of(blob: bytes) -> int:
    """Return the number of postings in a block."""
    return int(_HEADER.unpack_from(blob)[1])


def bounds_of(hashes: Hashes, num_blocks: int) -> Ints:
    """Return where the terms of each block begin among these, and where the last one's end."""
    return np.append(0, np.searchsorted(hashes, _last_hashes(num_blocks), side="right"))


def _last_hashes(num_blocks: int) -> Hashes:
    """Return the largest hash that each block may hold; see Segment.block_of()."""
    return np.array([((block + 1 << 64) // num_blocks) - 1 for block in range(num_blocks)], dtype=np.uint64)


class PackedBlock:
    """Some terms of a segment, by their hashes.

    A blob is a header, the hashes, and three streams of numbers of 7 bits a byte, the lowest first, the eighth bit set
    in all bytes but the last (LEB128): how many documents have each term; for each of these, by term and row, twice how
    many rows lie between it and the one before, plus 1 where the term occurs more than once; and for those how often,
    less 2.
    """

    def __init__(self, blob: bytes) -> None:
        num_terms, _, size_bytes, code_bytes = _HEADER.unpack_from(blob)
        at = _HEADER.size
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
        bounds = self._code_bounds
        codes = _unpacked(self._codes[bounds[begin] : bounds[end]])
        rows, counts = (codes >> 1) + 1, np.ones(len(codes), np.uint8)
        is_more = codes & 1 == 1
        if is_more.any():
            first = int(self._num_more[begin])
            bounds = self._more_bounds
            more = self._more[bounds[first] : bounds[first + int(np.count_nonzero(is_more))]]
            counts = _counts(is_more, _unpacked(more))
        return np.cumsum(rows) - 1, counts

    @cached_property
    def _code_bounds(self) -> Ints:
        return _bounds(self._codes)

    @cached_property
    def _more_bounds(self) -> Ints:
        return _bounds(self._more)

    @cached_property
    def _num_more(self) -> Ints:
        """How many of the postings before each one occur more than once."""
        return np.append(0, np.cumsum(self._codes[self._code_bounds[:-1]] & 1, dtype=np.int64))

    def all(self) -> Postings:
        """Return all postings of the block."""
        codes, firsts = _unpacked(self._codes), self._ends - self._sizes
        gaps = (codes >> 1) + 1
        sums = np.cumsum(gaps)
        rows = sums - 1 - np.repeat(sums[firsts] - gaps[firsts], self._sizes)
        counts = _counts(codes & 1 == 1, _unpacked(self._more))
        return Postings(self.hashes, np.append(0, self._ends), rows, counts.astype(np.int64))


def _counts(is_more: Bools, more: Ints) -> npt.NDArray[Any]:
    """Return how often terms occur, of the smallest unsigned type; more: where more than once, less 2."""
    counts = np.ones(len(is_more), np.min_scalar_type(int(more.max(initial=0)) + 2))
    counts[is_more] = more + 2
    return counts


def _encoded(postings: Postings) -> bytes:
    """Return the postings as PackedBlock reads them."""
    firsts, sizes = postings.starts[:-1], _packed(np.diff(postings.starts))
    gaps = np.diff(postings.rows, prepend=-1) - 1
    gaps[firsts] = postings.rows[firsts]
    is_more = postings.counts > 1
    codes = _packed(2 * gaps + is_more)
    header = _HEADER.pack(len(firsts), len(gaps), len(sizes), len(codes))
    more = _packed(postings.counts[is_more] - 2)
    return b"".join([header, postings.hashes.astype("<u8").tobytes(), sizes, codes, more])


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


SCHEMA = """
CREATE TABLE lexical_segments(first_row INTEGER PRIMARY KEY, num_rows INTEGER NOT NULL, num_blocks INTEGER NOT NULL,
    num_terms INTEGER NOT NULL, lengths BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE lexical_blocks(key INTEGER PRIMARY KEY, num_postings INTEGER NOT NULL, postings BLOB NOT NULL,
    checksum INTEGER NOT NULL);
"""
TABLES = ("lexical_segments", "lexical_blocks")
# Rows inside a segment are kept in 16 bits.
MAX_ROWS = 1 << 16
# Without compiled loops a merge takes some 75 bytes for each: half a GB. Of long documents fewer rows become one
# segment.
_MAX_POSTINGS = 6 << 20
_MAX_BLOCKS = 1 << 10
_ROWS_PER_BLOCK = 128
# So many segments of about one size are merged: below 8 rows, 64, and so on.
_MERGED = 8
_SIZES = (8, 64, 512, 4096, 16_384)


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


# The block of each segment that was read last, with its key.
LastBlocks: TypeAlias = "dict[Segment, tuple[int, PackedBlock]]"
_NO_BLOCK = (-1, None)


def append_segment(connection: sqlite3.Connection, first_row: int, tokens: Tokens) -> None:
    """Add the terms of the texts of the rows from first_row on, inside the caller's transaction.

    DamagedIndex when the lexical index does not end just before first_row.
    """
    segments = read_segments(connection)
    if (segments[-1].end if segments else 0) != first_row:
        raise DamagedIndex(f"the lexical index does not end at row {first_row}; {WAY_OUT}")
    postings = Postings(tokens.hashes, tokens.starts, tokens.texts, tokens.counts)
    segment = _segment_of(first_row, len(tokens.lengths))
    _write(connection, segment, tokens.lengths, encode(postings, segment.num_blocks))
    segments.append(segment)
    while (tail := _mergeable(segments)) and _num_postings(connection, tail) <= _MAX_POSTINGS:
        segments[-len(tail) :] = [_merge(connection, tail)]


def read_segments(connection: sqlite3.Connection) -> list[Segment]:
    """Return the segments in order; DamagedIndex when they do not follow each other from row 0 on."""
    rows = connection.execute("SELECT first_row, num_rows, num_blocks FROM lexical_segments ORDER BY first_row")
    segments = [Segment(*row) for row in rows]
    end = 0
    for segment in segments:
        if not all(type(number) is int for number in segment) or segment.first_row != end or segment.num_rows < 1:
            raise DamagedIndex(f"the segments of the lexical index do not follow each other; {WAY_OUT}")
        end = segment.end
    return segments


def read_lengths(connection: sqlite3.Connection, segment: Segment) -> npt.NDArray[np.uint32]:
    """Return the number of terms of each document of the segment, (num_rows,); DamagedIndex on a checksum mismatch."""
    query = "SELECT lengths, checksum FROM lexical_segments WHERE first_row = ?"
    blob, checksum = connection.execute(query, (segment.first_row,)).fetchone()
    if row_checksum(*segment, blob) != checksum:
        raise DamagedIndex(f"{_describe(segment)} does not match its checksum; {WAY_OUT}")
    return np.frombuffer(blob, dtype="<u4")


def read_block(connection: sqlite3.Connection, segment: Segment, block: int) -> PackedBlock:
    """Return the block; DamagedIndex when it is missing or does not match its checksum."""
    return PackedBlock(_read_blob(connection, segment, block))


def _read_blob(connection: sqlite3.Connection, segment: Segment, block: int) -> bytes:
    key = segment.first_row * _MAX_BLOCKS + block
    found = connection.execute("SELECT postings, checksum FROM lexical_blocks WHERE key = ?", (key,)).fetchone()
    return _checked(segment, block, found)


def read_blocks(
    connection: sqlite3.Connection, segments: Sequence[Segment], term: int, last: LastBlocks
) -> Iterator[tuple[Segment, PackedBlock]]:
    """Yield each segment with the block that holds a term's hash; DamagedIndex as for read_block().

    last: what was read of these segments before, in the same transaction; updated. Terms by rising hash read each block
    once.
    """
    blocks = {segment.first_row * _MAX_BLOCKS + segment.block_of(term): segment for segment in segments}
    missing = [key for key, segment in blocks.items() if last.get(segment, _NO_BLOCK)[0] != key]
    if missing:
        query = "SELECT key, postings, checksum FROM lexical_blocks WHERE key IN (SELECT value FROM json_each(?))"
        found = {key: (blob, checksum) for key, blob, checksum in connection.execute(query, (str(missing),))}
        for key in missing:
            blob = _checked(blocks[key], key % _MAX_BLOCKS, found.get(key))
            last[blocks[key]] = (key, PackedBlock(blob))
    for segment in blocks.values():
        yield segment, last[segment][1]


def _checked(segment: Segment, block: int, found: tuple[bytes, int] | None) -> bytes:
    """Return a block that was found with its checksum; DamagedIndex when it is missing or does not match it."""
    if found is None or row_checksum(*segment, block, found[0]) != found[1]:
        raise DamagedIndex(f"block {block} of {_describe(segment)} does not match its checksum; {WAY_OUT}")
    return found[0]


def _write(connection: sqlite3.Connection, segment: Segment, lengths: Ints, blobs: Sequence[bytes]) -> None:
    """Write a segment of these blocks, which must not exist yet."""
    blob = lengths.astype("<u4").tobytes()
    checksums = [row_checksum(*segment, block, each) for block, each in enumerate(blobs)]
    values = (*segment, int(lengths.sum()), blob, row_checksum(*segment, blob))
    connection.execute("INSERT INTO lexical_segments VALUES (?, ?, ?, ?, ?, ?)", values)
    keys = range(segment.first_row * _MAX_BLOCKS, segment.end * _MAX_BLOCKS)
    rows = zip(keys, map(num_postings_of, blobs), blobs, checksums, strict=False)
    connection.executemany("INSERT INTO lexical_blocks VALUES (?, ?, ?, ?)", rows)


def _segment_of(first_row: int, num_rows: int) -> Segment:
    """Return a new segment of these rows."""
    num_blocks = 1
    while num_blocks * _ROWS_PER_BLOCK < num_rows:
        num_blocks *= 2
    return Segment(first_row, num_rows, num_blocks)


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


def _merge(connection: sqlite3.Connection, segments: Sequence[Segment]) -> Segment:
    """Merge these segments, which follow each other, into one, and return it."""
    lengths: Ints = np.concatenate([read_lengths(connection, segment) for segment in segments]).astype(np.int64)
    blobs = [[_read_blob(connection, each, block) for block in range(each.num_blocks)] for each in segments]
    merged = _segment_of(segments[0].first_row, len(lengths))
    packed = merge([(own, each.num_rows) for own, each in zip(blobs, segments, strict=True)], merged.num_blocks)
    bounds = (merged.first_row, merged.end)
    connection.execute("DELETE FROM lexical_segments WHERE first_row >= ? AND first_row < ?", bounds)
    connection.execute("DELETE FROM lexical_blocks WHERE key >= ? AND key < ?", _keys(segments))
    _write(connection, merged, lengths, packed)
    return merged


def _describe(segment: Segment) -> str:
    return f"the lexical index of document rows {segment.first_row} to {segment.end - 1}"
