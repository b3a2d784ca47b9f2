"""Scans of inverted lists of 4-bit codes as Faiss' fast scan packs them, by AVX-512.

A block holds the codes of 32 views, part by part in 16 bytes each. Byte j of a part has the value of view ORDER[j] in
its lower four bits and that of view ORDER[j] + 16 in its upper four; ORDER is 0, 8, 1, 9, ..., 7, 15. A code's score is
the bias of its list and what the tables, 16 bytes a part, hold for its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import compiled_inline, compiled_strict, intrinsic
from mvindex.kernels.llvm import BYTES, I16, I32, I64, Loop, call, filled, pointer, prefetch, prefetch_line
from mvindex.kernels.vnni import trailing_zeros

BLOCK_CODES = 32
# A key is MAX_SCORE less a score, and below it the place of a code: the number of its list among those of the query,
# and its own in the list.
MAX_SCORE, PLACE_BITS, OFFSET_BITS = (1 << 16) - 1, 48, 28
# Bytes ahead of the codes that are read: enough to hide memory, as for scans of views (vnni.py).
AHEAD_BYTES = 4096
_WORDS = ir.VectorType(I16, 32)
_MASK = ir.IntType(32)
_LOOK_UP = ("llvm.x86.avx512.pshuf.b.512", ir.FunctionType(BYTES, [BYTES, BYTES]))


@intrinsic
def _block(
    context: Any, codes: Any, ahead: Any, tables: Any, steps: Any, least: Any, out: Any
) -> tuple[Any, Callable[..., Any]]:
    """Write the sums of a block's 32 codes to out, uint16, and return which of them reach `least`, as bits.

    codes, tables: addresses of 64 x steps bytes, tables 64-byte aligned; ahead: the address of a block to prefetch.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codes_at, ahead_at, tables_at, steps, least, out_at = arguments
        loop = Loop(builder, steps, [filled(_WORDS, 0)] * 4)
        offset = builder.mul(loop.step, I64(64))
        prefetch_line(builder, ahead_at, offset)
        packed = builder.load(pointer(builder, codes_at, offset, BYTES), align=1)
        table = builder.load(pointer(builder, tables_at, offset, BYTES), align=64)
        sums = []
        for number, shift in enumerate((0, 4)):
            part = builder.and_(builder.lshr(packed, filled(BYTES, shift)), filled(BYTES, 15))
            pairs = builder.bitcast(call(builder, _LOOK_UP, table, part), _WORDS)
            both, upper = loop.carried[2 * number : 2 * number + 2]
            # The sums of the lower bytes are what is left of `both` when those of the upper ones are taken off.
            sums += [builder.add(both, pairs), builder.add(upper, builder.lshr(pairs, filled(_WORDS, 8)))]
        loop.close(sums)
        quarters = []
        for both, upper in (sums[:2], sums[2:]):
            quarters += [builder.sub(both, builder.shl(upper, filled(_WORDS, 8))), upper]
        total = _sum_of_lanes(builder, quarters)
        builder.store(total, pointer(builder, out_at, I64(0), _WORDS), align=64)
        limit = builder.insert_element(_WORDS(ir.Undefined), builder.trunc(least, I16), I32(0))
        limit = builder.shuffle_vector(limit, _WORDS(ir.Undefined), filled(ir.VectorType(I32, 32), 0))
        reaches = builder.icmp_unsigned(">=", total, limit)
        return builder.zext(builder.bitcast(reaches, _MASK), I64)

    return types.uint64(*[types.int64] * 6), generate


def _sum_of_lanes(builder: Any, quarters: Any) -> Any:
    """Return the sums of the four lanes of eight words of each of four vectors, one after the other."""

    def picked(one: Any, other: Any, lanes: tuple[int, ...]) -> Any:
        indices = [8 * lane + word for lane in lanes for word in range(8)]
        return builder.shuffle_vector(one, other, ir.VectorType(I32, 32)(indices))

    low, high = (
        builder.add(picked(one, other, (0, 1, 4, 5)), picked(one, other, (2, 3, 6, 7)))
        for one, other in (quarters[:2], quarters[2:])
    )
    return builder.add(picked(low, high, (0, 2, 4, 6)), picked(low, high, (1, 3, 5, 7)))


@intrinsic
def long_at(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], I64.as_pointer()), align=8)

    return types.int64(types.int64), generate


@compiled_strict
def describe_lists(table: Any, lists: Any, scores: Any, scale: Any, out: Any) -> int:
    """Write what scan_lists() reads of these lists to out, (n, 6) int64, and return how many codes they have.

    -1 for more lists, or codes in one, than a key has bits for: 2^20 and 2^28.

    table: (nlist, 3) int64: the address of each list's codes, their number, the address of their rows. scores: (n,)
    float32, of the centroids; a list's bias is what its score is above the lowest, times the scale.
    """
    lowest, total = np.float32(np.inf), 0
    if len(lists) > 1 << (PLACE_BITS - OFFSET_BITS):
        return -1
    for number in range(len(lists)):
        lowest = min(lowest, scores[number])
    for number in range(len(lists)):
        codes_at, size, rows_at = table[lists[number]]
        if size > 1 << OFFSET_BITS:
            return -1
        out[number, 0], out[number, 1], out[number, 4] = codes_at, size, rows_at
        out[number, 2] = np.int64((scores[number] - lowest) * scale + 0.5)
        out[number, 3], out[number, 5] = number << OFFSET_BITS, 0
        total += size
    return total


