"""The int8 scan: products, best view or DRPQ aggregate, bound and top-k in one pass over the copies.

A document is out when its upper bound lies below a threshold that top_k documents are proven to reach. Only what may
still matter leaves the registers' neighbourhood: the products of a few documents at a time stay in the nearest cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.compiled import compiled, compiled_inline, compiled_strict
from mvindex.kernels.softmax import soft_16, soft_32, soft_64
from mvindex.kernels.vnni import (
    VIEW_OFFSET,
    best_16,
    best_32,
    best_64,
    dot,
    float_at,
    products_6x64,
    products_12x32,
    products_16x16,
    trailing_zeros,
)

# Views multiplied before their documents are looked at: 96 x 64 int32 stay in the first two caches.
CHUNK_VIEWS = 96
# Documents that wait for a closer look, at most: thresholds are as they were before them.
HITS = 160
# Rows that a product tile may touch past the last view of a chunk; the copies end with as many rows of nothing.
SPARE_ROWS = 16
_INT_MAX = 2**31 - 1
_LOG2_E = 1.4426950408889634


class BlockTable(NamedTuple):
    """The copies: per block first and last document row, address of views and of (norm, error) pairs, largest ones.

    first, last, views_at, bounds_at: (b,) int64; scales: (b, d) float32; norms, errors: (b,) float64;
    view_starts: (num_rows + 1,) int64; pitch: bytes of a view.
    """

    first: Any
    last: Any
    views_at: Any
    bounds_at: Any
    scales: Any
    norms: Any
    errors: Any
    view_starts: Any
    pitch: int


class QueryTile(NamedTuple):
    """The queries, (q, d) float32 with entries up to 1, their norms and rounding slacks, (q,) float64;
    allowed: (num_rows,) bool; lipschitz_constants: (max_views + 1,) float64 for DRPQ, empty for max;
    temperatures: (q,).
    """  # noqa: D205 - the fields are one list

    queries: Any
    norms: Any
    slack: Any
    allowed: Any
    lipschitz_constants: Any
    temperatures: Any


class ScanOutput(NamedTuple):
    """Documents that may matter: lower and upper bounds (q, capacity) float64, rows int64, how many of them (q,).

    heaps: (q, top_k) float64, the largest lower bounds; thresholds: (q,) float64, shared by threads, which only ever
    raise them; overflowed: (q,) bool, queries that left too many documents and are repeated in a wider type.
    """

    lower: Any
    upper: Any
    rows: Any
    counts: Any
    heaps: Any
    thresholds: Any
    overflowed: Any


class Workspace(NamedTuple):
    """Working memory of one thread, for tiles of `lanes` queries; all 64-byte aligned.

    packed: (pitch / 4 * lanes,) int32, four int8 each; integers: (pitch,) int8, and fours: the same as int32; products:
    (rows, lanes) int32; least, offsets: (lanes,) int32; steps, lost: (lanes,) float64. For DRPQ, see kernels.softmax:
    rates, values, thresholds (lanes,) and slopes (4, lanes) float32. Documents that some query may keep: hit_rows,
    hit_at (HITS,) int64, their rows and first products, hit_queries (HITS,) uint64, a bit a lane, and best
    (HITS, lanes) int32, their best products.
    """

    packed: Any
    integers: Any
    fours: Any
    products: Any
    least: Any
    steps: Any
    lost: Any
    offsets: Any
    rates: Any
    values: Any
    thresholds: Any
    slopes: Any
    hit_rows: Any
    hit_queries: Any
    hit_at: Any
    best: Any


@compiled_strict
def scan_blocks(blocks: Any, table: BlockTable, tile: QueryTile, output: ScanOutput, workspace: Workspace) -> None:
    """Write to output every document of the blocks that may be among a query's top_k."""
    num_queries, lanes = len(tile.queries), len(workspace.least)
    for block in blocks:
        for begin in range(0, num_queries, lanes):
            count = min(lanes, num_queries - begin)
            _round_queries(tile.queries[begin : begin + count], table.scales[block], table.pitch, workspace)
            for lane in range(count):
                query, step = begin + lane, workspace.steps[lane]
                norm, slack, lost = tile.norms[query], tile.slack[query], workspace.lost[lane]
                error = _error(norm, slack, lost, table.norms[block], table.errors[block])
                workspace.least[lane] = _least(output.thresholds[query], error, step, workspace.offsets[lane])
                if len(tile.lipschitz_constants) > 0:
                    workspace.thresholds[lane] = np.float32(output.thresholds[query] / step)
                    workspace.rates[lane] = np.float32(max(-_LOG2_E * step / tile.temperatures[query], -1e30))
                    workspace.slopes[0, lane] = np.float32(norm / step * (1 + 1e-5))
                    workspace.slopes[1, lane] = np.float32((norm * 2.0**-22 + lost) / step * (1 + 1e-5))
                    workspace.slopes[2, lane] = np.float32(slack / step * (1 + 1e-5))
                    workspace.slopes[3, lane] = np.float32((norm + lost) / step * (1 + 1e-5))
            workspace.thresholds[count:] = np.float32(np.inf)
            workspace.least[count:] = _INT_MAX
            if lanes == 1:
                _scan_block_for_one(block, begin, table, tile, output, workspace)
            else:
                _scan_block(block, begin, table, tile, output, workspace)


