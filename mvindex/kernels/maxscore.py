"""The best documents by BM25, in windows of rows: terms that cannot decide are looked up for candidates only.

In each window the terms whose bounds together stay below the score of the worst of the best so far are left out; what
the others reach is summed, and the terms left out are looked up where they still matter (Turtle and Flood 1995,
"maxscore"; bounds of blocks: Ding and Suel 2011).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import compiled_inline, compiled_strict, intrinsic
from mvindex.kernels.heap import LOWEST_FIRST, push, replace_first
from mvindex.kernels.vnni import float_at

# Rows of a window: their sums stay in the nearest cache.
WINDOW = 4096
# Bounds are rounded up by more than float32 and another order of sums lose, sums that must reach one down.
ROUNDED_UP, ROUNDED_DOWN = 1 + 1e-6, 1 - 1e-6
# Terms of a window that are put in order, at most; where there are more, all are summed.
_MOST_ORDERED = 64
# Documents that are made room for at first.
_FIRST_FOUND = 1024


class TermLists(NamedTuple):
    """The terms of a query, (t,) each: addresses of their postings, and what a document's score for them is up to.

    rows_at: of uint32, rising; counts_at: of unsigned integers of count_bytes; sizes: how many postings; weights: a
    score is weight * f / (f + base + slope * length); starts_at: of the first posting in each window, uint32, and
    bounds_at: of the largest f / (f + base + slope * length) there, float32, both 0 for a term with few documents;
    scales: what these bounds are multiplied by; largest: the bound of all documents.
    """

    rows_at: Any
    counts_at: Any
    count_bytes: Any
    sizes: Any
    weights: Any
    starts_at: Any
    bounds_at: Any
    scales: Any
    largest: Any


class Collection(NamedTuple):
    """Addresses of the documents' lengths, uint32, and of which are allowed, bytes; how many rows; base and slope."""

    lengths_at: int
    allowed_at: int
    num_rows: int
    base: float
    slope: float


