"""Rows of a collection of others become documents: by their ids, in their order, with the fields that they share.

They come in any order, and are kept in temporary files until all are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from mvindex.errors import CorpusError, DocumentError, StoreError
from mvindex.io.staging import Array, Spool, check_id
from mvindex.records import Document, Floats, Ints, ProgressCallback
from mvindex.store.files import temporary_database, temporary_errors
from mvindex_connectors.adopted.collection import Collection
from mvindex_connectors.adopted.source import join_texts
from mvindex_connectors.milvus.foreign import RowFields


class SpooledRow(NamedTuple):
    """A row of a collection: the document, its place among the document's rows, if it has one, and other fields."""

    doc_id: str
    place: int | float | str | None
    fields: Mapping[str, Any]


class RowSpool:
    """Rows in temporary files: the fields in a database, the vectors, if there are any, in a folder."""

    def __init__(self, folder: Path | None) -> None:
        self.num_rows = 0
        self._connection = temporary_database()
        # No type: numbers are compared as numbers, and texts as texts.
        self._connection.execute("CREATE TABLE rows(row INTEGER PRIMARY KEY, id TEXT NOT NULL, place, fields TEXT)")
        self._vectors = None if folder is None else Spool(folder)

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()
        if self._vectors is not None:
            self._vectors.__exit__(kind, error, at)

    def add(self, where: str, rows: Sequence[SpooledRow], vectors: Floats | None = None) -> None:
        """Add rows with their vectors, (m, d) float32, where there is a folder for these."""
        values = [
            (self.num_rows + number, row.doc_id, row.place, json.dumps(row.fields, ensure_ascii=False))
            for number, row in enumerate(rows)
        ]
        with temporary_errors():
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", values)
            self._connection.execute("COMMIT")
        if self._vectors is not None and vectors is not None:
            self._vectors.add(where, vectors)
        self.num_rows += len(rows)

    def close_rows(self) -> int:
        """Prepare for documents(), after the last row; return how many documents there are."""
        with temporary_errors():
            self._connection.execute("CREATE INDEX by_place ON rows(id, place, row)")
            self._connection.execute("CREATE TABLE firsts(row INTEGER PRIMARY KEY, id TEXT NOT NULL)")
            self._connection.execute("INSERT INTO firsts SELECT min(row), id FROM rows GROUP BY id")
            return int(self._connection.execute("SELECT count(*) FROM firsts").fetchone()[0])

    def missing(self, ids: Sequence[str]) -> list[str]:
        """Return those of the ids that no row has; after close_rows()."""
        query = "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM rows WHERE rows.id = value)"
        with temporary_errors():
            return [row[0] for row in self._connection.execute(query, (json.dumps(ids),))]

    def documents(self) -> Iterator[tuple[str, list[Mapping[str, Any]], Array]]:
        """Yield each document's id, the fields of its rows and their vectors, (k, d), in the order of their places.

        Documents come in the order of their first rows; rows of the same place as they were added. Without a folder of
        vectors each row has one of length 0, (k, 1).
        """
        nothing: Array = np.zeros((self.num_rows, 1), dtype=np.float32)
        vectors = nothing if self._vectors is None else self._vectors.matrix()
        query = (
            "SELECT firsts.id, rows.row, rows.fields FROM firsts CROSS JOIN rows ON rows.id = firsts.id "
            "ORDER BY firsts.row, rows.place, rows.row"
        )
        with temporary_errors():
            for doc_id, rows in groupby(self._connection.execute(query), key=lambda row: row[0]):
                own = list(rows)
                yield doc_id, [json.loads(row[2]) for row in own], vectors[[row[1] for row in own]]


