"""Copies of documents as they are stored, with ids, texts, views, ordinals and hashes, and migration by them.

Moved documents are recognised by their content, so that an interrupted run can be continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mvindex.errors import ConfigError, StoreError
from mvindex.index import Index, store_of
from mvindex.index.factory import find_backend, index_exists, local_index, open_local
from mvindex.kernels.score import decode
from mvindex.paths import user_path
from mvindex.records import Floats, ProgressCallback, dump_metadata, no_progress
from mvindex.search.request import as_vectors
from mvindex.store.catalog import ExistingDocument
from mvindex.store.create import create_store
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.protocol import Store
from mvindex.store.rows import Batch
from mvindex.store.schema import FILTER_FIELDS_KEY


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


_SEED = 7
_TOP_K = 20
# Settings copied to the new index.
_BATCH = 1024
_COPIED_SETTINGS = ("dim", "dtype", "encoder", "temperature", "prune_views")
_MARK = "migrated_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport:
    """The counts of a migration. moved: documents written by this run. queries: compared, all with equal results."""

    source: str
    target: str
    documents: int
    moved: int
    queries: int


def migrate(
    source: str | Path,
    target: str | Path,
    *,
    queries: int = 0,
    on_progress: ProgressCallback = no_progress,
) -> MigrateReport:
    """Copy the index at `source` to `target`; each is a directory or an address.

    Args:
        source: The index to copy; it is only read.
        target: A new path, or that of an interrupted run from the same source.
        queries: Number of queries that both are searched with at the end.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the migration.

    Raises:
        ConfigError: The target exists and was not made from this source.
        StoreError: The number of documents or a result differs.

    """
    with open_local(source) as old, _open_target(old, target) as new:
        stored = store_of(old)
        total, moved, num_read = len(old), 0, 0
        for count, num_moved in store_batches(store_of(new), stored.batches(_BATCH), stored.settings["next_ordinal"]):
            num_read, moved = num_read + count, moved + num_moved
            on_progress("moving", num_read, total)
        new.refresh()
        if len(new) != total:
            raise StoreError(
                f"{new.where}: has {len(new):,} documents and {old.where} {total:,}: one of them was written to "
                "during the run, or since an earlier run; remove the target and migrate again"
            )
        for number, query in enumerate(_sample_queries(old, queries), start=1):
            _compare(old, new, query)
            on_progress("comparing results", number, queries)
        return MigrateReport(source=old.where, target=new.where, documents=total, moved=moved, queries=queries)


def _open_target(old: Index, target: str | Path) -> Index:
    """Open the index to be filled: new, or left unfinished by a run from the same source."""
    settings = old.settings
    mark = str(settings["index_id"])
    if not index_exists(target):
        copied = {name: settings.get(name) for name in _COPIED_SETTINGS}
        backend = find_backend(target)
        hybrid = {name: settings.get(name) for name in ("lexical", "fusion")}
        if backend is not None:
            return backend.create(str(target), {**copied, **(hybrid if backend.has_lexical else {}), _MARK: mark}, None)
        fields = {FILTER_FIELDS_KEY: settings.get(FILTER_FIELDS_KEY)}
        create_store(user_path(target), {**copied, **hybrid, **fields, _MARK: mark})
        return local_index(EmbeddedStore(user_path(target)))
    new = open_local(target)
    if new.settings.get(_MARK) != mark:
        where = new.where
        new.close()
        raise ConfigError(f"{where} exists already, and was not made from {old.where}; give a new path")
    return new


def _sample_queries(index: Index, count: int) -> Floats:
    """Return random queries between views of documents, (count, dim)."""
    dim = index.dim or 1
    rng = np.random.default_rng(_SEED)
    views: list[Floats] = []
    for batch in store_of(index).batches(_BATCH) if count else ():
        rows = decode(batch.views.rows)
        views.append(rows[rng.integers(len(rows), size=min(count, len(rows)))])
        if len(views) > 64:
            break
    if not views:
        return np.empty((0, dim), dtype=np.float32)
    pool = np.concatenate(views)
    pairs = pool[rng.integers(len(pool), size=(2, count))]
    return as_vectors(pairs[0] + 0.5 * pairs[1], dim)


def _compare(old: Index, new: Index, query: Floats) -> None:
    """Raise StoreError when the results of the two differ."""
    for scoring in ("max", "drpq"):
        results = (index.search(query, _TOP_K, scoring=scoring, exact=True) for index in (old, new))
        one, other = (replace(result, rounds=0) for result in results)  # of which the number may differ
        if one != other:
            raise StoreError(f"{new.where}: expected the result of {old.where} ({scoring}), {one}, got {other}")