def _unsigned_at(bits: int) -> Any:
    @intrinsic
    def read(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            return builder.zext(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return read


byte_at, short_at, int_at = _unsigned_at(8), _unsigned_at(16), _unsigned_at(32)


@compiled_inline
def _count_at(address: Any, count_bytes: Any, place: Any) -> Any:
    if count_bytes == 1:
        return byte_at(address + place)
    return short_at(address + 2 * place) if count_bytes == 2 else int_at(address + 4 * place)


@compiled_strict
def bound_windows(  # noqa: PLR0913 - addresses, which have no record
    rows_at: Any, counts_at: Any, count_bytes: Any, size: Any, collection: Collection, starts: Any, bounds: Any
) -> Any:
    """Return the largest f / (f + base + slope * length) of a term's documents, rounded up, and write those of windows.

    starts: (w + 1,) uint32, the first of the postings in each window; bounds: (w,) float32; both empty where they are
    not wanted.
    """
    largest, window, num_windows = 0.0, 0, len(bounds)
    bounds[:] = 0
    for place in range(size):
        row = int_at(rows_at + 4 * place)
        count = np.float64(_count_at(counts_at, count_bytes, place))
        length = np.float64(int_at(collection.lengths_at + 4 * row))
        bound = count / (count + (collection.base + collection.slope * length)) * ROUNDED_UP
        largest = max(largest, bound)
        if num_windows:
            while window <= row // WINDOW:
                starts[window] = place
                window += 1
            bounds[row // WINDOW] = max(bounds[row // WINDOW], np.float32(bound))
    for rest in range(window, len(starts)):
        starts[rest] = size
    return largest


@compiled_strict
def _place_of(rows_at: Any, first: Any, stop: Any, row: Any) -> Any:
    """Return the place of the first of the postings that is not before the row."""
    while first < stop:
        middle = (first + stop) >> 1
        if int_at(rows_at + 4 * middle) < row:
            first = middle + 1
        else:
            stop = middle
    return first


class Window(NamedTuple):
    """Working memory: the terms with postings in a window, and the sums of their scores.

    active, firsts, stops: (t,) int64, terms and where their postings begin and end; bounds: (t,) float64; order: (t,)
    int64, by rising bounds; below: (t + 1,) float64, the sums of the first bounds; total: (WINDOW,) float64; touched:
    (WINDOW + 1,) int64, where it is not 0.
    """

    active: Any
    firsts: Any
    stops: Any
    bounds: Any
    order: Any
    below: Any
    total: Any
    touched: Any


@compiled_strict
def find_matches(  # noqa: C901 - one loop: arguments of inner functions would count references
    terms: TermLists, collection: Collection, heap: Any, heap_rows: Any, num_held: Any
) -> Any:
    """Return documents that may be among the best, with their scores up to rounding, and how many the heap has.

    heap, heap_rows: (limit,) float64 and int64, the best so far, num_held of them, of collections searched before.
    """
    num_terms, limit = len(terms.sizes), len(heap)
    cursors, ints = np.zeros(num_terms, np.int64), np.empty((4, num_terms), np.int64)
    floats = np.zeros((2, num_terms + 1))
    # Arrays that a hot loop reads have a name: from a tuple each read would count a reference.
    active, firsts, stops, order = ints[0], ints[1], ints[2], ints[3]
    below, total, touched = floats[1], np.zeros(WINDOW), np.empty(WINDOW + 1, np.int64)
    inside = Window(active, firsts, stops, floats[0], order, below, total, touched)
    rows, scores, num_found = np.empty(_FIRST_FOUND, np.int64), np.empty(_FIRST_FOUND), 0
    lowest = heap[0] * ROUNDED_DOWN if num_held == limit else 0.0
    for window in range((collection.num_rows + WINDOW - 1) // WINDOW):
        count, possible = _terms_in(terms, window, collection.num_rows, cursors, inside)
        if count == 0 or possible < lowest:
            continue
        num_left_out = _leave_out(inside, count, lowest)
        num_touched = 0
        for place in range(num_left_out, count):
            num_touched = _add(terms, collection, inside.order[place], window * WINDOW, inside, num_touched)
        for number in range(num_touched):
            at = touched[number]
            score, row = total[at], window * WINDOW + at
            total[at] = 0
            if score + below[num_left_out] < lowest or not byte_at(collection.allowed_at + row):
                continue
            rest = collection.base + collection.slope * np.float64(int_at(collection.lengths_at + 4 * row))
            place = num_left_out - 1
            while place >= 0 and score + below[place + 1] >= lowest:
                at = order[place]
                term, stop = active[at], stops[at]
                found = _place_of(terms.rows_at[term], firsts[at], stop, row)
                if found < stop and int_at(terms.rows_at[term] + 4 * found) == row:
                    times = np.float64(_count_at(terms.counts_at[term], terms.count_bytes[term], found))
                    score += terms.weights[term] * (times / (times + rest))
                place -= 1
            if place >= 0 or score < lowest:
                continue
            if num_found == len(rows):
                rows, scores = np.append(rows, np.empty_like(rows)), np.append(scores, np.empty_like(scores))
            rows[num_found], scores[num_found] = row, score
            num_found += 1
            if num_held < limit:
                push(heap, heap_rows, num_held, score, row, LOWEST_FIRST)
                num_held += 1
            elif score > heap[0]:
                replace_first(heap, heap_rows, limit, score, row, LOWEST_FIRST)
            if num_held == limit:
                lowest = heap[0] * ROUNDED_DOWN
    return rows[:num_found], scores[:num_found], num_held


@compiled_strict
def _terms_in(terms: TermLists, window: Any, num_rows: Any, cursors: Any, inside: Window) -> Any:
    """Write the terms that have postings in a window; return how many, and the sum of their bounds."""
    count, possible, end = 0, 0.0, min((window + 1) * WINDOW, num_rows)
    for term in range(len(cursors)):
        size = terms.sizes[term]
        if terms.starts_at[term]:
            first = int_at(terms.starts_at[term] + 4 * window)
            stop = min(int_at(terms.starts_at[term] + 4 * window + 4), size)
            bound = np.float64(float_at(terms.bounds_at[term] + 4 * window)) * terms.scales[term]
        else:
            first = stop = cursors[term]
            while stop < size and int_at(terms.rows_at[term] + 4 * stop) < end:
                stop += 1
            cursors[term], bound = stop, terms.largest[term]
        if first < stop:
            inside.active[count], inside.firsts[count], inside.stops[count] = term, first, stop
            inside.bounds[count] = bound
            possible += bound
            count += 1
    return count, possible


@compiled_strict
def _leave_out(inside: Window, count: Any, lowest: Any) -> Any:
    """Order the terms in a window by rising bounds; return how many cannot bring a document among the best."""
    order, bounds, below = inside.order, inside.bounds, inside.below
    if count > _MOST_ORDERED:
        for place in range(count):
            order[place] = place
        return 0
    for place in range(count):
        at = place
        while at > 0 and bounds[order[at - 1]] > bounds[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place
    num_left_out = 0
    while num_left_out < count and below[num_left_out] + bounds[order[num_left_out]] < lowest:
        below[num_left_out + 1] = below[num_left_out] + bounds[order[num_left_out]]
        num_left_out += 1
    return num_left_out


@compiled_strict
def _add(  # noqa: PLR0913 - of one window, which has no record
    terms: TermLists, collection: Collection, at: Any, begin: Any, inside: Window, num_touched: Any
) -> Any:
    """Add a term's scores to the totals of a window; return how many rows of it were touched."""
    term, total, touched = inside.active[at], inside.total, inside.touched
    rows_at, counts_at, count_bytes = terms.rows_at[term], terms.counts_at[term], terms.count_bytes[term]
    weight, base, slope, lengths_at = terms.weights[term], collection.base, collection.slope, collection.lengths_at
    for place in range(inside.firsts[at], inside.stops[at]):
        row = int_at(rows_at + 4 * place)
        times = np.float64(_count_at(counts_at, count_bytes, place))
        length = np.float64(int_at(lengths_at + 4 * row))
        in_window = row - begin
        touched[num_touched] = in_window
        num_touched += total[in_window] == 0
        total[in_window] += weight * (times / (times + (base + slope * length)))
    return num_touched
