"""Reads documents as they are stored: ids, texts, views, ordinals and hashes stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from mvindex.kernels.score import decode
from mvindex.records import Document, Ints, Views
from mvindex.store.batch import Batch
from mvindex.store.reader import SnapshotReader, StoredRow
from mvindex.store.rows import unpack_spans
from mvindex.store.snapshot import Snapshot


def stored_batches(
    snapshot: Snapshot, reading: Callable[[Snapshot], AbstractContextManager[SnapshotReader]], size: int
) -> Iterator[Batch]:
    """Yield the live documents as they are stored, by rising ordinals; DamagedIndex when one is not sound."""
    living = snapshot.rows_by_ordinal
    with reading(snapshot) as reader:
        for begin in range(0, len(living), size):
            doc_rows = living[begin : begin + size]
            stored = reader.stored(doc_rows.tolist())
            packed, starts = snapshot.views.fetch(doc_rows)
            rows = [stored[row] for row in doc_rows.tolist()]
            yield Batch(
                documents=[Document(row.id, row.text, row.title, json.loads(row.metadata)) for row in rows],
                views=Views(decode(packed), starts, _spans(rows, starts)),
                content_hashes=[row.content_hash for row in rows],
                ordinals=snapshot.views.ordinals(doc_rows),
            )


def _spans(rows: list[StoredRow], starts: Ints) -> Ints:
    """Return the spans of all views, -1 where a view stands for none."""
    spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
    for row, begin in zip(rows, starts.tolist(), strict=False):
        if row.spans is not None:
            found = unpack_spans(row.spans)
            spans[begin : begin + len(found)] = found
    return spans
