"""Documents of an index as an Arrow stream, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.plugins import require
from mvindex.records import Document, DocumentViews, batched, dump_metadata

if TYPE_CHECKING:
    from mvindex.index.protocol import IndexProtocol
    from mvindex.store.filters import Filter

# With their views some ten MiB.
_DOCUMENTS_AT_ONCE = 512


def arrow_reader(index: IndexProtocol, filter: Filter | None, *, views: bool) -> Any:
    """Return a pyarrow.RecordBatchReader over the documents; see IndexProtocol.to_arrow()."""
    arrow = require("pyarrow", "files", "to_arrow()")
    schema = _schema(arrow, index.dim if views else None, has_views=views)
    documents = index.scan(filter)
    return arrow.RecordBatchReader.from_batches(schema, _batches(arrow, schema, index, documents))


def _schema(arrow: Any, dim: int | None, *, has_views: bool) -> Any:
    text = arrow.string()
    fields = [("id", text), ("title", text), ("text", text), ("metadata", text)]
    if has_views:
        # An empty index has no dimensions yet.
        vector = arrow.list_(arrow.float32(), dim) if dim else arrow.list_(arrow.float32())
        span = arrow.struct([("begin", arrow.int64()), ("end", arrow.int64())])
        fields += [("vectors", arrow.list_(vector)), ("spans", arrow.list_(span))]
    return arrow.schema(fields)


def _batches(arrow: Any, schema: Any, index: IndexProtocol, documents: Iterator[Document]) -> Iterator[Any]:
    has_views = "vectors" in schema.names
    for some in batched(documents, _DOCUMENTS_AT_ONCE):
        views = index.views([document.id for document in some]) if has_views else {}
        # One that was deleted just now has no views.
        kept = [document for document in some if not has_views or document.id in views]
        columns = {
            "id": [document.id for document in kept],
            "title": [document.title for document in kept],
            "text": [document.text for document in kept],
            "metadata": [dump_metadata(document.metadata, document.id) for document in kept],
        }
        arrays = [arrow.array(values, type=arrow.string()) for values in columns.values()]
        if has_views:
            arrays += _view_columns(arrow, schema, [views[document.id] for document in kept])
        yield arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _view_columns(arrow: Any, schema: Any, views: Sequence[DocumentViews]) -> list[Any]:
    """Return the vectors and spans of documents as lists; a view without a span has a null."""
    starts = arrow.array(np.cumsum([0, *map(len, views)]), type=arrow.int32())
    rows = np.concatenate([one.vectors for one in views]) if views else np.zeros((0, 1), np.float32)
    flat = arrow.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    spans = [None if span is None else {"begin": span[0], "end": span[1]} for one in views for span in one.spans]
    spans = arrow.array(spans, type=schema.field("spans").type.value_type)
    vectors = vectors.cast(schema.field("vectors").type.value_type)
    return [arrow.ListArray.from_arrays(starts, vectors), arrow.ListArray.from_arrays(starts, spans)]