@compiled_strict
def scan_lists(lists: Any, tables: Any, allowed: Any, limit: Any, counts: Any, keys: Any, states: Any) -> None:
    """Add the keys of codes that may be among the best `limit` of a query, in these lists and those scanned before.

    Codes of equal score come in the order of their places, whatever the order of the lists.

    Args:
        lists: (n, 6) int64: the address of a list's codes, their number, the list's bias, the place of its first code,
            the address of its rows, and the number of the query that it is scanned for.
        tables: (q, m) uint8, 64-byte aligned, of as many bytes as a block, a multiple of 64.
        allowed: A bit for each row, the first in the lowest of a byte; no byte where all are allowed.
        limit: At least 1.
        counts: (q, s) int32: how many keys each score has had; at first 0. s is above the highest score.
        keys: (q, c) uint64, c at least 2 x limit, or all codes: room for the keys.
        states: (q, 3) int64: the number of keys; the least score that may be among the best; how many codes had that
            score or more. At first 0, but that a least score may be known.

    """
    block_bytes, steps = tables.shape[1], tables.shape[1] // 64
    words = np.empty(2 * BLOCK_CODES, dtype=np.uint16)
    skipped = (-words.ctypes.data % 64) // 2
    sums, sums_at = words[skipped:], words.ctypes.data + 2 * skipped
    for number in range(len(lists)):
        at, left, bias, place, rows_at, query = lists[number]
        count, kept, tables_at = counts[query], keys[query], tables.ctypes.data + query * block_bytes
        size, least, reached = states[query]
        end = at + (left + BLOCK_CODES - 1) // BLOCK_CODES * block_bytes
        beyond = lists[min(number + 1, len(lists) - 1), 0] - end
        while left > 0:
            ahead = at + AHEAD_BYTES
            if ahead >= end:
                ahead += beyond
            bits = np.uint64(0)
            needed = max(least - bias, 0)
            if needed <= MAX_SCORE:
                bits = _block(at, ahead, tables_at, steps, needed, sums_at)
            if left < BLOCK_CODES:
                bits &= np.uint64((1 << left) - 1)
            while bits:
                code = np.int64(trailing_zeros(bits))
                bits &= bits - np.uint64(1)
                score = np.int64(sums[code]) + bias
                if score < least or not _is_allowed(allowed, rows_at + 8 * code):
                    continue
                if size == len(kept):
                    size = _compact(kept, least, limit)
                kept[size] = np.uint64((MAX_SCORE - score) << PLACE_BITS | (place + code))
                size += 1
                count[score] += 1
                reached += 1
                while reached - count[least] >= limit:
                    reached -= count[least]
                    least += 1
            at += block_bytes
            left -= BLOCK_CODES
            place += BLOCK_CODES
            rows_at += 8 * BLOCK_CODES
        states[query, 0], states[query, 1], states[query, 2] = size, least, reached


@compiled_inline
def _is_allowed(allowed: Any, row_at: Any) -> bool:
    """Return whether the row at an address is allowed."""
    if len(allowed) == 0:
        return True
    row = long_at(row_at)
    return bool((allowed[row >> 3] >> (row & 7)) & 1)


@compiled_strict
def _compact(keys: Any, least: Any, limit: Any) -> int:
    """Keep the keys of scores from `least` on, but the best `limit` where these are many; return how many are left."""
    size = 0
    for key in keys:
        if MAX_SCORE - np.int64(key >> np.uint64(PLACE_BITS)) >= least:
            keys[size] = key
            size += 1
    if size > len(keys) // 2:
        keys[:size] = np.sort(keys[:size])
        size = min(size, limit)
    return size


@compiled_strict
def read_keys(keys: Any, lists: Any, scores: Any, rows: Any) -> None:
    """Write the scores, (n,) int64, and the rows, (n,) int64, of these keys; lists as in scan_lists()."""
    for number in range(len(keys)):
        key = np.int64(keys[number])
        of, code = (key & ((1 << PLACE_BITS) - 1)) >> OFFSET_BITS, key & ((1 << OFFSET_BITS) - 1)
        scores[number] = MAX_SCORE - ((key >> PLACE_BITS) & MAX_SCORE)
        rows[number] = long_at(lists[of, 4] + 8 * code)


# Numbers of a centroid that are multiplied at once.
LANES = 8
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_MULTIPLY_ADD = ("llvm.fma.v8f32", ir.FunctionType(_FLOATS, [_FLOATS] * 3))
_ADD_LANES = ("llvm.vector.reduce.fadd.v8f32", ir.FunctionType(ir.FloatType(), [ir.FloatType(), _FLOATS]))


@intrinsic
def _product(context: Any, row: Any, query: Any, steps: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the inner product of 8 x steps float32 at two addresses, added in one order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, query, steps = arguments
        loop = Loop(builder, steps, [filled(_FLOATS, 0.0)])
        offset = builder.mul(loop.step, I64(32))
        factors = [builder.load(pointer(builder, at, offset, _FLOATS), align=4) for at in (row, query)]
        total = call(builder, _MULTIPLY_ADD, *factors, loop.carried[0])
        loop.close([total])
        return call(builder, _ADD_LANES, ir.FloatType()(0.0), total)

    return types.float32(types.int64, types.int64, types.int64), generate


@compiled_strict
def score_groups(groups: Any, query: Any, scores: Any, lists: Any) -> None:
    """Write the inner product of each centroid of these groups with the query, and the number of its list.

    groups: (n, 4) int64: the address of each group's centroids, their number, where their scores are written, and the
    address of their lists' numbers. query: (d,) float32, d a multiple of 8.
    """
    query_at, steps, row_bytes = query.ctypes.data, len(query) // LANES, 4 * len(query)
    for number in range(len(groups)):
        at, count, place, lists_at = groups[number]
        for one in range(count):
            for line in range(0, row_bytes, 64):
                prefetch(at + AHEAD_BYTES + line)
            scores[place + one] = _product(at, query_at, steps)
            lists[place + one] = long_at(lists_at + 8 * one)
            at += row_bytes
