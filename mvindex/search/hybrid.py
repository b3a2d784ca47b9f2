"""Lexical and hybrid search: the candidates of both lists are scored by both, then fused, document by document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mvindex.records import Combine, Component, Doubles, Floats, Ints
from mvindex.search.confidence import Evidence
from mvindex.search.exact import score_group
from mvindex.search.fusion import Fusion, Method
from mvindex.search.plan import Plan
from mvindex.search.ranking import Ranking
from mvindex.search.request import Queries
from mvindex.search.terms import LexicalRanking, TermSearch


class RankedList(NamedTuple):
    """One list for one question.

    rows: of its best documents, in order. top: the scores of its best `depth` documents. scores: of the candidates of
    both lists, (u,), whether they are in this one or not.
    """

    rows: Ints
    top: Floats
    scores: Floats


class FusionResult(NamedTuple):
    """The fused score of each candidate, (u,), and the contribution and rank of each list, (lists, u).

    A rank of 0 is of a document that is not in the list.
    """

    scores: Floats
    parts: Doubles
    ranks: Ints


class Ranked(NamedTuple):
    """The documents of one query in order, and the contributions of views and terms to each score, if it has both.

    evidence: what the confidence of each is estimated from, beside its scores.
    """

    ranking: Ranking
    components: Sequence[tuple[Component, ...]] | None = None
    evidence: Evidence | None = None

    def page(self, offset: int) -> Ranked:
        """Return the documents without the first ones; see Ranking.page()."""
        components = None if self.components is None else self.components[offset:]
        return Ranked(self.ranking.page(offset), components, self.evidence)


class Candidates(NamedTuple):
    """The candidates of one question: rows, ordinals and winning slots, (u,) each, and both lists.

    ceiling: more than the score of any document by terms.
    """

    rows: Ints
    ordinals: Ints
    slots: Ints
    lists: tuple[RankedList, RankedList]
    ceiling: float

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


def judge(found: Candidates, gains_of: Mapping[int, float], gains: Sequence[float]) -> JudgedQuestion:
    """Return candidates with their gains. gains_of: by row; gains: of all relevant documents, found or not."""
    ideal = -np.sort(-np.array(gains, dtype=np.float64))
    values = [gains_of.get(row, 0.0) for row in found.rows.tolist()]
    return JudgedQuestion(found, np.array(values, dtype=np.float64), ideal)


def rank_terms(search: TermSearch, questions: Sequence[str], top_k: int) -> list[Ranked]:
    """Return the best documents of each question by its terms, matches only. Winning slots are not chosen yet."""
    terms = [search.query_terms(question) for question in questions]
    return [_lexical(search.ranking(each.known, top_k), each.ceiling) for each in terms]


def of_views(ranking: Ranking) -> Ranked:
    """Return a ranking by views alone."""
    return Ranked(ranking, evidence=Evidence(tuple(ranking.scores[:1].tolist())))


def fuse_rankings(search: TermSearch, queries: Queries, dense: Sequence[Ranking], plan: Plan) -> list[Ranked]:
    """Return the best documents of each query by both.

    dense: the rankings by views, at least plan.depth documents where there are so many.
    """
    if queries.texts is None:
        raise ValueError("expected queries with texts")
    vectors = queries.vectors
    if queries.combine is not None:
        return [_fused(search, queries.texts[0], vectors, dense[0], plan, queries.combine)]
    pairs = zip(queries.texts, dense, strict=True)
    return [
        _fused(search, text, vectors[number : number + 1], ranking, plan, Combine.MAX)
        for number, (text, ranking) in enumerate(pairs)
    ]


def evidence_of(lists: Sequence[RankedList], ceiling: float) -> Evidence:
    """Return the evidence of a hybrid search, from both its lists."""
    dense, lexical = (tuple(each.top[:2].tolist()) for each in lists)
    return Evidence(dense, lexical, ceiling)


def _lexical(found: LexicalRanking, ceiling: float) -> Ranked:
    components = [
        (Component("lexical", rank, score, score),) for rank, score in enumerate(found.scores.tolist(), start=1)
    ]
    no_slots = np.zeros(len(found.rows), dtype=np.int64)
    evidence = Evidence(lexical=tuple(found.scores[:1].tolist()), ceiling=ceiling)
    return Ranked(Ranking(found.rows, found.scores, no_slots, True, 0, 1, len(found.rows)), components, evidence)


def candidates_of(  # noqa: PLR0913 - a question in its two forms, its ranking, and how it is searched
    search: TermSearch, question: str, vectors: Floats, dense: Ranking, plan: Plan, combine: Combine = Combine.MAX
) -> Candidates:
    """Return the candidates of both lists, before they are fused.

    vectors: (m, d) float32 of the question, whose scores of a document combine to one.
    """
    depth, scaled = plan.depth, plan.fusion.depth
    terms = search.query_terms(question)
    lexical = search.ranking(terms.known, depth)
    rows = np.union1d(dense.rows[:depth], lexical.rows)
    scored = score_group(search.views, vectors, rows, plan.scoring, combine)
    # Documents that do not match have 0. Of fewer than `depth` documents as many again count as such, since scores on
    # the scale of a handful of documents are far apart however little they differ.
    padded = np.zeros(min(scaled, 2 * search.num_allowed), dtype=np.float32)
    padded[: min(len(padded), len(lexical.scores))] = lexical.scores[: len(padded)]
    lists = (
        RankedList(dense.rows[:depth], dense.scores[:scaled], scored.scores),
        RankedList(lexical.rows, padded, search.scores(terms.known, rows)),
    )
    return Candidates(rows, scored.ordinals, scored.slots, lists, terms.ceiling)


def _fused(  # noqa: PLR0913 - as candidates_of()
    search: TermSearch, question: str, vectors: Floats, dense: Ranking, plan: Plan, combine: Combine
) -> Ranked:
    found = candidates_of(search, question, vectors, dense, plan, combine)
    fused = fuse(found.rows, found.lists, plan.fusion)
    has_all = plan.shard is not None and plan.shard.all_candidates
    order = fused_order(fused, found.ordinals, plan.fusion.depth, plan.top_k)[: None if has_all else plan.top_k]
    short_by = max(0, min(plan.top_k, search.num_allowed) - len(order))
    ranking = dense._replace(
        rows=found.rows[order], scores=fused.scores[order], slots=found.slots[order], short_by=short_by
    )
    return Ranked(ranking, components_of(found.lists, fused, order), evidence_of(found.lists, found.ceiling))


def fused_order(fused: FusionResult, ordinals: Ints, depth: int, top_k: int) -> Ints:
    """Return the places of the candidates, best first, so that the best of a smaller top_k stay the first.

    Beyond the depth that scores are scaled by all have the lowest score of both lists: there the better rank decides.

    Args:
        fused: Scores and ranks.
        ordinals: (u,) of the candidates.
        depth: Number of documents of each list that scores are scaled by.
        top_k: Number of documents that are wanted.

    """
    if top_k <= depth:
        order: Ints = np.lexsort((ordinals, -fused.scores))
        return order
    ranks = np.where(fused.ranks > 0, fused.ranks, np.iinfo(np.int64).max).min(axis=0)
    order = np.lexsort((ordinals, np.maximum(ranks, depth), -fused.scores))
    return order


def fuse(candidates: Ints, lists: Sequence[RankedList], fusion: Fusion) -> FusionResult:
    """Fuse both lists' scores of the candidates, (u,) rising rows, among which are those of both lists."""
    ranks, parts = np.zeros((2, len(candidates)), dtype=np.int64), np.empty((2, len(candidates)))
    for number, (each, weight) in enumerate(zip(lists, fusion.weights, strict=True)):
        ranks[number, np.searchsorted(candidates, each.rows)] = np.arange(1, len(each.rows) + 1)
        if fusion.method is Method.RRF:
            is_near = (ranks[number] > 0) & (ranks[number] <= fusion.depth)
            scaled: Doubles = np.where(is_near, 1 / (fusion.constant + ranks[number]), 0.0)
        else:
            scaled = _scaled(each.scores.astype(np.float64), each.top.astype(np.float64), fusion.method)
        parts[number] = weight * scaled
    return FusionResult((parts[0] + parts[1]).astype(np.float32), parts, ranks)


def _scaled(scores: Doubles, top: Doubles, method: Method) -> Doubles:
    if not len(top) or top.max() == top.min():
        return np.zeros(len(scores))
    begin, unit = (top.min(), top.max() - top.min()) if method is Method.MINMAX else (top.mean(), top.std())
    scaled: Doubles = (np.maximum(scores, top.min()) - begin) / unit
    return scaled


def components_of(lists: Sequence[RankedList], fused: FusionResult, order: Ints) -> list[tuple[Component, Component]]:
    """Return the contributions of views and terms to the score of each candidate, in an order of their places."""
    dense, lexical = (
        [
            Component(name, rank or None, score, part)
            for rank, score, part in zip(
                ranks[order].tolist(), each.scores[order].tolist(), parts[order].tolist(), strict=True
            )
        ]
        for name, each, ranks, parts in zip(("dense", "lexical"), lists, fused.ranks, fused.parts, strict=True)
    )
    return list(zip(dense, lexical, strict=True))
