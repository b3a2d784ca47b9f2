"""Rankings and results of several stores or shards as one, in the one order.

The top_k of all documents are among the top_k of each store.

A document's score does not depend on its shard, and the best of all documents are among the best of each shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mvindex.errors import StoreError
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.records import Component, Floats, Hit, Ints, SearchResult
from mvindex.search.confidence import Evidence, Model, make_estimator
from mvindex.search.fusion import Fusion, Mode
from mvindex.search.hybrid import RankedList, components_of, evidence_of, fuse, fused_order
from mvindex.search.parts import Parts
from mvindex.search.ranking import Ranking, ViewHits


def merge_rankings(parts: Parts, found: Sequence[Sequence[Ranking]], top_k: int) -> list[Ranking]:
    """Return the ranking of each query over all parts; found: of each part, those of the queries."""
    if len(parts.all) == 1:
        return list(found[0])
    return [_merged(parts, each, min(top_k, parts.num_allowed)) for each in zip(*found, strict=True)]


def floors_of(proposed: Sequence[Floats], limits: Sequence[int], scoring: Scoring) -> Floats | None:
    """Return the score of the last view hit of each query that one index of all parts would look at, (q,).

    None where fewer are known, and for DRPQ, where the scores of documents determine how far one looks.

    Args:
        proposed: Scores of view hits of each part, (q, m) float32, -inf where missing.
        limits: How many of all parts one index would look at; 0 for a part that was not searched for its share.
        scoring: How documents are scored.

    """
    if scoring.aggregate is not Aggregate.MAX:
        return None
    known = np.concatenate(proposed, axis=1)
    limit = _limit_of(limits)
    if not 0 < limit <= known.shape[1]:
        return None
    last: Floats = np.partition(known, -limit, axis=1)[:, -limit]
    return last


def _limit_of(limits: Sequence[int]) -> int:
    """Return how many view hits those parts have together that were searched for their shares."""
    return -(-max(limits) * sum(limit > 0 for limit in limits) // len(limits))


def find_cut_short(found: Sequence[Sequence[Ranking]], merged: Sequence[Ranking], scoring: Scoring) -> list[Ints]:
    """Return for each part the queries that it must be searched for in full, after it was for its share.

    found: of each part, the rankings of the queries; merged: those of all parts.
    """
    is_short = np.zeros((len(found), len(merged)), dtype=bool)
    for query, whole in enumerate(merged):
        view_hits = [rankings[query].view_hits for rankings in found]
        is_short[:, query] = is_cut_short(view_hits, whole.scores, whole.short_by, scoring)
    return [np.flatnonzero(row) for row in is_short]


def is_cut_short(view_hits: Sequence[ViewHits | None], scores: Floats, short_by: int, scoring: Scoring) -> list[bool]:
    """Return which shards have left out a view hit that one index of all documents would have looked at.

    Args:
        view_hits: What each shard has looked at for a query; None for one that was searched in full.
        scores: Of the best documents of all shards, falling.
        short_by: How many documents are missing.
        scoring: How documents are scored.

    """
    shares = [each for each in view_hits if each is not None]
    if short_by or not shares:
        return [each is not None for each in view_hits]
    known = np.concatenate([each.scores for each in shares])
    limit = _limit_of([0 if each is None else each.limit for each in view_hits])
    last = float(np.partition(known, -limit)[-limit]) if limit <= len(known) else -np.inf
    if scoring.aggregate is not Aggregate.MAX:
        # An aggregate may lie far below its best view: one index looks on down to the last document's.
        last = min(last, float(scores[-1]))
    return [each is not None and each.lowest > last for each in view_hits]


def _merged(parts: Parts, found: Sequence[Ranking], top_k: int) -> Ranking:
    rows = np.concatenate([first + ranking.rows for first, ranking in zip(parts.firsts, found, strict=True)])
    scores: Floats = np.concatenate([ranking.scores for ranking in found])
    slots = np.concatenate([ranking.slots for ranking in found])
    order = np.lexsort((parts.ordinals(rows), -scores))[:top_k]
    return Ranking(
        rows=rows[order],
        scores=scores[order],
        slots=slots[order],
        exact=all(ranking.exact for ranking in found),
        short_by=top_k - len(order),
        rounds=max(ranking.rounds for ranking in found),
        num_scored=sum(ranking.num_scored for ranking in found),
    )


@dataclass(frozen=True, slots=True)
class ShardResult(SearchResult):
    """The result of one shard.

    ordinals: of each hit. num_allowed: documents of the shard that the filter and the operators allow. view_hits: what
    a dense or hybrid search for its share has looked at; None where it was searched in full.
    """

    ordinals: tuple[int, ...] = ()
    num_allowed: int = 0
    view_hits: ViewHits | None = None

    @property
    def dense_scores(self) -> list[float]:
        """The scores of the documents that the search by views has found."""
        if self.mode == Mode.DENSE.value:
            return [hit.score for hit in self.hits]
        return [hit.components[0].score for hit in self.hits if hit.components[0].rank is not None]


class FusedHit(NamedTuple):
    """A document of a hybrid result that has no text yet: the shard that has it, its hit there, and its score here."""

    shard: int
    hit: Hit
    score: float
    components: tuple[Component, ...]


class FusedRanking(NamedTuple):
    """The documents of a hybrid result, best first; see SearchResult for the rest.

    evidence: what the confidence of each is estimated from, beside its scores.
    """

    hits: Sequence[FusedHit]
    exact: bool
    short_by: int
    rounds: int
    evidence: Evidence


class QuestionModel(NamedTuple):
    """The model of the confidences of one question, and the ceiling of its terms, see QueryTerms."""

    model: Model | None = None
    ceiling: float = 0.0


_UNJUDGED = QuestionModel()


def merge_results(
    results: Sequence[ShardResult],
    top_k: int,
    missing: tuple[int, ...] = (),
    offset: int = 0,
    asked: QuestionModel = _UNJUDGED,
) -> SearchResult:
    """Return the dense or lexical result over all shards.

    Args:
        results: Those of each shard for the same query, each with its best top_k documents.
        top_k: Number of documents.
        missing: The numbers of shards that were not searched.
        offset: Number of the first of these documents that are left out.
        asked: What estimates the confidence of hits.

    Raises:
        StoreError: When two shards have a document of the same id.

    """
    _check_distinct(hit.id for result in results for hit in result.hits)
    rows = ((hit, ordinal) for result in results for hit, ordinal in zip(result.hits, result.ordinals, strict=True))
    best = sorted(rows, key=lambda row: (-row[0].score, row[1]))[:top_k]
    hits = tuple(hit for hit, _ in best)
    mode = results[0].mode
    is_lexical = mode == Mode.LEXICAL.value
    if is_lexical:
        hits = tuple(replace(hit, components=_ranked(hit, rank)) for rank, hit in enumerate(hits, start=1))
    best_score = tuple(hit.score for hit in hits[:1])
    evidence = Evidence(lexical=best_score, ceiling=asked.ceiling) if is_lexical else Evidence(best_score)
    # A lexical result is only of what matches.
    short_by = 0 if is_lexical else min(top_k, sum(result.num_allowed for result in results)) - len(hits)
    return SearchResult(
        with_confidence(hits[offset:], Mode(mode), asked.model, evidence),
        all(result.exact for result in results) and not missing,
        max(0, min(short_by, len(hits) + short_by - offset)),
        max(result.rounds for result in results),
        missing,
        mode,
    )


def with_confidence(hits: tuple[Hit, ...], mode: Mode, model: Model | None, evidence: Evidence) -> tuple[Hit, ...]:
    """Return hits of several shards with their confidence; unchanged without a model."""
    estimate = make_estimator(mode, model, evidence)
    return hits if estimate is None else tuple(replace(hit, confidence=estimate(hit)) for hit in hits)


def which_cut_short(results: Sequence[ShardResult], depth: int, scoring: Scoring) -> list[bool]:
    """Return which shards must be searched in full for a query, after they were for their share.

    depth: number of documents that are wanted of the search by views.
    """
    scores = np.array([score for result in results for score in result.dense_scores], dtype=np.float32)
    depth = min(depth, sum(result.num_allowed for result in results))
    view_hits = [result.view_hits for result in results]
    return is_cut_short(view_hits, -np.sort(-scores)[:depth], depth - min(depth, len(scores)), scoring)


def fuse_results(
    results: Sequence[ShardResult], fusion: Fusion, top_k: int, offset: int = 0, ceiling: float = 0.0
) -> FusedRanking:
    """Return the hybrid ranking over all shards; see candidates_of() for the same in one process.

    Args:
        results: Those of each shard for the same query, with all its candidates, at least max(top_k, fusion.depth) of
            each list where there are so many.
        fusion: How both lists are fused.
        top_k: Number of documents.
        offset: Number of the first of these documents that are left out.
        ceiling: Of the terms of the query, see QueryTerms.

    Raises:
        StoreError: When two shards have a document of the same id.

    """
    hits = [hit for result in results for hit in result.hits]
    _check_distinct(hit.id for hit in hits)
    owners = np.repeat(np.arange(len(results)), [len(result.hits) for result in results])
    ordinals = np.array([ordinal for result in results for ordinal in result.ordinals], dtype=np.int64)
    scores = np.array([[part.score for part in hit.components] for hit in hits], dtype=np.float32).reshape(-1, 2)
    is_listed = np.array([[part.rank is not None for part in hit.components] for hit in hits]).reshape(-1, 2)
    depth = max(top_k, fusion.depth)
    listed: list[Ints] = []
    for column in (0, 1):
        rows = np.flatnonzero(is_listed[:, column])
        listed.append(rows[np.lexsort((ordinals[rows], -scores[rows, column]))][:depth])
    dense, lexical = listed
    candidates = np.union1d(dense, lexical)
    num_allowed = sum(result.num_allowed for result in results)
    top = np.zeros(min(fusion.depth, 2 * num_allowed), dtype=np.float32)
    top[: min(len(top), len(lexical))] = scores[lexical[: len(top)], 1]
    lists = (
        RankedList(dense, scores[dense[: fusion.depth], 0], scores[candidates, 0]),
        RankedList(lexical, top, scores[candidates, 1]),
    )
    fused = fuse(candidates, lists, fusion)
    order = fused_order(fused, ordinals[candidates], fusion.depth, top_k)[:top_k]
    best = [
        FusedHit(owner, hits[row], score, components)
        for row, owner, score, components in zip(
            candidates[order].tolist(),
            owners[candidates[order]].tolist(),
            fused.scores[order].tolist(),
            components_of(lists, fused, order),
            strict=True,
        )
    ]
    short_by = max(0, min(top_k, num_allowed) - len(best))
    return FusedRanking(
        best[offset:],
        all(result.exact for result in results),
        max(0, min(short_by, len(best) + short_by - offset)),
        max(result.rounds for result in results),
        evidence_of(lists, ceiling),
    )


def _ranked(hit: Hit, rank: int) -> tuple[Component, ...]:
    return tuple(replace(part, rank=rank) for part in hit.components)


def _check_distinct(ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for doc_id in ids:
        if doc_id in seen:
            raise StoreError(f"document {doc_id!r} is in two of the shards; expected shards without common documents")
        seen.add(doc_id)
