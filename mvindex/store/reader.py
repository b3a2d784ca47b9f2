"""Reader of one snapshot's texts, metadata and filters; a row is checked when this process first reads it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import DamagedIndex, QueryError, StoreError
from mvindex.records import ALL_FIELDS, Bools, Document, Field, Ints, Span
from mvindex.store.byte_limit import limited
from mvindex.store.catalog import check_document, find_existing
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
from mvindex.store.rows import (
    DOCUMENT_COLUMNS,
    Batch,
    Rows,
    StoredRow,
    first_wrong_metadata,
    metadata_checksum,
    text_checksum,
    unpack_span,
    unpack_spans,
)
from mvindex.store.schema import FILTER_FIELDS_KEY
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import PackedViews

_FETCH_ROWS = 65_536
# Rows are looked up one by one where a scan would read so many times as many.
_FEW_ROWS = 8
# So many filters' documents are kept, a byte of each document row; of filters with up to so many values.
_KEPT_FILTERS, _KEPT_PARAMETERS = 4, 1000
_COLUMNS = f"{DOCUMENT_COLUMNS}, d.checksum"


class StoredDocument(NamedTuple):
    """A document as the store holds it; metadata and spans are decoded when they are asked for.

    Attributes:
        id: The id.
        title: The title; empty if it was not read.
        text: The text; empty if it was not read.
        metadata_json: A JSON object.
        packed_spans: See pack_spans().

    """

    id: str
    title: str
    text: str
    metadata_json: str
    packed_spans: bytes | None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, decoded anew each time."""
        if self.metadata_json == "{}":
            return {}
        found: dict[str, Any] = json.loads(self.metadata_json)
        return found

    @property
    def spans(self) -> Ints:
        """The spans of all views, (k, 2) int64, -1 where a view stands for no span; no rows where none does."""
        return unpack_spans(self.packed_spans)

    def span(self, slot: int) -> Span | None:
        """Return the span that a view stands for; None where it stands for none."""
        return unpack_span(self.packed_spans, slot)

    def only(self, fields: Collection[Field]) -> StoredDocument:
        """Return the document with these fields only."""
        return StoredDocument(
            self.id,
            self.title if Field.TITLE in fields else "",
            self.text if Field.TEXT in fields else "",
            self.metadata_json if Field.METADATA in fields else "{}",
            self.packed_spans if Field.TEXT in fields else None,
        )


# What StoredDocument._make() calls, which takes twice as long.
_AS_TUPLE: Callable[[type[StoredDocument], Iterable[Any]], StoredDocument] = tuple.__new__


