"""Read documents as they are stored in Milvus, to copy them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.records import Document
from mvindex.store.rows import Batch
from mvindex.store.views import PackedViews
from mvindex_connectors.milvus.reader import Reader
from mvindex_connectors.milvus.records import light, stored_document


def stored_batches(reader: Reader, end: int, dim: int, size: int) -> Iterator[Batch]:
    """Yield all documents numbered below `end`, by rising numbers; DamagedIndex when one is not sound."""
    for rows in reader.each(end, step=size):
        # One that was replaced between the two reads is left to whoever compares afterwards.
        if (batch := stored_batch(reader, rows, dim)) is not None:
            yield batch


def stored_batch(reader: Reader, rows: Sequence[Mapping[str, Any]], dim: int) -> Batch | None:
    """Return the documents of these records with their views, without those deleted since; None where there is none."""
    found = reader.views([light(row) for row in rows], dim)
    kept = [row for row in rows if int(row["pk"]) in found and found[int(row["pk"])][0].version == row["version"]]
    if not kept:
        return None
    stored = [stored_document(row, reader.where) for row in kept]
    views = [found[int(row["pk"])][1] for row in kept]
    starts = np.append(0, np.cumsum([len(each) for each in views]))
    spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
    for document, begin in zip(stored, starts.tolist(), strict=False):
        spans[begin : begin + len(document.spans)] = document.spans
    return Batch(
        documents=[Document(each.id, each.text, each.title, each.metadata) for each in stored],
        views=PackedViews(np.concatenate(views), starts, spans),
        content_hashes=[bytes.fromhex(row["content_hash"]) for row in kept],
        ordinals=np.array([int(row["ordinal"]) for row in kept], dtype=np.int64),
    )
