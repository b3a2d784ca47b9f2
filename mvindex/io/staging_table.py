"""Vectors that stand apart from their texts: by row in a file, with the rows of each id in a temporary database."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mvindex.errors import CorpusError, StoreError
from mvindex.io.validation import Array, check_dim
from mvindex.store.temporary import temporary_database, temporary_errors

_SHOWN = 3


class VectorTable:
    """Vectors (r, d) by row, and for each id its rows, in order. add_ids() names the rows one after the other."""

    def __init__(self) -> None:
        self.matrix: Array = np.empty((0, 0), dtype=np.float32)
        self.num_rows = 0
        self._connection = temporary_database()
        self._connection.execute(
            "CREATE TABLE vectors(id TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY(id, row)) WITHOUT ROWID"
        )
        self._connection.execute("CREATE TABLE used(id TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> VectorTable:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def add_ids(self, ids: Sequence[str]) -> None:
        """Nothing; the next rows are vectors of these ids."""
        rows = [(doc_id, self.num_rows + number) for number, doc_id in enumerate(ids)]
        self._insert("INSERT INTO vectors VALUES (?, ?)", rows)
        self.num_rows += len(ids)

    def count_ids(self) -> int:
        """How many different ids there are."""
        return int(self._rows("SELECT count(DISTINCT id) FROM vectors")[0][0])

    def repeated(self) -> tuple[str, list[int]] | None:
        """An id of several vectors, with their rows; None where there is no such id."""
        found = self._rows("SELECT id FROM vectors GROUP BY id HAVING count(*) > 1 LIMIT 1")
        return (found[0][0], self.rows_of([found[0][0]])[found[0][0]]) if found else None

    def rows_of(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """The rows of those of the ids that have some."""
        query = (
            "SELECT vectors.id, vectors.row FROM json_each(?) AS wanted CROSS JOIN vectors "
            "ON vectors.id = wanted.value ORDER BY vectors.row"
        )
        rows: dict[str, list[int]] = {}
        for doc_id, row in self._rows(query, (json.dumps(list(ids), ensure_ascii=False),)):
            rows.setdefault(doc_id, []).append(row)
        return rows

    def mark_used(self, ids: Sequence[str]) -> None:
        """Nothing; a passage of each of the ids was seen. CorpusError when one was already."""
        found = self._rows(
            "SELECT used.id FROM json_each(?) AS wanted JOIN used ON used.id = wanted.value LIMIT 1",
            (json.dumps(list(ids), ensure_ascii=False),),
        )
        again = [one for one, count in Counter(ids).items() if count > 1]
        twice = found[0][0] if found else (again[0] if again else None)
        if twice is not None:
            raise CorpusError(f"the corpus has two passages with the id {twice!r}; an id may stand once")
        self._insert("INSERT INTO used VALUES (?)", [(one,) for one in ids])

    def unused(self) -> tuple[int, list[str]]:
        """How many ids have vectors and no passage, and some of them."""
        missing = "FROM (SELECT DISTINCT id FROM vectors) AS had WHERE had.id NOT IN (SELECT id FROM used)"
        count = int(self._rows(f"SELECT count(*) {missing}")[0][0])  # noqa: S608 - no value is in it
        names = self._rows(f"SELECT had.id {missing} LIMIT {_SHOWN}") if count else []  # noqa: S608
        return count, [name for (name,) in names]

    def in_order(self) -> Iterator[str]:
        """The ids in the order of their first vectors."""
        with temporary_errors():
            # Not closed by itself: where it is not read to its end, the connection is closed before it.
            for (doc_id,) in self._connection.execute("SELECT id FROM vectors GROUP BY id ORDER BY min(row)"):
                yield doc_id

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with temporary_errors(), closing(self._connection.execute(query, values)) as cursor:
            return cursor.fetchall()

    def _insert(self, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with temporary_errors():
            self._connection.execute("BEGIN")
            self._connection.executemany(query, rows)
            self._connection.execute("COMMIT")


class Spool:
    """Vectors of one dim and type, written one after the other into a file without a name, and then read by row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dim: int | None = None
        self._dtype: np.dtype[Any] = np.dtype("<f4")
        self._num_rows = 0
        try:
            self._file = tempfile.TemporaryFile(dir=folder)
        except OSError as err:
            raise StoreError(f"{folder}: no room for vectors can be made there: {err.strerror or err}") from err

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Where the disk is full, what is left to be written is of no use either.
        with suppress(OSError):
            self._file.close()

    def add(self, place: str, vectors: Array) -> None:
        """Nothing; the vectors (m, d) are kept. CorpusError when those before had another dim or type."""
        if self._dim is None:
            self._dim, self._dtype = vectors.shape[1], vectors.dtype
        check_dim(place, vectors.shape[1], self._dim)
        if vectors.dtype != self._dtype:
            raise CorpusError(f"{place}: vectors of {vectors.dtype}; those before are {self._dtype}")
        try:
            self._file.write(np.ascontiguousarray(vectors).data)
        except OSError as err:
            raise StoreError(
                f"{self._folder}: the vectors, once more, do not fit there while they are read: {err.strerror or err}"
            ) from err
        self._num_rows += len(vectors)

    def matrix(self) -> Array:
        """All of them, (r, d), memory-mapped."""
        if not self._num_rows:
            return np.empty((0, 1), dtype=np.float32)
        try:
            self._file.flush()
        except OSError as err:
            raise StoreError(f"{self._folder}: the vectors do not fit there: {err.strerror or err}") from err
        return np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._num_rows, self._dim or 1))
