"""Haystack's documents as documents of an index, and back, each exactly as it was."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding

import mvindex
from mvindex.records import Hit
from mvindex_connectors.frameworks.citations import cited_title, kept, own_metadata, stored_metadata


def stored_document(document: Document, is_embedded: bool | None) -> mvindex.Document:
    """The document as an index holds it: what it has no place for is kept under our key of the metadata.

    is_embedded: whether its embedding is its view; None where the index makes views of the text.
    """
    ours: dict[str, Any] = {}
    if document.content is None:
        ours["has_content"] = False
    if document.embedding is not None:
        ours["embedding"] = _packed(document.embedding)
    if document.blob is not None:
        blob = document.blob
        data = base64.b64encode(blob.data).decode("ascii")
        ours["blob"] = {"data": data, "meta": blob.meta, "mime_type": blob.mime_type}
    if document.sparse_embedding is not None:
        ours["sparse_embedding"] = document.sparse_embedding.to_dict()
    if document.score is not None:
        ours["score"] = document.score
    if is_embedded is not None:
        # The one view stands for the whole text.
        ours |= {"spans": [[0, len(document.content or "")]]} if is_embedded else {"is_embedded": False}
    metadata, title = stored_metadata(document.meta, ours), cited_title(document.meta)
    return mvindex.Document(document.id, document.content or "", title, metadata)


def given_document(stored: mvindex.Document | Hit) -> Document:
    """The document as it was written."""
    ours = kept(stored.metadata)
    return Document(
        id=stored.id,
        content=stored.text if ours.get("has_content", True) else None,
        meta=own_metadata(stored.metadata),
        embedding=_unpacked(ours["embedding"]) if "embedding" in ours else None,
        blob=_blob(ours["blob"]) if "blob" in ours else None,
        sparse_embedding=SparseEmbedding.from_dict(ours["sparse_embedding"]) if "sparse_embedding" in ours else None,
        score=ours.get("score"),
    )


def has_view(hit: Hit) -> bool:
    """False for a document that was written without an embedding, which no search may find."""
    return bool(kept(hit.metadata).get("is_embedded", True))


def _packed(embedding: list[float]) -> dict[str, str]:
    """The numbers to the last bit, in four bytes each where these hold them."""
    wide = np.asarray(embedding, dtype="<f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f4")
    kind, values = ("f4", narrow) if (narrow == wide).all() else ("f8", wide)
    return {kind: base64.b64encode(values.tobytes()).decode("ascii")}


def _unpacked(packed: Mapping[str, str]) -> list[float]:
    ((kind, text),) = packed.items()
    numbers: list[float] = np.frombuffer(base64.b64decode(text), dtype=f"<{kind}").tolist()
    return numbers


def _blob(kept_blob: Mapping[str, Any]) -> ByteStream:
    return ByteStream(base64.b64decode(kept_blob["data"]), dict(kept_blob["meta"]), kept_blob["mime_type"])
