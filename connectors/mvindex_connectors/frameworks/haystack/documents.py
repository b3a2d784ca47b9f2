"""Convert Haystack's documents to documents of an index and back, without loss."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

import mvindex
from mvindex.records import Hit
from mvindex_connectors.frameworks.citations import cited_title, own_metadata, stored_fields, stored_metadata
from mvindex_connectors.frameworks.views import embeddings_of


def stored_document(document: Document, is_embedded: bool | None) -> mvindex.Document:
    """Return the document for the index; the fields that an index lacks go under our key of the metadata.

    Args:
        document: Haystack's document.
        is_embedded: Whether its embedding is its view; None where the index makes views of the text.

    """
    fields: dict[str, Any] = {}
    if document.content is None:
        fields["has_content"] = False
    if document.embedding is not None:
        fields["embedding"] = _packed(document.embedding)
    if document.blob is not None:
        blob = document.blob
        data = base64.b64encode(blob.data).decode("ascii")
        fields["blob"] = {"data": data, "meta": blob.meta, "mime_type": blob.mime_type}
    if document.sparse_embedding is not None:
        fields["sparse_embedding"] = document.sparse_embedding.to_dict()
    if document.score is not None:
        fields["score"] = document.score
    if is_embedded is not None:
        # The one view stands for the whole text.
        fields |= {"spans": [[0, len(document.content or "")]]} if is_embedded else {"is_embedded": False}
    metadata, title = stored_metadata(document.meta, fields), cited_title(document.meta)
    return mvindex.Document(document.id, document.content or "", title, metadata)


def original_document(stored: mvindex.Document | Hit) -> Document:
    """Return the document as it was written.

    Of one that another program wrote, a value of its own under our key is left out.
    """
    try:
        return _document(stored, stored_fields(stored.metadata))
    except (AttributeError, KeyError, TypeError, ValueError):
        return _document(stored, {})


def _document(stored: mvindex.Document | Hit, fields: Mapping[str, Any]) -> Document:
    """Return the document, and what is stored under our key."""
    return Document(
        id=stored.id,
        content=stored.text if fields.get("has_content", True) else None,
        meta=own_metadata(stored.metadata),
        embedding=_unpacked(fields["embedding"]) if "embedding" in fields else None,
        blob=_blob(fields["blob"]) if "blob" in fields else None,
        sparse_embedding=SparseEmbedding.from_dict(fields["sparse_embedding"])
        if "sparse_embedding" in fields
        else None,
        score=fields.get("score"),
    )


def has_view(hit: Hit) -> bool:
    """Return whether the document was written with an embedding; without one, no dense search may find it."""
    return bool(stored_fields(hit.metadata).get("is_embedded", True))


def _packed(embedding: list[float]) -> dict[str, str]:
    """Return the numbers without loss, in four bytes each where that is enough."""
    wide = embeddings_of(embedding).astype("<f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f4")
    kind, values = ("f4", narrow) if (narrow == wide).all() else ("f8", wide)
    return {kind: base64.b64encode(values.tobytes()).decode("ascii")}


def _unpacked(packed: Mapping[str, str]) -> list[float]:
    ((kind, text),) = packed.items()
    numbers: list[float] = np.frombuffer(base64.b64decode(text), dtype=f"<{kind}").tolist()
    return numbers


def _blob(fields: Mapping[str, Any]) -> ByteStream:
    return ByteStream(base64.b64decode(fields["data"]), dict(fields["meta"]), fields["mime_type"])
