"""Writes to one generation: bytes appended and fsynced first, then ONE durable transaction that makes them visible."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, MvindexError, StoreError
from mvindex.records import CountCallback, Ints, batched, no_progress
from mvindex.store import catalog, columns, id_ranges, schema
from mvindex.store.columns import append_columns, update_columns
from mvindex.store.connections import FILE_NAME
from mvindex.store.files import write_acknowledged
from mvindex.store.generation import Generation
from mvindex.store.lexical import postings
from mvindex.store.lexical.postings import append_segment
from mvindex.store.lexical.tokenizer import Lexical, StoredLexical, Tokens, tokenize_in_parts
from mvindex.store.reader import SnapshotReader
from mvindex.store.rows import (
    DOCUMENT_COLUMNS,
    Rows,
    deleted_checksum,
    first_wrong_metadata,
    ids_checksum,
    insert,
    is_whole,
    metadata_checksum,
    view_checksums,
)
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.views import ROW_DTYPE, append

logger = logging.getLogger(__name__)

# Documents that are copied in one commit.
_COPIED_DOCUMENTS = 1024
# Documents that are tokenized together.
_INDEXED_ROWS = 1024
# Documents whose metadata is read together, for columns.
_CHECKED_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The changes of one transaction: rows deleted, metadata (JSON) set by row, settings set, rows appended."""

    deleted: Sequence[int] = ()
    metadata: Mapping[int, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: Rows | None = None


class GenerationWriter:
    """Writer of one generation; keeps the state that every commit would otherwise read again, of all documents."""

    def __init__(self, generation: Generation, snapshot: Snapshot) -> None:
        self._generation = generation
        self.settings: dict[str, Any] = dict(snapshot.settings)
        self.num_rows = snapshot.num_rows
        self.num_views = snapshot.views.num_views
        self._segments = [segment.committed for segment in snapshot.segments]

    def commit(self, transaction: Transaction) -> None:
        """Make the transaction durable and visible as a whole; on an error nothing of it is."""
        rows, before, after = transaction.rows, self._segments, self._segments
        records = np.zeros(0, dtype=ROW_DTYPE)
        if rows is not None:
            records = self._records(rows)
            parts = zip(before, (rows.packed, records), strict=True)
            after = [append(self._generation.directory, segment, data) for segment, data in parts]
        tokens, fields = self._tokens(rows), self.settings.get(schema.FILTER_FIELDS_KEY) or {}
        settings = {
            **transaction.settings,
            "version": self.settings["version"] + 1,
            "deleted": self._deleted(transaction.deleted),
        }
        with self._transaction() as connection:
            for old, new in zip(before, after, strict=True):
                catalog.write_committed(connection, old, new)
            gone_sum = self._delete(connection, transaction.deleted) if transaction.deleted else 0
            added: list[tuple[int, str]] = []
            if rows is not None:
                insert(connection, self.num_rows, rows, records)
                if self.num_rows and not is_whole(connection, self.num_rows - 1):
                    # A damaged page may hand out bytes that are in use.
                    raise self._damaged(
                        f"row {self.num_rows - 1} is damaged, or would be by this write; nothing was written"
                    )
                _add_terms(connection, self.num_rows, tokens)
                if fields:
                    append_columns(connection, fields, self.num_rows, [each.metadata for each in rows.documents])
                added = [(row, document.id) for row, document in enumerate(rows.documents, self.num_rows)]
            if transaction.metadata:
                _set_metadata(connection, transaction.metadata)
                update_columns(connection, fields, transaction.metadata)
            has_ranges = self.settings.get(id_ranges.ID_RANGES_KEY)
            added_sum = id_ranges.add(connection, added) if has_ranges else ids_checksum(added)
            settings["ids"] = self._ids(len(added), added_sum, len(transaction.deleted), gone_sum)
            written = schema.write_settings(connection, settings)
        self.settings.update(written)
        self._segments = after
        if rows is not None:
            self.num_rows += len(records)
            self.num_views += len(rows.packed)
        self._acknowledge()

    def snapshot(self, previous: Snapshot) -> Snapshot:
        """Return the state that this writer has left; previous: one since the writer was made.

        It is read only where documents were deleted: their rows are not kept here.
        """
        if self.settings["deleted"] != previous.settings["deleted"]:
            return read_snapshot(self._generation, previous)
        alive = np.ones(self.num_rows, dtype=bool)
        alive[: previous.num_rows] = previous.alive
        return Snapshot(self._generation, dict(self.settings), self._segments, alive, previous)

    def copy(self, read: Callable[[Ints], Rows], doc_rows: Ints, on_progress: CountCallback = no_progress) -> None:
        """Commit the documents that `read` returns for these rows of another store, with their ordinals, in this order.

        on_progress: called with the number of documents copied since the last call.
        """
        for begin in range(0, len(doc_rows), _COPIED_DOCUMENTS):
            rows = read(doc_rows[begin : begin + _COPIED_DOCUMENTS])
            next_ordinal = max(self.settings["next_ordinal"], int(rows.ordinals.max()) + 1)
            self.commit(Transaction(rows=rows, settings={"next_ordinal": next_ordinal}))
            on_progress(len(rows.documents))

    def set_lexical(self, snapshot: Snapshot, lexical: Lexical | None, on_progress: CountCallback) -> None:
        """Build the lexical index of all rows, or remove it (None), in one transaction.

        snapshot: this writer's state. on_progress: called with the number of rows done since the last call.
        """
        stored_as = None if lexical is None else StoredLexical(lexical).setting
        settings: dict[str, Any] = {schema.LEXICAL_KEY: stored_as, "version": self.settings["version"] + 1}
        if catalog.CHOOSE_LEXICAL_KEY in self.settings:
            settings[catalog.CHOOSE_LEXICAL_KEY] = False
        with self._transaction() as connection:
            for table in postings.TABLES:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            if lexical is not None:
                for statement in filter(str.strip, postings.SCHEMA.split(";")):
                    connection.execute(statement)
                reader = SnapshotReader(connection, snapshot, self.settings)
                for begin in range(0, self.num_rows, _INDEXED_ROWS):
                    rows = range(begin, min(begin + _INDEXED_ROWS, self.num_rows))
                    stored = reader.stored(rows)
                    _add_terms(
                        connection, begin, tokenize_in_parts([stored[row].lexical_text for row in rows], lexical)
                    )
                    on_progress(len(rows))
            written = schema.write_settings(connection, settings)
        self.settings.update(written)
        self._acknowledge()

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Build the columns of these fields, name to type, from the metadata of all rows; {} removes all columns."""
        settings = {schema.FILTER_FIELDS_KEY: dict(fields), "version": self.settings["version"] + 1}
        with self._transaction() as connection:
            connection.execute("DROP TABLE IF EXISTS columns")
            if fields:
                connection.execute(columns.SCHEMA)
                query = (
                    "SELECT doc_row, json, checksum FROM metadata WHERE doc_row >= ? AND doc_row < ? ORDER BY doc_row"
                )
                for begin in range(0, self.num_rows, _CHECKED_ROWS):
                    rows = connection.execute(query, (begin, begin + _CHECKED_ROWS)).fetchall()
                    _, wrong = first_wrong_metadata(rows)
                    if wrong is not None:
                        raise DamagedIndex(f"{FILE_NAME}: the metadata of row {wrong} does not match its checksum")
                    append_columns(connection, fields, begin, [dumped for _, dumped, _ in rows])
            written = schema.write_settings(connection, settings)
        self.settings.update(written)
        self._acknowledge()

    def _tokens(self, rows: Rows | None) -> list[Tokens]:
        """Return the terms of the documents where there is a lexical index; counted before the transaction begins."""
        setting = self.settings.get(schema.LEXICAL_KEY)
        if rows is None or setting is None:
            return []
        texts = [document.lexical_text for document in rows.documents]
        stored = StoredLexical.parse(setting)
        stored.check_version(self._generation.directory.parent)
        return list(tokenize_in_parts(texts, stored.kind))

    def _acknowledge(self) -> None:
        """Note the version as acknowledged; a failure is only logged, since the write itself is durable."""
        try:
            write_acknowledged(self._generation.directory, self.settings["version"])
        except (OSError, MvindexError) as err:
            logger.warning(
                "%s: the write is stored, but was not noted as acknowledged: %s", self._generation.directory, err
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction on the state that this writer left."""
        with self._generation.catalog.writing() as connection:
            version = schema.read_settings(connection)["version"]
            if version != self.settings["version"]:
                path = self._generation.catalog.path
                raise StoreError(
                    f"{path}: expected version {self.settings['version']}, which this writer committed, got {version}"
                )
            self._check_ends(connection)
            yield connection

    def _check_ends(self, connection: sqlite3.Connection) -> None:
        """Check that the tables end where this writer left them: rows put behind a lost end would hide the loss."""
        for table in ("documents", "texts", "metadata"):
            (last,) = connection.execute(f"SELECT max(doc_row) FROM {table}").fetchone()  # noqa: S608 - fixed names
            if (-1 if last is None else last) != self.num_rows - 1:
                raise self._damaged(f"table {table}: expected {self.num_rows} committed rows, got a last row {last}")

    def _damaged(self, what: str) -> DamagedIndex:
        return DamagedIndex(f"{self._generation.catalog.path}: {what}")

    def _deleted(self, doc_rows: Sequence[int]) -> dict[str, int]:
        """Return count and checksum of all deleted rows, with these added."""
        before: dict[str, int] = self.settings["deleted"]
        if not doc_rows:
            return before
        added = deleted_checksum(np.array(doc_rows, dtype=np.int64))
        return {"count": before["count"] + len(doc_rows), "checksum": (before["checksum"] + added) % (1 << 64)}

    def _delete(self, connection: sqlite3.Connection, doc_rows: Sequence[int]) -> int:
        """Mark the rows deleted and take them, some at a time, out of the ranges of ids; return their ids' checksum."""
        has_ranges = self.settings.get(id_ranges.ID_RANGES_KEY)
        remove = partial(id_ranges.remove, connection) if has_ranges else ids_checksum
        total = sum(map(remove, batched(_ids_of(connection, doc_rows), _INDEXED_ROWS)))
        values = ((int(row),) for row in doc_rows)
        _update(connection, "UPDATE documents SET alive = 0 WHERE doc_row = ?", values, len(doc_rows))
        return total

    def _ids(self, num_added: int, added_sum: int, num_gone: int, gone_sum: int) -> dict[str, list[int]]:
        """Return count and checksum of the ids of live and of deleted rows, after these have changed."""
        (live, live_sum), (deleted, deleted_sum) = self.settings["ids"]["live"], self.settings["ids"]["deleted"]
        return {
            "live": [live + num_added - num_gone, (live_sum + added_sum - gone_sum) % (1 << 64)],
            "deleted": [deleted + num_gone, (deleted_sum + gone_sum) % (1 << 64)],
        }

    def _records(self, rows: Rows) -> npt.NDArray[Any]:
        records = np.zeros(len(rows.documents), dtype=ROW_DTYPE)
        records["ordinal"] = rows.ordinals
        records["view_start"] = self.num_views + rows.starts[:-1]
        records["checksum"] = view_checksums(rows.packed, rows.starts)
        return records


def _add_terms(connection: sqlite3.Connection, first_row: int, batches: Iterable[Tokens]) -> None:
    """Add the terms of the rows from first_row on to the lexical index."""
    for tokens in batches:
        append_segment(connection, first_row, tokens)
        first_row += len(tokens.lengths)


def _ids_of(connection: sqlite3.Connection, doc_rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the rows with their ids; DamagedIndex when one does not match its checksum."""
    query = f"SELECT {DOCUMENT_COLUMNS}, d.checksum FROM documents AS d WHERE d.doc_row = ?"  # noqa: S608
    for doc_row in doc_rows:
        row = connection.execute(query, (int(doc_row),)).fetchone()
        catalog.check_document(row)
        yield row[0], row[1]


def _set_metadata(connection: sqlite3.Connection, updates: Mapping[int, str]) -> None:
    values = [(dumped, metadata_checksum(int(row), dumped), int(row)) for row, dumped in updates.items()]
    _update(connection, "UPDATE metadata SET json = ?, checksum = ? WHERE doc_row = ?", values, len(values))


def _update(connection: sqlite3.Connection, statement: str, values: Iterable[tuple[Any, ...]], expected: int) -> None:
    """Run the statement with each of the values; DamagedIndex unless `expected` rows have changed."""
    changed = connection.executemany(statement, values).rowcount
    if changed != expected:
        raise DamagedIndex(f"{FILE_NAME}: expected {expected} rows to change, got {changed}")
