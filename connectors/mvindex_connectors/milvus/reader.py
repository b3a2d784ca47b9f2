"""Read records and views by their keys, never by a filtered search, which loses rows silently."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.errors import DamagedIndex
from mvindex.records import Floats, Ints
from mvindex_connectors.milvus.columns import vectors_of
from mvindex_connectors.milvus.connection import Connection, terms_of, views_of
from mvindex_connectors.milvus.layout import (
    LIGHT_FIELDS,
    RECORD_FIELDS,
    REQUEST_BYTES,
    REQUEST_ROWS,
    chunks,
    id_hash,
    one_of,
    view_keys,
)
from mvindex_connectors.milvus.records import Light, light, views_match

# Retries of a document whose views do not match its record: it may just be replaced.
_READS, _PAUSE_S = 6, 0.05
# Document numbers of one step of a pass over everything.
PASS_NUMBERS = 1_024


class Reader:
    """Reads of one index; level: the consistency level, of which Strong sees what any client has written before."""

    def __init__(self, connection: Connection, level: str | None = None) -> None:
        self._connection = connection
        self._level = level or connection.address.consistency
        self._records = connection.address.collection
        self._views, self._terms = views_of(self._records), terms_of(self._records)
        self.where = connection.address.shown

    def strongly(self) -> Reader:
        """Return a reader that sees all that was written."""
        return self if self._level == "Strong" else Reader(self._connection, "Strong")

    def query(self, expression: str, fields: Sequence[str], step: str = "reading records") -> list[dict[str, Any]]:
        """Return the records that match the expression, with these fields."""
        return self._query(self._records, expression, fields, step)

    def records(self, documents: Iterable[int], fields: Sequence[str] = RECORD_FIELDS) -> dict[int, dict[str, Any]]:
        """Return the records of the documents that exist, by number."""
        rows: dict[int, dict[str, Any]] = {}
        for numbers in chunks(list(documents), REQUEST_ROWS // 4):
            rows |= {int(row["pk"]): row for row in self.query(one_of("pk", numbers), fields)}
        return rows

    def lights(self, documents: Iterable[int]) -> dict[int, Light]:
        """Return the light records of the documents that exist, by number."""
        return {number: light(row) for number, row in self.records(documents, LIGHT_FIELDS).items()}

    def find(self, ids: Sequence[str], fields: Sequence[str] = RECORD_FIELDS) -> dict[str, dict[str, Any]]:
        """Return the records of the ids that exist, by id."""
        unique, found = set(ids), {}
        for part in chunks(list(unique), 1_024):
            for row in self.query(one_of("idhash", map(id_hash, part)), fields, "looking for ids"):
                if row["id"] in unique:
                    found[row["id"]] = row
        return found

    def count(self) -> int:
        """Return the number of documents."""
        [row] = self._connection.call(
            "counting documents",
            lambda client, **options: client.query(
                self._records, filter="pk >= 0", output_fields=["count(*)"], consistency_level="Strong", **options
            ),
        )
        return int(row["count(*)"])

    def each(
        self, end: int, fields: Sequence[str] = RECORD_FIELDS, step: int = PASS_NUMBERS, begin: int = 0
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield all records of documents numbered from `begin` on, by rising numbers, in lists.

        end: the settings' next number; behind it are documents that a writer stored before it died, and newer ones.
        """
        for first in range(begin, end, step):
            rows = self.query(f"pk >= {first} and pk < {min(first + step, end)}", fields, "reading all records")
            if rows:
                yield sorted(rows, key=lambda row: int(row["pk"]))
        beyond = self.query(f"pk >= {max(begin, end)}", ("pk",), "reading all records")
        for numbers in chunks(sorted(int(row["pk"]) for row in beyond), step):
            if found := self.records(numbers, fields):
                yield [found[number] for number in sorted(found)]

    def views(self, documents: Sequence[Light], dim: int) -> dict[int, tuple[Light, Floats]]:
        """Return the documents that still exist with all their views, (k, d) float32 each, by number.

        One that is replaced meanwhile is read again, so that record and views are of one version. DamagedIndex when the
        views keep differing from what was written.
        """
        found: dict[int, tuple[Light, Floats]] = {}
        reader, pending = self, list(documents)
        for attempt in range(_READS):
            found |= reader._whole(pending, dim)
            left = [record.document for record in pending if record.document not in found]
            if not left:
                return found
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            reader = self.strongly()
            pending = list(reader.lights(left).values())
        if pending:
            raise DamagedIndex(
                f"{self.where}: the views of document number {pending[0].document} do not match their checksum, or "
                "some are gone; mvindex verify names all such documents"
            )
        return found

    def _whole(self, documents: Sequence[Light], dim: int) -> dict[int, tuple[Light, Floats]]:
        """Return the documents whose views are all there and match their checksum."""
        whole = {}
        for part in _parts(documents, dim):
            counts = np.array([record.num_views for record in part], dtype=np.int64)
            numbers, versions = np.array([(record.document, record.version) for record in part], dtype=np.int64).T
            keys = view_keys(numbers, versions, counts)
            found, rows = self._vectors(keys, dim)
            starts = np.searchsorted(found, keys[np.cumsum(counts) - counts])
            ends = np.searchsorted(found, keys[np.cumsum(counts) - 1], side="right")
            for record, begin, end in zip(part, starts.tolist(), ends.tolist(), strict=True):
                if views_match(record, rows[begin:end]):
                    whole[record.document] = (record, rows[begin:end])
        return whole

    def _vectors(self, keys: Ints, dim: int) -> tuple[Ints, Floats]:
        """Return the views of these keys that exist: rising keys (r,), and (r, d) float32."""
        rows = self._query(self._views, one_of("pk", keys.tolist()), ["pk", "vec"], "reading views")
        pks, vectors = vectors_of(rows, dim)
        found, first = np.unique(np.array(pks, dtype=np.int64), return_index=True)
        return found, vectors[first]

    def term_rows(self, expression: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of terms that match the expression, with these fields."""
        return self._query(self._terms, expression, fields, "reading terms")

    def _query(self, collection: str, expression: str, fields: Sequence[str], step: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._connection.call(
            step,
            lambda client, **options: client.query(
                collection, filter=expression, output_fields=list(fields), consistency_level=self._level, **options
            ),
        )
        return rows

    def view_keys_of(self, begin: int, end: int) -> Ints:
        """Return the keys of all views, current or not, of documents numbered from `begin` to before `end`."""
        rows = self._query(self._views, f"doc >= {begin} and doc < {end}", ["pk"], "reading keys of views")
        return np.array(sorted({int(row["pk"]) for row in rows}), dtype=np.int64)


def _parts(documents: Sequence[Light], dim: int) -> Iterator[list[Light]]:
    """Yield the documents in lists whose views fit one request."""
    most = max(1, min(REQUEST_ROWS, REQUEST_BYTES // (4 * dim)))
    part: list[Light] = []
    count = 0
    for record in documents:
        if part and count + record.num_views > most:
            yield part
            part, count = [], 0
        part.append(record)
        count += record.num_views
    if part:
        yield part


def documents_by_id(rows: Mapping[int, Mapping[str, Any]]) -> dict[str, int]:
    """Return the numbers of the records, by id."""
    return {str(row["id"]): number for number, row in rows.items()}
