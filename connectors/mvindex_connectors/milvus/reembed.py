"""Re-embedding of an index in Milvus: into collections of their own, to which one record then moves the index.

The record of settings of the address's collection names the collection where the index is. Who has the index open goes
on in the old collections, which nothing changes any more, until it refreshes; compact, or the next re-embedding, drops
them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import xxhash

from mvindex.encoder import Encoder
from mvindex.engines.protocol import EXACT
from mvindex.index import Index
from mvindex.ingest.pipeline import IngestHooks, ingest_store
from mvindex.ingest.reembed import ReembedHooks, ReembedReport, counting, drop_outdated, entries_of, settings_of
from mvindex.ingest.views import reusing
from mvindex_connectors.milvus.collections import (
    Home,
    create_store,
    drop_left,
    drop_store,
    index_exists,
    read_home,
)
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.index_build import build_index
from mvindex_connectors.milvus.store import MilvusStore
from mvindex_connectors.milvus.writer import MilvusWriter

# The setting that names the collection of a re-embedding that is not done.
UNFINISHED_KEY = "reembedding"


def reembed(
    store: MilvusStore,
    encoder: Encoder,
    hooks: ReembedHooks,
    index_of: Callable[[MilvusStore, Encoder], Index],
    *,
    texts_only: bool,
) -> ReembedReport:
    """Encode all texts with the encoder into new collections, and move the index there; see IndexAdmin.reembed().

    index_of: returns the index of a store. Holds the lease of the writer all the while; an interrupted run is resumed.
    """
    with store.writing() as writer:
        views_before, encoded, stopped = int(store.settings["views"]), 0, False
        if (store.settings["encoder"] or {}).get("fingerprint") != encoder.fingerprint:
            deque(entries_of(store, texts_only), maxlen=0)  # what cannot be encoded is found before hours of encoding
            with _unfinished(store, writer, encoder) as made:
                drop_outdated(made, store)
                on_documents = counting(hooks.on_progress, "encoding documents", store.count())
                ingest_hooks = IngestHooks(
                    on_progress=on_documents, should_stop=hooks.should_stop, max_document_chars=sys.maxsize
                )
                report = ingest_store(made, entries_of(store, texts_only), reusing(made, encoder), ingest_hooks)
                encoded, stopped = report.added + report.replaced, report.stopped
                if not stopped:
                    hooks.before_switch(index_of(made, encoder))
                    _move(store, writer, made, hooks)
        elif store.settings.get(UNFINISHED_KEY) is not None:
            _drop(store, store.settings[UNFINISHED_KEY])
            writer.change_settings(**{UNFINISHED_KEY: None})
    store.refresh()
    engine = store.settings["engine"]
    return ReembedReport(
        documents=store.count(),
        encoded=encoded,
        views_before=views_before,
        views_after=int(store.settings["views"]),
        dim=store.dim,
        encoder=(store.settings["encoder"] or {}).get("fingerprint", ""),
        engine=engine["kind"] if engine else EXACT,
        stopped=stopped,
    )


@contextmanager
def _unfinished(store: MilvusStore, writer: MilvusWriter, encoder: Encoder) -> Iterator[MilvusStore]:
    """Yield the store of what was encoded before an interruption, or an empty one for another encoder."""
    address = store.connection.address
    name = f"{store.root[:180]}_{xxhash.xxh3_64_hexdigest(f'{encoder.fingerprint} {address.collection}'.encode())}"
    before = store.settings.get(UNFINISHED_KEY)
    if before is not None and before != name:
        _drop(store, before)
    writer.change_settings(**{UNFINISHED_KEY: name})
    connection = Connection(replace(address, collection=name))
    try:
        if not (before == name and index_exists(connection)):
            drop_store(connection)
            create_store(connection, settings_of(store, encoder))
        yield MilvusStore(connection)
    finally:
        connection.close()


def _drop(store: MilvusStore, name: str) -> None:
    """Drop the collections of an unfinished re-embedding."""
    connection = Connection(replace(store.connection.address, collection=name))
    try:
        drop_store(connection)
    finally:
        connection.close()


def _move(store: MilvusStore, writer: MilvusWriter, made: MilvusStore, hooks: ReembedHooks) -> None:
    """Build the engine over the new views, take over the other settings, and make the collections the index's."""
    engine = store.settings["engine"]
    if engine is not None and made.has_views:
        build_index(made, engine["kind"], engine["parameters"].get("nlist"), hooks.on_progress)
    kept = {name: value for name, value in store.settings.items() if name not in made.settings}
    kept.pop(UNFINISHED_KEY, None)
    with made.writing() as making:
        numbered = {name: store.settings[name] for name in ("index_id", "next_ordinal")}
        making.change_settings(**kept, **numbered)
    here = store.connection.address.collection
    before = read_home(store.connection, store.root)
    drop_left(store.connection, store.root, before)
    writer.move(store.root, Home(made.connection.address.collection, (here,)))
