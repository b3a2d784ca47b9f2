"""Maximal marginal relevance (MMR) of documents: what all adapters choose by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Doubles, Floats, SearchResult, check_count
from mvindex_connectors.frameworks.citations import winning_text
from mvindex_connectors.frameworks.connection import AsyncIndexAPI


class MMR(NamedTuple):
    """The parameters of maximal marginal relevance.

    Attributes:
        top_k: Number of documents.
        depth: Number of documents to choose from.
        relevance_weight: 1 for relevance alone, 0 for diversity alone.

    """

    top_k: int
    depth: int
    relevance_weight: float

    def checked(self, names: tuple[str, str, str]) -> MMR:
        """Return the parameters; QueryError, by the framework's names, for those that cannot be."""
        check_count(names[0], self.top_k)
        check_count(names[1], self.depth)
        weight = self.relevance_weight
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight <= 1:
            raise QueryError(f"{names[2]}: expected a number from 0 to 1, got {weight!r:.60}")
        return self


class Diverse(NamedTuple):
    """The rows that MMR chose, in the order in which it chose them, and their MMR scores."""

    rows: list[int]
    scores: list[float]


def choose_diverse(query: Floats, views: Floats, count: int, relevance_weight: float) -> Diverse:
    """Return `count` rows of views, or all there are, each the best by relevance less redundancy.

    The relevance of a row is its cosine with the query, its redundancy the largest cosine with a row that was chosen
    before, 0 for the first. Of rows that score the same the first is taken.

    Args:
        query: (d,) vector.
        views: (n, d), the one view of each document that stands for it.
        count: Number of rows wanted.
        relevance_weight: 1 for relevance alone, 0 for diversity alone.

    """
    unit = _unit(views)
    relevance = relevance_weight * (unit @ _unit(query[None])[0])
    rows: list[int] = []
    scores: list[float] = []
    redundancy = np.full(len(unit), -np.inf)
    is_left = np.ones(len(unit), dtype=bool)
    for _ in range(min(count, len(unit))):
        worth = relevance - (1 - relevance_weight) * redundancy if rows else relevance
        row = int(np.argmax(np.where(is_left, worth, -np.inf)))
        rows.append(row)
        scores.append(float(worth[row]))
        is_left[row] = False
        redundancy = np.maximum(redundancy, unit @ unit[row])
    return Diverse(rows, scores)


async def winning_views(
    api: AsyncIndexAPI, result: SearchResult, embed: Callable[[list[str]], Awaitable[Floats]]
) -> Floats:
    """Return the view of each hit that won the query, (n, d).

    A server sends no views: there the texts that they stand for are embedded, else the documents' texts.
    """
    views = await api.winning_views(result.hits)
    if views is not None:
        return views
    return await embed([winning_text(hit) or hit.text for hit in result.hits])


def _unit(rows: Floats) -> Doubles:
    """Return the rows in length 1; zero vectors stay zero."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(lengths == 0, 1, lengths))
