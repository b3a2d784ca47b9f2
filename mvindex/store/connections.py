"""The connections of this process to one catalog file: what SQLite needs of closing them together, and of a fork.

POSIX drops all locks that a process has on a file when it closes any descriptor of it. So SQLite keeps the descriptor
of a closed connection while another has a lock; and with a write-ahead log, each has one until it is closed.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from mvindex.errors import StoreError


class ReadConnection(sqlite3.Connection):
    """A connection that keeps the settings that it has read.

    Attributes:
        kept_settings: SQLite's data version, which every commit of others changes, and the settings as of that.

    """

    kept_settings: tuple[int, dict[str, Any]] | None = None


class IdleConnections:
    """Connections of one reader of a file that wait for the next read."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ReadConnection] = queue.SimpleQueue()

    def take(self) -> ReadConnection | None:
        """Return a connection, or None where there is none."""
        with suppress(queue.Empty):
            return self._queue.get_nowait()
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
        """Count a user of a connection inside the block; StoreError in a process that was forked while there was one.

        There SQLite believes that it has locks, which belong to the parent.
        """
        with self.lock:
            if self._is_cut:
                raise StoreError(
                    f"{path.parent}: expected a process that was forked while nobody read this index, got one forked "
                    "during a read. Start it by spawn, or before the read"
                )
            self._num_used += 1
        try:
            yield
        finally:
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
