"""Lists of documents in pieces: pages, and what is converted and sent together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mvindex.records import Document, dump_metadata

_LIST_DOCUMENTS = 200
_LIST_CHARS = 500_000


class Page(NamedTuple):
    """Some documents in the order in which they were first added, and the id to go on after; None at the end."""

    documents: list[Document]
    next: str | None


def next_documents(rows: Iterator[tuple[int, Document]]) -> list[tuple[int, Document]]:
    """Return the next documents, fewer if they are long: they are converted and sent together."""
    some: list[tuple[int, Document]] = []
    num_chars = 0
    for ordinal, document in rows:
        some.append((ordinal, document))
        num_chars += num_chars_of(document)
        if len(some) == _LIST_DOCUMENTS or num_chars >= _LIST_CHARS:
            break
    return some


def num_chars_of(document: Document) -> int:
    """Return the characters of a document, its metadata as JSON."""
    return len(document.text) + len(document.title) + len(dump_metadata(document.metadata, document.id))


def close_rows(rows: Iterator[tuple[int, Document]]) -> None:
    """End a reading of documents before its end."""
    close = getattr(rows, "close", None)
    if close is not None:
        close()
