"""The SQLite catalog: settings, documents, texts, metadata and the committed state of each segment file.

ONE transaction makes a batch visible. Rows of documents and texts never change; a replaced document is marked deleted
(alive = 0) and keeps its row, so that readers of an older snapshot still find it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from mvindex.errors import DamagedIndex
from mvindex.store import id_ranges
from mvindex.store.connections import FILE_NAME, ReadConnection, map_sqlite_errors
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.rows import DOCUMENT_COLUMNS, document_checksum
from mvindex.store.schema import APPLICATION_ID, LEXICAL_KEY, path_of, schema_of
from mvindex.store.views import BLOCK_BYTES, CommittedSegment

# There are not so many settings.
_MAX_SETTINGS = 1_000
CHECKSUM_KEY = "checksum"
# True until the first documents decide how; False once they have.
CHOOSE_LEXICAL_KEY = "choose_lexical"
# Settings of hybrid search.
FUSION_KEY = "fusion"
CONFIDENCE_KEY = "confidence"


@dataclass(frozen=True, slots=True)
class ExistingDocument:
    """The catalog's record of a live document, for deciding whether a new one differs."""

    doc_row: int
    ordinal: int
    content_hash: bytes
    metadata: str


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
            tables = schema_of([key for key, value in settings.items() if value])
            connection.executescript(f"BEGIN; PRAGMA application_id={APPLICATION_ID}; {tables}")
            if settings.get(id_ranges.ID_RANGES_KEY):
                id_ranges.insert_first(connection)
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
