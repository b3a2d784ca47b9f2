"""Read records and views by their keys, never by a filtered search, which loses rows silently."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, DocumentError, Unsupported
from mvindex.records import Document, Floats, Ints, dump_metadata, sliced
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import Batch, PackedViews, as_signed, pack_spans, row_checksum, view_checksums
from mvindex_connectors.milvus.connection import Connection, terms_of, views_of
from mvindex_connectors.milvus.layout import (
    LIGHT_FIELDS,
    MAX_BYTES,
    MAX_DIM,
    MAX_ID_BYTES,
    MAX_VIEWS,
    MIN_DIM,
    RECORD_FIELDS,
    REQUEST_BYTES,
    REQUEST_ROWS,
    id_hash,
    one_of,
    view_keys,
)
from mvindex_connectors.milvus.writes import vectors_of

_NO_VECTOR = np.zeros(2, dtype=np.float32)
# The fields that the checksum of a record covers, in this order.
_CHECKED = (
    "pk", "id", "ordinal", "version", "num_views", "title", "text", "metadata", "spans", "content_hash",
    "views_checksum",
)  # fmt: skip
# Retries of a document whose views do not match its record: it may just be replaced.
_READS, _PAUSE_S = 6, 0.05
# Document numbers of one step of a pass over everything.
PASS_NUMBERS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """The fields of a record that scoring needs: the version and the number of its views, and its ordinal."""

    document: int
    ordinal: int
    version: int
    num_views: int
    views_checksum: int


def light(row: Mapping[str, Any]) -> Light:
    """Return the light record of a row."""
    return Light(
        document=int(row["pk"]),
        ordinal=int(row["ordinal"]),
        version=int(row["version"]),
        num_views=int(row["num_views"]),
        views_checksum=int(row["views_checksum"]),
    )


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with its checksum, and the vector that Milvus requires of every row."""
    kept = {name: value for name, value in row.items() if name not in ("checksum", "vec")}
    return {**kept, "checksum": _checksum(kept), "vec": _NO_VECTOR}


