"""Documents and views as they are shown, and the parts of views in a score."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mvindex.kernels.score import Aggregate, Scoring, view_scores, view_weights
from mvindex.records import (
    Document,
    DocumentViews,
    Floats,
    ViewScore,
    span_and_snippet,
)
from mvindex.store.reader import StoredDocument


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


def views_of(stored: StoredDocument, vectors: Floats) -> DocumentViews:
    """Return the views of a stored document with what each stands for."""
    shown = [span_and_snippet(stored, slot) for slot in range(len(vectors))]
    spans, snippets = tuple(span for span, _ in shown), tuple(snippet for _, snippet in shown)
    return DocumentViews(stored.id, vectors.astype(np.float32), spans, snippets)


def document_of(stored: StoredDocument) -> Document:
    """Return the document as it was added."""
    return Document(stored.id, stored.text, stored.title, stored.metadata)
