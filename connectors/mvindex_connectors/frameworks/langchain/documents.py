"""Convert LangChain's documents to documents of an index and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document

import mvindex
from mvindex_connectors.frameworks.citations import cited_title, own_metadata, stored_metadata


def stored_document(doc_id: str, document: Document, fields: Mapping[str, Any]) -> mvindex.Document:
    """Return the document for the index, with `fields` under our key of its metadata."""
    metadata, title = stored_metadata(document.metadata, fields), cited_title(document.metadata)
    return mvindex.Document(doc_id, document.page_content, title, metadata)


def original_document(doc_id: str, text: str, metadata: Mapping[str, Any]) -> Document:
    """Return the document as it was added."""
    return Document(id=doc_id, page_content=text, metadata=own_metadata(metadata))


def documents_of(texts: Iterable[str], metadatas: list[dict[str, Any]] | None) -> list[Document]:
    """Return texts as documents; ValueError unless there is a metadata for each, or none at all."""
    listed = list(texts)
    if metadatas and len(metadatas) != len(listed):
        raise ValueError(f"metadatas: expected one for each of {len(listed)} texts, got {len(metadatas)}")
    pairs = zip(listed, metadatas or itertools.repeat({}), strict=False)
    return [Document(page_content=text, metadata=metadata) for text, metadata in pairs]


def with_ids(documents: list[Document], ids: Sequence[str | None] | None) -> list[tuple[str, Document]]:
    """Return the documents with their ids, a new one for each that has none; ValueError for too few or many ids."""
    if ids is not None and len(ids) != len(documents):
        raise ValueError(f"ids: expected one for each of {len(documents)} documents, got {len(ids)}")
    chosen = ids if ids is not None else [document.id for document in documents]
    return [(doc_id or str(uuid4()), document) for doc_id, document in zip(chosen, documents, strict=True)]
