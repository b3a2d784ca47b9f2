"""Chunks of text found in a table of those met before, and the terms of texts counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import compiled_inline, compiled_strict, intrinsic
from mvindex.kernels.llvm import prefetch, word_at

# Odd, with bits in no order: from the golden ratio, as in Knuth's multiplicative hashing.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LOW, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ONE, _BYTE, _HALF, _LOW_HALF = np.uint64(1), np.uint64(8), np.uint64(32), np.uint64(0xFFFFFFFF)

# Chunks that are read at a time.
RUN = 64
# How many chunks before it is used memory is called for.
_AHEAD = 8


class ChunkTable(NamedTuple):
    """Distinct chunks, numbered as they are met.

    slots: (a power of two,) uint64, where a chunk's digest of 32 bits leads: the digest, and below it where the chunk
    begins in words; 0 where there is none, in about half of them or more. starts: (m + 1,) int64, room for m chunks,
    the first of which begins at 1; words: uint64, from starts[i] to starts[i + 1] the number i and chunk i, eight bytes
    a word, the last of which ends with one to eight zeros.
    """

    slots: Any
    starts: Any
    words: Any


@intrinsic
def _lowest_bit(context: Any, number: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the position of the lowest bit that is set in a number other than 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@compiled_strict
def fold(texts: Any, folded: Any) -> None:
    """Write the bytes that belong to chunks, ASCII letters in lower case, and 0 for other ASCII than these and digits.

    folded: as long as the texts, or longer; the rest is filled with zeros.
    """
    for at in range(len(texts)):
        byte = texts[at]
        lower = byte | np.uint8(32)
        is_letter = (lower >= np.uint8(97)) & (lower <= np.uint8(122))
        is_other = (byte >= np.uint8(128)) | ((byte >= np.uint8(48)) & (byte <= np.uint8(57)))
        folded[at] = lower if is_letter & (byte < np.uint8(128)) else (byte if is_other else np.uint8(0))
    folded[len(texts) :] = 0


@compiled_strict
def find_chunks(folded: Any, text_ends: Any, seed: Any, table: ChunkTable, found: Any, state: Any) -> None:
    """Find the numbers of the chunks of texts, until all are done or there is no room for RUN others in the table.

    folded: by fold(), with a zero between texts and eight behind the last; text i ends at text_ends[i], its zero.
    found: int32, the numbers. state: int64, the text and byte to go on with, how many were found, how many are in the
    table, and where each text's chunks end in found. The table must have room for the words of all texts.
    """
    slots, starts, words = table
    text, at, count, known = state[0], state[1], state[2], state[3]
    # A run of chunks is read, then looked up: by then the slots have come from memory.
    own, ends, digests = (
        np.empty(len(folded) // 8 + RUN, np.uint64),
        np.zeros(RUN + 1, np.int64),
        np.empty(RUN, np.uint64),
    )
    while text < len(text_ends) and known + RUN < len(starts):
        num_read, at = _read_run(folded, at, text_ends[text], seed, slots, own, ends, digests)
        for number in range(num_read):
            slot = (digests[min(number + _AHEAD, num_read - 1)] >> _HALF) & np.uint64(len(slots) - 1)
            prefetch(words.ctypes.data + 8 * np.int64(slots[slot] & _LOW_HALF))
            begin = _place_of(slots, digests[number], words, own, ends[number], ends[number + 1], starts[known])
            if begin == starts[known]:
                words[begin] = known
                end = begin + 1
                for place in range(ends[number], ends[number + 1]):
                    words[end] = own[place]
                    end += 1
                known += 1
                starts[known] = end
            found[count] = words[begin]
            count += 1
        if at >= text_ends[text]:
            state[4 + text] = count
            text += 1
    state[0], state[1], state[2], state[3] = text, at, count, known


@compiled_inline
def _read_run(
    folded: Any, at: Any, text_end: Any, seed: Any, slots: Any, own: Any, ends: Any, digests: Any
) -> tuple[Any, Any]:
    """Write the words of the next chunks, where they end and their digests; return how many, and where to go on."""
    address, slots_at, mask = folded.ctypes.data, slots.ctypes.data, np.uint64(len(slots) - 1)
    num_read, end = 0, np.int64(0)
    while num_read < RUN and at < text_end:
        if folded[at] == 0:
            at += 1
            continue
        digest, zeros = seed, np.uint64(0)
        while zeros == 0:
            word = word_at(address + at)
            # The lowest bit is exact: it is the highest of the first byte that is 0.
            zeros = (word - _LOW) & ~word & _HIGH
            at += 8
            if zeros != 0:
                size = _lowest_bit(zeros) >> np.uint64(3)
                word &= (_ONE << (_BYTE * size)) - _ONE
                at += np.int64(size) - 8
            digest = (digest ^ word) * _FACTOR
            digest ^= digest >> _HALF
            own[end] = word
            end += 1
        prefetch(slots_at + 8 * np.int64(digest & _LOW_HALF & mask))
        digests[num_read] = digest << _HALF
        num_read += 1
        ends[num_read] = end
    return num_read, at


@compiled_inline
def _place_of(slots: Any, digest: Any, words: Any, own: Any, first: Any, end: Any, last: Any) -> Any:
    """Return where a chunk begins in words: at `last` where it is new, which is noted. It is own[first:end]."""
    mask = np.uint64(len(slots) - 1)
    slot = (digest >> _HALF) & mask
    while slots[slot] != 0:
        if slots[slot] >> _HALF == digest >> _HALF:
            begin = np.int64(slots[slot] & _LOW_HALF)
            # Chunks of other lengths differ in the word where the shorter one ends.
            known, place = begin + 1, first
            while place < end and own[place] == words[known]:
                place += 1
                known += 1
            if place == end:
                return begin
        slot = (slot + _ONE) & mask
    slots[slot] = digest | np.uint64(last)
    return last


@compiled_strict
def fill_slots(slots: Any, before: Any) -> None:
    """Write what was in fewer slots into empty ones."""
    mask = np.uint64(len(slots) - 1)
    for held in before:
        if held != 0:
            slot = (held >> _HALF) & mask
            while slots[slot] != 0:
                slot = (slot + _ONE) & mask
            slots[slot] = held


@compiled_strict
def list_terms(found: Any, found_ends: Any, term_ends: Any, numbers: Any, listed: Any) -> Any:
    """Return numbers of the terms of texts, from 0 on as they are met, where each text's end, and how many there are.

    Chunk i has the terms from term_ends[i] to term_ends[i + 1], of which these are written to listed, each once.
    numbers: int32, of each term, -1 before and after.
    """
    total = 0
    for chunk in found:
        total += term_ends[chunk + 1] - term_ends[chunk]
    occurring, ends = np.empty(total, np.int32), np.empty(len(found_ends), np.int64)
    num_listed, begin, end = 0, 0, 0
    for text in range(len(found_ends)):
        for at in range(begin, found_ends[text]):
            chunk = found[at]
            prefetch(numbers.ctypes.data + 4 * term_ends[found[min(at + _AHEAD, len(found) - 1)]])
            for term in range(term_ends[chunk], term_ends[chunk + 1]):
                if numbers[term] < 0:
                    numbers[term] = num_listed
                    listed[num_listed] = term
                    num_listed += 1
                occurring[end] = numbers[term]
                end += 1
        begin = found_ends[text]
        ends[text] = end
    for term in listed[:num_listed]:
        numbers[term] = -1
    return occurring, ends, num_listed


@compiled_strict
def count_terms(occurring: Any, ends: Any, ranks: Any, num_terms: Any) -> Any:
    """Return starts, texts, counts and lengths of Tokens; ranks: the place there of each number of list_terms()."""
    starts, last = np.zeros(num_terms + 1, np.int64), np.full(num_terms, -1, np.int64)
    lengths = np.empty(len(ends), np.int64)
    begin = 0
    for text in range(len(ends)):
        lengths[text] = ends[text] - begin
        for at in range(begin, ends[text]):
            rank = ranks[occurring[at]]
            if last[rank] != text:
                last[rank] = text
                starts[rank + 1] += 1
        begin = ends[text]
    for rank in range(num_terms):
        starts[rank + 1] += starts[rank]
        last[rank] = starts[rank]
    texts, counts = np.empty(starts[num_terms], np.int64), np.empty(starts[num_terms], np.int64)
    begin = 0
    for text in range(len(ends)):
        for at in range(begin, ends[text]):
            rank = ranks[occurring[at]]
            end = last[rank]
            if end > starts[rank] and texts[end - 1] == text:
                counts[end - 1] += 1
            else:
                texts[end], counts[end] = text, 1
                last[rank] = end + 1
        begin = ends[text]
    return starts, texts, counts, lengths
