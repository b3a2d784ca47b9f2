"""Links between views, chosen so that a walk finds its way: no link where a nearer neighbour leads there.

All is computed by the codes that searches walk by, one view's integers times another's code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mvindex.kernels.compiled import compiled_strict
from mvindex.kernels.walk import Graph, Query, Steps, decode_packed, offset_of, product, walk

# Links that are chosen from at once, at most.
MOST_CANDIDATES = 4096


class Room(NamedTuple):
    """Working memory of one thread.

    own, other: (2 * pitch,) int8, 64-byte aligned; similar, views: float32 and int32; chosen:
    (degree,) int32; dim: of the views.
    """

    own: Any
    other: Any
    similar: Any
    views: Any
    chosen: Any
    dim: Any


@compiled_strict
def _choose(graph: Graph, order: Any, room: Room, chosen: Any) -> Any:
    """Write those of the candidates that are nearer to the view than to any chosen before; return how many.

    order: the candidates in room.views by falling similarity in room.similar. All have the same norm: who is
    more similar is nearer. A candidate that stands there twice is chosen once.
    """
    codes, factors, integers = graph.codes, graph.factors, room.other
    count = 0
    for place in order:
        candidate, similar = room.views[place], room.similar[place]
        decode_packed(codes, candidate, integers, room.dim)
        offset = offset_of(integers)
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
def find_links(graph: Graph, views: Any, beam: int, steps: Steps, room: Room, found: Any) -> None:
    """Write links of views to those that are linked already: found, (len(views), degree) int32, -1 after the last.

    Candidates are the best views of the other documents in a beam.
    """
    codes, factors = graph.codes, graph.factors
    everything = np.zeros(0, np.bool_)
    for number in range(len(views)):
        view = views[number]
        scale, rest = factors[view, 0], np.float32(1)
        if scale > 0:
            decode_packed(codes, view, steps.query, room.dim)
            rest = factors[view, 1] / scale
        else:  # without a direction: the views of the least norm are near
            steps.query[:] = 0
            scale = factors[view, 1]
        held = walk(graph, Query(rest, np.float32(0), everything, False), steps, room.similar[:beam], room.views[:beam])
        others = 0
        for at in range(held):
            # One that is linked anew may be found itself.
            if graph.owners[room.views[at]] != graph.owners[view]:
                room.views[others], room.similar[others] = room.views[at], room.similar[at] * scale
                others += 1
        count = _choose(graph, np.arange(others), room, found[number])
        found[number, count:] = -1


@compiled_strict
def add_back_links(graph: Graph, targets: Any, sources: Any, room: Room) -> None:
    """Link each target to those of its sources that it lacks, pairs sorted by target.

    Where there is no room the best links are chosen.
    """
    links, width, begin = graph.links, graph.links.shape[1], 0
    while begin < len(targets):
        target, count = targets[begin], 0
        while count < width and links[target, count] >= 0:
            room.views[count] = links[target, count]
            count += 1
        before = count
        while begin < len(targets) and targets[begin] == target:
            is_new = count < len(room.views)
            for at in range(before):
                is_new &= room.views[at] != sources[begin]
            if is_new:
                room.views[count] = sources[begin]
                count += 1
            begin += 1
        if count <= width:
            links[target, before:count] = room.views[before:count]
        else:
            keep_best(graph, target, count, room)


@compiled_strict
def keep_best(graph: Graph, view: Any, num_candidates: Any, room: Room) -> None:
    """Choose the links of a view from the candidates in room.views, up to len(room.chosen)."""
    codes, factors = graph.codes, graph.factors
    decode_packed(codes, view, room.own, room.dim)
    offset = offset_of(room.own)
    for at in range(num_candidates):
        other = room.views[at]
        total = np.float32(product(graph, other, room.own) - offset) * factors[other, 0] * factors[view, 0]
        room.similar[at] = total + factors[other, 1] * factors[view, 1]
    order = np.argsort(-room.similar[:num_candidates])
    # Those that are farther are near to one that is chosen, nearly all.
    count = _choose(graph, order[: 2 * len(room.chosen)], room, room.chosen)
    graph.links[view, :count] = room.chosen[:count]
    graph.links[view, count:] = -1


@compiled_strict
def trim(graph: Graph, views: Any, room: Room) -> None:
    """Choose len(room.chosen) links of each of the views that have more."""
    for view in views:
        count = 0
        while count < graph.links.shape[1] and graph.links[view, count] >= 0:
            count += 1
        if count > len(room.chosen):
            room.views[:count] = graph.links[view, :count]
            keep_best(graph, view, count, room)


@compiled_strict
def carry_links(old: Any, moved: Any, links: Any, has_lost: Any) -> None:
    """Write the links of the views that stay, under new numbers.

    old: (n, degree) int32 under old numbers; moved: (n,) int32, a view's new number, -1 for one that is gone; has_lost:
    (n,) bool, set where a view that stays had a link to one that is gone.
    """
    for view in range(len(old)):
        if moved[view] < 0:
            continue
        count = 0
        for i in range(old.shape[1]):
            other = old[view, i]
            if other < 0:
                break
            if moved[other] < 0:
                has_lost[view] = True
            else:
                links[moved[view], count] = moved[other]
                count += 1


@compiled_strict
def mend_links(graph: Graph, old: Any, moved: Any, views: Any, room: Room) -> None:
    """Choose the links of views, old numbers, from those that are left and those of the views that are gone.

    So a walk that went through a view that is gone finds what that led to. graph: under new numbers; old, moved: as in
    carry_links().
    """
    owners, most = graph.owners, len(room.views)
    for view in views:
        own, count = moved[view], 0
        for i in range(old.shape[1]):
            other = old[view, i]
            if other < 0:
                break
            if moved[other] >= 0:
                room.views[count] = moved[other]
                count += 1
                continue
            for j in range(min(old.shape[1], most - count - old.shape[1] + i)):
                third = old[other, j]
                if third < 0:
                    break
                if moved[third] >= 0 and owners[moved[third]] != owners[own]:
                    room.views[count] = moved[third]
                    count += 1
        keep_best(graph, own, count, room)


@compiled_strict
def mark_targets(links: Any, is_target: Any) -> None:
    """Set is_target, (n,) bool, for the views that a link leads to."""
    for view in range(len(links)):
        for i in range(links.shape[1]):
            if links[view, i] < 0:
                break
            is_target[links[view, i]] = True
