"""Postings packed into blocks, and read from them, as mvindex.store.lexical.postings describes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.compiled import compiled_inline, compiled_strict
from mvindex.kernels.llvm import word_at

# Bytes of a header: four uint32, the numbers of terms and postings, and the bytes of the first two streams.
_HEADER_BYTES, _HASH_BYTES = 16, 8


@compiled_inline
def _write_integer(out: Any, at: Any, number: Any, num_bytes: Any) -> Any:
    """Write a number, the lowest byte first; return where it ends."""
    for place in range(num_bytes):
        out[at + place] = np.uint8(np.uint64(number) >> np.uint64(8 * place) & np.uint64(255))
    return at + num_bytes


@compiled_inline
def _write_packed(out: Any, at: Any, number: Any) -> Any:
    """Write a number in LEB128; return where it ends."""
    while number > 127:
        out[at] = np.uint8(number & 127 | 128)
        number >>= 7
        at += 1
    out[at] = np.uint8(number)
    return at + 1


@compiled_strict
def encode_blocks(hashes: Any, starts: Any, rows: Any, counts: Any, bounds: Any, out: Any) -> Any:
    """Write blocks of the terms from bounds[i] to bounds[i + 1], one behind the other; return where each ends, (b,).

    out: uint8, with room for all.
    """
    ends, at = np.empty(len(bounds) - 1, np.int64), np.int64(0)
    for block in range(len(bounds) - 1):
        first, behind = bounds[block], bounds[block + 1]
        header = at
        at = _write_integer(out, at, behind - first, 4)
        at = _write_integer(out, at, starts[behind] - starts[first], 4)
        at += 8
        for term in range(first, behind):
            at = _write_integer(out, at, hashes[term], _HASH_BYTES)
        begin = at
        for term in range(first, behind):
            at = _write_packed(out, at, starts[term + 1] - starts[term])
        _write_integer(out, header + 8, at - begin, 4)
        begin = at
        for term in range(first, behind):
            before = np.int64(-1)
            for place in range(starts[term], starts[term + 1]):
                at = _write_packed(out, at, 2 * (rows[place] - before - 1) + (counts[place] > 1))
                before = rows[place]
        _write_integer(out, header + 12, at - begin, 4)
        for place in range(starts[first], starts[behind]):
            if counts[place] > 1:
                at = _write_packed(out, at, counts[place] - 2)
        ends[block] = at
    return ends


class Blocks(NamedTuple):
    """Blocks of s segments that are merged.

    packed: uint8, all blocks, one behind the other; ends: where each ends; headers: (b, 4) int64, their headers.
    Segment i has the blocks from firsts[i] to firsts[i + 1] and num_rows[i] rows, the first of which is row shifts[i].
    """

    packed: Any
    ends: Any
    headers: Any
    firsts: Any
    num_rows: Any
    shifts: Any


class Streams(NamedTuple):
    """The parts of merged blocks: hashes, uint64, and three streams of bytes; each has room for all."""

    hashes: Any
    sizes: Any
    codes: Any
    more: Any


# What is known of where a segment is read: its block, the terms left there, where the next hash is, the next number of
# each stream, and the block's end.
_BLOCK, _LEFT, _HASH, _SIZE, _CODE, _MORE, _END, _NUM_FIELDS = range(8)


@compiled_inline
def _read_packed(packed: Any, at: Any, end: Any) -> Any:
    """Return a number in LEB128 and where it ends; -1 where it does not end before that, or has more than 56 bits."""
    number, shift = np.int64(0), 0
    while at < end and packed[at] > 127 and shift < 49:
        number |= np.int64(packed[at] & 127) << shift
        shift += 7
        at += 1
    if at >= end or packed[at] > 127:
        return np.int64(-1), at
    return number | np.int64(packed[at]) << shift, at + 1


@compiled_strict
def _open_block(blocks: Blocks, segment: Any, cursor: Any) -> Any:
    """Move to the segment's next block that has terms, or behind its last; return whether its blocks are sound."""
    while cursor[_LEFT] == 0:
        block = cursor[_BLOCK] + 1
        if block == blocks.firsts[segment + 1]:
            break
        begin = blocks.ends[block - 1] if block > 0 else np.int64(0)
        num_terms, _, size_bytes, code_bytes = blocks.headers[block]
        cursor[_BLOCK], cursor[_LEFT], cursor[_END] = block, num_terms, blocks.ends[block]
        cursor[_HASH] = begin + _HEADER_BYTES
        cursor[_SIZE] = cursor[_HASH] + _HASH_BYTES * num_terms
        cursor[_CODE] = cursor[_SIZE] + size_bytes
        cursor[_MORE] = cursor[_CODE] + code_bytes
        if cursor[_MORE] > cursor[_END]:
            return False
    return True


