"""At which rank each variant of the views finds a document that was wanted, by counting those ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mvindex.analysis.pool import Block, Pool
from mvindex.analysis.variants import Reduced, Variant
from mvindex.records import Floats, Ints
from mvindex.scoring.aggregate import Scoring

_QUERIES_AT_ONCE = 512
# Past every document: a variant that has no view of a wanted one does not find it.
NOT_FOUND = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Which documents questions want. which: (m,) int64, the question, rising; places: (m,) int64, in the pool."""

    which: Ints
    places: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is asked. queries: (q, d) float32; wanted: at least one document of each; how documents are scored."""

    queries: Floats
    wanted: Wanted
    scoring: Scoring


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """What was counted.

    ranks: (q, v) int64 from 1, of the wanted document that the variant scores highest; places: (q, v) int64, where in
    the pool that stands; NOT_FOUND in both where there is none. vectors: (v,) int64, how many vectors the pool takes.
    """

    ranks: Ints
    places: Ints
    vectors: Ints


def count_ranks(pool: Pool, asked: Asked, variants: Sequence[Variant], on_progress: Callable[[int], None]) -> RankTable:
    """The rank of each question's wanted document among the pool, by each variant; ties by place in the pool.

    on_progress: told of documents done, twice over the pool. Every document is scored twice, in the same blocks and so
    to the same bits: first the wanted ones' scores are taken, then those ahead of them counted. Memory: a block's
    scores, and q x v numbers.
    """
    shape = (len(asked.queries), len(variants))
    targets, places = np.full(shape, -np.inf, dtype=np.float32), np.full(shape, NOT_FOUND, dtype=np.int64)
    vectors, ranks = np.zeros(len(variants), dtype=np.int64), np.ones(shape, dtype=np.int64)
    for block in pool.blocks():
        for at, column, scores in _scored(block, [Reduced(block, variant) for variant in variants], asked):
            _take_targets(block, at, scores, asked.wanted, (targets[:, column], places[:, column]))
        on_progress(len(block.starts) - 1)
    for block in pool.blocks():
        reduced = [Reduced(block, variant) for variant in variants]
        vectors += [one.num_vectors for one in reduced]
        here = block.first + np.arange(len(block.starts) - 1)
        for at, column, scores in _scored(block, reduced, asked):
            target, place = targets[at, column][:, None], places[at, column][:, None]
            is_ahead = (scores > target) | ((scores == target) & (here < place))
            ranks[at, column] += np.count_nonzero(is_ahead, axis=1)
        on_progress(len(block.starts) - 1)
    ranks[np.isneginf(targets)] = NOT_FOUND
    return RankTable(ranks, places, vectors)


def _scored(block: Block, reduced: Sequence[Reduced], asked: Asked) -> Iterator[tuple[slice, int, Floats]]:
    """Some questions, the number of a variant, and its scores (q, m) for them, for all questions and variants."""
    for begin in range(0, len(asked.queries), _QUERIES_AT_ONCE):
        some = asked.queries[begin : begin + _QUERIES_AT_ONCE]
        view_scores = some @ block.rows.T
        for column, one in enumerate(reduced):
            yield slice(begin, begin + len(some)), column, one.scores(some, view_scores, asked.scoring)


def _take_targets(block: Block, at: slice, scores: Floats, wanted: Wanted, best: tuple[Floats, Ints]) -> None:
    """Nothing; best, (q,) scores and places, has the wanted documents of this block where they score higher."""
    targets, places = best
    is_here = (wanted.which >= at.start) & (wanted.which < at.stop)
    is_here &= (wanted.places >= block.first) & (wanted.places < block.first + scores.shape[1])
    which, place = wanted.which[is_here], wanted.places[is_here]
    found = scores[which - at.start, place - block.first]
    # The best comes last, of equals the first place: later assignments win.
    order = np.lexsort((-place, found))
    which, place, found = which[order], place[order], found[order]
    is_better = found > targets[which]
    targets[which[is_better]] = found[is_better]
    places[which[is_better]] = place[is_better]
