"""The connections of this process to one catalog file: transactions of readers and of the one writer.

POSIX drops all locks that a process has on a file when it closes any descriptor of it. So SQLite keeps the descriptor
of a closed connection while another has a lock; and with a write-ahead log, each has one until it is closed. What
SQLite needs of closing connections together, and of a fork, is done here.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from mvindex.durable import audit_step, flush_to_disk
from mvindex.errors import DamagedIndex, StaleReader, StoreError
from mvindex.store import fields
from mvindex.store.files import check_regular, check_single_name
from mvindex.store.schema import read_settings, refuse_other_schema

FILE_NAME = "catalog.sqlite"
_BUSY_TIMEOUT_MS, _CHECKPOINT_TIMEOUT_MS = 30_000, 100
_WAL_BYTES = 64 << 20
# Less than the size of SQLite's lock file and a page or two.
_LITTLE_ROOM_BYTES = 128 << 10
# The smallest page size: SQLite's header is in the first page.
_LEAST_BYTES = 512


class Catalog:
    """Connections to one catalog: a pool of readers, and transactions for the one writer."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._file, self._idle, self._idle_writer = self._identity(), IdleConnections(), IdleConnections()
        self._connections = connections_to(self.path, self._file)
        for idle in (self._idle, self._idle_writer):
            self._connections.add(idle)
            weakref.finalize(self, self._connections.remove, idle)

    @contextmanager
    def reading(self) -> Iterator[ReadConnection]:
        """Yield a connection inside one read transaction: all its queries see the same state."""
        # Every search comes by here: contexts within would take a tenth of its time.
        self._connections.begin(self.path)
        try:
            connection, state = self._take()
            try:
                try:
                    connection.execute("BEGIN")
                    try:
                        yield connection
                    finally:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                except (sqlite3.Error, UnicodeDecodeError) as err:
                    raise _store_error(self.path, err) from err
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
        finally:
            self._connections.end()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one write transaction, committed durably at the end, rolled back on an error."""
        self._check_identity()
        _refuse_other_names(self.path)
        with self._writer(_BUSY_TIMEOUT_MS) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            with audit_step("commit", self.path):
                connection.execute("COMMIT")

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database and empty it, unless a reader is in the way."""
        if _size_of(_log_of(self.path)):
            with self._writer(_CHECKPOINT_TIMEOUT_MS) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _writer(self, timeout_ms: int) -> Iterator[ReadConnection]:
        """Yield the connection of the last write, or a new one where another process has written since."""
        with self._connections.used(self.path), map_sqlite_errors(self.path):
            connection = self._idle_writer.take() or _connect(self.path, "rw")
            try:
                if connection.execute("PRAGMA data_version").fetchone() != connection.opened_at:
                    connection.close()
                    connection = _connect(self.path, "rw")
                connection.execute(f"PRAGMA busy_timeout={timeout_ms}")
                yield connection
            except BaseException:
                connection.close()  # which rolls back
                raise
            self._idle_writer.put(connection)

    def close(self) -> None:
        """Close the idle connections."""
        # A writer that is closed last would remove the log.
        for idle in (self._idle_writer, self._idle):
            self._connections.remove(idle)

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


class ReadConnection(sqlite3.Connection):
    """A connection that keeps the settings that it has read."""

    # The data version when it was opened, where it writes.
    opened_at: tuple[int] | None = None
    # SQLite's data version, which every commit of others changes, and the settings as of that.
    _kept: tuple[int, dict[str, Any]] | None = None

    def settings(self) -> dict[str, Any]:
        """Return all settings as of the transaction, read again only where something was committed."""
        (version,) = self.execute("PRAGMA data_version").fetchone()
        kept = self._kept
        if kept is None or kept[0] != version:
            kept = self._kept = (version, read_settings(self))
        return kept[1]


