"""Lexical and hybrid search: the candidates of both lists are scored by both, then fused, document by document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mvindex.kernels.score import Scoring
from mvindex.records import Combine, Component, Doubles, Floats, Ints
from mvindex.search.bm25 import LexicalRanking, LexicalSearch
from mvindex.search.fusion import Fusion, FusionResult, RankedList, fuse
from mvindex.search.group import score_group
from mvindex.search.request import Ranking


class HybridResult(NamedTuple):
    """The documents of one question in order, and the contributions of views and terms to each score."""

    ranking: Ranking
    components: Sequence[tuple[Component, ...]]


class Candidates(NamedTuple):
    """The candidates of one question: rows, ordinals and winning slots, (u,) each, and both lists."""

    rows: Ints
    ordinals: Ints
    slots: Ints
    lists: tuple[RankedList, RankedList]

    def order(self, scores: Floats) -> Ints:
        """Return the places of the candidates, best first: falling scores, then rising ordinals."""
        order: Ints = np.lexsort((self.ordinals, -scores))
        return order


class JudgedQuestion(NamedTuple):
    """One question of a tuning: its candidates, and their gains.

    Attributes:
        candidates: The documents that fusion orders.
        gains: (u,) of the candidates.
        ideal: Gains of all relevant documents, highest first, found or not.

    """

    candidates: Candidates
    gains: Doubles
    ideal: Doubles


def lexical_rankings(search: LexicalSearch, questions: Sequence[str], top_k: int) -> list[HybridResult]:
    """Return the best documents of each question by its terms, matches only. Winning slots are not chosen yet."""
    return [_lexical(search.ranking(search.query_terms(question), top_k)) for question in questions]


def hybrid_rankings(
    search: LexicalSearch, questions: Sequence[str], queries: Iterable[Floats], dense: Sequence[Ranking], how: Hybrid
) -> list[HybridResult]:
    """Return the best documents of each question by both.

    queries: (d,) float32 of each question, or (m, d), its group; dense: their rankings by views, at least
    how.depth documents where there are so many; rows are numbered through all parts.
    """
    return [
        _fused(search, question, query, ranking, how)
        for question, query, ranking in zip(questions, queries, dense, strict=True)
    ]


class Hybrid(NamedTuple):
    """How views are scored, how both lists are fused, top_k, and how the scores for a group of vectors make one.

    all_candidates: whether every candidate is returned instead of the top_k.
    """

    scoring: Scoring
    fusion: Fusion
    top_k: int
    combine: Combine = Combine.MAX
    all_candidates: bool = False

    @property
    def depth(self) -> int:
        """How many documents of each list are candidates."""
        return max(self.top_k, self.fusion.depth)


def _lexical(found: LexicalRanking) -> HybridResult:
    components = [
        (Component("lexical", rank, score, score),) for rank, score in enumerate(found.scores.tolist(), start=1)
    ]
    no_slots = np.zeros(len(found.rows), dtype=np.int64)
    return HybridResult(Ranking(found.rows, found.scores, no_slots, True, 0, 1, len(found.rows)), components)


def candidates_of(search: LexicalSearch, question: str, query: Floats, dense: Ranking, how: Hybrid) -> Candidates:
    """Return the candidates of both lists, before they are fused; see hybrid_rankings()."""
    depth, scaled = how.depth, how.fusion.depth
    terms = search.query_terms(question)
    lexical = search.ranking(terms, depth)
    rows = np.union1d(dense.rows[:depth], lexical.rows)
    view_scores, slots = _by_views(search, rows, np.atleast_2d(query), how)
    # Documents that do not match have 0. Of fewer than `depth` documents as many again count as such, since scores on
    # the scale of a handful of documents are far apart however little they differ.
    padded = np.zeros(min(scaled, 2 * search.num_allowed), dtype=np.float32)
    padded[: min(len(padded), len(lexical.scores))] = lexical.scores[: len(padded)]
    lists = (
        RankedList(dense.rows[:depth], dense.scores[:scaled], view_scores),
        RankedList(lexical.rows, padded, search.scores(terms, rows)),
    )
    return Candidates(rows, search.ordinals(rows), slots, lists)


def _fused(search: LexicalSearch, question: str, query: Floats, dense: Ranking, how: Hybrid) -> HybridResult:
    found = candidates_of(search, question, query, dense, how)
    fused = fuse(found.rows, found.lists, how.fusion)
    order = found.order(fused.scores)[: None if how.all_candidates else how.top_k]
    ranking = dense._replace(rows=found.rows[order], scores=fused.scores[order], slots=found.slots[order])
    return HybridResult(
        ranking._replace(short_by=max(0, min(how.top_k, search.num_allowed) - len(order))),
        [_components(found.lists, fused, place) for place in order.tolist()],
    )


def _by_views(search: LexicalSearch, rows: Ints, queries: Floats, how: Hybrid) -> tuple[Floats, Ints]:
    """Return the exact score and the winning slot of each document, by its stored views."""
    scores, slots = np.empty(len(rows), dtype=np.float32), np.empty(len(rows), dtype=np.int64)
    for part, places, local in search.split(rows):
        with part.errors():
            views = part.snapshot.views
            scores[places], slots[places] = score_group(views, queries, local, how.scoring, how.combine)
    return scores, slots


def _components(lists: Sequence[RankedList], fused: FusionResult, place: int) -> tuple[Component, ...]:
    return tuple(
        Component(name, int(ranks[place]) or None, float(each.scores[place]), float(parts[place]))
        for name, each, ranks, parts in zip(("dense", "lexical"), lists, fused.ranks, fused.parts, strict=True)
    )
