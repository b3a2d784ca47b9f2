"""Copies stored documents from one store to another: ids, texts, views, ordinals and hashes stay the same."""

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
    """Yield the live documents of the store's snapshot by ascending ordinal; raise DamagedIndex for a damaged one."""
    snapshot = store.snapshot
    live = np.flatnonzero(snapshot.alive)
    live = live[np.argsort(snapshot.views.ordinals(live), kind="stable")]
    with store.reading(snapshot) as reader:
        for begin in range(0, len(live), size):
            doc_rows = live[begin : begin + size]
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
    """Return the spans of all views, -1 where a view has none."""
    spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
    for row, begin in zip(rows, starts.tolist(), strict=False):
        if row.spans is not None:
            found = unpack_spans(row.spans)
            spans[begin : begin + len(found)] = found
    return spans


def take_batches(store: EmbeddedStore, batches: Iterable[Batch], next_ordinal: int | None) -> Iterator[tuple[int, int]]:
    """Store the batches; yield for each the number of its documents, and of those that were new or changed.

    Holds the writer lock. Each batch is durable when it is yielded. next_ordinal: of the first document added after
    the copy; None where the batches have no ordinals, and the store numbers them.
    """
    with store.writing():
        for batch in batches:
            fresh = _select_missing(store, batch)
            if fresh is not None:
                store.commit(fresh)
            yield len(batch.documents), 0 if fresh is None else len(fresh.documents)
        if next_ordinal is not None:
            store.change_settings(next_ordinal=next_ordinal)


def _select_missing(store: EmbeddedStore, batch: Batch) -> Batch | None:
    """Return the documents of the batch that the store lacks or has with other content; None where it has all."""
    known = store.known([document.id for document in batch.documents])
    missing = []
    for number, document in enumerate(batch.documents):
        old = known.get(document.id)
        is_same = old is not None and old.content_hash == batch.content_hashes[number]
        if old is None or not is_same or old.metadata != dump_metadata(document.metadata, document.id):
            missing.append(number)
    if len(missing) == len(batch.documents):
        return batch
    return _select(batch, missing) if missing else None


def _select(batch: Batch, numbers: list[int]) -> Batch:
    """Return some documents of the batch."""
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
