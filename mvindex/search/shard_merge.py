"""Search of several stores as one: each is searched for the top_k, and the best of all are kept, in the one order.

Every view of a document is in one store, so that a document's score is the same there as anywhere; and the top_k of
all documents are among the top_k of each store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mvindex.records import Floats, Ints
from mvindex.search.request import Engines, Ranking, Request
from mvindex.store.snapshot import Snapshot


class Part(NamedTuple):
    """One of several stores: its snapshot, engines and request, the same for all but for what is allowed."""

    snapshot: Snapshot
    engines: Engines
    request: Request


def merge_rankings(parts: Sequence[Part], found: Sequence[Sequence[Ranking]]) -> list[Ranking]:
    """Return the ranking of each query over all parts; found: of each part, those of the queries.

    Its rows are numbered through all parts: see owners().
    """
    if len(parts) == 1:
        return list(found[0])
    top_k = parts[0].request.top_k
    num_allowed = sum(part.snapshot.count(part.request.allowed) for part in parts)
    return [_merged(parts, each, min(top_k, num_allowed)) for each in zip(*found, strict=True)]


def owners(parts: Sequence[Part], rows: Ints) -> tuple[Ints, Ints]:
    """Return the part of each row of a merged ranking, and its row there, (m,) each."""
    firsts = _first_rows(parts)
    which = np.searchsorted(firsts, rows, side="right") - 1
    return which, rows - firsts[which]


def _merged(parts: Sequence[Part], found: Sequence[Ranking], top_k: int) -> Ranking:
    firsts = _first_rows(parts)
    pairs = list(zip(parts, found, strict=True))
    rows = np.concatenate([first + ranking.rows for first, ranking in zip(firsts, found, strict=True)])
    ordinals = np.concatenate([part.snapshot.views.ordinals(ranking.rows) for part, ranking in pairs])
    scores: Floats = np.concatenate([ranking.scores for ranking in found])
    slots = np.concatenate([ranking.slots for ranking in found])
    order = np.lexsort((ordinals, -scores))[:top_k]
    return Ranking(
        rows=rows[order],
        scores=scores[order],
        slots=slots[order],
        exact=all(ranking.exact for ranking in found),
        short_by=top_k - len(order),
        rounds=max(ranking.rounds for ranking in found),
        num_scored=sum(ranking.num_scored for ranking in found),
    )


def _first_rows(parts: Sequence[Part]) -> Ints:
    """Return the number of the first row of each part in a merged ranking, (len(parts),); some parts may be empty."""
    sizes = [max(part.snapshot.num_rows, 1) for part in parts]
    return np.cumsum([0, *sizes[:-1]])
