"""Rankings of several stores as one: each is searched for the top_k, and the best of all are kept, in the one order.

The top_k of all documents are among the top_k of each store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvindex.kernels.score import Aggregate, Scoring
from mvindex.records import Floats, Ints
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
