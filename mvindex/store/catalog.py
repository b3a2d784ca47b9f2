"""The SQLite catalog: settings, documents, texts, metadata and what is committed of each segment file.

ONE transaction makes a batch visible. Rows of documents and texts never change; a replaced document is retired
(alive = 0) and keeps its row, so that readers of an older snapshot still resolve it.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import DamagedIndex, StaleReader, StoreError
from mvindex.store.durable import announced
from mvindex.store.segments import BLOCK_BYTES, Committed

FILE_NAME = "catalog.sqlite"
FORMAT_VERSION = 1
APPLICATION_ID = 0x6D766978  # "mvix", in the header of the database file
_BUSY_TIMEOUT_MS = 30_000
_WAL_BYTES = 64 << 20

# Narrow and wide rows live apart: a pass over ids or metadata must not read 13 GB of text.
_SCHEMA = """
CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(name TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE blocks(name TEXT, block INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY(name, block)) WITHOUT ROWID;
CREATE TABLE documents(doc_row INTEGER PRIMARY KEY, id TEXT NOT NULL, ordinal INTEGER NOT NULL,
    view_start INTEGER NOT NULL, num_views INTEGER NOT NULL, views_checksum INTEGER NOT NULL,
    content_hash BLOB NOT NULL, alive INTEGER NOT NULL DEFAULT 1);
CREATE UNIQUE INDEX documents_alive ON documents(id) WHERE alive;
CREATE INDEX documents_dead ON documents(id) WHERE NOT alive;
CREATE TABLE texts(doc_row INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL, spans BLOB,
    checksum INTEGER NOT NULL);
CREATE TABLE metadata(doc_row INTEGER PRIMARY KEY, json TEXT NOT NULL, checksum INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Known:
    """What the catalog holds of a living document, for deciding whether a new one differs."""

    doc_row: int
    ordinal: int
    content_hash: bytes
    metadata: str


class Catalog:
    """Connections to one catalog: a pool of readers, and transactions for the one writer."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._file = self._identity()
        _OPEN.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: all its queries see the same state."""
        connection = self._take()
        try:
            with translated(self.path):
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one write transaction, committed durably at the end, rolled back on an error."""
        self._check_identity()
        with translated(self.path):
            connection = _connect(self.path, "rw")
            try:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    with announced("commit", self.path):
                        connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            finally:
                connection.close()

    def checkpoint(self) -> None:
        """Nothing; the write-ahead log is moved into the database and emptied, unless a reader is in the way."""
        with translated(self.path):
            connection = _connect(self.path, "rw")
            try:
                connection.execute("PRAGMA busy_timeout=100")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def close(self) -> None:
        """Nothing; idle connections are closed afterwards."""
        while not self._idle.empty():
            self._idle.get().close()

    def _identity(self) -> tuple[int, int] | None:
        """Device and inode of the catalog; None when it is gone."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _check_identity(self) -> None:
        """Nothing; StaleReader when another catalog, or none, is at the path: old connections read the old one."""
        if self._identity() != self._file:
            raise StaleReader(
                f"{self.path.parent}: another index was made here since this one was opened; open it again"
            )

    def _take(self) -> sqlite3.Connection:
        self._check_identity()
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            with translated(self.path):
                return _connect(self.path, "ro")


def create(directory: Path, settings: dict[str, Any]) -> None:
    """Nothing; the directory then holds an empty catalog with these settings."""
    path = directory / FILE_NAME
    with translated(path):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(f"BEGIN; PRAGMA application_id={APPLICATION_ID}; {_SCHEMA}")
            write_settings(connection, settings)
            connection.execute("COMMIT")
        finally:
            connection.close()


def check_application(connection: sqlite3.Connection, path: Path) -> None:
    """Nothing; StoreError when the database is not one of mvindex's."""
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    if found != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program (application id {found}); not an mvindex index")


def read_settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """All settings, decoded from JSON."""
    return {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM settings")}


def write_settings(connection: sqlite3.Connection, settings: dict[str, Any]) -> None:
    """Nothing; the settings are set inside the caller's transaction."""
    rows = [(key, json.dumps(value, ensure_ascii=False)) for key, value in settings.items()]
    connection.executemany("INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)", rows)


def read_committed(connection: sqlite3.Connection, name: str) -> Committed:
    """The committed length and block checksums of a segment file; of an unknown one, nothing."""
    row = connection.execute("SELECT size_bytes FROM files WHERE name = ?", (name,)).fetchone()
    blocks = connection.execute("SELECT checksum FROM blocks WHERE name = ? ORDER BY block", (name,)).fetchall()
    checksums = np.array(blocks, dtype=np.int64).reshape(-1).view(np.uint64)
    size_bytes = int(row[0]) if row else 0
    if len(checksums) != -(-size_bytes // BLOCK_BYTES):
        raise DamagedIndex(f"{name}: {len(checksums)} block checksums for {size_bytes} bytes in the catalog")
    return Committed(name, size_bytes, checksums)


def write_committed(connection: sqlite3.Connection, before: Committed, after: Committed) -> None:
    """Nothing; length and the checksums that changed are set inside the caller's transaction."""
    connection.execute("INSERT OR REPLACE INTO files(name, size_bytes) VALUES (?, ?)", (after.name, after.size_bytes))
    sealed = before.size_bytes // BLOCK_BYTES
    changed = after.checksums[sealed:].view(np.int64).tolist()
    rows = [(after.name, sealed + offset, checksum) for offset, checksum in enumerate(changed)]
    connection.executemany("INSERT OR REPLACE INTO blocks(name, block, checksum) VALUES (?, ?, ?)", rows)


def find_known(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Known]:
    """The living documents among the ids."""
    rows = connection.execute(
        "SELECT d.id, d.doc_row, d.ordinal, d.content_hash, m.json FROM json_each(?) AS wanted "
        "JOIN documents AS d ON d.id = wanted.value AND d.alive JOIN metadata AS m ON m.doc_row = d.doc_row",
        (json.dumps(list(ids), ensure_ascii=False),),
    )
    return {doc_id: Known(row, ordinal, content_hash, meta) for doc_id, row, ordinal, content_hash, meta in rows}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Inside it, sqlite3's exceptions become StoreError or DamagedIndex that name the catalog."""
    try:
        yield
    except sqlite3.Error as err:
        # The bare class is how sqlite3 reports a malformed file; its subclasses are full disks, locks and the like.
        if type(err) is sqlite3.DatabaseError or "Could not decode" in str(err):
            raise DamagedIndex(f"{path}: {err}; the catalog cannot be read") from err
        raise StoreError(f"{path}: {err}") from err


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if mode == "ro" and _is_sealed(path):
        uri += "&immutable=1"
    # Connections go from thread to thread through the pool, one user at a time.
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    return connection


def _is_sealed(path: Path) -> bool:
    """True on read-only media: SQLite cannot make its shared-memory file there, and nobody can write either."""
    is_read_only = bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    return is_read_only and not path.with_name(path.name + "-wal").exists()


def _close_idle() -> None:
    """Nothing; no connection waits in a pool. SQLite's locks belong to a process: a forked child must inherit none."""
    for open_catalog in list(_OPEN):
        open_catalog.close()


_OPEN: weakref.WeakSet[Catalog] = weakref.WeakSet()
os.register_at_fork(before=_close_idle)
