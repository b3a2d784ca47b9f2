"""Copy documents as they are stored from one store to another: ids, texts, views, ordinals and hashes stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from mvindex.records import Document, Ints, Views, dump_metadata
from mvindex.store.batch import Batch
from mvindex.store.protocol import Store
from mvindex.store.reader import SnapshotReader, StoredRow
from mvindex.store.rows import unpack_spans
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import decode


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


def store_batches(store: Store, batches: Iterable[Batch], next_ordinal: int | None) -> Iterator[tuple[int, int]]:
    """Store documents that come as another store holds them; known ones with the same content are left alone.

    Takes the writer lock.

    Args:
        store: Where the documents go.
        batches: Documents with their views; each batch is one commit.
        next_ordinal: Ordinal of the first document added after this copy; None where the batches give no ordinals.

    Yields:
        After each batch is durable, its number of documents and how many of them were stored.

    """
    with store.writing():
        for batch in batches:
            missing = _missing(store, batch)
            if missing:
                store.commit(batch if len(missing) == len(batch.documents) else batch.select(missing))
            yield len(batch.documents), len(missing)
        if next_ordinal is not None:
            store.change_settings(next_ordinal=next_ordinal)


def _missing(store: Store, batch: Batch) -> list[int]:
    """Return the positions of the documents that the store lacks, or holds with other content."""
    known = store.known([document.id for document in batch.documents])
    missing = []
    for number, document in enumerate(batch.documents):
        old = known.get(document.id)
        is_same = old is not None and old.content_hash == batch.content_hashes[number]
        if old is None or not is_same or old.metadata != dump_metadata(document.metadata, document.id):
            missing.append(number)
    return missing