@compiled_strict
def _scan_block_for_one(
    block: int, query: int, table: BlockTable, tile: QueryTile, output: ScanOutput, workspace: Workspace
) -> None:
    """Scan one block for one query, by the best view, as fast as memory gives the views."""
    view_starts, first, last, pitch = table.view_starts, table.first[block], table.last[block], table.pitch
    hit_rows, hit_queries, best, least = workspace.hit_rows, workspace.hit_queries, workspace.best, workspace.least
    views_at, query_at = table.views_at[block] - view_starts[first] * pitch, workspace.packed.ctypes.data
    num_hits, chunks, allowed = 0, pitch // 64, tile.allowed
    skips = _are_few(allowed, first, last)
    for row in range(first, last):
        if skips and not allowed[row]:
            continue
        largest = np.int32(-_INT_MAX)
        for view in range(view_starts[row], view_starts[row + 1]):
            largest = max(largest, dot(views_at + view * pitch, query_at, chunks))
        if largest >= least[0]:
            hit_rows[num_hits], hit_queries[num_hits], best[num_hits, 0] = row, 1, largest
            num_hits += 1
            if num_hits == HITS:
                _take_hits(num_hits, block, query, table, tile, output, workspace)
                num_hits = 0
    _take_hits(num_hits, block, query, table, tile, output, workspace)


@compiled_strict
def _scan_block(
    block: int, begin: int, table: BlockTable, tile: QueryTile, output: ScanOutput, workspace: Workspace
) -> None:
    """Scan one block for one tile of queries.

    Fields are read before the loops: each reading of an array out of a record counts its references.
    """
    view_starts, first, last, pitch = table.view_starts, table.first[block], table.last[block], table.pitch
    queries_at, products_at = workspace.packed.ctypes.data, workspace.products.ctypes.data
    least_at, best_at = workspace.least.ctypes.data, workspace.best.ctypes.data
    hit_rows, hit_queries, hit_at = workspace.hit_rows, workspace.hit_queries, workspace.hit_at
    lanes = len(workspace.least)
    # An aggregate needs the products of all views, which the next chunk writes over.
    enough_hits = 1 if len(tile.lipschitz_constants) > 0 else HITS - CHUNK_VIEWS
    views_at = table.views_at[block] - view_starts[first] * pitch
    document, num_hits, allowed = first, np.int64(0), tile.allowed
    skips = _are_few(allowed, first, last)
    while document < last:
        if skips and not allowed[document]:
            document += 1
            continue
        chunk_begin, stop = view_starts[document], document + 1
        while stop < last and view_starts[stop + 1] - chunk_begin <= CHUNK_VIEWS and (not skips or allowed[stop]):
            stop += 1
        num_views = view_starts[stop] - chunk_begin
        _multiply(views_at + chunk_begin * pitch, num_views, pitch, lanes, queries_at, products_at)
        for row in range(document, stop):
            at, num_views = view_starts[row] - chunk_begin, view_starts[row + 1] - view_starts[row]
            # Written whether anything is reached or not, and counted if so: a branch would often be foreseen wrongly.
            best_of_hit_at = best_at + 4 * num_hits * lanes
            reached = _best(products_at + 4 * at * lanes, num_views, lanes, least_at, best_of_hit_at)
            hit_rows[num_hits], hit_queries[num_hits], hit_at[num_hits] = row, reached, at
            num_hits += np.int64(reached != 0)
        if num_hits >= enough_hits:
            _take_hits(num_hits, block, begin, table, tile, output, workspace)
            num_hits = np.int64(0)
        document = stop
    _take_hits(num_hits, block, begin, table, tile, output, workspace)


