"""Writes exports as Parquet: one row a view, or one row a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.plugins import require
from mvindex.records import Ints, dump_metadata
from mvindex.store.rows import Batch
from mvindex.store.views import ViewType

# The vectors are not among them: no two are the same.
_DICTIONARIES = ["doc_id", "title", "metadata"]


def write_view_rows(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write a row for each view; title, text and metadata are in the first row of a document."""
    _write(paths[0], view_type, batches, _view_rows)


def write_document_rows(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write a row for each document, with the list of its vectors."""
    _write(paths[0], view_type, batches, _document_rows)


def _write(
    path: Path, view_type: ViewType, batches: Iterator[Batch], columns_of: Callable[[Any, Batch, ViewType], Any]
) -> None:
    arrow = require("pyarrow", "files", "an export as Parquet")
    parquet = require("pyarrow.parquet", "files", "an export as Parquet")
    writer = None
    try:
        for batch in batches:
            rows = arrow.RecordBatch.from_pydict(columns_of(arrow, batch, view_type))
            if writer is None:
                writer = parquet.ParquetWriter(
                    path, rows.schema, compression="zstd", use_dictionary=_DICTIONARIES, write_page_checksum=True
                )
            writer.write_batch(rows)
    finally:
        if writer is not None:
            writer.close()


def _view_rows(arrow: Any, batch: Batch, view_type: ViewType) -> dict[str, Any]:
    starts = batch.views.starts
    counts = np.diff(starts)
    document_of_row = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(document_of_row)) - starts[document_of_row]
    first_rows = arrow.array(document_of_row, mask=slots > 0)
    documents = _document_columns(arrow, batch)
    begins, ends = _spans(arrow, batch.views.spans)
    return {
        "doc_id": documents["doc_id"].take(arrow.array(document_of_row)),
        "view": arrow.array(slots, type=arrow.int32()),
        "vector": _vectors(arrow, batch, view_type),
        "span_begin": begins,
        "span_end": ends,
        **{name: documents[name].take(first_rows) for name in ("ordinal", "title", "text", "metadata")},
    }


def _document_rows(arrow: Any, batch: Batch, view_type: ViewType) -> dict[str, Any]:
    starts = arrow.array(batch.views.starts, type=arrow.int32())
    columns = {"vectors": _vectors(arrow, batch, view_type)}
    columns["span_begins"], columns["span_ends"] = _spans(arrow, batch.views.spans)
    lists = {name: arrow.ListArray.from_arrays(starts, values) for name, values in columns.items()}
    return _document_columns(arrow, batch) | lists


def _document_columns(arrow: Any, batch: Batch) -> dict[str, Any]:
    documents = batch.documents
    metadata = [dump_metadata(document.metadata, document.id) for document in documents]
    ordinals = np.arange(len(documents)) if batch.ordinals is None else batch.ordinals
    return {
        "doc_id": arrow.array([document.id for document in documents], type=arrow.string()),
        "ordinal": arrow.array(ordinals, type=arrow.int64()),
        "title": arrow.array([document.title for document in documents], type=arrow.string()),
        "text": arrow.array([document.text for document in documents], type=arrow.string()),
        "metadata": arrow.array(metadata, type=arrow.string()),
    }


def _vectors(arrow: Any, batch: Batch, view_type: ViewType) -> Any:
    rows = batch.views.rows
    return arrow.FixedSizeListArray.from_arrays(arrow.array(rows.astype(view_type.dtype).reshape(-1)), rows.shape[1])


def _spans(arrow: Any, spans: Ints) -> tuple[Any, Any]:
    """Return begins and ends, null where a view has no span."""
    is_none = spans[:, 0] < 0
    begins, ends = (arrow.array(np.ascontiguousarray(spans[:, side]), mask=is_none) for side in (0, 1))
    return begins, ends