class IdleConnections:
    """Connections of one reader of a file that wait for the next read."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ReadConnection] = queue.SimpleQueue()

    def take(self) -> ReadConnection | None:
        """Return a connection, or None where there is none."""
        # Without suppress(), which takes as long as the rest.
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def put(self, connection: ReadConnection) -> None:
        """Keep a connection."""
        self._queue.put(connection)

    def close(self) -> None:
        """Close all connections."""
        while (connection := self.take()) is not None:
            connection.close()


class FileConnections:
    """All readers of one file in this process.

    Once one of them was closed, the idle connections of all are closed when nobody reads: then SQLite closes the
    descriptors that it kept. Who reads next opens a connection again.
    """

    def __init__(self) -> None:
        # Garbage collection may close a reader in the middle of anything that has the lock.
        self.lock = RLock()
        self._idle: weakref.WeakSet[IdleConnections] = weakref.WeakSet()
        self._num_used = 0
        self._has_closed = self._is_cut = False

    def add(self, idle: IdleConnections) -> None:
        """Take a reader in."""
        with self.lock:
            self._idle.add(idle)

    def remove(self, idle: IdleConnections) -> None:
        """Close the idle connections of a reader, and what SQLite kept of connections that were closed."""
        with self.lock:
            idle.close()
            self._has_closed = True
            self._settle()

    @contextmanager
    def used(self, path: Path) -> Iterator[None]:
        """Count a user of a connection inside the block; see begin()."""
        self.begin(path)
        try:
            yield
        finally:
            self.end()

    def begin(self, path: Path) -> None:
        """Count a user of a connection; StoreError in a process that was forked while there was one.

        There SQLite believes that it has locks, which belong to the parent.
        """
        with self.lock:
            if self._is_cut:
                raise StoreError(
                    f"{path.parent}: expected a process that was forked while nobody read this index, got one forked "
                    "during a read. Start it by spawn, or before the read"
                )
            self._num_used += 1

    def end(self) -> None:
        """Count a user less; after the last one close what is due."""
        with self.lock:
            self._num_used -= 1
            self._settle()

    def _settle(self) -> None:
        if self._has_closed and not self._num_used:
            self._has_closed = False
            self.close_idle()

    def close_idle(self) -> None:
        """Close the idle connections of all readers."""
        for idle in list(self._idle):
            idle.close()

    def cut(self) -> None:
        """Note, in a process that was just forked, whether connections of its parent were in use."""
        self._is_cut = self._is_cut or self._num_used > 0


def connections_to(path: Path, identity: tuple[int, int] | None) -> FileConnections:
    """Return the connections of this process to a file, by its device and inode; of one that is gone, new ones."""
    with _FILES_LOCK:
        return _FILES.setdefault(identity or path, FileConnections())


_FILES: weakref.WeakValueDictionary[tuple[int, int] | Path, FileConnections] = weakref.WeakValueDictionary()
_FILES_LOCK = RLock()
_AT_FORK: list[FileConnections] = []


def _before_fork() -> None:
    """Close all idle connections: SQLite's locks belong to a process, and a child must inherit none."""
    _FILES_LOCK.acquire()
    _AT_FORK.extend(_FILES.values())
    for file in _AT_FORK:
        file.lock.acquire()
        file.close_idle()


def _after_fork() -> None:
    while _AT_FORK:
        _AT_FORK.pop().lock.release()
    _FILES_LOCK.release()


def _after_fork_in_child() -> None:
    for file in _AT_FORK:
        file.cut()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


@contextmanager
def map_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn sqlite3's exceptions into StoreError or DamagedIndex that name the catalog."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as err:
        raise _store_error(path, err) from err


def _store_error(path: Path, err: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """Return the error that names the catalog."""
    if isinstance(err, UnicodeDecodeError):  # sqlite3, of a message about a schema that is damaged
        return DamagedIndex(f"{path}: text in it is not valid UTF-8 ({err}); the catalog cannot be read")
    # The bare class is how sqlite3 reports a malformed file; its subclasses are full disks, locks and the like.
    if type(err) is sqlite3.DatabaseError or "Could not decode" in str(err):
        return DamagedIndex(f"{path}: {err}; the catalog cannot be read")
    return StoreError(f"{path}: {err}{_room_hint(path)}")


def _refuse_other_names(path: Path) -> None:
    """Raise StoreError when the catalog has another name: in a copy made of hard links, writes would mix."""
    with suppress(FileNotFoundError):
        if path.stat().st_nlink > 1:
            raise StoreError(
                f"{path} is one file under {path.stat().st_nlink} names (hard links): writes to one copy of the index "
                "would change the others; copy it with `mvindex snapshot`, or `cp -r`"
            )


def _connect(path: Path, mode: str, is_fixed: bool = False) -> ReadConnection:
    """Open a connection whose schema is that of an index; see _open()."""
    connection = _open(path, mode, is_fixed)
    try:
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        refuse_other_schema(connection, path)
        if mode == "ro":
            fields.register(connection)
        else:
            # A page whose cells do not fit is refused before anything is written into it.
            connection.execute("PRAGMA cell_size_check=ON")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
            _make_log(path)  # nobody removes it while this connection is open
            connection.opened_at = connection.execute("PRAGMA data_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, mode: str, is_fixed: bool = False) -> ReadConnection:
    """Open a connection. is_fixed: the file does not change, as on read-only media: no lock file is needed."""
    logs = (_log_of(path), path.with_name(path.name + "-shm"))
    check_regular(path)
    # A copy of hard links, as `cp -al` makes one, may be read: all of its files have several names.
    is_copy = mode != "rw" and path.exists() and path.stat().st_nlink > 1
    for log in logs:
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
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=ReadConnection)


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
