"""Import of a collection of others in Milvus: `mvindex import milvus`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import ConfigError, CorpusError, DocumentError, StoreError, Unsupported
from mvindex.io.import_ import ImportReport, Target, check_target, compute_mark, fill, spool_folder
from mvindex.io.validation import VectorDocument, VectorSource, check_id
from mvindex.records import Document, Floats, ProgressCallback, no_progress
from mvindex_connectors.adopted.collection import Collection, connect
from mvindex_connectors.adopted.row_spool import RowSpool, SpooledRow
from mvindex_connectors.adopted.source import Metric
from mvindex_connectors.milvus.collections import describe
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.foreign import RowFields, guess_fields

_JOINED_BY = "\n\n"
# How far the length of a vector may be from 1: fp16 vectors of length 1 are no nearer.
_UNIT_ERROR = 1e-3


def import_milvus(  # noqa: PLR0913 - what a collection of others may name in its own way
    address: str,
    target: Target,
    *,
    vector_field: str | None = None,
    id_field: str | None = None,
    text_field: str | None = None,
    order_field: str | None = None,
    title_field: str | None = None,
    accept_inner_product: bool = False,
    on_progress: ProgressCallback = no_progress,
) -> ImportReport:
    """Make an index from the rows of a collection: rows of one document id become a document with its views.

    The text is that of the rows in their order, a blank line between; each view stands for the text of its row. Other
    fields that are equal in all rows of a document are its metadata. Vectors of a collection by COSINE are scaled to
    length 1, so that inner products are cosines.

    Args:
        address: milvus://HOST:PORT/COLLECTION, or milvus-lite:PATH?collection=NAME.
        target: The new index.
        vector_field: The field of the vectors; by default the only one.
        id_field: The field of the document's id, VARCHAR or INT64; by default, as are those below, by its name.
        text_field: The field of the row's text.
        order_field: The field of numbers or texts that order the rows of a document; else their keys do.
        title_field: The field of the document's title.
        accept_inner_product: Accept a collection by L2 whose vectors are not of length 1.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the import, and the fields that were used and left out.

    Raises:
        ConfigError: A field is missing, of another type, or not to be guessed.
        CorpusError: A row has no vector, or what no index stores; no index is made.
        StoreError: Or EngineUnavailable, when the collection cannot be read.
        Unsupported: The metric is none whose order inner products have.

    """
    check_target(target)
    connection = connect(address)
    try:
        given = RowFields(vector=vector_field, id=id_field, text=text_field, order=order_field, title=title_field)
        chosen = _choose_fields(connection, given)
        reader = _RowReader(connection, chosen, accept_inner_product)
        with RowSpool(spool_folder(target) or Path(tempfile.gettempdir())) as spool:
            reader.read_into(spool, on_progress)
            return fill(target, reader.source(spool), reader.mark(target, spool), on_progress)
    finally:
        connection.close()


def _choose_fields(connection: Connection, given: RowFields) -> RowFields:
    """Return the fields of the rows; ConfigError where vector or id cannot be guessed."""
    described, where = describe(connection), connection.address.shown
    dynamic: Sequence[str] = ()
    if described.get("enable_dynamic_field"):
        name = connection.address.collection
        connection.load(name)
        rows = connection.call(
            "reading a row", lambda client, **options: client.query(name, limit=1, output_fields=["*"], **options)
        )
        dynamic = [key for row in rows for key in row]
    chosen = guess_fields(described, dynamic, given)
    names = ", ".join(dict.fromkeys([*(field["name"] for field in described["fields"]), *dynamic]))
    for option, value in (("--vector-field", chosen.vector), ("--id-field", chosen.id)):
        if value is None:
            raise ConfigError(f"{where}: expected {option}, one of the fields {names}, got none")
    return chosen


class _RowReader:
    """Reads a collection once, into a spool, and makes documents of it."""

    def __init__(self, connection: Connection, fields: RowFields, accept_inner_product: bool) -> None:
        self._vector, self._id = str(fields.vector), str(fields.id)
        self._fields, self._address = fields, connection.address
        named = [name for name in (fields.text, fields.order, fields.title) if name is not None]
        self._collection = Collection(connection, self._vector, self._id, named)
        self._accepts_any_length = accept_inner_product
        used = {self._vector, self._id, self._collection.key, *named}
        vectors = [name for name, kind in self._collection.types.items() if kind.endswith("VECTOR")]
        self._not_metadata = used.union(vectors)
        self._left_out = set(vectors) - {self._vector}
        self._order_type: type | None = None

    def read_into(self, spool: RowSpool, on_progress: ProgressCallback) -> None:
        """Read all rows; StoreError where their number changes meanwhile."""
        collection, total = self._collection, self._collection.count()
        for page in collection.pages("", ["*"], "Strong"):
            spool.add(collection.where, [self._row(row) for row in page], self._vectors(page))
            on_progress("reading rows", spool.num_rows, total)
        total = collection.count()
        if spool.num_rows != total:
            raise StoreError(
                f"{collection.where}: expected {total:,} rows, got {spool.num_rows:,}; is it being written? Import "
                "again when it is not"
            )
        if not total:
            raise CorpusError(f"{collection.where}: expected rows, got an empty collection")

    def mark(self, target: Target, spool: RowSpool) -> str:
        """Return a digest of what is imported, by which an interrupted run is recognised."""
        address = self._address
        place = [address.uri, address.database, address.collection]
        return compute_mark([], "milvus", place, asdict(self._fields), spool.num_rows, target.dtype)

    def source(self, spool: RowSpool) -> VectorSource:
        """Return the documents of the rows that were read."""
        total = spool.close_rows()
        notes: dict[str, Any] = {"rows": spool.num_rows, "metric": self._collection.metric.value}
        notes |= {f"{name}_field": value for name, value in asdict(self._fields).items() if value is not None}
        return VectorSource(
            dim=self._collection.dim,
            dtype=np.dtype(np.float32),
            documents=self._documents(spool, notes),
            total=total,
            notes=notes,
        )

    def _row(self, row: Mapping[str, Any]) -> SpooledRow:
        location = self._location(row)
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
        return SpooledRow(doc_id, self._place(row, location), kept)

    def _place(self, row: Mapping[str, Any], location: str) -> int | float | str | None:
        """Return what orders the row in its document; CorpusError where it is no number or text, as in other rows."""
        if self._fields.order is None:
            return None
        value = row.get(self._fields.order)
        kind = str if isinstance(value, str) else float
        if isinstance(value, bool) or not isinstance(value, int | float | str) or self._order_type not in (None, kind):
            expected = "a number or a text" if self._order_type is None else f"a {self._order_type.__name__}, as before"
            raise CorpusError(f"{location}: {self._fields.order}: expected {expected}, got {value!r:.60}")
        self._order_type = kind
        return value

    def _vectors(self, page: Sequence[Mapping[str, Any]]) -> Floats:
        """Return the vectors of rows, (m, d) float32; CorpusError for one that is missing or cannot be scored."""
        collection = self._collection
        for row in page:
            vector = row.get(self._vector)
            if vector is None or len(vector) != collection.dim:
                got = "NULL" if vector is None else f"{len(vector)} numbers"
                raise CorpusError(
                    f"{self._location(row)}: {self._vector}: expected a vector of {collection.dim} dims, got {got}"
                )
        vectors = np.array([row[self._vector] for row in page], dtype=np.float32)
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        is_cosine = collection.metric is Metric.COSINE
        # Milvus Lite returns zeros for NULL.
        if (is_cosine or collection.is_nullable) and not lengths.all():
            row = page[int(np.argmin(lengths))]
            raise CorpusError(f"{self._location(row)}: {self._vector}: expected a vector, got NULL or zeros")
        if is_cosine:
            units: Floats = (vectors / lengths[:, None]).astype(np.float32)
            return units
        is_unit = np.abs(lengths - 1) <= _UNIT_ERROR
        if collection.metric is Metric.SQUARED_DISTANCE and not self._accepts_any_length and not is_unit.all():
            bad = int(np.argmin(is_unit))
            raise Unsupported(
                f"{self._location(page[bad])}: the metric is L2, and the vector has length {lengths[bad]:.4g}: scores "
                "here are inner products, which order documents as L2 does only for vectors of length 1; "
                "--accept-inner-product takes the vectors as they are, and results will differ from those of Milvus"
            )
        return vectors

    def _location(self, row: Mapping[str, Any]) -> str:
        return f"{self._collection.where}: row {row.get(self._collection.key)!r:.80}"

    def _documents(self, spool: RowSpool, notes: dict[str, Any]) -> Iterator[VectorDocument]:
        """Yield the documents; the notes name the fields that were left out so far."""
        for doc_id, rows, vectors in spool.documents():
            location = f"{self._collection.where}: document {doc_id!r:.80}"
            texts, spans = _join([row["text"] for row in rows])
            metadata, differing = _common([row["fields"] for row in rows])
            titles = {row["title"] for row in rows}
            self._left_out |= differing
            if len(titles) > 1:
                self._left_out.add(str(self._fields.title))
            if self._left_out:
                notes["left_out"] = sorted(self._left_out)
            try:
                document = Document(doc_id, texts, titles.pop() if len(titles) == 1 else "", metadata)
            except DocumentError as err:
                raise CorpusError(f"{location}: {err}") from err
            yield VectorDocument(location, document, vectors, np.array(spans, dtype=np.int64))


def _join(texts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the texts with a blank line between, and the characters of each; (-1, -1) for an empty one."""
    spans, end = [], 0
    for text in texts:
        begin = end + (len(_JOINED_BY) if end and text else 0)
        spans.append((begin, begin + len(text)) if text else (-1, -1))
        end = begin + len(text)
    return _JOINED_BY.join(filter(None, texts)), spans


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
