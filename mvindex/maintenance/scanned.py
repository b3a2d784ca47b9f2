"""A catalog that SQLite cannot read any more, row by row from its pages: checksums tell which rows are right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mvindex.errors import DamagedIndex
from mvindex.maintenance.read import CatalogRow
from mvindex.store.catalog import CHECKSUM_KEY, settings_checksum
from mvindex.store.files import KEPT_SETTINGS
from mvindex.store.recovery import Kind, Record, Source, scan_records
from mvindex.store.rows import StoreFormat, document_checksum
from mvindex.store.temporary import temporary_database, temporary_errors

# Columns after the row number, by table and format.
_TEXT_COLUMNS, _METADATA_COLUMNS = 5, 3
_DOCUMENT_COLUMNS = {StoreFormat.FLAT: 8, StoreFormat.GENERATIONS: 9}
# Of copies of a row the first is taken; what was perhaps never committed comes behind what was.
_RANKS = {Source.COMMITTED: 1, Source.UNVOUCHED: 2, Source.OUTDATED: 3, Source.CARVED: 4}
_SCHEMA = """
CREATE TABLE documents(place INTEGER PRIMARY KEY, rank, doc_row, id, ordinal, view_start, num_views, views_checksum,
    content_hash, checksum, alive);
CREATE INDEX documents_row ON documents(doc_row);
CREATE TABLE texts(place INTEGER PRIMARY KEY, rank, doc_row, title, text, spans, checksum);
CREATE INDEX texts_row ON texts(doc_row);
CREATE TABLE metadata(place INTEGER PRIMARY KEY, rank, doc_row, json, checksum);
CREATE INDEX metadata_row ON metadata(doc_row);
"""


class ScannedCatalog:
    """All that looks like a row of the catalog, in a temporary database; of copies the most trustworthy comes first."""

    def __init__(self, path: Path, version: StoreFormat, *, is_log_cut: bool = False) -> None:
        """is_log_cut: commits were acknowledged that the log no longer vouches for; what stands behind is newest."""
        self._version = version
        self._ranks = {**_RANKS, Source.UNVOUCHED: 0} if is_log_cut else _RANKS
        self._found = temporary_database()
        self._settings: dict[int, dict[str, str]] = {}
        with temporary_errors():
            self._found.executescript(f"{_SCHEMA} BEGIN")
            for record in scan_records(path):
                self._take(record)
            self._found.execute("COMMIT")

    def close(self) -> None:
        """Nothing; the temporary database is gone."""
        self._found.close()

    @property
    def num_views(self) -> int:
        """Where the views of the last document end."""
        (last,) = self._found.execute("SELECT max(view_start + num_views) FROM documents WHERE rank < 3").fetchone()
        return 0 if last is None else int(last)

    @property
    def num_rows(self) -> int:
        """One more than the highest document row that was found."""
        (last,) = self._found.execute("SELECT max(doc_row) FROM documents").fetchone()
        return 0 if last is None else int(last) + 1

    def settings(self, kept: Mapping[str, Any] | None) -> dict[str, Any]:
        """The settings of the latest sound version; else those that a new index needs.

        kept: those that stand beside the catalog; None where they are damaged too, then those on which all copies in
        the catalog agree. DamagedIndex when there are none.
        """
        sound = [page for page in self._settings.values() if self._is_sound(page)]
        decoded = [settings for settings in map(_decoded, sound) if settings is not None]
        if decoded:
            return max(decoded, key=lambda settings: int(settings["version"]))
        return dict(kept) if kept is not None else self._agreed()

    def row(self, doc_row: int) -> CatalogRow | None:
        """The first copies of a document's rows that match their checksums; None when there are none."""
        for document, checksum, alive in self._documents(doc_row):
            for text in self._found.execute(
                "SELECT title, text, spans, checksum FROM texts WHERE doc_row = ? ORDER BY rank, place", (doc_row,)
            ):
                for metadata in self._found.execute(
                    "SELECT json, checksum FROM metadata WHERE doc_row = ? ORDER BY rank, place", (doc_row,)
                ):
                    row = CatalogRow(document, checksum, alive, text, metadata)
                    if not row.faults(self._version):
                        return row
        return None

    def _documents(self, doc_row: int) -> Iterator[tuple[tuple[Any, ...], Any, bool]]:
        """Copies of a row of documents; retired when any sound one says so: no row comes back to life."""
        query = "SELECT * FROM documents WHERE doc_row = ? ORDER BY rank, place"
        copies = [row[2:] for row in self._found.execute(query, (doc_row,))]
        sound = [row for row in copies if self._version is StoreFormat.FLAT or document_checksum(row[:7]) == row[7]]
        is_alive = all(row[8] == 1 for row in sound)
        return ((row[:7], row[7], is_alive) for row in sound)

    def _take(self, record: Record) -> None:
        values = record.values
        if record.kind is Kind.INDEX:
            if len(values) == 2 and isinstance(values[0], str) and isinstance(values[1], str):
                self._settings.setdefault(record.page, {}).setdefault(values[0], values[1])
            return
        if record.rowid is None or record.rowid < 0:
            return
        rank, row = self._ranks[record.source], (record.rowid, *values[1:])
        if len(values) == _DOCUMENT_COLUMNS[self._version]:
            if self._version is StoreFormat.FLAT:
                row = (*row[:7], None, *row[7:])
            self._insert("documents", (rank, *row))
        elif len(values) == _TEXT_COLUMNS:
            self._insert("texts", (rank, *row))
        elif len(values) == _METADATA_COLUMNS:
            self._insert("metadata", (rank, *row))

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        marks = ", ".join("?" * len(row))
        self._found.execute(f"INSERT INTO {table} VALUES (NULL, {marks})", row)  # noqa: S608 - names of this file

    def _is_sound(self, page: Mapping[str, str]) -> bool:
        stored = {key: value for key, value in page.items() if key != CHECKSUM_KEY}
        if self._version is StoreFormat.FLAT:
            return {"dtype", "dim", "version"} <= stored.keys()
        return page.get(CHECKSUM_KEY) == settings_checksum(stored)

    def _agreed(self) -> dict[str, Any]:
        agreed: dict[str, Any] = {}
        for name in KEPT_SETTINGS:
            found = {page[name] for page in self._settings.values() if page.get(name, "null") != "null"}
            try:
                if len(found) > 1 or (not found and name == "dtype"):
                    raise ValueError(f"it is one of {sorted(found)}")
                agreed[name] = json.loads(found.pop()) if found else None
            except (ValueError, RecursionError) as err:
                raise DamagedIndex(f"setting {name!r} cannot be told from what is left of the catalog: {err}") from err
        return agreed


def _decoded(page: Mapping[str, str]) -> dict[str, Any] | None:
    """The settings of a page; None where one is no JSON, or the version no number."""
    try:
        settings = {key: json.loads(value) for key, value in page.items() if key != CHECKSUM_KEY}
    except (ValueError, RecursionError):
        return None
    version = settings.get("version")
    return settings if isinstance(version, int) and not isinstance(version, bool) else None
