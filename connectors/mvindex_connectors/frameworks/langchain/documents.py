"""Convert LangChain's documents to documents of an index and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document

import mvindex
from mvindex_connectors.frameworks.citations import cited_title, own_metadata, stored_metadata
from mvindex_connectors.frameworks.views import check_items


def stored_document(doc_id: str, document: Document, fields: Mapping[str, Any]) -> mvindex.Document:
    """Return the document for the index, with `fields` under our key of its metadata."""
    metadata, title = stored_metadata(document.metadata, fields), cited_title(document.metadata)
    return mvindex.Document(doc_id, document.page_content, title, metadata)


def original_document(doc_id: str, text: str, metadata: Mapping[str, Any]) -> Document:
    """Return the document as it was added."""
    return Document(id=doc_id, page_content=text, metadata=own_metadata(metadata))


def documents_of(texts: Iterable[str], metadatas: list[dict[str, Any]] | None) -> list[Document]:
    """Return texts as documents; ValueError unless there is a metadata for each, or none at all."""
    listed = check_items("texts", texts, str)
    if metadatas and len(metadatas) != len(listed):
        raise ValueError(f"metadatas: expected one for each of {len(listed)} texts, got {len(metadatas)}")
    pairs = zip(listed, metadatas or itertools.repeat({}), strict=False)
    return [Document(page_content=text, metadata=metadata) for text, metadata in pairs]


def with_ids(documents: Iterable[Document], ids: Iterable[str | None] | None) -> list[tuple[str, Document]]:
    """Return the documents with their ids, a new one for each that has none.

    Raises:
        DocumentError: For what is no document.
        ValueError: For too few or many ids.

    """
    listed = check_items("documents", documents, Document)
    if isinstance(ids, str):
        raise ValueError(f"ids: expected one for each of {len(listed)} documents, got a single text")
    chosen = [document.id for document in listed] if ids is None else list(ids)
    if len(chosen) != len(listed):
        raise ValueError(f"ids: expected one for each of {len(listed)} documents, got {len(chosen)}")
    return [(doc_id or str(uuid4()), document) for doc_id, document in zip(chosen, listed, strict=True)]
