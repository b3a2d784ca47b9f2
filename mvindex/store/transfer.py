"""Documents as they are stored, from one store into another: ids, texts, views, ordinals and hashes stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from mvindex.records import Document, Ints, Views, dump_metadata
from mvindex.store.embedded import Batch, EmbeddedStore
from mvindex.store.reader import StoredRow
from mvindex.store.rows import unpack_spans
from mvindex.store.views import decode


def stored_batches(store: EmbeddedStore, size: int) -> Iterator[Batch]:
    """The living documents of the store's snapshot, by rising ordinals; DamagedIndex when one is not sound."""
    snapshot = store.snapshot
    living = np.flatnonzero(snapshot.alive)
    living = living[np.argsort(snapshot.views.ordinals(living), kind="stable")]
    with store.reading(snapshot) as reader:
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
    """The spans of all views, -1 where a view stands for none."""
    spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
    for row, begin in zip(rows, starts.tolist(), strict=False):
        if row.spans is not None:
            found = unpack_spans(row.spans)
            spans[begin : begin + len(found)] = found
    return spans


def take_batches(store: EmbeddedStore, batches: Iterable[Batch], next_ordinal: int | None) -> Iterator[tuple[int, int]]:
    """Of each batch, how many documents it has, and how many of them were stored: those that were not there already.

    Takes the writer lock. Each batch is durable when it is told of. next_ordinal: of the first document that is new
    after the copy; None where the batches give no ordinals, and so count them up.
    """
    with store.writing():
        for batch in batches:
            fresh = _missing(store, batch)
            if fresh is not None:
                store.commit(fresh)
            yield len(batch.documents), 0 if fresh is None else len(fresh.documents)
        if next_ordinal is not None:
            store.change_settings(next_ordinal=next_ordinal)


def _missing(store: EmbeddedStore, batch: Batch) -> Batch | None:
    """The documents of the batch that the store has not, or has otherwise; None where it has all."""
    known = store.known([document.id for document in batch.documents])
    left = []
    for number, document in enumerate(batch.documents):
        old = known.get(document.id)
        is_same = old is not None and old.content_hash == batch.content_hashes[number]
        if old is None or not is_same or old.metadata != dump_metadata(document.metadata, document.id):
            left.append(number)
    if len(left) == len(batch.documents):
        return batch
    return _part(batch, left) if left else None


def _part(batch: Batch, numbers: list[int]) -> Batch:
    """Some documents of the batch."""
    starts = batch.views.starts
    counts = np.diff(starts)[numbers]
    rows = np.concatenate([np.arange(starts[number], starts[number + 1]) for number in numbers])
    views = Views(batch.views.rows[rows], np.append(0, np.cumsum(counts)), batch.views.spans[rows])
    return Batch(
        documents=[batch.documents[number] for number in numbers],
        views=views,
        content_hashes=[batch.content_hashes[number] for number in numbers],
        ordinals=None if batch.ordinals is None else batch.ordinals[numbers],
    )
