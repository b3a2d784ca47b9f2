"""Documents into a store, chunk by chunk: what is unchanged is skipped, the rest encoded and committed at once.

A chunk is a fixed stretch of the input and the unit of commit. Interrupted anywhere, the same input given again
skips the committed chunks by their content and goes on with the first one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import ConfigError, DocumentError, EncoderError
from mvindex.ingest.prune import without_near_duplicates
from mvindex.records import Document, Floats, Ints, Views, dump_metadata
from mvindex.store.catalog import ExistingDocument
from mvindex.store.embedded import Batch, EmbeddedStore, content_hash
from mvindex.store.temporary import temporary_database, temporary_errors
from mvindex.store.views import pack_views

CHUNK_DOCUMENTS = 1024
CHUNK_CHARS = 1_000_000


class Entry(NamedTuple):
    """A document on its way in: where it stands (for messages), its views (k, d) where given, and the reader's row.

    ordinal: of a document that is new, where the run numbers them; None for the next.
    """

    place: str
    document: Document
    views: Floats | None = None
    source: Any = None
    ordinal: int | None = None


@dataclass(slots=True)
class IngestReport:
    """What a run did. updated: only the metadata was new; stopped: the run was asked to stop before the end.

    views_given, views_stored: of the documents added and replaced; they differ where the index prunes near-duplicates.
    elsewhere: documents that belong to other shards than the one that was filled.
    """

    added: int = 0
    replaced: int = 0
    updated: int = 0
    unchanged: int = 0
    stopped: bool = False
    views_given: int = 0
    views_stored: int = 0
    elsewhere: int = 0

    @property
    def documents(self) -> int:
        """Documents taken, whatever became of them."""
        return self.added + self.replaced + self.updated + self.unchanged


Encode = Callable[[Sequence[Document], Callable[[int], None]], Views]
Note = Callable[[bool], Mapping[str, Any]]


def refuse_duplicate(entry: Entry, first_place: str) -> None:
    """Nothing is returned: DocumentError names both places."""
    raise DocumentError(
        f"{entry.place}: id {entry.document.id!r} stands at {first_place} already; an id may stand once in a run"
    )


def _ignore(count: int) -> None:
    """Nothing: nobody watches the progress."""


def _no_settings(has_documents: bool) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestHooks:
    """What the caller wants to hear: documents finished, a duplicate id; and whether to stop.

    note: gives settings that are set in the transaction of a chunk, where one is committed; not of shards. It is told
    whether documents are stored, or only metadata of known ones.
    """

    on_progress: Callable[[int], None] = _ignore
    on_duplicate: Callable[[Entry, str], None] = refuse_duplicate
    should_stop: Callable[[], bool] = field(default=lambda: False)
    note: Note = _no_settings


def ingest(
    store: EmbeddedStore, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None = None
) -> IngestReport:
    """What was done with the entries. encode may be None when every entry brings its views.

    Takes the writer lock for the whole run. An error leaves the chunks before it committed and nothing of its own.
    """
    hooks = hooks or IngestHooks()
    report = IngestReport()
    if store.snapshot.settings.get("shard") is not None:
        raise ConfigError(
            f"{store.directory} is a shard of an index: add to the whole index, or ingest a corpus with --shard"
        )
    with store.writing(), SeenIds() as seen:
        for chunk in read_chunks(entries):
            if hooks.should_stop():
                report.stopped = True
                break
            ingest_chunk(
                store, seen.first_of(chunk, hooks.on_duplicate), (encode, hooks.on_progress), report, hooks.note
            )
    return report


class Chunk:
    """Entries that fill a chunk one by one: CHUNK_DOCUMENTS, or fewer where their texts reach CHUNK_CHARS."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._num_chars = 0

    def add(self, entry: Entry) -> list[Entry]:
        """The entries of the chunk, when this one has filled it; else none."""
        self._entries.append(entry)
        self._num_chars += len(entry.document.text) + len(entry.document.title)
        is_full = len(self._entries) == CHUNK_DOCUMENTS or self._num_chars >= CHUNK_CHARS
        return self.take() if is_full else []

    def take(self) -> list[Entry]:
        """What there is; the chunk is empty then."""
        taken, self._entries, self._num_chars = self._entries, [], 0
        return taken


