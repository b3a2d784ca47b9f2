"""Texts as views for a model that gives one vector a text: one view for each snippet of the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mvindex.encoder import CallableEncoder
from mvindex.encoder.base import OnProgress
from mvindex.errors import EncoderError
from mvindex.records import Document, Floats, Span, Views
from mvindex.text.snippets import SPLITTER_VERSION, split_snippets


class SnippetEncoder(CallableEncoder):
    """An encoder of an index by any function of texts to vectors: each snippet of a document becomes a unit view.

    function: a list of n texts -> n vectors; query_function: the same for queries, by default the function. name: what
    the index remembers of them, so that another one is refused. A title stands for an empty text.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Any],
        *,
        name: str,
        query_function: Callable[[list[str]], Any] | None = None,
        max_snippets: int = 8,
    ) -> None:
        full_name = f"{name}+{max_snippets}-snippets-{SPLITTER_VERSION}"
        super().__init__(function, query_function=query_function, name=full_name)
        self._max_snippets = max_snippets

    @property
    def max_views(self) -> int | None:
        """The most snippets of a document."""
        return self._max_snippets

    def encode_documents(self, documents: Sequence[Document], on_progress: OnProgress | None = None) -> Views:
        """The views of the documents, with the characters that each stands for. One call for all of them."""
        spans = [spans_of(document.text, self._max_snippets) if document.text else [(-1, -1)] for document in documents]
        texts = [
            Document(f"{document.id[:900]}, snippet {slot}", document.text[begin:end] or document.title)
            for document, own in zip(documents, spans, strict=True)
            for slot, (begin, end) in enumerate(own)
        ]
        rows = super().encode_documents(texts).rows
        if on_progress is not None:
            on_progress(len(documents))
        starts = np.cumsum([0, *map(len, spans)], dtype=np.int64)
        all_spans = np.array([span for own in spans for span in own], dtype=np.int64).reshape(-1, 2)
        return Views(unit_rows(rows, len(texts)) if len(rows) else rows, starts, all_spans)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """A unit vector for each text, (q, dim) float32."""
        rows = super().encode_queries(texts)
        return unit_rows(rows, len(texts)) if len(rows) else rows


def spans_of(text: str, max_snippets: int) -> list[Span]:
    """What the views of a text stand for: its snippets; the whole of it where there is one, or none to be seen."""
    spans = split_snippets(text, max_snippets) if max_snippets > 1 else []
    return spans if len(spans) > 1 else [(0, len(text))]


def unit_rows(vectors: Any, count: int) -> Floats:
    """The vectors (count, d) scaled to length 1, so that scores are cosines; EncoderError for what is no such array."""
    try:
        wide = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise EncoderError(f"embeddings are no vectors of one length: {err}") from err
    if wide.ndim != 2 or len(wide) != count:
        raise EncoderError(f"embeddings of shape {wide.shape} for {count} texts; wanted ({count}, d)")
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths == 0, 1, lengths)).astype(np.float32)
