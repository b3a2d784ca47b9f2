"""RowSource: what an index of others gives, rows that are vectors of documents, and how these are scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from mvindex.kernels.score import view_sums
from mvindex.records import Doubles, Floats, Ints
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import pack_spans

_JOINED_BY = "\n\n"


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
    """A document and its views, (k, d), in the order of their rows.

    Attributes:
        id: The id.
        texts: The text of each row; none where the rows have no texts, or these were not read.
        views: The vector of each row.
        ordinal: The first row's key, which orders ties.
        title: The title.
        metadata: The metadata, as JSON.

    """

    id: str
    texts: Sequence[str]
    views: Floats
    ordinal: int | str
    title: str = ""
    metadata: str = "{}"

    def of_view(self, slot: int, neighbors: int = 0) -> StoredDocument:
        """Return the document as the row of one view has it: what a hit by this view shows and cites.

        neighbors: how many rows before it and behind it are shown as well.
        """
        near = range(max(slot - neighbors, 0), slot + neighbors + 1)
        return self._stored([text if row in near else "" for row, text in enumerate(self.texts)])

    def whole(self) -> StoredDocument:
        """Return the document of all rows: their distinct texts, a paragraph each, for which their views stand."""
        return self._stored(self.texts)

    def _stored(self, texts: Sequence[str]) -> StoredDocument:
        text, spans = join_texts(texts)
        return StoredDocument(self.id, self.title, text, self.metadata, pack_spans(spans))


def join_texts(texts: Sequence[str]) -> tuple[str, Ints]:
    """Return the distinct texts, a blank line between, and the characters of each, (k, 2); (-1, -1) of an empty one."""
    places: dict[str, tuple[int, int]] = {"": (-1, -1)}
    end = 0
    for text in texts:
        if text not in places:
            begin = end + len(_JOINED_BY) * (len(places) > 1)
            end = begin + len(text)
            places[text] = (begin, end)
    spans = np.array([places[text] for text in texts], dtype=np.int64).reshape(-1, 2)
    return _JOINED_BY.join(filter(None, places)), spans


class RowSource(Protocol):
    """An index of others, read only."""

    @property
    def where(self) -> str:
        """The path or address, without secrets."""

    @property
    def copied_by(self) -> str:
        """The command or page that makes an index of mvindex from it, which does what this one cannot."""

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
        """The number of its vectors, as last counted."""

    def count_rows(self) -> int:
        """Return the number of its vectors now."""

    @property
    def max_limit(self) -> int:
        """The most rows that one search returns."""

    @property
    def is_exact(self) -> bool:
        """Whether it ranks all rows, up to error()."""

    def error(self, query: Floats) -> float:
        """Return the most by which a score of an exact ranking is off; asked for only where is_exact."""

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query, (d,), about so many; num_rows is of now where `limit` reaches it."""

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views; title and metadata come with the texts."""

    def scan(self) -> Iterator[tuple[list[str], Floats]]:
        """Yield all vectors, (m, d) at a time, with the document of each."""

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