@compiled_strict
def merge_blocks(blocks: Blocks, last_hashes: Any, streams: Streams, bounds: Any) -> Any:
    """Merge blocks into others, the i-th of the hashes up to last_hashes[i]; return whether they are sound.

    bounds: (len(last_hashes), 5) int64, where each ends in the streams, and in the postings.
    """
    num_segments = len(blocks.num_rows)
    cursors = np.zeros((num_segments, _NUM_FIELDS), np.int64)
    hashes, has_terms = np.zeros(num_segments, np.uint64), np.zeros(num_segments, np.bool_)
    address = blocks.packed.ctypes.data
    for segment in range(num_segments):
        cursor = cursors[segment]
        cursor[_BLOCK] = blocks.firsts[segment] - 1
        if not _open_block(blocks, segment, cursor):
            return False
        has_terms[segment] = cursor[_LEFT] > 0
        if has_terms[segment]:
            hashes[segment] = word_at(address + cursor[_HASH])
    ends = np.zeros(5, np.int64)
    for block in range(len(bounds)):
        while True:
            lowest, is_found = last_hashes[block], False
            for segment in range(num_segments):
                if has_terms[segment] and hashes[segment] <= lowest:
                    lowest, is_found = hashes[segment], True
            if not is_found:
                break
            if not _merge_term(blocks, lowest, hashes, has_terms, cursors, streams, ends):
                return False
        bounds[block] = ends
    return True


@compiled_inline
def _merge_term(
    blocks: Blocks, lowest: Any, hashes: Any, has_terms: Any, cursors: Any, streams: Streams, ends: Any
) -> Any:
    """Write the term of this hash from all segments, and move on in those; return whether their blocks are sound."""
    packed, codes, more, num_rows, shifts = blocks.packed, streams.codes, streams.more, blocks.num_rows, blocks.shifts
    before, total, code_end, more_end = np.int64(-1), np.int64(0), ends[2], ends[3]
    for segment in range(len(num_rows)):
        if not has_terms[segment] or hashes[segment] != lowest:
            continue
        end, code_at, more_at = cursors[segment, _END], cursors[segment, _CODE], cursors[segment, _MORE]
        size, cursors[segment, _SIZE] = _read_packed(packed, cursors[segment, _SIZE], end)
        if size < 1:
            return False
        row = np.int64(-1)
        for _ in range(size):
            number, code_at = _read_packed(packed, code_at, end)
            row += (number >> 1) + 1
            if number < 0 or row >= num_rows[segment]:
                return False
            code_end = _write_packed(codes, code_end, 2 * (row + shifts[segment] - before - 1) + (number & 1))
            before = row + shifts[segment]
            if number & 1:
                number, more_at = _read_packed(packed, more_at, end)
                if number < 0:
                    return False
                more_end = _write_packed(more, more_end, number)
        total += size
        cursors[segment, _CODE], cursors[segment, _MORE] = code_at, more_at
        cursors[segment, _HASH] += _HASH_BYTES
        cursors[segment, _LEFT] -= 1
        if cursors[segment, _LEFT] == 0 and not _open_block(blocks, segment, cursors[segment]):
            return False
        has_terms[segment] = cursors[segment, _LEFT] > 0
        if has_terms[segment]:
            hashes[segment] = word_at(packed.ctypes.data + cursors[segment, _HASH])
    streams.hashes[ends[0]] = lowest
    ends[0] += 1
    ends[1] = _write_packed(streams.sizes, ends[1], total)
    ends[2], ends[3] = code_end, more_end
    ends[4] += total
    return True