class RowParser:
    """Makes documents of the rows of one collection.

    Attributes:
        left_out: Names of fields that are in no document made so far: other vectors, and those that differ in its rows.

    """

    def __init__(self, collection: Collection, fields: RowFields) -> None:
        self._collection, self._fields = collection, fields
        named = {name for name in (fields.text, fields.order, fields.title) if name is not None}
        vectors = {name for name, kind in collection.types.items() if kind.endswith("VECTOR")}
        self._not_metadata = {str(fields.vector), str(fields.id), collection.key, *named, *vectors}
        self.left_out = vectors - {str(fields.vector)}
        self._order_type: type | None = None

    def parse(self, row: Mapping[str, Any]) -> SpooledRow:
        """Return the document, place and fields of a row; CorpusError for what no index stores."""
        location = self.location(row)
        doc_id = check_id(location, str(self._collection.document_id(row)))
        fields = {name: value for name, value in row.items() if name not in self._not_metadata and value is not None}
        kept: dict[str, Any] = {"fields": fields}
        for role, name in (("text", self._fields.text), ("title", self._fields.title)):
            value = None if name is None else row.get(name)
            if value is not None and not isinstance(value, str):
                raise CorpusError(f"{location}: {name}: expected a text, got {value!r:.60}")
            kept[role] = value or ""
        try:
            json.dumps(kept, allow_nan=False)
        except (TypeError, ValueError) as err:
            raise CorpusError(f"{location}: expected fields that JSON can represent: {err}") from err
        return SpooledRow(doc_id, self.place(row), kept)

    def place(self, row: Mapping[str, Any]) -> int | float | str | None:
        """Return what orders the row in its document; CorpusError where it is no number or text, as in other rows."""
        if self._fields.order is None:
            return None
        value = row.get(self._fields.order)
        kind = str if isinstance(value, str) else float
        if isinstance(value, bool) or not isinstance(value, int | float | str) or self._order_type not in (None, kind):
            expected = "a number or a text" if self._order_type is None else f"a {self._order_type.__name__}, as before"
            raise CorpusError(f"{self.location(row)}: {self._fields.order}: expected {expected}, got {value!r:.60}")
        self._order_type = kind
        return value

    def location(self, row: Mapping[str, Any]) -> str:
        """Return how messages name a row."""
        return f"{self._collection.where}: row {row.get(self._collection.key)!r:.80}"

    def document(self, doc_id: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Document, Ints]:
        """Return the document of rows, as parse() returns their fields, and the characters of each row, (k, 2)."""
        text, spans = join_texts([row["text"] for row in rows])
        metadata, differing = _common([row["fields"] for row in rows])
        titles = {row["title"] for row in rows}
        self.left_out |= differing
        if len(titles) > 1:
            self.left_out.add(str(self._fields.title))
        try:
            return Document(doc_id, text, titles.pop() if len(titles) == 1 else "", metadata), spans
        except DocumentError as err:
            raise CorpusError(f"{self._collection.where}: document {doc_id!r:.80}: {err}") from err


def read_rows(
    collection: Collection,
    parser: RowParser,
    spool: RowSpool,
    vectors: Callable[[Sequence[Mapping[str, Any]]], Floats] | None,
    on_progress: ProgressCallback,
) -> None:
    """Read all rows into a spool; StoreError where their number changes meanwhile.

    vectors: returns the vectors of rows, (m, d) float32; None: they are not read.
    """
    total = collection.count()
    fields = collection.plain_fields if vectors is None else [*collection.plain_fields, collection.vector]
    for page in collection.pages("", fields, "Strong"):
        spool.add(collection.where, [parser.parse(row) for row in page], None if vectors is None else vectors(page))
        on_progress("reading rows", spool.num_rows, total)
    total = collection.count()
    if spool.num_rows != total:
        raise StoreError(
            f"{collection.where}: expected {total:,} rows, got {spool.num_rows:,}; is it being written? Try again when "
            "it is not"
        )


def _common(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], set[str]]:
    """Return the fields that are equal in all rows, and the names of the others."""
    names = dict.fromkeys(name for row in rows for name in row)
    metadata, differing = {}, set()
    for name in names:
        # As JSON, in which True is not 1, and 1 not 1.0.
        values = {json.dumps(row.get(name), sort_keys=True) for row in rows}
        if len(values) == 1:
            metadata[name] = rows[0][name]
        else:
            differing.add(name)
    return metadata, differing
