"""Diversity: maximal marginal relevance over the best documents of a search, and near-duplicates among them.

Carbonell and Goldstein (1998): each next document is the best by its relevance less its likeness to those chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Bools, Doubles, Floats, Ints, SearchResult
from mvindex.search.request import DIVERSE_DEPTH, SearchRequest

# Two documents are near-duplicates where each view of either has a view of the other with at least this cosine.
SAME = 0.98
# Views of a document that are compared; of more, so many that are spread evenly: all pairs of views are compared.
_COMPARED_VIEWS = 64
# Cosines that are computed at once.
_CELLS = 1 << 24


class Diverse(NamedTuple):
    """The rows that were chosen, in the order in which they were, and the worth of each when it was."""

    rows: list[int]
    scores: list[float]


def search_diverse(
    request: SearchRequest,
    diversity: float,
    views_of: Callable[[Sequence[str]], Mapping[str, Floats]],
    run: Callable[[SearchRequest], list[SearchResult]],
) -> list[SearchResult]:
    """Return the results of a request in the order of maximal marginal relevance.

    Args:
        request: The request.
        diversity: The weight of likeness against relevance, 0 to 1.
        views_of: Returns the views, (k, d) float32, of the documents that exist.
        run: Returns the results of a request.

    """
    results = run(replace(request, diversity=None, top_k=DIVERSE_DEPTH, offset=0))
    views = views_of(list(dict.fromkeys(hit.id for result in results for hit in result.hits)))
    return [_page(result, views, request, diversity) for result in results]


def _page(result: SearchResult, views: Mapping[str, Floats], request: SearchRequest, diversity: float) -> SearchResult:
    """Return the documents of one page, near-duplicates of better ones behind all others."""
    # A document may be gone since the search.
    hits = [hit for hit in result.hits if hit.id in views]
    if not hits:
        return replace(result, hits=(), short_by=0)
    own = [views[hit.id] for hit in hits]
    originals = _originals([unit_rows(rows[_spread(len(rows))]) for rows in own])
    firsts = [row for row, original in enumerate(originals) if original == row]
    winners = unit_rows(np.array([rows[min(hit.slot, len(rows) - 1)] for hit, rows in zip(hits, own, strict=True)]))
    scores = np.array([hit.score for hit in hits], dtype=np.float64)
    width = scores.max() - scores.min()
    relevance = (scores - scores.min()) / width if width > 0 else np.ones(len(hits))
    chosen = choose_diverse(relevance[firsts], winners[firsts], len(firsts), 1 - diversity).rows
    order = [firsts[row] for row in chosen] + [row for row, original in enumerate(originals) if original != row]
    page = order[request.offset : request.offset + request.top_k]
    missing = min(request.top_k, max(0, len(hits) + result.short_by - request.offset)) - len(page)
    duplicates = {hits[row].id: hits[original].id for row, original in enumerate(originals) if original != row}
    return replace(result, hits=tuple(hits[row] for row in page), short_by=missing, duplicates_of=duplicates)


def choose_diverse(relevance: Doubles, units: Doubles, count: int, relevance_weight: float) -> Diverse:
    """Return `count` rows, or all there are, each the best by its relevance less its likeness to those before.

    The likeness of a row is the largest cosine with a row that was chosen before, 0 for the first. Of rows of equal
    worth the first is taken.

    Args:
        relevance: (n,) of the rows.
        units: (n, d) of length 1, the one view of each document that stands for it.
        count: Number of rows to choose.
        relevance_weight: 1 for relevance alone, 0 for diversity alone.

    """
    weighted = relevance_weight * relevance
    rows: list[int] = []
    scores: list[float] = []
    likeness = np.full(len(units), -np.inf)
    is_left = np.ones(len(units), dtype=bool)
    for _ in range(min(count, len(units))):
        worth = weighted - (1 - relevance_weight) * likeness if rows else weighted
        row = int(np.argmax(np.where(is_left, worth, -np.inf)))
        rows.append(row)
        scores.append(float(worth[row]))
        is_left[row] = False
        likeness = np.maximum(likeness, units @ units[row])
    return Diverse(rows, scores)


def unit_rows(rows: Floats) -> Doubles:
    """Return the rows in length 1, float64; zero vectors stay zero."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(lengths == 0, 1, lengths))


def check_diversity(diversity: object, request: SearchRequest) -> float:
    """Return the diversity; QueryError for another value than 0 to 1, or what does not go with it."""
    is_number = isinstance(diversity, int | float | np.number) and not isinstance(diversity, bool)
    if not is_number or not 0 <= diversity <= 1:  # type: ignore[operator]  # a number
        raise QueryError(f"diversity: expected a number from 0 to 1, got {diversity!r:.60}")
    if request.cursor is not None:
        raise QueryError("cursor= does not go with diversity=, which orders again; give offset=")
    if request.depth > DIVERSE_DEPTH:
        raise QueryError(
            f"diversity= orders the best {DIVERSE_DEPTH} documents; expected top_k and offset of up to {DIVERSE_DEPTH} "
            f"together, got {request.depth}"
        )
    return float(diversity)  # type: ignore[arg-type]  # a number


def _spread(count: int) -> Ints:
    """Return the places of the views that are compared, of so many."""
    return np.linspace(0, count - 1, min(count, _COMPARED_VIEWS)).round().astype(np.int64)


def _originals(documents: Sequence[Doubles]) -> list[int]:
    """Return for each document, best first, the first that it is a near-duplicate of; itself for most.

    documents: of each its views, (k, d) of length 1.
    """
    is_same = _covered(documents)
    is_same &= is_same.T
    originals: list[int] = []
    for row in range(len(documents)):
        same = [other for other in range(row) if originals[other] == other and is_same[row, other]]
        originals.append(same[0] if same else row)
    return originals


def _covered(documents: Sequence[Doubles]) -> Bools:
    """Return whether each view of a document has one like it in another document, (n, n)."""
    starts = np.cumsum([0, *(len(rows) for rows in documents)])
    every = np.concatenate(documents).astype(np.float32)
    step = max(1, _CELLS // len(every))
    nearest = np.concatenate(
        [
            np.maximum.reduceat(every[begin : begin + step] @ every.T, starts[:-1], axis=1)
            for begin in range(0, len(every), step)
        ]
    )
    covered: Bools = np.minimum.reduceat(nearest, starts[:-1], axis=0) >= SAME
    return covered
