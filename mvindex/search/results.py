"""Hits made of rankings and stored documents, and the parts of views in a score."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mvindex.records import Document, Floats, Hit, Span, ViewScore
from mvindex.scoring.aggregate import Aggregate, Scoring, view_scores, view_weights
from mvindex.search.request import Ranking
from mvindex.store.reader import StoredDocument


def hits_of(ranking: Ranking, stored: Mapping[int, StoredDocument]) -> tuple[Hit, ...]:
    """Return the hits of a ranking, whose documents are given by row."""
    columns = zip(ranking.rows.tolist(), ranking.scores.tolist(), ranking.slots.tolist(), strict=True)
    return tuple(_hit(stored[row], score, slot) for row, score, slot in columns)


def _hit(stored: StoredDocument, score: float, slot: int) -> Hit:
    span, snippet = span_and_snippet(stored, slot)
    return Hit(stored.id, score, slot, span, snippet, stored.text, stored.title, stored.metadata)


def span_and_snippet(stored: StoredDocument, slot: int) -> tuple[Span | None, str | None]:
    """Return a view's span and snippet; a document encoded by its title has no span, and its title as snippet."""
    if slot >= len(stored.spans) or stored.spans[slot][0] < 0:
        return None, None if stored.text.strip() else stored.title
    begin, end = stored.spans[slot].tolist()
    return (begin, end), stored.text[begin:end]


def score_views(
    documents: Mapping[str, tuple[StoredDocument, Floats]], query: Floats, scoring: Scoring
) -> dict[str, list[ViewScore]]:
    """Return every view of the documents with its score and weight, best first, by document id.

    Args:
        documents: Each document with its views, (k, d) as stored, by id.
        query: (d,) float32.
        scoring: How the views of a document make its score.
    """
    if not documents:
        return {}
    scores = view_scores(np.concatenate([views for _, views in documents.values()]), query)
    ends = np.cumsum([len(views) for _, views in documents.values()])
    parts = zip(documents.items(), np.split(scores, ends[:-1]), strict=True)
    return {doc_id: _weighted(stored, part, scoring) for (doc_id, (stored, _)), part in parts}


def _weighted(stored: StoredDocument, scores: Floats, scoring: Scoring) -> list[ViewScore]:
    """Return every view of a document with its score and its weight in the document's score, best first.

    Args:
        stored: The document.
        scores: (k,) of its views.
        scoring: By best view the first view has all the weight.

    """
    order = np.lexsort((np.arange(len(scores)), -scores)).tolist()
    if scoring.aggregate is Aggregate.DRPQ:
        weights = view_weights(scores, scoring.temperature)
    else:
        weights = (np.arange(len(scores)) == order[0]).astype(np.float64)
    return [
        ViewScore(slot, float(scores[slot]), *span_and_snippet(stored, slot), float(weights[slot])) for slot in order
    ]


def document_of(stored: StoredDocument) -> Document:
    """Return the document as it was added."""
    return Document(stored.id, stored.text, stored.title, stored.metadata)
