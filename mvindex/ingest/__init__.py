"""Documents into a store, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable

from mvindex.ingest.items import GivenViews, text_entries, view_entries
from mvindex.ingest.pipeline import (
    CHUNK_CHARS,
    CHUNK_DOCUMENTS,
    Entry,
    IngestHooks,
    IngestReport,
    SeenIds,
    ingest_store,
    refuse_duplicate,
)
from mvindex.ingest.shards import Target, ingest_shards
from mvindex.ingest.views import Encode, reusing
from mvindex.store.protocol import Store
from mvindex.store.sharded import ShardedStore

__all__ = [
    "CHUNK_CHARS",
    "CHUNK_DOCUMENTS",
    "Encode",
    "Entry",
    "GivenViews",
    "IngestHooks",
    "IngestReport",
    "SeenIds",
    "ingest",
    "refuse_duplicate",
    "reusing",
    "text_entries",
    "view_entries",
]


def ingest(
    store: Store, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None = None
) -> IngestReport:
    """Store the entries, in shards or not; encode may be None when every entry brings its views.

    Takes the writer lock for the whole run. An error leaves the chunks before it committed and nothing of its own.
    """
    if not isinstance(store, ShardedStore):
        return ingest_store(store, entries, encode, hooks)
    sharding = store.sharding
    return ingest_shards(Target(stores=sharding.stores, count=sharding.count, encode=encode), entries, hooks)