class SnapshotReader:
    """Reads one snapshot's rows of the catalog, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, snapshot: Snapshot, settings: Mapping[str, Any]) -> None:
        """Read inside the connection's transaction; settings: the catalog's in it, which may be later."""
        self.connection = connection
        self.snapshot = snapshot
        self.settings, self._version = settings, settings.get("version")

    def matching(self, condition: Filter) -> Bools:
        """Return which document rows are live and satisfy the filter, (num_rows,).

        The first filter of a snapshot checks all metadata, and the first one on ids checks all ids: a damaged row could
        be left out unnoticed.
        """
        return self._matching(parse_filter(condition, self._fields))

    @property
    def _fields(self) -> Mapping[str, str]:
        """The declared filter fields, name to type."""
        return self.snapshot.settings.get(FILTER_FIELDS_KEY) or {}

    def _matching(self, condition: Condition) -> Bools:
        if not self._fields:
            return self._select(to_sql(condition)) & self.snapshot.alive
        # Version 0.2 looked for keys between dots only.
        names = [name for name in self._fields if "." not in name or self._has_members(name)]
        columns = ColumnFilter(self.snapshot.num_rows, names, self, self._select_within)
        return columns.matching(condition) & self.snapshot.alive

    def _select(self, sql: Sql) -> Bools:
        """Return which rows satisfy the SQL, (num_rows,), whether they are live or not."""
        self._check_metadata()
        is_match = np.zeros(self.snapshot.num_rows, dtype=bool)
        self._mark(is_match, sql, "m.doc_row < ?", self.snapshot.num_rows)
        return is_match

    def _select_within(self, condition: Condition, within: Bools) -> Bools:
        """Return which of the rows within satisfy a parsed filter."""
        sql, rows = to_sql(condition), np.flatnonzero(within)
        if len(rows) > self.snapshot.num_rows // _FEW_ROWS:
            return self._select(sql) & within
        is_match = np.zeros(self.snapshot.num_rows, dtype=bool)
        for begin in range(0, len(rows), _FETCH_ROWS):
            given = json.dumps(rows[begin : begin + _FETCH_ROWS].tolist())
            query = (
                "SELECT m.doc_row, m.json, m.checksum FROM json_each(?) AS g JOIN metadata AS m ON m.doc_row = g.value"
            )
            count, wrong = first_wrong_metadata(self.connection.execute(query, (given,)))
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
        snapshot = self.snapshot
        kind, before = FieldType(self._fields[name]), snapshot.columns.get(name)
        before = before if before is not None and before.type is kind else None
        column = snapshot.columns[name] = read_column(self.connection, name, kind, snapshot.num_rows, before)
        return column

    def members(self, name: str) -> Members | None:
        """Return the members of the lists in a declared filter field, kept with the snapshot; None without them."""
        snapshot = self.snapshot
        if not self._has_members(name):
            return None
        kind, before = FieldType(self._fields[name]), snapshot.members.get(name)
        before = before if before is not None and before.column.type is kind else None
        members = snapshot.members[name] = read_members(self.connection, name, kind, snapshot.num_rows, before)
        return members

    def _has_members(self, name: str) -> bool:
        return has_members(self.connection, name, self.snapshot.num_rows)

    def check_columns(self) -> None:
        """Compare the columns of declared filter fields with the metadata; DamagedIndex where they differ."""
        check_columns(self.connection, self._fields, self.snapshot.num_rows)

    def allowed(self, condition: Filter) -> Bools:
        """Return what matching() does, read-only; kept for the next searches with the same filter.

        For readers only: inside a write the same version of the catalog has several states.
        """
        parsed, kept = parse_filter(condition, self._fields), self.snapshot.filtered
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
        self.snapshot.filtered = ((key, found), *others[: _KEPT_FILTERS - 1])
        return found

    def find(self, doc_id: str) -> int | None:
        """Return the row of the document that has this id in the snapshot, or None; see Generation.check_not_live()."""
        # Two queries, each on its own partial index: a document deleted since the snapshot is still live in it. Of one
        # that was replaced a thousand times only the last row of the snapshot is read.
        for state, condition in (("live", "alive"), ("deleted", "NOT alive")):
            query = (
                f"SELECT {_COLUMNS} FROM documents AS d INDEXED BY documents_{state} "  # noqa: S608 - fixed text
                f"WHERE {condition} AND id = ? AND doc_row < ? ORDER BY doc_row DESC LIMIT 1"
            )
            for row in self.connection.execute(query, (doc_id, self.snapshot.num_rows)):
                check_document(row)
                if row[1] != doc_id:
                    raise DamagedIndex(f"{FILE_NAME}: the index of ids leads from {doc_id!r} to document {row[1]!r}")
                if self.snapshot.alive[row[0]]:
                    return int(row[0])
        self.snapshot.source.check_not_live(self.connection, [doc_id], self.settings)
        if self._version != self.snapshot.settings["version"]:
            # It might have been deleted since the snapshot.
            self.snapshot.source.check_ids(self.connection, ["deleted"])
        return None

    def ids(self, doc_rows: Sequence[int]) -> dict[int, str]:
        """Return the id of each document row."""
        return {row: stored.id for row, stored in self.stored(doc_rows).items()}

    def hit_documents(
        self, doc_rows: Collection[int], fields: Collection[Field] = ALL_FIELDS
    ) -> dict[int, StoredDocument]:
        """Return what documents() does, of whole documents that were shown lately from memory."""
        if not ALL_FIELDS.issubset(fields):
            return self.documents(doc_rows, fields)
        recent = self.snapshot.source.recent_documents(self._version)
        found = {row: _AS_TUPLE(StoredDocument, each) for row, each in recent.find(doc_rows).items()}
        if len(found) < len(doc_rows):
            read = self.documents([row for row in doc_rows if row not in found])
            recent.add({row: tuple(each) for row, each in read.items()})
            found |= read
        return found

    def documents(self, doc_rows: Collection[int], fields: Collection[Field] = ALL_FIELDS) -> dict[int, StoredDocument]:
        """Return the documents of these rows, by row, verified where this process reads them for the first time.

        Args:
            doc_rows: Document rows.
            fields: What is read beside the id; the rest is left empty.

        Raises:
            DamagedIndex: When a document does not match its checksum, or its metadata is no JSON object.

        """
        verified, wanted = self.snapshot.source.verified, sorted(set(doc_rows))
        fresh = verified.without_texts(wanted)
        known = [row for row in wanted if row not in fresh] if fresh else wanted
        found = {}
        if known:
            rows = list(limited(self.connection.execute(_query_of(frozenset(fields)), (str(known),))))
            fresh |= verified.without_metadata(rows) if Field.METADATA in fields else set()
            found = {row[0]: StoredDocument(row[2], row[3], row[4], row[5], row[6]) for row in rows}
            fresh |= set(known).difference(found) if len(found) != len(known) else set()
        if fresh:
            found |= self._verified(fresh, fields)
        return found

    def _verified(self, doc_rows: set[int], fields: Collection[Field]) -> dict[int, StoredDocument]:
        """Read the documents of these rows whole, check them, and remember that they are sound; return the fields."""
        rows: list[int] = []
        are_all = ALL_FIELDS.issubset(fields)

        def documents() -> Iterator[StoredDocument]:
            for row in self._rows(sorted(doc_rows)):
                rows.append(row[0])
                whole = self._verified_one(row)
                yield whole if are_all else whole.only(fields)

        found = list(limited(documents()))
        return dict(zip(rows, found, strict=True))

    def _verified_one(self, row: tuple[Any, ...]) -> StoredDocument:
        stored = self._stored(row, is_shown=True)
        whole = StoredDocument(stored.id, stored.title, stored.text, stored.metadata, stored.spans)
        _check_metadata(whole)
        self.snapshot.source.verified.add(row[0], metadata_checksum=row[-1])
        return whole

    def stored(self, doc_rows: Sequence[int]) -> dict[int, StoredRow]:
        """Return the documents of these rows as they are written, by row, each checked."""
        rows = self._rows(sorted({int(row) for row in doc_rows}))
        return {row[0]: self._stored(row, is_shown=False) for row in rows}

    def rows(self, doc_rows: Ints) -> Rows:
        """Return the documents of these rows with their views, as they are written; each checked."""
        stored = self.stored(doc_rows.tolist())
        packed, starts = self.snapshot.views.fetch(doc_rows)
        documents = [stored[row] for row in doc_rows.tolist()]
        return Rows(documents, self.snapshot.views.ordinals(doc_rows), packed, starts)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the live documents, by rising ordinals, up to `size` at a time; DamagedIndex when one is not sound."""
        live = self.snapshot.rows_by_ordinal
        for begin in range(0, len(live), size):
            yield self.batch(live[begin : begin + size])

    def batch(self, doc_rows: Ints) -> Batch:
        """Return the documents of these rows as they are stored; DamagedIndex when one is not sound."""
        documents, ordinals, packed, starts = self.rows(doc_rows)
        spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
        for document, first in zip(documents, starts.tolist(), strict=False):
            own = unpack_spans(document.spans)
            spans[first : first + len(own)] = own
        return Batch(
            documents=[Document(each.id, each.text, each.title, json.loads(each.metadata)) for each in documents],
            views=PackedViews(packed, starts, spans),
            content_hashes=[each.content_hash for each in documents],
            ordinals=ordinals,
        )

    def find_live(self, ids: Sequence[str]) -> Ints:
        """Return the rows of the ids that were in the snapshot and still are, (m,) int64."""
        found = find_existing(self.connection, ids).values()
        rows = np.array([known.doc_row for known in found if known.doc_row < self.snapshot.num_rows], dtype=np.int64)
        return rows[self.snapshot.alive[rows]]

    def _rows(self, doc_rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the catalog with these numbers; DamagedIndex when one is missing."""
        rows = self.connection.execute(
            f"SELECT {_COLUMNS}, t.title, t.text, t.spans, t.checksum, m.json, m.checksum "  # noqa: S608 - fixed text
            "FROM json_each(?) AS given "
            "JOIN documents AS d ON d.doc_row = given.value "
            "JOIN texts AS t ON t.doc_row = d.doc_row JOIN metadata AS m ON m.doc_row = d.doc_row",
            (str(doc_rows),),
        )
        missing = set(doc_rows)
        for row in rows:
            missing.discard(row[0])
            yield row
        if missing:
            raise DamagedIndex(f"{FILE_NAME}: document row {min(missing)} was committed, and is missing")

    def _stored(self, row: tuple[Any, ...], is_shown: bool) -> StoredRow:
        """Return a document that was checked.

        is_shown: only id, texts and metadata are used, whose own checksums cover them; the row of documents, which
        says where the views are, is then not checked.
        """
        if not is_shown:
            check_document(row)
        doc_row, doc_id, num_views, content_hash = row[0], row[1], row[4], row[6]
        title, text, spans, checksum, metadata, metadata_sum = row[8:]
        if text_checksum(doc_row, doc_id, title, text, spans) != checksum:
            raise DamagedIndex(
                f"{FILE_NAME}: id or text of document {doc_id!r} (row {doc_row}) do not match their checksum"
            )
        if metadata_checksum(doc_row, metadata) != metadata_sum:
            raise DamagedIndex(
                f"{FILE_NAME}: the metadata of document {doc_id!r} (row {doc_row}) does not match its checksum"
            )
        if not are_texts((doc_id, title, text, metadata), spans, num_views):
            raise DamagedIndex(
                f"{FILE_NAME}: texts of document {doc_id!r} (row {doc_row}), or spans for its {num_views} views, are "
                "of other types or lengths"
            )
        return StoredRow(doc_id, title, text, metadata, spans, content_hash)

    def _check_metadata(self) -> None:
        """Check the metadata of all rows of the snapshot; DamagedIndex on a checksum mismatch."""
        snapshot = self.snapshot
        # Read once: another thread that searches the same snapshot may end its own check meanwhile.
        begin = snapshot.checked_metadata
        query = "SELECT doc_row, json, checksum FROM metadata WHERE doc_row >= ? AND doc_row < ?"
        rows = self.connection.execute(query, (begin, snapshot.num_rows))
        count, wrong = first_wrong_metadata(rows)
        self._refuse_wrong(wrong)
        self._refuse_missing(count, begin)
        snapshot.checked_metadata = snapshot.num_rows

    def _refuse_wrong(self, wrong: int | None) -> None:
        """Raise DamagedIndex for a row whose metadata does not match its checksum; None is no row."""
        if wrong is not None:
            found = self.connection.execute("SELECT id FROM documents WHERE doc_row = ?", (wrong,)).fetchone()
            name = f"document {found[0]!r} (row {wrong})" if found else f"row {wrong}"
            raise DamagedIndex(f"{FILE_NAME}: the metadata of {name} does not match its checksum")

    def _check_documents(self) -> None:
        """Check the ids of all rows of the snapshot; DamagedIndex on a checksum mismatch."""
        snapshot = self.snapshot
        begin = snapshot.checked_documents
        query = f"SELECT {_COLUMNS} FROM documents AS d WHERE d.doc_row >= ? AND d.doc_row < ?"  # noqa: S608 - fixed text
        count = 0
        for row in self.connection.execute(query, (begin, snapshot.num_rows)):
            check_document(row)
            count += 1
        self._refuse_missing(count, begin)
        snapshot.checked_documents = snapshot.num_rows

    def _refuse_missing(self, count: int, begin: int) -> None:
        if count != self.snapshot.num_rows - begin:
            raise DamagedIndex(f"{FILE_NAME}: {self.snapshot.num_rows} document rows were committed; some are missing")

    def _execute_filter(self, query: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self.connection.execute(query, parameters)
        except sqlite3.OperationalError as err:
            if "overflow" not in str(err) and "too large" not in str(err):
                raise
            raise QueryError(f"the filter is too deep or too long for SQLite: {err}") from err


def are_texts(texts: Sequence[object], spans: object, num_views: int) -> bool:
    """Return whether the types are those that mvindex writes: text everywhere, and spans for all views, or none.

    A checksum does not cover types: a forged row has a matching checksum.
    """
    has_spans = spans is None or (isinstance(spans, bytes) and len(spans) == 8 * num_views)
    return has_spans and all(isinstance(text, str) for text in texts)


@cache
def _query_of(fields: frozenset[Field]) -> str:
    """Return the query of some fields of given rows; each table that no field needs costs a look-up less."""
    has_texts = not fields.isdisjoint((Field.TEXT, Field.TITLE))
    title = "t.title" if Field.TITLE in fields else "''"
    text, spans = ("t.text", "t.spans") if Field.TEXT in fields else ("''", "NULL")
    checksum, metadata = ("m.checksum", "m.json") if Field.METADATA in fields else ("NULL", "'{}'")
    query = f"SELECT d.doc_row, {checksum}, d.id, {title}, {text}, {metadata}, {spans} FROM json_each(?) AS given "
    query += "JOIN documents AS d ON d.doc_row = given.value"
    query += " JOIN texts AS t ON t.doc_row = d.doc_row" if has_texts else ""
    return query + (" JOIN metadata AS m ON m.doc_row = d.doc_row" if Field.METADATA in fields else "")


def _check_metadata(stored: StoredDocument) -> None:
    """Raise DamagedIndex unless the metadata is a JSON object: a forged row has a matching checksum."""
    try:
        metadata = stored.metadata
    except RecursionError as err:
        raise StoreError(
            f"{FILE_NAME}: the metadata of document {stored.id!r} is nested too deep for the stack of this call, which "
            "is deep itself; nothing is damaged. Call from a less deep stack"
        ) from err
    except ValueError as err:
        raise DamagedIndex(f"{FILE_NAME}: the metadata of document {stored.id!r} is no JSON: {err}") from err
    if not isinstance(metadata, dict):
        raise DamagedIndex(f"{FILE_NAME}: the metadata of document {stored.id!r} is no object")
