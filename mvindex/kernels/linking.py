"""Links between views, chosen so that a walk finds its way: no link where a nearer neighbour leads there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.compiled import compiled_strict
from mvindex.kernels.vnni import VIEW_OFFSET
from mvindex.kernels.walk import Graph, Query, Steps, offset_of, product, walk

# Links that are chosen from at once, at most.
MOST_CANDIDATES = 4096


class Room(NamedTuple):
    """Working memory of one thread. own, other: (pitch,) int8, 64-byte aligned; similar, views: float32 and int32;
    chosen: (degree,) int32.
    """  # noqa: D205 - the fields are one list

    own: Any
    other: Any
    similar: Any
    views: Any
    chosen: Any


@compiled_strict
def _decode(codes: Any, view: Any, integers: Any) -> None:
    """Write a view's integers."""
    for i in range(codes.shape[1]):
        integers[i] = np.int8(np.int32(codes[view, i]) - VIEW_OFFSET)


@compiled_strict
def _choose(graph: Graph, square: Any, order: Any, room: Room, chosen: Any) -> Any:
    """Write those of the candidates that are nearer to the view than to any chosen before; return how many.

    order: the candidates in room.views by falling similarity in room.similar. square: the square of all norms: who is
    more similar is nearer. A candidate that stands there twice is chosen once.
    """
    codes, factors, integers = graph.codes, graph.factors, room.other
    count = 0
    for place in order:
        candidate, similar = room.views[place], room.similar[place]
        _decode(codes, candidate, integers)
        offset = offset_of(integers, graph.bits)
        is_near_another = False
        for at in range(count):
            other = chosen[at]
            total = np.float32(product(graph, other, integers) - offset) * factors[other, 0] * factors[candidate, 0]
            if other == candidate or total + factors[other, 1] * factors[candidate, 1] > similar:
                is_near_another = True
                break
        if not is_near_another:
            chosen[count] = candidate
            count += 1
            if count == len(chosen):
                break
    return count


@compiled_strict
def find_links(graph: Graph, views: Any, beam: int, square: Any, steps: Steps, room: Room, found: Any) -> None:
    """Write links of views that the graph does not lead to yet: found, (len(views), degree) int32, -1 after the last.

    Candidates are the best views of the documents in a beam.
    """
    codes, factors = graph.codes, graph.factors
    everything = np.zeros(0, np.bool_)
    for number in range(len(views)):
        view = views[number]
        _decode(codes, view, steps.query)
        scale = factors[view, 0]
        rest = factors[view, 1] / scale if scale > 0 else np.float32(0)
        held = walk(graph, Query(rest, np.float32(0), everything), steps, room.similar[:beam], room.views[:beam])
        for at in range(held):
            room.similar[at] *= scale
        count = _choose(graph, square, np.arange(held), room, found[number])
        found[number, count:] = -1


@compiled_strict
def add_back_links(graph: Graph, targets: Any, sources: Any, square: Any, room: Room) -> None:
    """Link each target to its sources, pairs sorted by target. Where there is no room the best links are chosen."""
    links, begin = graph.links, 0
    while begin < len(targets):
        target, end = targets[begin], begin + 1
        while end < len(targets) and targets[end] == target:
            end += 1
        count = 0
        while count < links.shape[1] and links[target, count] >= 0:
            count += 1
        if count + end - begin <= links.shape[1]:
            links[target, count : count + end - begin] = sources[begin:end]
        else:
            num_candidates = min(count + end - begin, MOST_CANDIDATES)
            room.views[:count] = links[target, :count]
            room.views[count:num_candidates] = sources[begin : begin + num_candidates - count]
            keep_best(graph, target, num_candidates, square, room)
        begin = end


@compiled_strict
def keep_best(graph: Graph, view: Any, num_candidates: Any, square: Any, room: Room) -> None:
    """Choose the links of a view from the candidates in room.views, up to len(room.chosen)."""
    codes, factors = graph.codes, graph.factors
    _decode(codes, view, room.own)
    offset = offset_of(room.own, graph.bits)
    for at in range(num_candidates):
        other = room.views[at]
        total = np.float32(product(graph, other, room.own) - offset) * factors[other, 0] * factors[view, 0]
        room.similar[at] = total + factors[other, 1] * factors[view, 1]
    order = np.argsort(-room.similar[:num_candidates])
    count = _choose(graph, square, order, room, room.chosen)
    graph.links[view, :count] = room.chosen[:count]
    graph.links[view, count:] = -1


@compiled_strict
def trim(graph: Graph, views: Any, square: Any, room: Room) -> None:
    """Choose len(room.chosen) links of each of the views that have more."""
    for view in views:
        count = 0
        while count < graph.links.shape[1] and graph.links[view, count] >= 0:
            count += 1
        if count > len(room.chosen):
            room.views[:count] = graph.links[view, :count]
            keep_best(graph, view, count, square, room)
