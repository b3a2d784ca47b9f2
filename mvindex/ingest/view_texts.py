"""Encodes the texts that callers give for views of their own, beside the views of the documents' texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mvindex.encoder.base import join_views
from mvindex.ingest.reuse import Encode
from mvindex.records import CountCallback, Document, Views, no_progress


def encode_with_view_texts(
    encode: Encode, documents: Sequence[Document], replaced: Collection[str], on_progress: CountCallback
) -> Views:
    """Return the views of each document: those of its text, then those of its view_texts, which cite their spans.

    replaced: the ids of documents that replace stored ones.
    """
    views = encode(documents, replaced, on_progress)
    given = [(number, text) for number, document in enumerate(documents) for text in document.own_view_texts]
    if not given:
        return views
    extra = encode([Document(documents[number].id, text.text) for number, text in given], (), no_progress)
    counts = np.diff(extra.starts)
    numbers = np.repeat([number for number, _ in given], counts)
    spans = np.repeat(np.array([text.span or (-1, -1) for _, text in given], dtype=np.int64), counts, axis=0)
    owners = np.concatenate([np.repeat(np.arange(len(documents)), np.diff(views.starts)), numbers])
    order = np.argsort(owners, kind="stable")
    joined = join_views([views, replace(extra, spans=spans)])
    return Views(
        joined.rows[order],
        np.append(0, np.cumsum(np.bincount(owners, minlength=len(documents)))).astype(np.int64),
        joined.spans[order],
        None if joined.is_reused is None else joined.is_reused[order],
    )
