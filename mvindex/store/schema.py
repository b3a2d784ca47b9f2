"""The schema of a catalog and its settings; any other schema is refused before anything else is read."""

from __future__ import annotations

import json
import operator
import sqlite3
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import xxhash

from mvindex.errors import DamagedIndex, StoreError
from mvindex.store import columns, id_ranges
from mvindex.store.lexical import postings

APPLICATION_ID = 0x6D766978  # "mvix", in the header of the database file
# How texts are split into terms (see Lexical), of an index that has tables of terms.
LEXICAL_KEY = "lexical"
# Declared filter fields, name to type, of an index that has columns (see columns.py).
FILTER_FIELDS_KEY = "filter_fields"
# There are not so many settings.
_MAX_SETTINGS = 1_000
CHECKSUM_KEY = "checksum"
# How long the schema may take to read, and the instructions of SQLite between two looks at the clock.
_TIMEOUT_S, _STEPS = 5.0, 100_000
# No text of the schema is as long.
_MAX_BYTES = 1 << 20
# Narrow and wide rows live apart: a pass over ids or metadata must not read 13 GB of text.
_SCHEMA = """
CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(name TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE blocks(name TEXT, block INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY(name, block)) WITHOUT ROWID;
CREATE TABLE documents(doc_row INTEGER PRIMARY KEY, id TEXT NOT NULL, ordinal INTEGER NOT NULL,
    view_start INTEGER NOT NULL, num_views INTEGER NOT NULL, views_checksum INTEGER NOT NULL,
    content_hash BLOB NOT NULL, checksum INTEGER NOT NULL, alive INTEGER NOT NULL DEFAULT 1);
CREATE UNIQUE INDEX documents_live ON documents(id) WHERE alive;
CREATE INDEX documents_deleted ON documents(id) WHERE NOT alive;
CREATE TABLE texts(doc_row INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL, spans BLOB,
    checksum INTEGER NOT NULL);
CREATE TABLE metadata(doc_row INTEGER PRIMARY KEY, json TEXT NOT NULL, checksum INTEGER NOT NULL);
"""
# The tables that an index has by its settings.
_OPTIONAL_TABLES = {
    LEXICAL_KEY: postings.SCHEMA,
    FILTER_FIELDS_KEY: columns.SCHEMA,
    id_ranges.ID_RANGES_KEY: id_ranges.SCHEMA,
}
_TABLES = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"


def check_application(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError when the database is not one of mvindex's."""
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    if found != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program (application id {found}); not an mvindex index")


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise DamagedIndex when the tables are not those that create() makes for an index of these settings."""
    found = connection.execute(_TABLES).fetchall()
    has_settings = "settings" in {name for _, name, _ in found}
    query = "SELECT key FROM settings WHERE key IN (?, ?, ?) AND value NOT IN ('null', '{}', 'false')"
    optional = {key for (key,) in connection.execute(query, tuple(_OPTIONAL_TABLES))} if has_settings else set()
    if found != _expected_tables(frozenset(optional)):
        raise DamagedIndex(f"{path_of(connection)}: its tables are not those of an index")


def schema_of(keys: Collection[str]) -> str:
    """Return the statements that make the tables, those that an index has by these settings among them."""
    return _SCHEMA + "".join(tables for key, tables in _OPTIONAL_TABLES.items() if key in keys)


@cache
def _expected_tables(keys: frozenset[str]) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema_of(keys))
        return empty.execute(_TABLES).fetchall()


def refuse_other_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DamagedIndex unless the schema holds only what create() makes, before anything else is read.

    A view in place of a table may never end; a trigger writes what nobody asked for. Missing tables are for
    check_schema() to name, and for salvage to do without; so is a single character that is not as it was written.
    """
    max_bytes = _limit_texts(connection, _MAX_BYTES)
    # An expression of the schema may call only functions without effects.
    connection.execute("PRAGMA trusted_schema=OFF")
    ends = time.monotonic() + _TIMEOUT_S
    connection.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    try:
        known = _expected_tables(frozenset(_OPTIONAL_TABLES))
        for row in connection.execute(f"{_TABLES} LIMIT {len(known) + 1}"):
            if row not in known and not any(_is_one_character_off(row, each) for each in known):
                check_application(connection, path)
                kind, name, _ = row
                raise DamagedIndex(f"{path}: expected the tables of an index only, got a {kind!s:.20} {name!r:.60}")
    except sqlite3.DataError as err:
        raise DamagedIndex(f"{path}: expected the tables of an index only, got a schema of long texts") from err
    finally:
        _limit_texts(connection, max_bytes)
        connection.set_progress_handler(None, 0)
        connection.text_factory = str


def _limit_texts(connection: sqlite3.Connection, max_bytes: int) -> int:
    """Set how many bytes a row or a text may have; return the limit before. Python has a way to do so since 3.11."""
    if sys.version_info < (3, 11):
        return max_bytes
    return connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_bytes)


def _is_one_character_off(row: tuple[object, ...], expected: tuple[object, ...]) -> bool:
    """Return whether these rows of a schema are texts of the same lengths with all but one character in common."""
    found, written = ("\0".join(map(str, each)) for each in (row, expected))
    return len(found) == len(written) and sum(map(operator.ne, found, written)) == 1


def path_of(connection: sqlite3.Connection) -> str:
    """Return the path of the database that is open."""
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


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


def write_settings(connection: sqlite3.Connection, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the settings, and the checksum of all of them, inside the caller's transaction; return what is read later."""
    rows = [(key, json.dumps(value, ensure_ascii=False)) for key, value in settings.items()]
    connection.executemany("INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)", rows)
    stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != ?", (CHECKSUM_KEY,)))
    checksum = (CHECKSUM_KEY, settings_checksum(stored))
    connection.execute("INSERT OR REPLACE INTO settings(key, value) VALUES (?, ?)", checksum)
    return {key: json.loads(value) for key, value in rows}


def settings_checksum(stored: Mapping[str, str]) -> str:
    """Return the checksum of all settings, JSON by key, without the checksum itself."""
    return str(xxhash.xxh3_64_hexdigest(json.dumps(sorted(stored.items())).encode()))
