"""ViewSource: what an index of others gives, rows that are vectors of documents, and how these are scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from mvindex.records import Doubles, Floats
from mvindex.scoring.aggregate import view_sums


class Metric(Enum):
    """How a vector is scored for a query; higher is better."""

    INNER_PRODUCT = "IP"
    SQUARED_DISTANCE = "L2"
    COSINE = "COSINE"


class RankedRows(NamedTuple):
    """The best rows of one query: the document of each, and scores in falling order, (m,), as the index computes them.

    is_all: whether no row is left.
    """

    documents: Sequence[str]
    scores: Floats
    is_all: bool


class AdoptedDocument(NamedTuple):
    """A document and its views, (k, d), in the order of their rows; ordinal: the first row's key, which orders ties."""

    id: str
    text: str
    views: Floats
    ordinal: int | str


class ViewSource(Protocol):
    """An index of others, read only."""

    @property
    def where(self) -> str:
        """The path or address, without secrets."""

    @property
    def kind(self) -> str:
        """The kind of its engine."""

    @property
    def metric(self) -> Metric:
        """How it scores."""

    @property
    def dim(self) -> int:
        """Dimensions of its vectors."""

    @property
    def num_rows(self) -> int:
        """The number of its vectors."""

    @property
    def max_limit(self) -> int:
        """The most rows that one search returns."""

    @property
    def is_exact(self) -> bool:
        """Whether it ranks all rows, up to error()."""

    def error(self, query: Floats) -> float:
        """Return the most by which a score of an exact ranking is off; asked for only where is_exact."""

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query, (d,), about so many."""

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views."""

    def ids(self) -> Iterator[str]:
        """Yield the id of each document once, in the order of their first rows."""

    def close(self) -> None:
        """Close files and connections."""


def score_sums(metric: Metric, views: Floats, query: Floats) -> Doubles:
    """Return the score of each view, (k,) float64."""
    sums = view_sums(views, query)
    if metric is Metric.INNER_PRODUCT:
        return sums
    wide, wide_query = views.astype(np.float64), query.astype(np.float64)
    if metric is Metric.SQUARED_DISTANCE:
        distances: Doubles = np.square(wide - wide_query).sum(axis=1)
        return -distances
    norms = np.linalg.norm(wide, axis=1) * np.linalg.norm(wide_query)
    cosines: Doubles = np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)
    return cosines
