"""Maximal marginal relevance (MMR) of documents: what all adapters choose by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Floats, SearchResult, check_count
from mvindex.search import diversity
from mvindex.search.diversity import Diverse, unit_rows
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


def choose_diverse(query: Floats, views: Floats, count: int, relevance_weight: float) -> Diverse:
    """Return `count` rows of views, or all there are; the relevance of a row is its cosine with the query.

    Args:
        query: (d,) vector.
        views: (n, d), the one view of each document that stands for it.
        count: Number of rows wanted.
        relevance_weight: 1 for relevance alone, 0 for diversity alone.

    """
    units = unit_rows(views)
    return diversity.choose_diverse(units @ unit_rows(query[None])[0], units, count, relevance_weight)


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
