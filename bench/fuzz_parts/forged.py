"""An index as whoever made it up would write it: any value anywhere, and every checksum right."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash

from fuzz_parts.index_kits import CATALOG, Kit
from mvindex.store.rows import deleted_checksum, document_checksum, ids_checksum, row_checksum
from mvindex.store.schema import settings_checksum
from mvindex.store.views import ROW_DTYPE

BLOCK_BYTES = 1 << 20
TABLES = {
    "documents": "doc_row, id, ordinal, view_start, num_views, views_checksum, content_hash, checksum, alive",
    "texts": "doc_row, title, text, spans, checksum",
    "metadata": "doc_row, json, checksum",
}


@dataclass
class Forged:
    """The content of an index, to be changed; files: bytes by name, without current.json's record."""

    settings: dict[str, Any]
    tables: dict[str, list[list[Any]]]
    sizes: dict[str, Any]
    files: dict[str, bytes]
    current: dict[str, Any]
    statements: list[str] = field(default_factory=list)
    acknowledged: Any = None

    def write(self, kit: Kit, is_right: bool) -> None:
        """Write it in the place of the kit's index. is_right: with checksums that fit."""
        if is_right:
            self._fit()
        for name, content in self.files.items():
            (kit.path / name).write_bytes(content)
        (kit.path / "current.json").write_text(json.dumps(self._sealed_current()))
        folder = kit.path / "generation-000001"
        number = b"%020d" % self.acknowledged if isinstance(self.acknowledged, int) else str(self.acknowledged).encode()
        line = b"%s %s\n" % (number, xxhash.xxh3_64_hexdigest(number).encode())
        (folder / "acknowledged").write_bytes(line)
        with closing(sqlite3.connect(folder / CATALOG, isolation_level=None)) as connection:
            self._write_catalog(connection, is_right)

    def _fit(self) -> None:
        """Make the checksums of rows, sets and blocks fit the content."""
        for row in self.tables["documents"]:
            row[7] = document_checksum(tuple(row[:7]))
        ids = {row[0]: row[1] for row in self.tables["documents"]}
        for row in self.tables["texts"]:
            row[4] = row_checksum(row[0], ids.get(row[0]), *row[1:3], row[3] or b"")
        for row in self.tables["metadata"]:
            row[2] = row_checksum(row[0], row[1])
        dead = [row[0] for row in self.tables["documents"] if not row[8]]
        self.settings.setdefault("deleted", {"count": len(dead), "checksum": _dead_checksum(dead)})
        states = {"live": [row for row in self.tables["documents"] if row[8]]}
        states["deleted"] = [row for row in self.tables["documents"] if not row[8]]
        self.settings.setdefault("ids", {state: ids_of(rows) for state, rows in states.items()})

    def _sealed_current(self) -> dict[str, Any]:
        names = ("format_version", "generation", "index_id")
        text = json.dumps([self.current.get(name) for name in names])
        return {**self.current, "checksum": xxhash.xxh3_64_hexdigest(text.encode())}

    def _write_catalog(self, connection: sqlite3.Connection, is_right: bool) -> None:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        for table, columns in TABLES.items():
            connection.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * (columns.count(",") + 1))
            connection.executemany(f"INSERT OR REPLACE INTO {table}({columns}) VALUES ({marks})", self.tables[table])
        stored = {key: json.dumps(value, ensure_ascii=False) for key, value in self.settings.items()}
        connection.execute("DELETE FROM settings" if is_right else "DELETE FROM settings WHERE key != 'checksum'")
        if is_right:
            stored["checksum"] = settings_checksum(stored)
        connection.executemany("INSERT INTO settings(key, value) VALUES (?, ?)", stored.items())
        if is_right:
            connection.execute("DELETE FROM blocks")
        for name, size_bytes in self.sizes.items():
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (name, size_bytes))
            content = self.files[f"generation-000001/{name}"]
            content = content[:size_bytes] if isinstance(size_bytes, int) and size_bytes > 0 else content
            for block, begin in enumerate(range(0, len(content) if is_right else 0, BLOCK_BYTES)):
                digest = xxhash.xxh3_64_intdigest(content[begin : begin + BLOCK_BYTES])
                signed = digest - (1 << 64) if digest >> 63 else digest
                connection.execute("INSERT INTO blocks VALUES (?, ?, ?)", (name, block, signed))
        if is_right:
            self._write_ranges(connection)
        for statement in self.statements:
            connection.execute(statement)
        connection.execute("COMMIT")

    def _write_ranges(self, connection: sqlite3.Connection) -> None:
        """Write one range of all ids, as the sums over them have it."""
        connection.execute("DELETE FROM id_ranges")
        count, total = ids_of([row for row in self.tables["documents"] if row[8]])
        row = ("", count, total - (total >> 63 << 64))
        connection.execute("INSERT INTO id_ranges VALUES (?, ?, ?, ?)", (*row, row_checksum(*row)))


def ids_of(rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return the number of rows of documents, and the checksum of their ids."""
    return [len(rows), ids_checksum([(row[0], row[1]) for row in rows])]


def taken_apart(kit: Kit) -> Forged:
    """Return the content of the kit's index."""
    with closing(sqlite3.connect(kit.path / kit.name_of(CATALOG))) as connection:
        stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != 'checksum'"))
        tables = {
            table: list(map(list, connection.execute(f"SELECT {columns} FROM {table}")))
            for table, columns in TABLES.items()
        }
        sizes = dict(connection.execute("SELECT name, size_bytes FROM files"))
    # Sums over all documents are made when it is written, but where an input puts something else there.
    settings = {key: json.loads(value) for key, value in stored.items() if key not in ("deleted", "ids")}
    files = {f"generation-000001/{name}": kit.files[f"generation-000001/{name}"] for name in sizes}
    current = json.loads(kit.files["current.json"])
    return Forged(settings, tables, sizes, files, current, acknowledged=settings["version"])


def records_of(content: bytes) -> np.ndarray:
    """Return the file of document rows, to be changed."""
    return np.frombuffer(content[: len(content) // ROW_DTYPE.itemsize * ROW_DTYPE.itemsize], dtype=ROW_DTYPE).copy()


def put_views(forged: Forged, views: str, rows: str, data: np.ndarray) -> None:
    """Put these views in place, with fitting checksums of documents."""
    content = data.tobytes()
    records, row_bytes = records_of(forged.files[rows]), data.shape[1] * data.itemsize
    for number, row in enumerate(forged.tables["documents"]):
        if isinstance(row[3], int) and isinstance(row[4], int) and 0 <= row[3] < 1000 and 0 <= row[4] < 1000:
            digest = xxhash.xxh3_64_intdigest(content[row[3] * row_bytes : (row[3] + row[4]) * row_bytes])
            row[5] = digest - (1 << 64) if digest >> 63 else digest
            if number < len(records):
                records["checksum"][number] = digest
    forged.files[views], forged.files[rows] = content, records.tobytes()


def _dead_checksum(doc_rows: Sequence[Any]) -> int:
    return deleted_checksum(np.array([row for row in doc_rows if isinstance(row, int)], dtype=np.int64))
