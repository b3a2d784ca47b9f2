"""Postings: which documents have which terms, in segments of consecutive document rows inside the catalog.

A commit appends a segment; eight small ones are merged into one, so that there are few. A segment does not know which
documents are live: a reader counts those of its own snapshot. A segment's terms are split by their hash into blocks of
some ten KiB, each with a checksum: a term is looked up in one block of each segment.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex
from mvindex.records import Ints
from mvindex.store.lexical.packing import WAY_OUT, PackedBlock, Postings, encode, merge, num_postings_of
from mvindex.store.lexical.tokenizer import Tokens
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
    while (tail := _mergeable(read_segments(connection))) and _num_postings(connection, tail) <= _MAX_POSTINGS:
        _merge(connection, tail)


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
    values = (*segment, int(lengths.sum()), blob, row_checksum(*segment, blob))
    connection.execute("INSERT INTO lexical_segments VALUES (?, ?, ?, ?, ?, ?)", values)
    first_key, _ = _keys([segment])
    rows = [
        (first_key + block, num_postings_of(blob), blob, row_checksum(*segment, block, blob))
        for block, blob in enumerate(blobs)
    ]
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


def _merge(connection: sqlite3.Connection, segments: Sequence[Segment]) -> None:
    """Merge these segments, which follow each other, into one."""
    lengths: Ints = np.concatenate([read_lengths(connection, segment) for segment in segments]).astype(np.int64)
    blobs = [[_read_blob(connection, each, block) for block in range(each.num_blocks)] for each in segments]
    merged = _segment_of(segments[0].first_row, len(lengths))
    packed = merge([(own, each.num_rows) for own, each in zip(blobs, segments, strict=True)], merged.num_blocks)
    bounds = (merged.first_row, merged.end)
    connection.execute("DELETE FROM lexical_segments WHERE first_row >= ? AND first_row < ?", bounds)
    connection.execute("DELETE FROM lexical_blocks WHERE key >= ? AND key < ?", _keys(segments))
    _write(connection, merged, lengths, packed)


def _describe(segment: Segment) -> str:
    return f"the lexical index of document rows {segment.first_row} to {segment.end - 1}"
