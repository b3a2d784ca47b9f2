"""Exports as text: JSON Lines with texts and vectors, and texts as a TREC collection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape

from mvindex.errors import StoreError
from mvindex.records import Document
from mvindex.store.embedded import Batch
from mvindex.store.views import ViewType


def write_jsonl(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Nothing; the file holds a JSON object a line: a document with its vectors, each number exactly."""
    with open_text(paths[0]) as file:
        for batch in batches:
            starts, rows = batch.views.starts.tolist(), batch.views.rows
            for row, begin, end in zip(document_rows(batch), starts[:-1], starts[1:], strict=True):
                write_line(file, {**row, "vectors": rows[begin:end].tolist()})


def write_trec(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Nothing; the file holds each document's id, title and text as TREC's <DOC>; &, < and > are entities in it.

    StoreError for an id with white space, which no run or judgement file of TREC could name.
    """
    with open_text(paths[0]) as file:
        for batch in batches:
            file.writelines(map(_trec_document, batch.documents))


def open_text(path: Path) -> TextIO:
    """A new UTF-8 file whose lines end by a line feed, on any machine."""
    return open(path, "w", encoding="utf-8", newline="\n")


def write_line(file: TextIO, row: dict[str, Any]) -> None:
    """Nothing; the row stands in the file as one line of JSON."""
    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def document_rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """Each document of the batch as a JSON object: without its vectors, with the spans they stand for."""
    starts = batch.views.starts.tolist()
    for number, document in enumerate(batch.documents):
        begin, end = starts[number], starts[number + 1]
        row: dict[str, Any] = {"id": document.id, "title": document.title, "text": document.text}
        row["metadata"] = dict(document.metadata)
        if batch.ordinals is not None:
            row["ordinal"] = int(batch.ordinals[number])
        spans = batch.views.spans[begin:end]
        if (spans >= 0).any():
            row["spans"] = [span if span[0] >= 0 else None for span in spans.tolist()]
        yield row


def _trec_document(document: Document) -> str:
    if document.id.split() != [document.id]:
        raise StoreError(f"document {document.id!r}: its id has white space, which TREC's files cannot name")
    title = f"<TITLE>{escape(document.title)}</TITLE>\n" if document.title else ""
    return f"<DOC>\n<DOCNO>{escape(document.id)}</DOCNO>\n{title}<TEXT>\n{escape(document.text)}\n</TEXT>\n</DOC>\n"
