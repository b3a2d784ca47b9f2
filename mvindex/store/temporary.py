"""Private temporary databases of SQLite: in memory while small, in the temporary folder after, never kept."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from mvindex.errors import StoreError


def temporary_database(*, is_shared: bool = False) -> sqlite3.Connection:
    """Open a new temporary database; the caller closes it. is_shared: by threads, one at a time."""
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=not is_shared)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    return connection


@contextmanager
def temporary_errors() -> Iterator[None]:
    """Turn errors of a temporary database into a StoreError that names its folder."""
    try:
        yield
    except sqlite3.Error as err:
        # Where SQLite looks, in this order.
        folder = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108
        raise StoreError(
            f"a temporary database in {folder}: {err}; make room there, or name another folder in SQLITE_TMPDIR"
        ) from err
