"""Rows of documents in any order, kept in temporary files until all are there, and given back document by document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from mvindex.io.staging import Array, Spool
from mvindex.records import Floats
from mvindex.store.files import temporary_database, temporary_errors


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
