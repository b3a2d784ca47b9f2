"""Walks through a graph over codes of four bits a dimension.

A dimension of the rest of a view beside the mean of all is one of 16 levels a step apart, half a step beside zero;
the step is that which keeps the direction best. Products with codes are multiplied by what makes the view's own
product with its code right, as RaBitQ does (Gao and Long 2024), so that estimates lean to no side. What queries score
with the mean is the same for all views and is left out.

32 bytes of a code hold 64 dimensions: byte j the dimension j in its lower half, 32 + j in its upper one.

From the best view that was not looked at yet the walk goes on to the views that it links to. One of them that scores
above the worst document of the beam brings its document in: all its views are scored at once, where they lie side by
side, so that no document is looked at twice and its aggregate is known. From its best views the walk goes on later;
links of the others lead to much the same places. The walk ends when the best view left scores below the whole beam.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels import has_int8_products
from mvindex.kernels.compiled import compiled_inline, compiled_strict, intrinsic
from mvindex.kernels.copies import aligned_bytes
from mvindex.kernels.heap import HIGHEST_FIRST, LOWEST_FIRST, push, replace_first, sort_falling
from mvindex.kernels.llvm import BYTES, I8, I16, I32, I64, INTS, Loop, call, filled, pointer, prefetch
from mvindex.kernels.vnni import ADD_LANES, MULTIPLY

CHUNK_BYTES, TOP_LEVEL = 32, 15
_BITS, _PER_BYTE = 4, 2
# The step of least error for normally distributed values of variance 1 (Max 1960, table II), times steps that are
# tried; the widest are for views of few large values.
_STEPS = np.float32(0.3352) * np.array([0.75, 1, 1.33, 1.78, 2.4, 3.2], dtype=np.float32)


@compiled_strict
def encode_packed(views: Any, mean: Any, codes: Any, factors: Any) -> None:
    """Write views, (r, d) float32, less the mean, (d,) float32, to codes, (r, pitch) uint8, and factors, (r, 2).

    The first factor is what products of the code are multiplied by, the second the square of the norm of the rest.
    """
    dim = views.shape[1]
    rest, levels = np.zeros(dim, np.float32), np.zeros(codes.shape[1] * _PER_BYTE, np.uint8)
    for row in range(len(views)):
        square = 0.0
        for i in range(dim):
            rest[i] = views[row, i] - mean[i]
            square += np.float64(rest[i]) * np.float64(rest[i])
        factors[row, 1] = square
        deviation, best, chosen = np.sqrt(square / dim), -1.0, 0.0
        for step in _STEPS:
            found = _levels(rest, deviation * step, levels)
            if found > best:
                best, chosen = found, deviation * step
        if best <= 0:  # all zeros
            factors[row, 0] = 0
            codes[row, :] = 0
            continue
        _levels(rest, chosen, levels)
        total = 0.0
        for i in range(dim):
            total += np.float64(2 * np.int32(levels[i]) - TOP_LEVEL) * np.float64(rest[i])
        factors[row, 0] = square / total
        for at in range(codes.shape[1]):
            first = at // CHUNK_BYTES * CHUNK_BYTES * _PER_BYTE + at % CHUNK_BYTES
            codes[row, at] = levels[first] | levels[first + CHUNK_BYTES] << _BITS


@compiled_strict
def decode_packed(codes: Any, row: Any, integers: Any, dim: Any) -> None:
    """Write the integers of a code, (dim,) int8, odd from -15 to 15, and zeros behind; see plain_dot() for the order.

    A view's rest is its factor times them.
    """
    integers[dim:] = 0
    for first in range(0, codes.shape[1], CHUNK_BYTES):
        lower = first * _PER_BYTE
        for j in range(min(CHUNK_BYTES, dim - lower)):
            integers[lower + j] = np.int8(2 * np.int32(codes[row, first + j] & TOP_LEVEL) - TOP_LEVEL)
        upper = lower + CHUNK_BYTES
        for j in range(min(CHUNK_BYTES, dim - upper)):
            integers[upper + j] = np.int8(2 * np.int32(codes[row, first + j] >> _BITS) - TOP_LEVEL)


@compiled_strict
def _levels(rest: Any, step: Any, levels: Any) -> Any:
    """Write the level of each value, and return the cosine of the values with their levels, times their norm."""
    if not step > 0:
        return -1.0
    total, square, half = 0.0, 0.0, (TOP_LEVEL + 1) // 2
    inverse = 1.0 / step
    for i in range(len(rest)):
        level = min(max(np.floor(rest[i] * inverse) + half, 0.0), np.float64(TOP_LEVEL))
        levels[i] = np.uint8(level)
        value = 2 * level - TOP_LEVEL
        total += value * rest[i]
        square += value * value
    return total / np.sqrt(square)


_WORDS, _HALF = ir.VectorType(I16, CHUNK_BYTES), ir.VectorType(I8, CHUNK_BYTES)
_TWICE = ir.VectorType(I32, 2 * CHUNK_BYTES)(list(range(CHUNK_BYTES)) * 2)
# Both halves of a vector hold the same bytes, of which each takes bits of its own.
_SHIFTS = _WORDS([0] * 16 + [_BITS] * 16)


@intrinsic
def packed_dot(context: Any, code: Any, query: Any, chunks: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the sum of a code's levels times a query's integers (an intrinsic).

    code, query: addresses, 32- and 64-byte aligned, of `chunks` times 32 bytes and 64 int8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code_at, query_at, chunks = arguments
        loop = Loop(builder, chunks, [filled(INTS, 0)])
        at = pointer(builder, code_at, builder.mul(loop.step, I64(CHUNK_BYTES)), _HALF)
        twice = builder.shuffle_vector(builder.load(at, align=CHUNK_BYTES), _HALF(ir.Undefined), _TWICE)
        shifted = builder.lshr(builder.bitcast(twice, _WORDS), _SHIFTS)
        levels = builder.and_(builder.bitcast(shifted, BYTES), filled(BYTES, TOP_LEVEL))
        offset = builder.mul(loop.step, I64(_PER_BYTE * CHUNK_BYTES))
        factors = builder.load(pointer(builder, query_at, offset, BYTES), align=64)
        total = call(builder, MULTIPLY, loop.carried[0], levels, factors)
        loop.close([total])
        return call(builder, ADD_LANES, total)

    return types.int32(*[types.int64] * 3), generate


@compiled_strict
def plain_dot(code: Any, query: Any) -> Any:
    """Return the same without AVX-512. code: (pitch,) uint8; query: int8, as many as the code has levels."""
    total = np.int32(0)
    for first in range(0, len(code), CHUNK_BYTES):
        lower = first * _PER_BYTE
        for j in range(CHUNK_BYTES):
            both, at = code[first + j], lower + j
            total += np.int32(both & TOP_LEVEL) * np.int32(query[at])
            total += np.int32(both >> _BITS) * np.int32(query[at + CHUNK_BYTES])
    return total


_LOWEST = np.float32(-np.inf)
# Entries that a walk begins at: those nearest to the query.
_FIRST_STEPS = 8
# Steps of documents of the most views that a table holds at least.
_STEPS_HELD = 4
# Of documents that are fewer than so many times those of the beam the walk goes on from all views.
_FEW_TIMES = 8
# Scales below this could not be inverted.
_SMALLEST = 2.0**-90
# Views and documents together are numbered below 2^33; the number of the walk stands above.
_EPOCH_SHIFT, _MAX_EPOCH = 33, 1 << 29
# Leaves the beginning of a cache line of an address.
_LINE = ~63


class Graph(NamedTuple):
    """Codes and links of n views of m documents.

    codes: (n, pitch) uint8, as in kernels.packed, 32-byte aligned, of what is left of a view beside the mean; factors:
    (n, 2) float32, what products with a code are multiplied by, and, while links are looked for, one more coordinate,
    by which all rests have the same norm; links: (n, degree) int32, -1 after the last; owners: (n,) int32, document
    rows; starts: (m + 1,) int64; entries: (e,) int32, views.
    """

    codes: Any
    factors: Any
    links: Any
    owners: Any
    starts: Any
    entries: Any


class Steps(NamedTuple):
    """Working memory for the walks of one thread.

    query: (2 * pitch,) int8, 64-byte aligned; reached: (s,) int64, a hash table of views and documents, s a
    power of two; scores and views: (s,) float32 and int32, the heap of views to go on from; todo: (t,) int32, views or
    documents to be scored next, t at least the degree; of_views: (most views of a document,) float32; epoch: (1,)
    int64, grows with every walk.
    """

    query: Any
    reached: Any
    scores: Any
    views: Any
    todo: Any
    of_views: Any
    epoch: Any


class Query(NamedTuple):
    """The aim of a walk, beside steps.query, whose values times a step are the query.

    rest: the query's last coordinate, over the step; rate: the step over DRPQ's temperature, 0 for the best view;
    allowed: (m,) bool, or (0,) for all documents; goes_on_from_two: whether the walk goes on from the two best views of
    a document, not from the best alone.
    """

    rest: Any
    rate: Any
    allowed: Any
    goes_on_from_two: Any


def vnni_product(graph: Any, view: Any, query: Any) -> Any:
    """Return the integer product of a view's code with a query, too high by offset_of(), by AVX-512 VNNI."""
    pitch = graph.codes.shape[1]
    return 2 * packed_dot(graph.codes.ctypes.data + view * pitch, query.ctypes.data, pitch // CHUNK_BYTES)


def plain_product(graph: Any, view: Any, query: Any) -> Any:
    """Return the same without."""
    return 2 * plain_dot(graph.codes[view], query)


product = compiled_inline(vnni_product if has_int8_products() else plain_product)


@compiled_strict
def _encode_query(query: Any, integers: Any) -> Any:
    """Write the query, (d,) float32, rounded to bytes; return the step that they are multiplied by."""
    largest = np.float32(0)
    for i in range(len(query)):
        largest = max(largest, abs(query[i]))
    integers[:] = 0
    if largest <= _SMALLEST:
        return np.float32(0)
    inverse = np.float32(127) / largest
    for i in range(len(query)):
        integers[i] = np.int8(np.rint(query[i] * inverse))
    return largest / np.float32(127)


@compiled_inline
def offset_of(query: Any) -> Any:
    """Return what products are too high by, since codes hold levels around TOP_LEVEL / 2."""
    total = np.int32(0)
    for i in range(len(query)):
        total += np.int32(query[i])
    return total * TOP_LEVEL


@compiled_strict
def reach(reached: Any, mark: Any, item: Any) -> Any:
    """Return whether the item is reached for the first time in the walk of this mark, and remember it."""
    mask = len(reached) - 1
    at = (np.int64(item) * np.int64(0x1E3779B97F4A7C15) >> np.int64(20)) & mask
    wanted = mark | np.int64(item)
    while True:
        found = reached[at]
        if found == wanted:
            return False
        if found < mark:
            reached[at] = wanted
            return True
        at = (at + 1) & mask


@compiled_strict
def _aggregate(scores: Any, count: Any, best: Any, rate: Any) -> Any:
    """Return DRPQ's aggregate of a document's view scores (DRPQ, eq. 4), whose best is given."""
    weights, gaps = np.float32(0), np.float32(0)
    for i in range(count):
        gap = best - scores[i]
        weight = np.float32(np.exp(-gap * rate))
        weights += weight
        gaps += weight * gap
    return best - gaps / weights


@compiled_strict
def _start(graph: Graph, query: Query, steps: Steps, offset: Any, mark: Any, scores: Any, views: Any) -> Any:
    """Write the entries nearest to the query to steps.todo, and return how many; scores and views are written over."""
    count, most = 0, min(_FIRST_STEPS, len(views))
    for view in graph.entries:
        total = np.float32(product(graph, view, steps.query) - offset)
        score = total * graph.factors[view, 0] + query.rest * graph.factors[view, 1]
        if count < most:
            push(scores, views, count, score, view, LOWEST_FIRST)
            count += 1
        elif score > scores[0]:
            replace_first(scores, views, count, score, view, LOWEST_FIRST)
    for i in range(count):
        steps.todo[i] = views[i]
        reach(steps.reached, mark, views[i])
    return count


@compiled_strict
def walk(  # noqa: C901 - one loop over what stays in registers
    graph: Graph, query: Query, steps: Steps, beam_scores: Any, beam_views: Any
) -> Any:
    """Fill the beam with the best allowed documents that a walk finds, and return how many.

    beam_scores, beam_views: (beam,) float32 and int32, each document's score and best view, best first.
    """
    codes, factors, links, owners, starts = graph.codes, graph.factors, graph.links, graph.owners, graph.starts
    heap_scores, heap_views, reached, integers = steps.scores, steps.views, steps.reached, steps.query
    todo, of_views, rest, rate, allowed = steps.todo, steps.of_views, query.rest, query.rate, query.allowed
    pitch, degree, num_views = codes.shape[1], links.shape[1], np.int64(len(owners))
    # A number that is none of the graph's, -1 among them, is above these.
    most_views, num_rows = np.uint32(num_views), np.uint32(len(starts) - 1)
    codes_at, factors_at = codes.ctypes.data, factors.ctypes.data
    owners_at, links_at, links_bytes = owners.ctypes.data, links.ctypes.data, np.int64(degree * links.itemsize)
    steps.epoch[0] += 1
    mark, offset = steps.epoch[0] << _EPOCH_SHIFT, offset_of(integers)
    count = _start(graph, query, steps, offset, mark, beam_scores, beam_views)
    beam, held, waiting, worst = len(beam_views), 0, 0, _LOWEST
    # Where nearly all documents are looked at, some are reached from such views only.
    goes_on_from_all = beam * _FEW_TIMES > len(starts) - 1
    room = (len(reached) * 3) // 4 - count
    while True:
        entering = 0
        for i in range(count):
            view = todo[i]
            score = np.float32(product(graph, view, integers) - offset) * factors[view, 0] + rest * factors[view, 1]
            if score <= worst:
                continue
            row = owners[view]
            if np.uint32(row) >= num_rows:
                continue
            if reach(reached, mark, num_views + np.int64(row)):
                todo[entering] = row
                entering += 1
                room -= 1 + starts[row + 1] - starts[row]
                for at in range((codes_at + starts[row] * pitch) & _LINE, codes_at + starts[row + 1] * pitch, 64):
                    prefetch(at)
        for i in range(entering):
            row = todo[i]
            first = starts[row]
            best, best_view, second, second_view = _LOWEST, np.int32(first), _LOWEST, np.int32(first)
            for view in range(first, starts[row + 1]):
                reach(reached, mark, view)
                score = np.float32(product(graph, view, integers) - offset) * factors[view, 0] + rest * factors[view, 1]
                of_views[view - first] = score
                if score > best:
                    second, second_view = best, best_view
                    best, best_view = score, np.int32(view)
                elif score > second:
                    second, second_view = score, np.int32(view)
                if goes_on_from_all and score > worst:
                    push(heap_scores, heap_views, waiting, score, view, HIGHEST_FIRST)
                    waiting += 1
            if not goes_on_from_all and best > worst:
                if waiting == 0 or best > heap_scores[0]:
                    # From here the walk goes on, unless a better one comes.
                    for at in range(0, links_bytes, 64):
                        prefetch(links_at + np.int64(best_view) * links_bytes + at)
                push(heap_scores, heap_views, waiting, best, best_view, HIGHEST_FIRST)
                waiting += 1
            if not goes_on_from_all and query.goes_on_from_two and second > worst:
                push(heap_scores, heap_views, waiting, second, second_view, HIGHEST_FIRST)
                waiting += 1
            if len(allowed) > 0 and not allowed[row]:
                continue
            if rate > 0:
                best = _aggregate(of_views, starts[row + 1] - first, best, rate)
            if held < beam:
                push(beam_scores, beam_views, held, best, best_view, LOWEST_FIRST)
                held += 1
            elif best > worst:
                replace_first(beam_scores, beam_views, held, best, best_view, LOWEST_FIRST)
            if held == beam:
                worst = beam_scores[0]
        if waiting == 0 or heap_scores[0] < worst or room < degree * (1 + len(of_views)):
            break
        view = heap_views[0]
        waiting -= 1
        replace_first(heap_scores, heap_views, waiting, heap_scores[waiting], heap_views[waiting], HIGHEST_FIRST)
        if waiting > 0:
            for at in range(0, links_bytes, 64):
                prefetch(links_at + np.int64(heap_views[0]) * links_bytes + at)
        count = 0
        for i in range(degree):
            other = links[view, i]
            if np.uint32(other) >= most_views:
                break
            if reach(reached, mark, other):
                todo[count] = other
                count += 1
                begin = codes_at + np.int64(other) * pitch
                for at in range(begin & _LINE, begin + pitch, 64):
                    prefetch(at)
                prefetch(factors_at + np.int64(other) * 8)
                prefetch(owners_at + np.int64(other) * 4)
        room -= count
    sort_falling(beam_scores, beam_views, held)
    return held


@compiled_strict
def walk_for_queries(
    graph: Graph, queries: Any, inverse_temperature: Any, allowed: Any, steps: Steps, found: Any
) -> None:
    """Walk for each of the queries, (q, d) float32; found: (q, beam) int32, document rows, best first, -1 where none.

    inverse_temperature: 1 / T of DRPQ's aggregate, 0 for the best view.
    """
    scores, num_rows = np.empty(found.shape[1], np.float32), np.uint32(len(graph.starts) - 1)
    for number in range(len(queries)):
        step = _encode_query(queries[number], steps.query)
        query = Query(np.float32(0), np.float32(step * inverse_temperature), allowed, True)
        views = found[number]
        held = walk(graph, query, steps, scores, views)
        for place in range(held):
            view, row = views[place], graph.owners[views[place]]
            is_owner = np.uint32(row) < num_rows and graph.starts[row] <= view < graph.starts[row + 1]
            views[place] = row if is_owner else -1
        views[held:] = -1


def renew(steps: Steps) -> None:
    """Forget all walks where there is hardly a number left for the next ones."""
    if steps.epoch[0] >= _MAX_EPOCH:
        steps.reached[:] = 0
        steps.epoch[0] = 0


def new_steps(graph: Graph, places: int, max_views: int) -> Steps:
    """Return working memory for the walks of one thread.

    places: of the table of what is reached, a power of two; more where documents of max_views need them.
    """
    num_todo = max(graph.links.shape[1], _FIRST_STEPS)
    # All that one step reaches must fit several times, or a walk ends before its time.
    places = max(places, 1 << (_STEPS_HELD * num_todo * (max_views + 1)).bit_length())
    return Steps(
        query=aligned_bytes(2 * graph.codes.shape[1]).view(np.int8),
        reached=np.zeros(places, dtype=np.int64),
        scores=np.empty(places, dtype=np.float32),
        views=np.empty(places, dtype=np.int32),
        todo=np.empty(num_todo, dtype=np.int32),
        of_views=np.empty(max_views, dtype=np.float32),
        epoch=np.zeros(1, dtype=np.int64),
    )
