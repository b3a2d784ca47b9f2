"""Evaluate metadata filters of an index in Milvus here, by the same SQL as for an index on disk.

Milvus' own expressions over JSON differ by version. The first filter reads ids and metadata of all documents into a
temporary database, and so does the first after a commit: own ones are seen at once, those of others after refresh().
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Ints
from mvindex.store import fields
from mvindex.store.files import temporary_database, temporary_errors
from mvindex.store.filter_sql import to_sql
from mvindex.store.filters import Filter, parse_filter
from mvindex_connectors.milvus.reader import Reader

_FIELDS = ("pk", "id", "metadata")


class FilterTable:
    """Ids and metadata of all documents, as of one commit."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._commit: Hashable = None

    def forget(self) -> None:
        """Drop the table; the next filter reads everything again."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def matching(self, condition: Filter, reader: Reader, settings: Mapping[str, Any]) -> Ints:
        """Return the numbers of the documents that match, rising; settings: those of the last commit that was seen."""
        sql = to_sql(parse_filter(condition))
        commit = reader.collection, settings["index_id"], settings["version"]
        with self._lock, temporary_errors():
            if self._commit != commit:
                self._drop()
            if self._connection is None:
                self._connection, self._commit = _filled(reader, int(settings["next_document"])), commit
            query = (
                "SELECT m.doc_row FROM metadata AS m JOIN documents AS d ON d.doc_row = m.doc_row "
                f"WHERE {sql.text} ORDER BY m.doc_row"
            )
            try:
                rows = self._connection.execute(query, sql.parameters).fetchall()
            except sqlite3.OperationalError as err:
                if "overflow" not in str(err) and "too large" not in str(err):
                    raise
                raise QueryError(
                    f"filter: expected one that SQLite can evaluate, got one too deep or too long: {err}"
                ) from err
        return np.array(rows, dtype=np.int64).reshape(-1)


def _filled(reader: Reader, next_document: int) -> sqlite3.Connection:
    connection = temporary_database(is_shared=True)
    fields.register(connection)
    connection.execute("CREATE TABLE documents(doc_row INTEGER PRIMARY KEY, id TEXT NOT NULL)")
    connection.execute("CREATE TABLE metadata(doc_row INTEGER PRIMARY KEY, json TEXT NOT NULL)")
    for rows in reader.each(next_document, _FIELDS):
        connection.execute("BEGIN")
        _insert(connection, rows)
        connection.execute("COMMIT")
    return connection


def _insert(connection: sqlite3.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    kept = list(rows)
    connection.executemany("INSERT INTO documents VALUES (?, ?)", [(int(row["pk"]), row["id"]) for row in kept])
    connection.executemany("INSERT INTO metadata VALUES (?, ?)", [(int(row["pk"]), row["metadata"]) for row in kept])
