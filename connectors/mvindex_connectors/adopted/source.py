"""ViewSource: what an index of others gives, rows that are vectors of documents, and how these are scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from mvindex.kernels.score import view_sums
from mvindex.records import Doubles, Floats
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import pack_spans


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

    """

    id: str
    texts: Sequence[str]
    views: Floats
    ordinal: int | str

    def of_view(self, slot: int) -> StoredDocument:
        """Return the document as the row of one view has it: what a hit by this view shows and cites."""
        text = self.texts[slot] if self.texts else ""
        return self._stored(text, [text if row == slot else "" for row in range(len(self.texts))])

    def whole(self) -> StoredDocument:
        """Return the document of all rows: their distinct texts, a paragraph each, for which their views stand."""
        return self._stored("\n\n".join(filter(None, dict.fromkeys(self.texts))), self.texts)

    def _stored(self, text: str, parts: Sequence[str]) -> StoredDocument:
        """Return the document with this text, in which each view stands for a part; for none where that is empty."""
        begins = [text.index(part) if part else -1 for part in parts]
        ends = [begin + len(part) if part else -1 for begin, part in zip(begins, parts, strict=True)]
        spans = np.array([begins, ends], dtype=np.int64).T
        return StoredDocument(self.id, "", text, "{}", pack_spans(spans))


class ViewSource(Protocol):
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
