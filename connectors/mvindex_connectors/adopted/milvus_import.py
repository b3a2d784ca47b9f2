"""Import of a collection of others in Milvus: `mvindex import milvus`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import CorpusError, Unsupported
from mvindex.io.import_ import ImportReport, Target, check_target, compute_mark, fill, spool_folder
from mvindex.io.staging import VectorDocument, VectorSource
from mvindex.records import Floats, ProgressCallback, no_progress
from mvindex_connectors.adopted.collection import choose_fields, connect, open_collection
from mvindex_connectors.adopted.rows import RowParser, RowSpool, read_rows
from mvindex_connectors.adopted.source import Metric
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.foreign import RowFields

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

    The text is the distinct texts of the rows in their order, a blank line between; each view stands for the text of
    its row. Other fields that are equal in all rows of a document are its metadata. Vectors of a collection by COSINE
    are scaled to length 1, so that inner products are cosines.

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
        chosen = choose_fields(connection, given)
        reader = _RowReader(connection, chosen, accept_inner_product)
        with RowSpool(spool_folder(target) or Path(tempfile.gettempdir())) as spool:
            reader.read_into(spool, on_progress)
            return fill(target, reader.source(spool), reader.mark(target, spool), on_progress)
    finally:
        connection.close()


class _RowReader:
    """Reads a collection once, into a spool, and makes documents of it."""

    def __init__(self, connection: Connection, fields: RowFields, accept_inner_product: bool) -> None:
        self._vector, self._fields, self._address = str(fields.vector), fields, connection.address
        self._collection = open_collection(connection, fields)
        self._parser = RowParser(self._collection, fields)
        self._accepts_any_length = accept_inner_product

    def read_into(self, spool: RowSpool, on_progress: ProgressCallback) -> None:
        """Read all rows; StoreError where their number changes meanwhile."""
        read_rows(self._collection, self._parser, spool, self._vectors, on_progress)
        if not spool.num_rows:
            raise CorpusError(f"{self._collection.where}: expected rows, got an empty collection")

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

    def _vectors(self, page: Sequence[Mapping[str, Any]]) -> Floats:
        """Return the vectors of rows, (m, d) float32; CorpusError for one that is missing or cannot be scored."""
        collection = self._collection
        for row in page:
            vector = row.get(self._vector)
            if vector is None or len(vector) != collection.dim:
                got = "NULL" if vector is None else f"{len(vector)} numbers"
                where = f"{self._parser.location(row)}: {self._vector}"
                raise CorpusError(f"{where}: expected a vector of {collection.dim} dims, got {got}")
        vectors = np.array([row[self._vector] for row in page], dtype=np.float32)
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        is_cosine = collection.metric is Metric.COSINE
        # Milvus Lite returns zeros for NULL.
        if (is_cosine or collection.is_nullable) and not lengths.all():
            row = page[int(np.argmin(lengths))]
            raise CorpusError(f"{self._parser.location(row)}: {self._vector}: expected a vector, got NULL or zeros")
        if is_cosine:
            units: Floats = (vectors / lengths[:, None]).astype(np.float32)
            return units
        is_unit = np.abs(lengths - 1) <= _UNIT_ERROR
        if collection.metric is Metric.SQUARED_DISTANCE and not self._accepts_any_length and not is_unit.all():
            bad = int(np.argmin(is_unit))
            raise Unsupported(
                f"{self._parser.location(page[bad])}: the metric is L2, and the vector has length {lengths[bad]:.4g}: "
                "scores here are inner products, which order documents as L2 does only for vectors of length 1; "
                "--accept-inner-product takes the vectors as they are, and results will differ from those of Milvus"
            )
        return vectors

    def _documents(self, spool: RowSpool, notes: dict[str, Any]) -> Iterator[VectorDocument]:
        """Yield the documents; the notes name the fields that were left out so far."""
        for doc_id, rows, vectors in spool.documents():
            document, spans = self._parser.document(doc_id, rows)
            if self._parser.left_out:
                notes["left_out"] = sorted(self._parser.left_out)
            yield VectorDocument(f"{self._collection.where}: document {doc_id!r:.80}", document, vectors, spans)
