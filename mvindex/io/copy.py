"""Copies documents as they are stored from one store to another: ids, texts, views, ordinals and hashes stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mvindex.records import dump_metadata
from mvindex.store.batch import Batch
from mvindex.store.catalog import ExistingDocument
from mvindex.store.protocol import Store


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
    with store.writing() as writer:
        for batch in batches:
            known = writer.known([document.id for document in batch.documents])
            missing = _missing(batch, known)
            if missing:
                writer.commit(batch if len(missing) == len(batch.documents) else batch.select(missing), known)
            yield len(batch.documents), len(missing)
        if next_ordinal is not None:
            writer.change_settings(next_ordinal=next_ordinal)


def _missing(batch: Batch, known: Mapping[str, ExistingDocument]) -> list[int]:
    """Return the positions of the documents that the store lacks, or holds with other content."""
    missing = []
    for number, document in enumerate(batch.documents):
        old = known.get(document.id)
        is_same = old is not None and old.content_hash == batch.content_hashes[number]
        if old is None or not is_same or old.metadata != dump_metadata(document.metadata, document.id):
            missing.append(number)
    return missing
