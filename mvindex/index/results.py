"""What an Index gives back: hits made of rankings and stored documents, a view's part in a score, what an index is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.records import Document, Floats, Hit, SearchResult, Span
from mvindex.scoring.aggregate import Aggregate, Scoring, view_scores, view_weights
from mvindex.search import Ranking
from mvindex.store.reader import SnapshotReader, StoredDocument


class ViewScore(NamedTuple):
    """One view's part in a document's score: its slot, score, what it stands for, and its weight in the score.

    weight: DRPQ's softmax (eq. 4), the weights of a document sum to 1; for "max" 1.0 for the winning view, else 0.0.
    """

    slot: int
    score: float
    span: Span | None
    snippet: str | None
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """What an index is. sizes in bytes; num_deleted: retired document rows still on disk.

    prune_views: views that close to a kept one are not stored; engine_prune_views: nor are they in the engine. None:
    all views are. search: how the engine is searched, as tuned; None for the usual of its kind. shards: how many there
    are, None for an index without; missing_shards: those that are left out here, whose documents are not counted.
    server: what keeps an index that is in no directory, and what that can do. lexical: how words are told apart, where
    texts can be searched by them; fusion: how hybrid search fuses, as tuned (method and weights), None for the usual.
    """

    path: str
    format_version: int
    documents: int
    views: int
    num_deleted: int
    dim: int | None
    dtype: str
    encoder: Mapping[str, Any] | None
    kind: str
    temperature: float
    prune_views: float | None
    engine_prune_views: float | None
    search: Mapping[str, int] | None
    fresh_documents: int
    size_bytes: int
    shards: int | None = None
    missing_shards: tuple[int, ...] = ()
    server: Mapping[str, Any] | None = None
    lexical: str | None = None
    fusion: Mapping[str, Any] | None = None


def search_results(reader: SnapshotReader, found: Sequence[Ranking]) -> list[SearchResult]:
    """The rankings with the documents that they name."""
    rows = {row for ranking in found for row in ranking.rows.tolist()}
    stored = reader.documents(sorted(rows))
    return [_result(ranking, stored) for ranking in found]


def _result(ranking: Ranking, stored: Mapping[int, StoredDocument]) -> SearchResult:
    return SearchResult(hits_of(ranking, stored), ranking.exact, ranking.short_by, ranking.rounds)


def hits_of(ranking: Ranking, stored: Mapping[int, StoredDocument]) -> tuple[Hit, ...]:
    """The ranking's documents, which are given by row."""
    columns = zip(ranking.rows.tolist(), ranking.scores.tolist(), ranking.slots.tolist(), strict=True)
    return tuple(_hit(stored[row], score, slot) for row, score, slot in columns)


def _hit(stored: StoredDocument, score: float, slot: int) -> Hit:
    span, snippet = stands_for(stored, slot)
    return Hit(stored.id, score, slot, span, snippet, stored.text, stored.title, stored.metadata)


def stands_for(stored: StoredDocument, slot: int) -> tuple[Span | None, str | None]:
    """The span and snippet of a view; a document encoded by its title has no span, and its title as snippet."""
    if slot >= len(stored.spans) or stored.spans[slot][0] < 0:
        return None, None if stored.text.strip() else stored.title
    begin, end = stored.spans[slot].tolist()
    return (begin, end), stored.text[begin:end]


def scored_views(stored: StoredDocument, views: npt.NDArray[Any], query: Floats, scoring: Scoring) -> list[ViewScore]:
    """Every view of a document with its score and its weight in the document's, best first.

    views: (k, d) as stored; query: (d,). By best view the first one has all the weight.
    """
    scores = view_scores(views, query)
    order = np.lexsort((np.arange(len(scores)), -scores)).tolist()
    if scoring.aggregate is Aggregate.DRPQ:
        weights = view_weights(scores, scoring.temperature)
    else:
        weights = (np.arange(len(scores)) == order[0]).astype(np.float64)
    return [ViewScore(slot, float(scores[slot]), *stands_for(stored, slot), float(weights[slot])) for slot in order]


def document_of(stored: StoredDocument) -> Document:
    """The document as it was given."""
    return Document(stored.id, stored.text, stored.title, stored.metadata)
