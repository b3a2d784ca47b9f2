"""Search by words, or by words and views: what each finds is scored by both, then fused, document by document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mvindex.lexical.bm25 import LexicalRanking, LexicalSearch
from mvindex.records import Component, Floats, Ints
from mvindex.scoring.aggregate import Scoring
from mvindex.scoring.fusion import DEPTH, Fused, Fusion, Scored, fuse
from mvindex.search.request import Ranking
from mvindex.search.rescore import Pairs, score_pairs


class Mixed(NamedTuple):
    """The documents of one question in order, and what views and words have to do with the score of each."""

    ranking: Ranking
    components: Sequence[tuple[Component, ...]]


class Candidates(NamedTuple):
    """What the fusion of one question orders: rows, ordinals and winning slots, (u,) each, and both lists."""

    rows: Ints
    ordinals: Ints
    slots: Ints
    lists: tuple[Scored, Scored]

    def order(self, scores: Floats) -> Ints:
        """The places of the candidates, best first: falling scores, then rising ordinals."""
        order: Ints = np.lexsort((self.ordinals, -scores))
        return order


def lexical_rankings(search: LexicalSearch, questions: Sequence[str], top_k: int) -> list[Mixed]:
    """The best documents of each question by their words: those that have one. The winning slots are still open."""
    return [_lexical(search.ranking(search.words(question), top_k)) for question in questions]


def hybrid_rankings(
    search: LexicalSearch, questions: Sequence[str], queries: Floats, dense: Sequence[Ranking], how: Hybrid
) -> list[Mixed]:
    """The best documents of each question by both.

    queries: (q, d) float32, of the same questions; dense: their rankings by views, at least depth_of(top_k) documents
    where there are so many; rows are numbered through all parts.
    """
    return [
        _fused(search, question, query, ranking, how)
        for question, query, ranking in zip(questions, queries, dense, strict=True)
    ]


class Hybrid(NamedTuple):
    """How views are scored, how both are fused, and how many documents are wanted."""

    scoring: Scoring
    fusion: Fusion
    top_k: int


def depth_of(top_k: int) -> int:
    """How many documents of each list are candidates."""
    return max(top_k, DEPTH)


def _lexical(found: LexicalRanking) -> Mixed:
    components = [
        (Component("lexical", rank, score, score),) for rank, score in enumerate(found.scores.tolist(), start=1)
    ]
    no_slots = np.zeros(len(found.rows), dtype=np.int64)
    return Mixed(Ranking(found.rows, found.scores, no_slots, True, 0, 1, len(found.rows)), components)


def candidates_of(search: LexicalSearch, question: str, query: Floats, dense: Ranking, how: Hybrid) -> Candidates:
    """What may be among the best of both lists, before they are fused; as hybrid_rankings()."""
    depth = depth_of(how.top_k)
    asked = search.words(question)
    words = search.ranking(asked, depth)
    rows = np.union1d(dense.rows[:depth], words.rows)
    view_scores, slots = _by_views(search, rows, query, how.scoring)
    # Of the best documents by words as many count as there are of those by views: what does not match has 0.
    padded = np.zeros(min(DEPTH, search.num_allowed), dtype=np.float32)
    padded[: min(len(padded), len(words.scores))] = words.scores[: len(padded)]
    lists = (
        Scored(dense.rows[:depth], dense.scores[:DEPTH], view_scores),
        Scored(words.rows, padded, search.scores(asked, rows)),
    )
    return Candidates(rows, search.ordinals(rows), slots, lists)


def _fused(search: LexicalSearch, question: str, query: Floats, dense: Ranking, how: Hybrid) -> Mixed:
    found = candidates_of(search, question, query, dense, how)
    fused = fuse(found.rows, found.lists, how.fusion)
    order = found.order(fused.scores)[: how.top_k]
    ranking = dense._replace(rows=found.rows[order], scores=fused.scores[order], slots=found.slots[order])
    return Mixed(
        ranking._replace(short_by=max(0, min(how.top_k, search.num_allowed) - len(order))),
        [_components(found.lists, fused, place) for place in order.tolist()],
    )


def _by_views(search: LexicalSearch, rows: Ints, query: Floats, scoring: Scoring) -> tuple[Floats, Ints]:
    """The exact score and the winning slot of each document, by its stored views."""
    scores, slots = np.empty(len(rows), dtype=np.float32), np.empty(len(rows), dtype=np.int64)
    for part, places, local in search.split(rows):
        with part.naming():
            pairs = Pairs(local, np.zeros(len(local), dtype=np.int64))
            scores[places], slots[places] = score_pairs(part.snapshot.views, query[None], pairs, scoring)
    return scores, slots


def _components(lists: Sequence[Scored], fused: Fused, place: int) -> tuple[Component, ...]:
    return tuple(
        Component(name, int(ranks[place]) or None, float(each.scores[place]), float(parts[place]))
        for name, each, ranks, parts in zip(("dense", "lexical"), lists, fused.ranks, fused.parts, strict=True)
    )