def read_chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries in chunks."""
    filling = Chunk()
    for entry in entries:
        if chunk := filling.add(entry):
            yield chunk
    if chunk := filling.take():
        yield chunk


def ingest_chunk(
    store: EmbeddedStore,
    chunk: Sequence[Entry],
    work: tuple[Encode | None, Callable[[int], None]],
    report: IngestReport,
    note: Note = _no_settings,
) -> None:
    """Nothing; what is new or changed in the chunk is committed in one transaction and counted.

    note: gives the settings to be set in the transaction; called before anything is encoded, where something changes.
    """
    encode, on_progress = work
    known = store.known([entry.document.id for entry in chunk])
    hashes = {entry.document.id: content_hash(entry.document, entry.views) for entry in chunk}
    fresh = [entry for entry in chunk if _differs(known.get(entry.document.id), hashes[entry.document.id])]
    fresh_ids = {entry.document.id for entry in fresh}
    updates = _metadata_updates([entry for entry in chunk if entry.document.id not in fresh_ids], known)
    on_progress(len(chunk) - len(fresh))
    if fresh:
        settings = note(True)
        documents = [entry.document for entry in fresh]
        given = _views_of(fresh, encode, on_progress)
        views = _pruned(store, given, documents)
        content_hashes = [hashes[document.id] for document in documents]
        batch = Batch(
            documents=documents,
            views=views,
            content_hashes=content_hashes,
            metadata_updates=updates,
            ordinals=_ordinals(fresh),
            settings=settings,
        )
        store.commit(batch)
        report.views_given += len(given.rows)
        report.views_stored += len(views.rows)
    elif updates:
        store.set_metadata(updates, note(False))
    replaced = len(fresh_ids & known.keys())
    report.added += len(fresh) - replaced
    report.replaced += replaced
    report.updated += len(updates)
    report.unchanged += len(chunk) - len(fresh) - len(updates)


def _ordinals(entries: Sequence[Entry]) -> Ints | None:
    """Those that the run gives; None where it gives none."""
    given = [entry.ordinal for entry in entries if entry.ordinal is not None]
    return np.array(given, dtype=np.int64) if given else None


def _differs(known: ExistingDocument | None, digest: bytes) -> bool:
    return known is None or known.content_hash != digest


def _metadata_updates(entries: Sequence[Entry], known: dict[str, ExistingDocument]) -> dict[int, str]:
    """New metadata of documents that are otherwise unchanged, by document row."""
    dumped = ((known[e.document.id], dump_metadata(e.document.metadata, e.document.id)) for e in entries)
    return {old.doc_row: metadata for old, metadata in dumped if metadata != old.metadata}


def _views_of(fresh: Sequence[Entry], encode: Encode | None, on_progress: Callable[[int], None]) -> Views:
    if encode is not None:
        return encode([entry.document for entry in fresh], on_progress)
    parts = [entry.views for entry in fresh if entry.views is not None]
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise EncoderError(f"views of {sorted(dims)} dims in one call; an index holds views of one dim")
    counts = [len(part) for part in parts]
    on_progress(len(fresh))
    rows = np.concatenate(parts)
    return Views(rows, np.append(0, np.cumsum(counts)), np.full((len(rows), 2), -1, dtype=np.int64))


def _pruned(store: EmbeddedStore, given: Views, documents: Sequence[Document]) -> Views:
    """The views without near-duplicates, where the index is made so: of the rows as they will be stored."""
    eps = store.snapshot.settings.get("prune_views")
    if eps is None:
        return given
    stored = pack_views(given, store.snapshot.view_type, [document.id for document in documents])
    return without_near_duplicates(given, stored, eps)


class SeenIds:
    """The ids of a run with their places, in a temporary SQLite file: 21 million of them do not fit in memory."""

    def __init__(self) -> None:
        self._connection = temporary_database()
        self._connection.execute("CREATE TABLE seen(id TEXT PRIMARY KEY, place TEXT NOT NULL) WITHOUT ROWID")

    def __enter__(self) -> SeenIds:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def first_of(self, chunk: Sequence[Entry], on_duplicate: Callable[[Entry, str], None]) -> list[Entry]:
        """The entries whose id was not seen before in this run; on_duplicate is called for the others."""
        with temporary_errors():
            places = self._places([entry.document.id for entry in chunk])
        firsts = []
        for entry in chunk:
            earlier = places.get(entry.document.id)
            if earlier is not None:
                on_duplicate(entry, earlier)
                continue
            places[entry.document.id] = entry.place
            firsts.append(entry)
        rows = [(entry.document.id, entry.place) for entry in firsts]
        with temporary_errors():
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO seen VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")
        return firsts

    def _places(self, ids: Sequence[str]) -> dict[str, str]:
        query = "SELECT seen.id, seen.place FROM json_each(?) AS wanted JOIN seen ON seen.id = wanted.value"
        with closing(self._connection.execute(query, (json.dumps(list(ids), ensure_ascii=False),))) as cursor:
            return dict(cursor.fetchall())
