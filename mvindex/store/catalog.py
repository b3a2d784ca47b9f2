"""The SQLite catalog: settings, documents, texts, metadata and the committed state of each segment file.

ONE transaction makes a batch visible. Rows of documents and texts never change; a replaced document is marked deleted
(alive = 0) and keeps its row, so that readers of an older snapshot still find it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from mvindex.durable import audit_step, flush_to_disk
from mvindex.errors import DamagedIndex, StaleReader, StoreError
from mvindex.store import dates
from mvindex.store.connections import IdleConnections, ReadConnection, connections_to
from mvindex.store.files import check_regular, check_single_name
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.rows import document_checksum
from mvindex.store.schema import APPLICATION_ID, FILTER_FIELDS_KEY, LEXICAL_KEY, path_of, refuse_other_schema, schema_of
from mvindex.store.segments import BLOCK_BYTES, CommittedSegment

FILE_NAME = "catalog.sqlite"
_BUSY_TIMEOUT_MS = 30_000
_WAL_BYTES = 64 << 20
# Less than the size of SQLite's lock file and a page or two.
_LITTLE_ROOM_BYTES = 128 << 10
# There are not so many settings.
_MAX_SETTINGS = 1_000
# The smallest page size: SQLite's header is in the first page.
_LEAST_BYTES = 512
CHECKSUM_KEY = "checksum"
# True until the first documents decide how; False once they have.
CHOOSE_LEXICAL_KEY = "choose_lexical"
# Settings of hybrid search.
FUSION_KEY = "fusion"

# What a row's checksum covers, in this order.
DOCUMENT_COLUMNS = "d.doc_row, d.id, d.ordinal, d.view_start, d.num_views, d.views_checksum, d.content_hash"


@dataclass(frozen=True, slots=True)
class ExistingDocument:
    """The catalog's record of a live document, for deciding whether a new one differs."""

    doc_row: int
    ordinal: int
    content_hash: bytes
    metadata: str


class Catalog:
    """Connections to one catalog: a pool of readers, and transactions for the one writer."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._file, self._idle = self._identity(), IdleConnections()
        self._connections = connections_to(self.path, self._file)
        self._connections.add(self._idle)
        weakref.finalize(self, self._connections.remove, self._idle)

    @contextmanager
    def reading(self) -> Iterator[ReadConnection]:
        """Yield a connection inside one read transaction: all its queries see the same state."""
        with self._connections.used(self.path), self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[ReadConnection]:
        connection, state = self._take()
        try:
            with map_sqlite_errors(self.path):
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            if state is not None:
                self._check_unchanged(state)
        except BaseException:
            connection.close()
            # A change during the read explains whatever went wrong, and is no damage.
            self._check_unchanged(state)
            raise
        if state is None:
            self._idle.put(connection)
        else:
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one write transaction, committed durably at the end, rolled back on an error."""
        self._check_identity()
        with self._connections.used(self.path), map_sqlite_errors(self.path):
            _refuse_other_names(self.path)
            connection = _connect(self.path, "rw")
            try:
                _make_log(self.path)
                # A page whose cells do not fit is refused before anything is written into it.
                connection.execute("PRAGMA cell_size_check=ON")
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    with audit_step("commit", self.path):
                        connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            finally:
                connection.close()

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database and empty it, unless a reader is in the way."""
        with self._connections.used(self.path), map_sqlite_errors(self.path):
            connection = _connect(self.path, "rw")
            try:
                connection.execute("PRAGMA busy_timeout=100")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.remove(self._idle)

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the catalog; None when it is gone."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise StoreError(f"{self.path}: cannot be read: {err.strerror or err}") from err
        return found.st_dev, found.st_ino

    def _check_identity(self) -> None:
        """Raise StaleReader when another catalog, or none, is at the path: old connections read the old one."""
        if (found := self._identity()) != self._file:
            raise other_index(self.path.parent, is_gone=found is None)

    def _take(self) -> tuple[ReadConnection, UnlockedCatalogState | None]:
        """Return a connection; and, where SQLite cannot make its lock file, the state that must stay the same."""
        self._check_identity()
        if (idle := self._idle.take()) is not None:
            return idle, None
        with map_sqlite_errors(self.path):
            if os.access(self.path.parent, os.W_OK) or _log_of(self.path).exists():
                try:
                    return self._take_locked(), None
                except sqlite3.OperationalError as err:
                    # A full disk has no room for the lock file. Only with an empty log is the database all there is.
                    if "locked" in str(err) or _size_of(_log_of(self.path)):
                        raise
            state = self._unlocked_state()
            return _connect(self.path, "ro", is_fixed=True), state

    def _take_locked(self) -> ReadConnection:
        connection = _connect(self.path, "ro")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # makes the lock file
        except BaseException:
            connection.close()
            raise
        return connection

    def _unlocked_state(self) -> UnlockedCatalogState:
        found = self.path.stat()
        return UnlockedCatalogState(found.st_mtime_ns, found.st_size, _size_of(_log_of(self.path)))

    def _check_unchanged(self, state: UnlockedCatalogState | None) -> None:
        if state is not None and self._unlocked_state() != state:
            raise StaleReader(
                f"{self.path.parent}: changed while it was read, without permission to lock it; try again"
            )


@dataclass(frozen=True, slots=True)
class UnlockedCatalogState:
    """A catalog that is read without locks."""

    mtime_ns: int
    size_bytes: int
    log_bytes: int


def create(directory: Path, settings: Mapping[str, Any]) -> None:
    """Make an empty catalog with these settings in the directory; its terms will be those of this version."""
    if kind := settings.get(LEXICAL_KEY):
        settings = {**settings, LEXICAL_KEY: StoredLexical(StoredLexical.parse(kind).kind).setting}
    path = directory / FILE_NAME
    with map_sqlite_errors(path):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            tables = schema_of(bool(settings.get(LEXICAL_KEY)), bool(settings.get(FILTER_FIELDS_KEY)))
            connection.executescript(f"BEGIN; PRAGMA application_id={APPLICATION_ID}; {tables}")
            write_settings(connection, settings)
            connection.execute("COMMIT")
        finally:
            connection.close()


def read_settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return all settings, decoded from JSON; DamagedIndex when they do not match their checksum."""
    # No more at once: a table whose pages lead back to themselves has no end.
    rows = connection.execute("SELECT key, value FROM settings").fetchmany(_MAX_SETTINGS + 1)
    if len(rows) > _MAX_SETTINGS:
        raise DamagedIndex(f"{path_of(connection)}: expected at most {_MAX_SETTINGS:,} settings, got more")
    stored = dict(rows)
    checksum = stored.pop(CHECKSUM_KEY, None)
    try:
        settings = {key: json.loads(value) for key, value in stored.items()}
    except (ValueError, TypeError, RecursionError) as err:
        raise DamagedIndex(f"{path_of(connection)}: the settings are not valid JSON: {err}") from err
    if checksum != settings_checksum(stored):
        raise DamagedIndex(f"{path_of(connection)}: the settings do not match their checksum")
    return settings