@compiled_inline
def _are_few(allowed: Any, first: int, last: int) -> Any:
    """Return whether so few rows are allowed that leaving out the others costs less than what is foreseen wrongly."""
    count = 0
    for row in range(first, last):
        count += allowed[row]
    return 4 * count < last - first


@compiled_inline
def _multiply(views_at: int, num_views: int, pitch: int, lanes: int, queries_at: int, products_at: int) -> None:
    """Write the products of views with the packed queries, of up to SPARE_ROWS - 1 rows more."""
    if lanes == 64:
        for row in range(0, num_views, 6):
            products_6x64(views_at + row * pitch, pitch, queries_at, pitch // 4, products_at + row * 256)
    elif lanes == 32:
        for row in range(0, num_views, 12):
            products_12x32(views_at + row * pitch, pitch, queries_at, pitch // 4, products_at + row * 128)
    else:
        for row in range(0, num_views, 16):
            products_16x16(views_at + row * pitch, pitch, queries_at, pitch // 4, products_at + row * 64)


@compiled_inline
def _best(products_at: int, num_views: int, lanes: int, least_at: int, best_at: int) -> Any:
    """Write the best products to best_at; return which queries' least product they reach, as bits."""
    if lanes == 64:
        reached = best_64(products_at, num_views, least_at, best_at)
    elif lanes == 32:
        reached = best_32(products_at, num_views, least_at, best_at)
    else:
        reached = best_16(products_at, num_views, least_at, best_at)
    return reached


@compiled_strict
def _take_hits(
    num_hits: int, block: int, begin: int, table: BlockTable, tile: QueryTile, output: ScanOutput, workspace: Workspace
) -> None:
    """Add each hit's document to the queries whose threshold its own bound reaches."""
    thresholds, heaps, counts, overflowed = output.thresholds, output.heaps, output.counts, output.overflowed
    kept_rows, kept_upper, kept_lower = output.rows, output.upper, output.lower
    norms, slack, allowed, lipschitz_constants = tile.norms, tile.slack, tile.allowed, tile.lipschitz_constants
    temperatures, best, steps, lost = tile.temperatures, workspace.best, workspace.steps, workspace.lost
    offsets, least, values, soft_thresholds = workspace.offsets, workspace.least, workspace.values, workspace.thresholds
    hit_rows, hit_queries, hit_at = workspace.hit_rows, workspace.hit_queries, workspace.hit_at
    view_starts = table.view_starts
    bounds_at = table.bounds_at[block] - 8 * table.first[block]
    block_norm, block_error = table.norms[block], table.errors[block]
    scratch_products_at, best_at, values_at = workspace.products.ctypes.data, best.ctypes.data, values.ctypes.data
    rates_at, offsets_at, slopes_at = workspace.rates.ctypes.data, offsets.ctypes.data, workspace.slopes.ctypes.data
    thresholds_at = soft_thresholds.ctypes.data
    for hit in range(num_hits):
        row, reached = hit_rows[hit], hit_queries[hit]
        if not allowed[row]:
            continue
        norm = np.float64(float_at(bounds_at + 8 * row))
        error_norm = np.float64(float_at(bounds_at + 8 * row + 4))
        num_views = view_starts[row + 1] - view_starts[row]
        is_aggregate = len(lipschitz_constants) > 0 and num_views > 1
        log_views = 0.0
        if is_aggregate:
            log_views = np.log(np.float64(num_views))
            products_at = scratch_products_at + 4 * hit_at[hit] * len(least)
            best_of_hit_at = best_at + 4 * hit * len(least)
            lipschitz_constant = lipschitz_constants[num_views] * (1 + 1e-5)
            own = np.float64(8 * num_views + 64) * 2.0**-22
            at = (products_at, num_views, best_of_hit_at, rates_at, offsets_at, values_at, slopes_at, thresholds_at)
            reached &= _soft(len(least), at, (norm, error_norm, lipschitz_constant, own))
        while reached != 0:
            lane = trailing_zeros(reached)
            reached &= reached - np.uint64(1)
            query = begin + lane
            error = _error(norms[query], slack[query], lost[lane], norm, error_norm)
            value = steps[lane] * (np.int64(best[hit, lane]) - offsets[lane])
            lower, upper = value - error, value + error
            if is_aggregate:
                lower -= temperatures[query] * log_views
                value = steps[lane] * np.float64(values[lane])
                # The Lipschitz constant carries the scores' errors over; the rest is float32's own.
                error = lipschitz_constant * error + own * (norms[query] + lost[lane]) * norm
                lower, upper = max(lower, value - error), min(upper, value + error)
            threshold = thresholds[query]
            if upper < threshold:
                continue
            count = counts[query]
            kept_rows[query, count], kept_lower[query, count], kept_upper[query, count] = row, lower, upper
            counts[query] = count + 1
            threshold = max(threshold, _raised(heaps[query], lower))
            if count + 1 == kept_rows.shape[1]:
                _compact(query, threshold, output)
                if counts[query] == kept_rows.shape[1]:
                    overflowed[query], counts[query], threshold = True, 0, np.inf
            if threshold > thresholds[query]:
                thresholds[query] = threshold
                error = _error(norms[query], slack[query], lost[lane], block_norm, block_error)
                least[lane] = _least(threshold, error, steps[lane], offsets[lane])
                soft_thresholds[lane] = np.float32(threshold / steps[lane])


@compiled_strict
def _raised(heap: Any, lower: float) -> Any:
    """Offer a value to the heap, and return its lowest entry.

    The heap holds the top_k largest values seen, (top_k,), each at most as large as its two followers.
    """
    if lower > heap[0]:
        at = 0
        while True:
            follower = 2 * at + 1
            if follower >= len(heap):
                break
            if follower + 1 < len(heap) and heap[follower + 1] < heap[follower]:
                follower += 1
            if lower <= heap[follower]:
                break
            heap[at] = heap[follower]
            at = follower
        heap[at] = lower
    return heap[0]


@compiled_inline
def _soft(lanes: int, at: Any, numbers: Any) -> Any:
    """Return which queries' thresholds a document's aggregate reaches, as bits: see kernels.softmax."""
    norm, error_norm, lipschitz_constant, own = numbers
    arguments = (*at, np.float32(norm), np.float32(error_norm), np.float32(lipschitz_constant), np.float32(own))
    if lanes == 64:
        reached = soft_64(*arguments)
    elif lanes == 32:
        reached = soft_32(*arguments)
    else:
        reached = soft_16(*arguments)
    return reached


@compiled_inline
def _error(query_norm: float, slack: float, lost: float, norm: float, error: float) -> float:
    """Return the error of a view's product: |q||v - v'| + |q - q'||v'|, and what scores in float32 are rounded by."""
    return (query_norm * (error + norm * 2.0**-22) + lost * norm) * (1 + 1e-6) + slack


@compiled_inline
def _least(threshold: float, error: float, step: float, offset: int) -> Any:
    """Return the least product whose upper bound reaches the threshold, or less."""
    least = np.floor((threshold - error) / step + np.float64(offset) - 0.01)
    return np.int32(min(max(least, -np.float64(_INT_MAX)), np.float64(_INT_MAX)))


@compiled_strict
def _compact(query: int, threshold: float, output: ScanOutput) -> None:
    """Drop the query's entries below the threshold."""
    kept = 0
    for entry in range(output.counts[query]):
        if output.upper[query, entry] >= threshold:
            output.rows[query, kept] = output.rows[query, entry]
            output.upper[query, kept] = output.upper[query, entry]
            output.lower[query, kept] = output.lower[query, entry]
            kept += 1
    output.counts[query] = kept


@compiled
def _round_queries(queries: Any, scale: Any, pitch: int, workspace: Workspace) -> None:
    """Write packed, steps, offsets and lost of a tile of queries, (n, d), for a block's scale.

    q' with <q', v'> = step x sum of integer products is step x integers / scale. Where a scale is zero so is every v',
    and q' = q loses nothing.
    """
    dim, lanes = queries.shape[1], len(workspace.least)
    integers, fours, packed = workspace.integers, workspace.fours, workspace.packed
    integers[:] = 0
    for lane in range(lanes):
        if lane < len(queries):
            query = queries[lane]
            largest = 0.0
            for i in range(dim):
                largest = max(largest, abs(np.float64(query[i]) * np.float64(scale[i])))
            step = max(largest, 2.0**-300) / 127
            inverse = 1 / step
            total, lost = np.int32(0), 0.0
            for i in range(dim):
                wide_scale = np.float64(scale[i])
                rounded = np.rint(np.float64(query[i]) * wide_scale * inverse)
                integers[i] = np.int8(rounded)
                total += np.int32(rounded)
                if wide_scale > 0:
                    difference = np.float64(query[i]) - rounded * step / wide_scale
                    lost += difference * difference
            workspace.steps[lane] = step
            workspace.offsets[lane] = VIEW_OFFSET * total
            workspace.lost[lane] = np.sqrt(lost) * (1 + 1e-6)
        else:
            integers[:] = 0
        for four in range(pitch // 4):
            packed[four * lanes + lane] = fours[four]


@compiled_strict
def merge_found(into: ScanOutput, other: ScanOutput) -> None:
    """Merge the entries of `other` into `into`."""
    capacity = into.rows.shape[1]
    for query in range(len(into.counts)):
        into.overflowed[query] |= other.overflowed[query]
        for entry in range(other.counts[query]):
            count, lower, upper = into.counts[query], other.lower[query, entry], other.upper[query, entry]
            if into.overflowed[query]:
                break
            if upper < into.thresholds[query]:
                continue
            into.rows[query, count], into.upper[query, count] = other.rows[query, entry], upper
            into.counts[query] = count + 1
            into.thresholds[query] = max(into.thresholds[query], _raised(into.heaps[query], lower))
            if count + 1 == capacity:
                _compact(query, into.thresholds[query], into)
                into.overflowed[query] = into.counts[query] == capacity


@compiled_strict
def finish_found(output: ScanOutput) -> None:
    """Compact the entries of each query for the last time."""
    for query in range(len(output.counts)):
        if output.overflowed[query]:
            output.counts[query] = 0
        _compact(query, output.thresholds[query], output)


@compiled_strict
def gather_found(output: ScanOutput, starts: Any, rows: Any, upper: Any) -> None:
    """Copy the entries of query i to rows and upper, (starts[-1],), at starts[i]:starts[i + 1]."""
    for query in range(len(output.counts)):
        for entry in range(starts[query + 1] - starts[query]):
            rows[starts[query] + entry] = output.rows[query, entry]
            upper[starts[query] + entry] = output.upper[query, entry]
