"""The embedded store: a directory NAME.mvx with a catalog, views and document rows; one writer, many readers.

Order of every write: bytes appended, file fsynced (its directory too, when new), then one durable transaction.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import ConfigError, MvindexError, StaleReader, StoreError
from mvindex.records import Document, Floats, Views, dump_metadata
from mvindex.store import catalog
from mvindex.store.catalog import Catalog, Known
from mvindex.store.durable import flush_to_disk, rename
from mvindex.store.locks import writer_lock
from mvindex.store.segments import Committed, append
from mvindex.store.snapshot import Snapshot, SnapshotReader, pack_spans, row_checksum
from mvindex.store.views import ROW_DTYPE, pack_views, view_checksums

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One commit: documents with distinct ids, their views and content hashes; metadata to set, by document row."""

    documents: Sequence[Document]
    views: Views
    content_hashes: Sequence[bytes]
    metadata_updates: Mapping[int, str] = field(default_factory=dict)


def content_hash(document: Document, views: Floats | None = None) -> bytes:
    """The xxh3-128 of what a document's stored rows depend on: title, text and, where given, its (k, d) views."""
    digest = xxhash.xxh3_128()
    for part in (document.title.encode(), document.text.encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    if views is not None:
        digest.update(np.ascontiguousarray(views, dtype="<f4").tobytes())
    return digest.digest()


def create_store(directory: Path, settings: Mapping[str, Any]) -> None:
    """Nothing; a new empty store stands at the directory, complete or not at all.

    settings: dtype (a ViewType value), dim (int, or None until the first batch) and whatever the caller keeps with
    the index. ConfigError when the path exists; StoreError when it cannot be made.
    """
    if directory.exists():
        raise ConfigError(f"{directory} exists already; open it, or remove it first")
    building = directory.with_name(f".{directory.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    base: dict[str, Any] = {
        "format_version": catalog.FORMAT_VERSION,
        "generation": 1,
        "version": 0,
        "next_ordinal": 0,
        "engine": None,
        "index_id": secrets.token_hex(16),
    }
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        building.mkdir()
        catalog.create(building, {**base, **settings})
        flush_to_disk(building)
        rename(building, directory)
    except OSError as err:
        shutil.rmtree(building, ignore_errors=True)
        if directory.exists():
            raise ConfigError(f"{directory} exists already: another process made it just now; open it") from err
        raise StoreError(f"{directory}: cannot create the index: {err.strerror or err}") from err


@dataclass(slots=True)
class _Progress:
    """Where the writer stands: what it would otherwise read anew, of all documents there are, at every commit."""

    settings: dict[str, Any]
    num_rows: int
    num_views: int
    segments: list[Committed]


class EmbeddedStore:
    """Documents and views in one directory. Reads go through immutable snapshots; writes take the writer lock."""

    def __init__(self, directory: Path) -> None:
        if not (directory / catalog.FILE_NAME).is_file():
            raise StoreError(f"{directory}: there is no mvindex index here (no {catalog.FILE_NAME} in it)")
        self.directory = directory.absolute()
        self._catalog = Catalog(self.directory)
        self._refresh_lock = Lock()
        self._progress: _Progress | None = None
        self.snapshot = self._read_snapshot(None)

    def close(self) -> None:
        """Nothing; the store's connections are closed afterwards."""
        self._catalog.close()

    def refresh(self) -> bool:
        """True when there was something newer; the snapshot is then the latest committed state."""
        with self._refresh_lock:  # so that of two threads the later one never brings back the older state
            with self._catalog.reading() as connection:
                settings = catalog.read_settings(connection)
            is_same = settings.get("index_id") == self.snapshot.settings["index_id"]
            if is_same and settings["version"] == self.snapshot.settings["version"]:
                return False
            self.snapshot = self._read_snapshot(self.snapshot)
            return True

    @contextmanager
    def reading(self, snapshot: Snapshot) -> Iterator[SnapshotReader]:
        """A reader of the snapshot's texts, metadata and filters, all inside one transaction."""
        with self._catalog.reading() as connection:
            _check_identity(self.directory, snapshot, catalog.read_settings(connection))
            yield SnapshotReader(connection, snapshot)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside it, this store is the only writer and its snapshot the latest; IndexLocked otherwise.

        Commits made inside show in this store's own snapshot when it ends, in other processes at once.
        """
        with writer_lock(self.directory):
            with self._refresh_lock:
                self.snapshot = snapshot = self._read_snapshot(self.snapshot)
            committed = [segment.committed for segment in snapshot.segments]
            settings = dict(snapshot.settings)
            self._progress = _Progress(settings, snapshot.num_rows, snapshot.views.num_views, committed)
            try:
                yield
            finally:
                self._progress = None
                self._settle()

    def known(self, ids: Sequence[str]) -> dict[str, Known]:
        """The living documents among the ids, as committed now."""
        with self._catalog.reading() as connection:
            return catalog.find_known(connection, ids)

    def commit(self, batch: Batch) -> None:
        """Nothing; the whole batch is durable and visible: new documents added, known ids replaced.

        Call inside writing(). On StoreError the store is as it was.
        """
        progress, ids = self._writer(), [document.id for document in batch.documents]
        self._check_dim(progress, batch.views)
        packed = pack_views(batch.views, self.snapshot.view_type, ids)
        known = self.known(ids)
        rows = _new_rows(progress, batch, known, packed)
        before = progress.segments
        after = [append(self.directory, segment, [data]) for segment, data in zip(before, (packed, rows), strict=True)]
        next_ordinal = progress.settings["next_ordinal"] + len(ids) - len(known)
        with self._changing(next_ordinal=next_ordinal, dim=int(batch.views.rows.shape[1])) as connection:
            for old, new in zip(before, after, strict=True):
                catalog.write_committed(connection, old, new)
            _retire(connection, [entry.doc_row for entry in known.values()])
            _insert(connection, progress.num_rows, batch, rows)
            _set_metadata(connection, batch.metadata_updates)
        progress.segments = after
        progress.num_rows += len(rows)
        progress.num_views += len(packed)

    def delete(self, doc_rows: Iterable[int]) -> None:
        """Nothing; the documents of these living rows are gone, all at once. Call inside writing()."""
        with self._changing() as connection:
            _retire(connection, doc_rows)

    def set_metadata(self, updates: Mapping[int, str]) -> None:
        """Nothing; the documents of these rows have this metadata (canonical JSON). Call inside writing()."""
        with self._changing() as connection:
            _set_metadata(connection, updates)

    def change_settings(self, **settings: Any) -> None:
        """Nothing; the settings are durable. Call inside writing()."""
        with self._changing(**settings):
            pass

    def _read_snapshot(self, previous: Snapshot | None) -> Snapshot:
        with self._catalog.reading() as connection:
            catalog.check_application(connection, self._catalog.path)
            settings = catalog.read_settings(connection)
            if previous is not None:
                _check_identity(self.directory, previous, settings)
            if settings.get("format_version") != catalog.FORMAT_VERSION:
                raise StoreError(
                    f"{self.directory}: format version {settings.get('format_version')}; "
                    f"this mvindex reads version {catalog.FORMAT_VERSION}: install the mvindex that wrote it"
                )
            return Snapshot(self.directory, connection, settings, previous)

    def _settle(self) -> None:
        """Nothing; what was committed shows in this store's snapshot, and the catalog's log is folded in if it can be.

        A failure here loses nothing, so it must not make a durable write look like a failed one.
        """
        try:
            self.refresh()
            self._catalog.checkpoint()
        except (MvindexError, OSError) as err:
            logger.warning("%s: all is stored, but the state could not be read again yet: %s", self.directory, err)

    def _writer(self) -> _Progress:
        if self._progress is None:
            raise StoreError(f"{self.directory}: written to outside writing()")
        return self._progress

    @contextmanager
    def _changing(self, **settings: Any) -> Iterator[sqlite3.Connection]:
        """One durable transaction that also sets these settings and makes a new version of the store."""
        progress = self._writer()
        changed = {**settings, "version": progress.settings["version"] + 1}
        with self._catalog.writing() as connection:
            version = catalog.read_settings(connection)["version"]
            if version != progress.settings["version"]:
                raise StoreError(f"{self.directory}: version {version} in the catalog; the writer has made {changed}")
            yield connection
            catalog.write_settings(connection, changed)
        progress.settings.update(changed)

    def _check_dim(self, progress: _Progress, views: Views) -> None:
        dim = progress.settings["dim"]
        if dim is not None and views.rows.shape[1] != dim:
            raise StoreError(f"{self.directory}: views of {views.rows.shape[1]} dims; this index holds {dim}")


def _new_rows(
    progress: _Progress, batch: Batch, known: Mapping[str, Known], packed: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """The document-row records of a batch; a replaced document keeps its ordinal, a new one takes the next."""
    rows = np.zeros(len(batch.documents), dtype=ROW_DTYPE)
    is_new = np.array([document.id not in known for document in batch.documents], dtype=bool)
    rows["ordinal"][is_new] = progress.settings["next_ordinal"] + np.arange(is_new.sum())
    rows["ordinal"][~is_new] = [known[document.id].ordinal for document in batch.documents if document.id in known]
    rows["view_start"] = progress.num_views + batch.views.starts[:-1]
    rows["checksum"] = view_checksums(packed, batch.views.starts)
    return rows


def _check_identity(directory: Path, snapshot: Snapshot, settings: Mapping[str, Any]) -> None:
    """Nothing; StaleReader when another index stands at the path of the one that was opened."""
    if settings.get("index_id") != snapshot.settings["index_id"]:
        raise StaleReader(f"{directory}: another index was made here since this one was opened; open it again")


def _retire(connection: sqlite3.Connection, doc_rows: Iterable[int]) -> None:
    connection.executemany("UPDATE documents SET alive = 0 WHERE doc_row = ?", [(int(row),) for row in doc_rows])


def _set_metadata(connection: sqlite3.Connection, updates: Mapping[int, str]) -> None:
    rows = list(map(int, updates))
    found = connection.execute(
        "SELECT d.id FROM json_each(?) AS wanted JOIN documents AS d ON d.doc_row = wanted.value ORDER BY wanted.key",
        (json.dumps(rows),),
    )
    ids = [doc_id for (doc_id,) in found]
    checksums = map(row_checksum, ids, updates.values())
    connection.executemany(
        "UPDATE metadata SET json = ?, checksum = ? WHERE doc_row = ?",
        zip(updates.values(), checksums, rows, strict=True),
    )


def _insert(connection: sqlite3.Connection, first_row: int, batch: Batch, rows: npt.NDArray[Any]) -> None:
    counts = np.diff(batch.views.starts).tolist()
    begins, ordinals = rows["view_start"].tolist(), rows["ordinal"].tolist()
    checksums = rows["checksum"].view(np.int64).tolist()
    ids = [document.id for document in batch.documents]
    numbers = range(first_row, first_row + len(ids))
    connection.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
        zip(numbers, ids, ordinals, begins, counts, checksums, batch.content_hashes, strict=True),
    )
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?, ?)", _text_rows(first_row, batch))
    dumped = [dump_metadata(document.metadata, document.id) for document in batch.documents]
    checksums = list(map(row_checksum, ids, dumped))
    connection.executemany("INSERT INTO metadata VALUES (?, ?, ?)", zip(numbers, dumped, checksums, strict=True))


def _text_rows(first_row: int, batch: Batch) -> Iterator[tuple[Any, ...]]:
    bounds = zip(batch.views.starts[:-1], batch.views.starts[1:], strict=True)
    for number, (document, (begin, end)) in enumerate(zip(batch.documents, bounds, strict=True), first_row):
        spans = pack_spans(batch.views.spans[begin:end])
        checksum = row_checksum(document.id, document.title, document.text, spans or b"")
        yield number, document.title, document.text, spans, checksum
