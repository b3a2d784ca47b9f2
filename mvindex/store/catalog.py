"""The SQLite catalog: documents, and the committed state of each segment file.

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

from mvindex.errors import DamagedIndex
from mvindex.store import id_ranges
from mvindex.store.connections import FILE_NAME, map_sqlite_errors
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.rows import DOCUMENT_COLUMNS, document_checksum
from mvindex.store.schema import APPLICATION_ID, LEXICAL_KEY, schema_of, write_settings
from mvindex.store.views import BLOCK_BYTES, CommittedSegment

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
