"""An ingest into one store: chunks of the input, each compared, encoded and committed.

A chunk is a fixed part of the input and the unit of commit. After an interruption, a run over the same input skips
the committed chunks by their content and continues with the first one that is not committed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from mvindex.encoder.function import SLICE_CHARS, SLICE_DOCUMENTS
from mvindex.errors import ConfigError, DocumentError, EncoderError
from mvindex.ingest.views import Encode, encode_with_view_texts, remove_near_duplicates
from mvindex.records import MAX_DOCUMENT_CHARS, CountCallback, Document, Floats, Ints, Views, dump_metadata, no_progress
from mvindex.store.catalog import ExistingDocument
from mvindex.store.files import temporary_database, temporary_errors
from mvindex.store.protocol import Store, Writer
from mvindex.store.rows import Batch, content_hash, pack_views
from mvindex.store.views import ViewType

# As the encoder cuts documents: what is committed one by one, or several chunks at once, has the same vectors.
CHUNK_DOCUMENTS, CHUNK_CHARS = SLICE_DOCUMENTS, SLICE_CHARS


class Entry(NamedTuple):
    """A document to ingest.

    source_location: for messages. views: (k, d), None where they are to be encoded. spans: (k, 2) int64 of given views,
    -1 for none; None where no view has one. source: the row of the reader.
    ordinal: of a new document, where the run numbers them; None for the next. has_made_id: whether the id was made
    from the content, so that a second one in a run is the same document.
    """

    source_location: str
    document: Document
    views: Floats | None = None
    source: Any = None
    ordinal: int | None = None
    has_made_id: bool = False
    spans: Ints | None = None


@dataclass(slots=True)
class IngestReport:
    """The counts of a run.

    updated: documents of which only the metadata changed. stopped: whether the run was stopped before the end.
    views_given, views_stored: of the documents added and replaced; they differ where the index prunes near-duplicates.
    views_encoded, views_reused: of the views given, those that the encoder made, and those whose vectors were taken
    from the documents that were replaced. Both are 0 where callers give the views.
    elsewhere: documents that belong to other shards than the one being filled. repeated: documents without an id whose
    content occurred before in the run.
    """

    added: int = 0
    replaced: int = 0
    updated: int = 0
    unchanged: int = 0
    stopped: bool = False
    views_given: int = 0
    views_stored: int = 0
    views_encoded: int = 0
    views_reused: int = 0
    elsewhere: int = 0
    repeated: int = 0

    @property
    def documents(self) -> int:
        """Return the number of documents that were read and stored here."""
        return self.added + self.replaced + self.updated + self.unchanged


Note = Callable[[], Mapping[str, Any]]


def refuse_duplicate(entry: Entry, first_location: str) -> None:
    """Raise DocumentError with both locations of an id."""
    raise DocumentError(
        f"{entry.source_location}: id {entry.document.id!r} occurs at {first_location} already; "
        "an id may occur once in a run"
    )


def _no_settings() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestHooks:
    """Callbacks of a run: for documents done, for a duplicate id, and whether to stop.

    note: returns settings that are set in the transaction of a chunk that stores documents; not for shards.
    mark: names a run of one chunk, and is stored with it: what was stored already stays as it is.
    max_document_chars: of title, text and view texts together; a longer document is refused.
    encode_again: whether documents that did not change are encoded and stored again too.
    chunks_at_once: chunks that are encoded and committed together, so that a GPU does not wait for each commit.
    """

    on_progress: CountCallback = no_progress
    on_duplicate: Callable[[Entry, str], None] = refuse_duplicate
    should_stop: Callable[[], bool] = field(default=lambda: False)
    note: Note = _no_settings
    mark: str = ""
    max_document_chars: int = MAX_DOCUMENT_CHARS
    encode_again: bool = False
    chunks_at_once: int = 1


def ingest_store(
    store: Store, entries: Iterable[Entry], encode: Encode | None, hooks: IngestHooks | None = None
) -> IngestReport:
    """Store the entries and return the counts; `encode` may be None when every entry has views.

    Takes the writer lock for the whole run. After an error, the chunks before it are committed and its own is not.
    """
    hooks = hooks or IngestHooks()
    report = IngestReport()
    if store.settings.get("shard") is not None:
        raise ConfigError(
            f"{store.where} is a shard of an index: add to the whole index, or ingest a corpus with --shard"
        )
    with store.writing() as writer, SeenIds() as seen:
        for chunk in read_chunks(within_length(entries, hooks.max_document_chars), hooks.chunks_at_once):
            if hooks.should_stop():
                report.stopped = True
                break
            ingest_chunk(writer, seen.drop_repeats(chunk, hooks.on_duplicate, report), encode, report, hooks)
    return report


def within_length(entries: Iterable[Entry], most_chars: int) -> Iterator[Entry]:
    """Yield the entries; DocumentError with the location of one whose document has more characters."""
    for entry in entries:
        try:
            entry.document.check_length(most_chars)
        except DocumentError as err:
            raise DocumentError(f"{entry.source_location}: {err}") from err
        yield entry


class Chunk:
    """Collects entries into a chunk: CHUNK_DOCUMENTS, or fewer where their texts reach CHUNK_CHARS.

    chunks_at_once: how many of them are returned as one.
    """

    def __init__(self, chunks_at_once: int = 1) -> None:
        self._entries: list[Entry] = []
        self._chunks_at_once = chunks_at_once
        self._begin = self._num_chars = self._num_full = 0

    def add(self, entry: Entry) -> list[Entry]:
        """Add an entry; return the entries of the chunk when it is full, else an empty list."""
        self._entries.append(entry)
        self._num_chars += len(entry.document.text) + len(entry.document.title)
        if len(self._entries) - self._begin == CHUNK_DOCUMENTS or self._num_chars >= CHUNK_CHARS:
            self._begin, self._num_chars, self._num_full = len(self._entries), 0, self._num_full + 1
        return self.take() if self._num_full == self._chunks_at_once else []

    def take(self) -> list[Entry]:
        """Return the entries so far and empty the chunk."""
        taken, self._entries = self._entries, []
        self._begin = self._num_chars = self._num_full = 0
        return taken


def read_chunks(entries: Iterable[Entry], chunks_at_once: int = 1) -> Iterator[list[Entry]]:
    """Yield the entries in chunks, so many of them at once."""
    filling = Chunk(chunks_at_once)
    for entry in entries:
        if chunk := filling.add(entry):
            yield chunk
    if chunk := filling.take():
        yield chunk


def ingest_chunk(
    writer: Writer,
    chunk: Sequence[Entry],
    encode: Encode | None,
    report: IngestReport,
    hooks: IngestHooks,
) -> None:
    """Commit the new and changed documents of the chunk in one transaction, and count them in the report.

    hooks.note is called before anything is encoded, where something changes; duplicates are not looked for here.
    """
    on_progress = hooks.on_progress
    if hooks.mark and writer.has_mark(hooks.mark):
        on_progress(len(chunk))
        report.unchanged += len(chunk)
        return
    known = writer.known([entry.document.id for entry in chunk])
    hashes = {entry.document.id: content_hash(entry.document, entry.views, entry.spans) for entry in chunk}
    fresh = [
        entry
        for entry in chunk
        if hooks.encode_again or differs(known.get(entry.document.id), hashes[entry.document.id])
    ]
    fresh_ids = {entry.document.id for entry in fresh}
    updates = _metadata_updates([entry for entry in chunk if entry.document.id not in fresh_ids], known)
    if len(fresh) < len(chunk):
        on_progress(len(chunk) - len(fresh))
    if fresh:
        settings, chosen = hooks.note(), writer.settings
        documents = [entry.document for entry in fresh]
        view_type, eps = ViewType(chosen["dtype"]), chosen.get("prune_views")
        # What is encoded again on demand takes no vectors from what is stored.
        replacing = () if hooks.encode_again else fresh_ids & known.keys()
        made = _make_views(fresh, encode, replacing, on_progress)
        full = pack_views(made, view_type, [document.id for document in documents])
        views = full if eps is None else remove_near_duplicates(full, eps)
        content_hashes = [hashes[document.id] for document in documents]
        batch = Batch(
            documents=documents,
            views=views,
            content_hashes=content_hashes,
            metadata_updates=updates,
            ordinals=_ordinals(fresh),
            settings=settings,
            mark=hooks.mark,
        )
        writer.commit(batch, known)
        report.views_given += len(full.rows)
        report.views_stored += len(views.rows)
        num_reused = 0 if made.is_reused is None else int(made.is_reused.sum())
        report.views_reused += num_reused
        report.views_encoded += 0 if encode is None else len(full.rows) - num_reused
    elif updates:
        writer.set_metadata(updates, hooks.mark)
    replaced = len(fresh_ids & known.keys())
    report.added += len(fresh) - replaced
    report.replaced += replaced
    report.updated += len(updates)
    report.unchanged += len(chunk) - len(fresh) - len(updates)


def _ordinals(entries: Sequence[Entry]) -> Ints | None:
    """Return the ordinals that the run sets; None where it sets none."""
    ordinals = [entry.ordinal for entry in entries if entry.ordinal is not None]
    return np.array(ordinals, dtype=np.int64) if ordinals else None


def differs(known: ExistingDocument | None, digest: bytes) -> bool:
    """Return whether a document of this content hash is new, or replaces another."""
    return known is None or known.content_hash != digest


def _metadata_updates(entries: Sequence[Entry], known: Mapping[str, ExistingDocument]) -> dict[int, str]:
    """Return the new metadata of documents that are otherwise unchanged, by document row."""
    dumped = ((known[e.document.id], dump_metadata(e.document.metadata, e.document.id)) for e in entries)
    return {old.doc_row: metadata for old, metadata in dumped if metadata != old.metadata}


def _make_views(
    fresh: Sequence[Entry], encode: Encode | None, replaced: Collection[str], on_progress: CountCallback
) -> Views:
    if encode is not None:
        return encode_with_view_texts(encode, [entry.document for entry in fresh], replaced, on_progress)
    parts = [entry.views for entry in fresh if entry.views is not None]
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise EncoderError(f"views of {sorted(dims)} dims in one call; an index holds views of one dim")
    on_progress(len(fresh))
    starts = np.append(0, np.cumsum([len(part) for part in parts]))
    spans = np.full((starts[-1], 2), -1, dtype=np.int64)
    for entry, begin in zip(fresh, starts.tolist(), strict=False):
        if entry.spans is not None:
            spans[begin : begin + len(entry.spans)] = entry.spans
    return Views(np.concatenate(parts), starts, spans)


# Ids of a run that are kept in memory before they go to a file together.
_IDS_IN_MEMORY = 1 << 9


class SeenIds:
    """The ids of a run with their locations, most of a long one in a temporary SQLite file.

    21 million of them do not fit in memory.
    """

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> SeenIds:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()

    def drop_repeats(
        self, chunk: Sequence[Entry], on_duplicate: Callable[[Entry, str], None], report: IngestReport
    ) -> list[Entry]:
        """Return the entries whose id was not seen before in this run.

        Others with an id made from their content are counted in the report; on_duplicate is called for the rest.
        """
        locations = self._locations([entry.document.id for entry in chunk])
        firsts = []
        for entry in chunk:
            earlier = locations.get(entry.document.id)
            if earlier is not None:
                report.repeated += entry.has_made_id
                if not entry.has_made_id:
                    on_duplicate(entry, earlier)
                continue
            locations[entry.document.id] = self._last[entry.document.id] = entry.source_location
            firsts.append(entry)
        if len(self._last) >= _IDS_IN_MEMORY:
            self._put_away()
        return firsts

    def _locations(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the locations of those of the ids that were seen."""
        found = {doc_id: self._last[doc_id] for doc_id in ids if doc_id in self._last}
        if self._connection is not None:
            query = "SELECT seen.id, seen.location FROM json_each(?) AS given JOIN seen ON seen.id = given.value"
            given = json.dumps(list(ids), ensure_ascii=False)
            with temporary_errors(), closing(self._connection.execute(query, (given,))) as cursor:
                found.update(cursor.fetchall())
        return found

    def _put_away(self) -> None:
        """Move the ids in memory to the file."""
        with temporary_errors():
            if self._connection is None:
                self._connection = temporary_database()
                self._connection.execute("CREATE TABLE seen(id TEXT PRIMARY KEY, location TEXT NOT NULL) WITHOUT ROWID")
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO seen VALUES (?, ?)", self._last.items())
            self._connection.execute("COMMIT")
        self._last.clear()
