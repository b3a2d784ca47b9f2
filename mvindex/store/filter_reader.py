"""Filters over the rows of one snapshot: which documents match, by columns of declared fields and by SQL for the rest.

The first filter of a snapshot checks all metadata, and the first one on ids checks all ids: a damaged row could be left
out unnoticed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.errors import DamagedIndex, QueryError
from mvindex.records import Bools
from mvindex.store.catalog import check_document
from mvindex.store.columns import (
    Column,
    ColumnFilter,
    Members,
    check_columns,
    has_members,
    read_column,
    read_members,
)
from mvindex.store.connections import FILE_NAME
from mvindex.store.fields import FieldType
from mvindex.store.filter_sql import Sql, to_sql
from mvindex.store.filters import Condition, Filter, parse_filter
from mvindex.store.rows import DOCUMENT_COLUMNS, first_wrong_metadata
from mvindex.store.schema import FILTER_FIELDS_KEY

if TYPE_CHECKING:
    from mvindex.store.reader import SnapshotReader

_FETCH_ROWS = 65_536
# Rows are looked up one by one where a scan would read so many times as many.
_FEW_ROWS = 8
# So many filters' documents are kept, a byte of each document row; of filters with up to so many values.
_KEPT_FILTERS, _KEPT_PARAMETERS = 4, 1000


class FilterReader:
    """Reads what filters look at, inside the transaction of a SnapshotReader; the snapshot keeps what was checked."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._connection, self._snapshot = reader.connection, reader.snapshot
        self._version = reader.settings.get("version")
        # The declared filter fields, name to type, as the columns have them now: the snapshot may be older.
        self._fields: Mapping[str, str] = reader.settings.get(FILTER_FIELDS_KEY) or {}

    def matching(self, condition: Filter) -> Bools:
        """Return which document rows are live and satisfy the filter, (num_rows,)."""
        return self._matching(parse_filter(condition, self._fields))

    def _matching(self, condition: Condition) -> Bools:
        if not self._fields:
            return self._select(to_sql(condition)) & self._snapshot.alive
        # Version 0.2 looked for keys between dots only.
        names = [name for name in self._fields if "." not in name or self._has_members(name)]
        columns = ColumnFilter(self._snapshot.num_rows, names, self, self._select_within)
        return columns.matching(condition) & self._snapshot.alive

    def _select(self, sql: Sql) -> Bools:
        """Return which rows satisfy the SQL, (num_rows,), whether they are live or not."""
        self._check_metadata()
        is_match = np.zeros(self._snapshot.num_rows, dtype=bool)
        self._mark(is_match, sql, "m.doc_row < ?", self._snapshot.num_rows)
        return is_match

    def _select_within(self, condition: Condition, within: Bools) -> Bools:
        """Return which of the rows within satisfy a parsed filter."""
        sql, rows = to_sql(condition), np.flatnonzero(within)
        if len(rows) > self._snapshot.num_rows // _FEW_ROWS:
            return self._select(sql) & within
        is_match = np.zeros(self._snapshot.num_rows, dtype=bool)
        for begin in range(0, len(rows), _FETCH_ROWS):
            given = json.dumps(rows[begin : begin + _FETCH_ROWS].tolist())
            query = (
                "SELECT m.doc_row, m.json, m.checksum FROM json_each(?) AS g JOIN metadata AS m ON m.doc_row = g.value"
            )
            count, wrong = first_wrong_metadata(self._connection.execute(query, (given,)))
            self._refuse_wrong(wrong)
            if count != len(rows[begin : begin + _FETCH_ROWS]):
                raise DamagedIndex(f"{FILE_NAME}: the metadata of document rows is missing")
            self._mark(is_match, sql, "m.doc_row IN (SELECT value FROM json_each(?))", given)
        return is_match

    def _mark(self, is_match: Bools, sql: Sql, which: str, parameter: object) -> None:
        """Mark the rows that satisfy the SQL among those that another condition with one parameter names."""
        documents = ""
        if sql.reads_documents:
            self._check_documents()
            documents = "JOIN documents AS d ON d.doc_row = m.doc_row "
        # The grammar emits fixed text only; every value of the user is a parameter.
        query = f"SELECT m.doc_row FROM metadata AS m {documents}WHERE {which} AND {sql.text}"
        cursor = self._execute_filter(query, (parameter, *sql.parameters))
        while rows := cursor.fetchmany(_FETCH_ROWS):
            is_match[np.array(rows, dtype=np.int64)[:, 0]] = True

    def column(self, name: str) -> Column:
        """Return the column of a declared filter field; kept with the snapshot."""
        snapshot = self._snapshot
        kind, before = FieldType(self._fields[name]), snapshot.columns.get(name)
        before = before if before is not None and before.type is kind else None
        column = snapshot.columns[name] = read_column(self._connection, name, kind, snapshot.num_rows, before)
        return column

    def members(self, name: str) -> Members | None:
        """Return the members of the lists in a declared filter field, kept with the snapshot; None without them."""
        snapshot = self._snapshot
        if not self._has_members(name):
            return None
        kind, before = FieldType(self._fields[name]), snapshot.members.get(name)
        before = before if before is not None and before.column.type is kind else None
        members = snapshot.members[name] = read_members(self._connection, name, kind, snapshot.num_rows, before)
        return members

    def _has_members(self, name: str) -> bool:
        return has_members(self._connection, name, self._snapshot.num_rows)

    def check_columns(self) -> None:
        """Compare the columns of declared filter fields with the metadata; DamagedIndex where they differ."""
        check_columns(self._connection, self._fields, self._snapshot.num_rows)

    def allowed(self, condition: Filter) -> Bools:
        """Return what matching() does, read-only; kept for the next searches with the same filter.

        For readers only: inside a write the same version of the catalog has several states.
        """
        parsed, kept = parse_filter(condition, self._fields), self._snapshot.filtered
        sql = to_sql(parsed)
        if len(sql.parameters) > _KEPT_PARAMETERS:
            return self._matching(parsed)
        # As text: 1, 1.0 and True are equal, and not the same filter.
        key = (self._version, sql.text, repr(sql.parameters))
        found = next((documents for known, documents in kept if known == key), None)
        if found is None:
            found = self._matching(parsed)
            found.flags.writeable = False
        others = [pair for pair in kept if pair[0] != key]
        self._snapshot.filtered = ((key, found), *others[: _KEPT_FILTERS - 1])
        return found

    def _check_metadata(self) -> None:
        """Check the metadata of all rows of the snapshot; DamagedIndex on a checksum mismatch."""
        snapshot = self._snapshot
        # Read once: another thread that searches the same snapshot may end its own check meanwhile.
        begin = snapshot.checked_metadata
        query = "SELECT doc_row, json, checksum FROM metadata WHERE doc_row >= ? AND doc_row < ?"
        rows = self._connection.execute(query, (begin, snapshot.num_rows))
        count, wrong = first_wrong_metadata(rows)
        self._refuse_wrong(wrong)
        self._refuse_missing(count, begin)
        snapshot.checked_metadata = snapshot.num_rows

    def _refuse_wrong(self, wrong: int | None) -> None:
        """Raise DamagedIndex for a row whose metadata does not match its checksum; None is no row."""
        if wrong is not None:
            found = self._connection.execute("SELECT id FROM documents WHERE doc_row = ?", (wrong,)).fetchone()
            name = f"document {found[0]!r} (row {wrong})" if found else f"row {wrong}"
            raise DamagedIndex(f"{FILE_NAME}: the metadata of {name} does not match its checksum")

    def _check_documents(self) -> None:
        """Check the ids of all rows of the snapshot; DamagedIndex on a checksum mismatch."""
        snapshot = self._snapshot
        begin = snapshot.checked_documents
        query = f"SELECT {DOCUMENT_COLUMNS}, d.checksum FROM documents AS d WHERE d.doc_row >= ? AND d.doc_row < ?"  # noqa: S608 - fixed text
        count = 0
        for row in self._connection.execute(query, (begin, snapshot.num_rows)):
            check_document(row)
            count += 1
        self._refuse_missing(count, begin)
        snapshot.checked_documents = snapshot.num_rows

    def _refuse_missing(self, count: int, begin: int) -> None:
        if count != self._snapshot.num_rows - begin:
            raise DamagedIndex(f"{FILE_NAME}: {self._snapshot.num_rows} document rows were committed; some are missing")

    def _execute_filter(self, query: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(query, parameters)
        except sqlite3.OperationalError as err:
            if "overflow" not in str(err) and "too large" not in str(err):
                raise
            raise QueryError(f"the filter is too deep or too long for SQLite: {err}") from err
