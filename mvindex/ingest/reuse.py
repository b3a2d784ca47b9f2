"""Reuse of stored vectors: of documents that replace others, only views whose text is new are encoded.

What is replaced is read with its views, and its text is arranged again by the encoder that made them. So nothing is
stored for this, and the work is that of the documents of a chunk, whatever the size of the index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np

from mvindex.encoder import Encoder
from mvindex.encoder.base import PartialEncoder, join_views
from mvindex.errors import DamagedIndex
from mvindex.kernels.score import decode
from mvindex.records import CountCallback, Document, Floats, Views
from mvindex.store.batch import Batch, content_hash
from mvindex.store.protocol import Store

logger = logging.getLogger(__name__)

# Returns the views of documents; the ids are of those that replace stored ones.
Encode: TypeAlias = Callable[[Sequence[Document], Collection[str], CountCallback], Views]


def reusing(store: Store, encoder: Encoder) -> Encode:
    """Return a function that encodes documents, and takes the vectors that the replaced ones have already.

    Reused are vectors of whole documents of the same title and text, under whichever of the replaced ids, and of single
    views where the encoder knows what each depends on. They are the vectors that encoding gives, up to the rounding of
    another batch. Documents of given views, or with view texts, are encoded whole.
    """

    def encode(documents: Sequence[Document], replaced: Collection[str], on_progress: CountCallback) -> Views:
        try:
            stored = store.stored(list(replaced), encoder.fingerprint) if replaced else []
            known = [each for batch in stored for each in _encoded_texts(batch)]
        except DamagedIndex as err:  # what replaces a damaged document repairs it
            logger.info("%s; it is encoded whole", err)
            known = []
        if not known:
            return encoder.encode_documents(documents, on_progress)
        return _encode_unknown(encoder, documents, known, on_progress)

    return encode


def _encoded_texts(batch: Batch) -> list[tuple[Document, bytes, Views]]:
    """Return the documents whose views were made of title and text, with their hashes and views."""
    found = []
    for number, (document, digest) in enumerate(zip(batch.documents, batch.content_hashes, strict=True)):
        if content_hash(document) == digest:
            bounds = slice(batch.views.starts[number], batch.views.starts[number + 1])
            rows, spans = decode(batch.views.rows[bounds]), batch.views.spans[bounds]
            views = Views(rows, np.array([0, len(rows)]), spans, np.ones(len(rows), dtype=bool))
            found.append((document, digest, views))
    return found


def _encode_unknown(
    encoder: Encoder,
    documents: Sequence[Document],
    known: Sequence[tuple[Document, bytes, Views]],
    on_progress: CountCallback,
) -> Views:
    """Return the views of the documents: those of a known text as they are stored, the others encoded."""
    whole = {digest: views for _, digest, views in known}
    found = [whole.get(content_hash(Document(each.id, each.text, each.title))) for each in documents]
    left = [document for document, views in zip(documents, found, strict=True) if views is None]
    on_progress(len(documents) - len(left))
    parts = [views for views in found if views is not None]
    if left:
        vectors = _known_views(encoder, known) if isinstance(encoder, PartialEncoder) else {}
        if vectors and isinstance(encoder, PartialEncoder):
            parts.append(encoder.encode_unknown(left, vectors, on_progress))
        else:
            parts.append(encoder.encode_documents(left, on_progress))
    # The stored ones come first, then the encoded ones, each in their order.
    is_left = np.array([views is None for views in found])
    return join_views(parts).take(np.argsort(np.argsort(is_left, kind="stable")).tolist())


def _known_views(encoder: PartialEncoder, known: Sequence[tuple[Document, bytes, Views]]) -> dict[bytes, Floats]:
    """Return the stored vectors by what they were made of; none of documents some of whose views were pruned."""
    keys = encoder.view_keys([document for document, _, _ in known])
    pairs = zip(keys, known, strict=True)
    return {
        key: vector
        for own, (_, _, views) in pairs
        if len(own) == len(views.rows)
        for key, vector in zip(own, views.rows, strict=True)
    }
