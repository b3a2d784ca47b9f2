"""Documents, texts, dicts and tables that people add, as documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, TypeAlias

import xxhash

from mvindex.errors import DocumentError
from mvindex.plugins import require
from mvindex.records import Document

# A document, its text, or a dict with a text and further fields.
Item: TypeAlias = "Document | str | Mapping[str, Any]"
# Items, or a table: whatever gives its rows as an Arrow stream (pandas, Polars, pyarrow).
Items: TypeAlias = "Iterable[Item] | Any"
_FIELDS = ("id", "_id", "text", "title", "metadata", "view_texts")


def documents_of(items: Items, *, progress: bool = False) -> Iterator[Document]:
    """Yield items as documents.

    A text gets an id made from its content, as does a dict or a row without "id"; the same content again is left out.
    Of a dict or a row "text", "title", "metadata" and "view_texts" are the document's, other fields are metadata.

    Args:
        items: Documents, texts and dicts, or a table of pandas, Polars or pyarrow; a single one of them too.
        progress: Whether to show their number on stderr while they are taken.

    Raises:
        DocumentError: An item is something else, or has no text; it is named by its number, from 1.

    """
    rows: Iterable[Any] = items
    if isinstance(items, Document | str | Mapping):
        rows = [items]
    elif hasattr(items, "__arrow_c_stream__"):
        rows = _rows_of(items)
    elif not isinstance(items, Iterable):
        raise DocumentError(f"documents: expected documents, texts, dicts or a table, got {type(items).__name__}")
    made = _made(rows)
    return _shown(made, len(items) if isinstance(items, Sized) else None) if progress else made


def content_id(title: str, text: str) -> str:
    """Return the id of a document that was given none: 32 hex digits of its content, the same in every run."""
    return xxhash.xxh3_128_hexdigest(f"{title}\n{text}".encode("utf-8", "surrogatepass"))


def _made(items: Iterable[Any]) -> Iterator[Document]:
    seen: set[str] = set()
    for number, item in enumerate(items, start=1):
        if isinstance(item, Document):
            yield item
            continue
        fields = {"text": item} if isinstance(item, str) else item
        if not isinstance(fields, Mapping):
            raise DocumentError(
                f"document {number}: expected a Document, a text or a dict with a text, got {type(item).__name__}"
            )
        document, has_id = _document_of(fields, number)
        if not has_id:
            if document.id in seen:
                continue
            seen.add(document.id)
        yield document


def _document_of(fields: Mapping[str, Any], number: int) -> tuple[Document, bool]:
    """Return the document of a dict, and whether the dict gave its id."""
    text, title = fields.get("text") or "", fields.get("title") or ""
    given = next((fields[name] for name in ("id", "_id") if fields.get(name) is not None), None)
    for name, value in (("text", text), ("title", title)):
        if not isinstance(value, str):
            raise DocumentError(f"document {number}: {name}: expected a text, got {type(value).__name__} {value!r:.60}")
    if not text and not title:
        raise DocumentError(
            f"document {number}: expected a text or a title, got {', '.join(map(str, fields)) or 'none'}"
        )
    if given is not None and type(given) not in (str, int):
        raise DocumentError(f"document {number}: id: expected a text or a whole number, got {given!r:.60}")
    own = _decoded(fields.get("metadata")) or {}
    if not isinstance(own, Mapping):
        raise DocumentError(f"document {number}: metadata: expected an object, got {type(own).__name__}")
    rest = {str(name): value for name, value in fields.items() if name not in _FIELDS and value is not None}
    document = Document(
        content_id(title, text) if given is None else str(given),
        text,
        title,
        rest | dict(own),
        fields.get("view_texts") or (),
    )
    return document, given is not None


def _decoded(metadata: object) -> object:
    """Return metadata that are JSON, as Index.to_arrow() writes them, decoded; anything else as it is."""
    try:
        return json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        return metadata


def _rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dicts, batch by batch."""
    pyarrow = require("pyarrow", "parquet", "adding a table")
    for batch in pyarrow.RecordBatchReader.from_stream(table):
        yield from batch.to_pylist()


def _shown(documents: Iterator[Document], total: int | None) -> Iterator[Document]:
    """Yield the documents, and show on stderr how many there were."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(documents, total=total, description="documents")