def write_settings(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Set the settings, and the checksum of all of them, inside the caller's transaction."""
    rows = [(key, json.dumps(value, ensure_ascii=False)) for key, value in settings.items()]
    connection.executemany("INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)", rows)
    stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != ?", (CHECKSUM_KEY,)))
    checksum = (CHECKSUM_KEY, settings_checksum(stored))
    connection.execute("INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)", checksum)


def current_settings(connection: ReadConnection) -> dict[str, Any]:
    """Return all settings as of the connection's transaction, read again only where something was committed."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    kept = connection.kept_settings
    if kept is None or kept[0] != version:
        kept = connection.kept_settings = (version, read_settings(connection))
    return kept[1]


def settings_checksum(stored: Mapping[str, str]) -> str:
    """Return the checksum of all settings, JSON by key, without the checksum itself."""
    return str(xxhash.xxh3_64_hexdigest(json.dumps(sorted(stored.items())).encode()))


def read_committed(connection: sqlite3.Connection, name: str) -> CommittedSegment:
    """Return the committed length and block checksums of a segment file; of an unknown one, length 0."""
    row = connection.execute("SELECT size_bytes FROM files WHERE name = ?", (name,)).fetchone()
    blocks = connection.execute("SELECT checksum FROM blocks WHERE name = ? ORDER BY block", (name,)).fetchall()
    size_bytes = row[0] if row else 0
    if not all(type(number) is int for number in (size_bytes, *(checksum for (checksum,) in blocks))):
        raise DamagedIndex(f"{name}: its size or block checksums in the catalog are no whole numbers")
    checksums = np.array(blocks, dtype=np.int64).reshape(-1).view(np.uint64)
    if len(checksums) != -(-size_bytes // BLOCK_BYTES):
        raise DamagedIndex(f"{name}: {len(checksums)} block checksums for {size_bytes} bytes in the catalog")
    return CommittedSegment(name, size_bytes, checksums)


def write_committed(connection: sqlite3.Connection, before: CommittedSegment, after: CommittedSegment) -> None:
    """Set the length and the checksums that changed, inside the caller's transaction."""
    connection.execute("INSERT OR REPLACE INTO files(name, size_bytes) VALUES (?, ?)", (after.name, after.size_bytes))
    sealed = before.size_bytes // BLOCK_BYTES
    changed = after.checksums[sealed:].view(np.int64).tolist()
    rows = [(after.name, sealed + offset, checksum) for offset, checksum in enumerate(changed)]
    connection.executemany("INSERT OR REPLACE INTO blocks(name, block, checksum) VALUES (?, ?, ?)", rows)


def find_existing(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, ExistingDocument]:
    """Return the live documents among the ids; DamagedIndex when a row does not match its checksum."""
    rows = connection.execute(
        f"SELECT {DOCUMENT_COLUMNS}, d.checksum, m.json, given.value FROM json_each(?) AS given "  # noqa: S608
        "JOIN documents AS d ON d.id = given.value AND d.alive LEFT JOIN metadata AS m ON m.doc_row = d.doc_row",
        (json.dumps(list(ids), ensure_ascii=False),),
    )
    return {row[1]: _existing(row) for row in rows}


def _existing(row: tuple[Any, ...]) -> ExistingDocument:
    check_document(row[:8])
    if row[1] != row[9]:
        raise DamagedIndex(f"{FILE_NAME}: the index of ids leads from {row[9]!r} to document {row[1]!r}")
    if row[8] is None:
        raise DamagedIndex(f"{FILE_NAME}: the metadata of document {row[1]!r} (row {row[0]}) is missing")
    return ExistingDocument(doc_row=row[0], ordinal=row[2], content_hash=row[6], metadata=row[8])


def check_document(row: tuple[Any, ...]) -> None:
    """Raise DamagedIndex when the row, DOCUMENT_COLUMNS and its checksum, is not as it was written."""
    if document_checksum(row[:7]) != row[7]:
        raise DamagedIndex(f"{FILE_NAME}: row {row[0]}, of document {row[1]!r}, does not match its checksum")


@contextmanager
def map_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn sqlite3's exceptions into StoreError or DamagedIndex that name the catalog."""
    try:
        yield
    except sqlite3.Error as err:
        # The bare class is how sqlite3 reports a malformed file; its subclasses are full disks, locks and the like.
        if type(err) is sqlite3.DatabaseError or "Could not decode" in str(err):
            raise DamagedIndex(f"{path}: {err}; the catalog cannot be read") from err
        raise StoreError(f"{path}: {err}{_room_hint(path)}") from err
    except UnicodeDecodeError as err:  # sqlite3, of a message about a schema that is damaged
        raise DamagedIndex(f"{path}: text in it is not valid UTF-8 ({err}); the catalog cannot be read") from err


def _refuse_other_names(path: Path) -> None:
    """Raise StoreError when the catalog has another name: in a copy made of hard links, writes would mix."""
    with suppress(FileNotFoundError):
        if path.stat().st_nlink > 1:
            raise StoreError(
                f"{path} is one file under {path.stat().st_nlink} names (hard links): writes to one copy of the index "
                "would change the others; copy it with `mvindex snapshot`, or `cp -r`"
            )


def _connect(path: Path, mode: str, is_fixed: bool = False) -> ReadConnection:
    """Open a connection. is_fixed: the file does not change, as on read-only media: no lock file is needed."""
    check_regular(path)
    # A copy of hard links, as `cp -al` makes one, may be read: all of its files have several names.
    is_copy = mode != "rw" and path.exists() and path.stat().st_nlink > 1
    for log in (_log_of(path), path.with_name(path.name + "-shm")):
        (check_regular if is_copy else check_single_name)(log)
    size_bytes = _size_of(path)
    if size_bytes < _LEAST_BYTES:
        # By its size only: opening and closing the file would drop the locks that SQLite has in this process. And
        # SQLite would take it for a new database, and remove the log beside it.
        raise DamagedIndex(f"{path}: expected a catalog, got {size_bytes} bytes: it is gone or was cut")
    journal = path.with_name(path.name + "-journal")
    if os.path.lexists(journal):
        # SQLite would roll it into the database; a catalog keeps a log instead.
        raise StoreError(f"{journal}: a catalog has no such file; remove it")
    uri = f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if is_fixed else ''}"
    # Connections go from thread to thread through the pool, one user at a time.
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=ReadConnection)
    try:
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        refuse_other_schema(connection, path)
        dates.register(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_log(path: Path) -> None:
    """Make the catalog's log, and flush its name to disk; a log that holds commits was flushed when they were made.

    SQLite would make it, and commit even where the directory cannot be flushed: a power cut then takes the commit.
    """
    if _size_of(_log_of(path)):
        return
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        os.close(os.open(_log_of(path), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode))
        flush_to_disk(path.parent)
    except OSError as err:
        raise StoreError(f"{_log_of(path)}: cannot be made: {err.strerror or err}") from err


def _room_hint(path: Path) -> str:
    """Return the part that SQLite's message may leave out: that the disk is full."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return ""
    free_bytes = found.f_bavail * found.f_frsize
    return f"; the disk is full ({free_bytes:,} bytes are free)" if free_bytes < _LITTLE_ROOM_BYTES else ""


def _size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 when it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def other_index(directory: Path, *, is_gone: bool) -> StaleReader:
    """Return the error of a directory that no longer has the index that was opened there."""
    if is_gone:
        return StaleReader(f"{directory}: this index was moved or removed since it was opened; open it where it is now")
    return StaleReader(f"{directory}: another index was made here since this one was opened; open it again")