def checked(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the record; DamagedIndex when it does not match its checksum."""
    if _checksum(row) != row["checksum"]:
        raise DamagedIndex(f"{where}: the record of document {row['id']!r} does not match its checksum")
    return row


def stored_document(row: Mapping[str, Any], where: str) -> StoredDocument:
    """Return the document of a record; DamagedIndex when the record is not as it was written."""
    checked(row, where)
    try:
        json.loads(row["metadata"])
        spans = base64.b64decode(row["spans"], validate=True)
    except (ValueError, RecursionError, binascii.Error) as err:
        raise DamagedIndex(f"{where}: the record of document {row['id']!r} cannot be read: {err}") from err
    return StoredDocument(row["id"], row["title"], row["text"], row["metadata"], spans or None)


def _checksum(row: Mapping[str, Any]) -> int:
    return row_checksum(*(row[name] for name in _CHECKED))


def new_records(batch: Batch, packed: Floats, keys: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the records of a batch. packed: its views as stored; keys: pk, version and ordinal of each document."""
    sums = view_checksums(np.ascontiguousarray(packed), batch.views.starts).tolist()
    counts = np.diff(batch.views.starts).tolist()
    records = []
    for number, document in enumerate(batch.documents):
        begin, end = batch.views.starts[number : number + 2]
        record = {
            "id": document.id,
            "idhash": id_hash(document.id),
            "title": document.title,
            "text": document.text,
            "metadata": dump_metadata(document.metadata, document.id),
            "spans": _packed_spans(batch.views.spans[begin:end]),
            "content_hash": batch.content_hashes[number].hex(),
            "num_views": counts[number],
            "views_checksum": as_signed(sums[number]),
        }
        records.append(sealed({**record, **{name: values[number] for name, values in keys.items()}}))
    return records


def _packed_spans(spans: Ints) -> str:
    return base64.b64encode(pack_spans(spans) or b"").decode()


def check_limits(batch: Batch) -> None:
    """Raise DocumentError or Unsupported for what Milvus cannot store."""
    dim = batch.views.rows.shape[1]
    if not MIN_DIM <= dim <= MAX_DIM:
        raise Unsupported(f"views: expected {MIN_DIM} to {MAX_DIM:,} dims in Milvus, got {dim}")
    counts = np.diff(batch.views.starts)
    for document, num_views in zip(batch.documents, counts.tolist(), strict=True):
        if num_views > MAX_VIEWS:
            raise DocumentError(
                f"document {document.id!r}: expected at most {MAX_VIEWS:,} views in Milvus, got {num_views:,}"
            )
        metadata = dump_metadata(document.metadata, document.id)
        parts = {"id": document.id, "title": document.title, "text": document.text, "metadata": metadata}
        for name, part in parts.items():
            _check_size(name, part, document.id)


def check_metadata(metadata: str, doc_id: str) -> None:
    """Raise DocumentError when Milvus cannot store the metadata of a document."""
    _check_size("metadata", metadata, doc_id)


def _check_size(name: str, part: str, doc_id: str) -> None:
    most = MAX_ID_BYTES if name == "id" else MAX_BYTES
    if len(part) * 4 > most and (size := len(part.encode())) > most:
        raise DocumentError(
            f"document {doc_id[:80]!r}: {name}: expected at most {most:,} bytes in Milvus, got {size:,}. Split the "
            "document, or use an index in a directory"
        )


def views_match(record: Light, packed: npt.NDArray[Any]) -> bool:
    """Return whether these are the views that the record was written with."""
    if len(packed) != record.num_views:
        return False
    digest = int(view_checksums(np.ascontiguousarray(packed), np.array([0, len(packed)]))[0])
    return as_signed(digest) == record.views_checksum


class Reader:
    """Reads of one index; level: the consistency level, of which Strong sees what any client has written before.

    Attributes:
        collection: The collection of the records.

    """

    def __init__(self, connection: Connection, level: str | None = None) -> None:
        self._connection = connection
        self._level = level or connection.address.consistency
        self.collection = connection.address.collection
        self._views, self._terms = views_of(self.collection), terms_of(self.collection)
        self.where = connection.address.shown

    def strongly(self) -> Reader:
        """Return a reader that sees all that was written."""
        return self if self._level == "Strong" else Reader(self._connection, "Strong")

    def query(self, expression: str, fields: Sequence[str], step: str = "reading records") -> list[dict[str, Any]]:
        """Return the records that match the expression, with these fields."""
        return self._query(self.collection, expression, fields, step)

    def records(self, documents: Iterable[int], fields: Sequence[str] = RECORD_FIELDS) -> dict[int, dict[str, Any]]:
        """Return the records of the documents that exist, by number."""
        rows: dict[int, dict[str, Any]] = {}
        for numbers in sliced(list(documents), REQUEST_ROWS // 4):
            rows |= {int(row["pk"]): row for row in self.query(one_of("pk", numbers), fields)}
        return rows

    def lights(self, documents: Iterable[int]) -> dict[int, Light]:
        """Return the light records of the documents that exist, by number."""
        return {number: light(row) for number, row in self.records(documents, LIGHT_FIELDS).items()}

    def find(self, ids: Sequence[str], fields: Sequence[str] = RECORD_FIELDS) -> dict[str, dict[str, Any]]:
        """Return the records of the ids that exist, by id."""
        unique, found = set(ids), {}
        for part in sliced(list(unique), 1_024):
            for row in self.query(one_of("idhash", map(id_hash, part)), fields, "looking for ids"):
                if row["id"] in unique:
                    found[row["id"]] = row
        return found

    def count(self) -> int:
        """Return the number of documents."""
        [row] = self._connection.ask(
            "counting documents",
            "query",
            self.collection,
            filter="pk >= 0",
            output_fields=["count(*)"],
            consistency_level="Strong",
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
        for numbers in sliced(sorted(int(row["pk"]) for row in beyond), step):
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
        rows: list[dict[str, Any]] = self._connection.ask(
            step, "query", collection, filter=expression, output_fields=list(fields), consistency_level=self._level
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


def stored_batches(reader: Reader, end: int, dim: int, size: int) -> Iterator[Batch]:
    """Yield all documents numbered below `end`, by rising numbers; DamagedIndex when one is not sound."""
    for rows in reader.each(end, step=size):
        # One that was replaced between the two reads is left to whoever compares afterwards.
        if (batch := stored_batch(reader, rows, dim)) is not None:
            yield batch


def stored_batch(reader: Reader, rows: Sequence[Mapping[str, Any]], dim: int) -> Batch | None:
    """Return the documents of these records with their views, without those deleted since; None where there is none."""
    found = reader.views([light(row) for row in rows], dim)
    kept = [row for row in rows if int(row["pk"]) in found and found[int(row["pk"])][0].version == row["version"]]
    if not kept:
        return None
    stored = [stored_document(row, reader.where) for row in kept]
    views = [found[int(row["pk"])][1] for row in kept]
    starts = np.append(0, np.cumsum([len(each) for each in views]))
    spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
    for document, begin in zip(stored, starts.tolist(), strict=False):
        spans[begin : begin + len(document.spans)] = document.spans
    return Batch(
        documents=[Document(each.id, each.text, each.title, each.metadata) for each in stored],
        views=PackedViews(np.concatenate(views), starts, spans),
        content_hashes=[bytes.fromhex(row["content_hash"]) for row in kept],
        ordinals=np.array([int(row["ordinal"]) for row in kept], dtype=np.int64),
    )
