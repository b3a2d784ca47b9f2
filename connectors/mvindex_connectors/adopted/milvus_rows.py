"""A collection in Milvus with one row for each vector, opened as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mvindex.encoder import EncoderLike
from mvindex.index import Index
from mvindex.records import Floats, dump_metadata
from mvindex_connectors.adopted.collection import Collection, choose_fields, connect, open_collection
from mvindex_connectors.adopted.rows import RowParser
from mvindex_connectors.adopted.search import Catalog
from mvindex_connectors.adopted.sidecar import Sidecar
from mvindex_connectors.adopted.source import AdoptedDocument, Metric, RankedRows
from mvindex_connectors.adopted.store import AdoptedStore, adopted_index, index_of
from mvindex_connectors.milvus.foreign import RowFields

# Milvus returns no more rows of one search or query.
_MAX_ROWS = 16_384
_IDS_AT_ONCE = 64


def adopt_milvus(  # noqa: PLR0913 - what a collection of others may name in its own way
    address: str,
    *,
    vector_field: str | None = None,
    id_field: str | None = None,
    text_field: str | None = None,
    order_field: str | None = None,
    title_field: str | None = None,
    neighbors: int = 0,
    encoder: EncoderLike | None = None,
    temperature: float = 1.0,
) -> Index:
    """Open a collection of others as it is, read-only: rows with a vector and the id of its document.

    Results are distinct documents by their best vector, or by DRPQ over all of theirs, scored from the stored vectors.
    They are exact where exact=True is given, which reads all rows. Filters, lexical and hybrid search need a sidecar:
    see sync_milvus(), which makes one, and open its address.

    Args:
        address: milvus://HOST:PORT/COLLECTION, or milvus-lite:PATH?collection=NAME (docs/how-to/milvus.md).
        vector_field: The field of the vectors, of metric IP, L2 (the score is then the negative squared distance) or
            COSINE; by default the only one.
        id_field: The field of the document's id, VARCHAR or INT64; by default, as are those below, by its name.
        text_field: The field of the row's text, the document's or a part of it. A hit has, and cites, that of the row
            that scored best; get() returns the distinct texts of all rows, in their order.
        order_field: The field of numbers or texts that order the rows of a document; else their keys do.
        title_field: The field of the document's title.
        neighbors: A hit's text has so many rows before and behind the row that scored best.
        encoder: The encoder of the vectors, for queries that are texts; see load_encoder().
        temperature: T of DRPQ scoring.

    Raises:
        ConfigError: When a field is missing, of another type, or not to be guessed.
        StoreError: Or EngineUnavailable, when the collection cannot be read.

    """
    given = RowFields(vector=vector_field, id=id_field, text=text_field, order=order_field, title=title_field)
    source = open_rows(address, given)
    return adopted_index(source, encoder, temperature, neighbors=neighbors)


def open_sidecar(folder: str, device: str | None, neighbors: int = 0) -> Index:
    """Open a sidecar and its collection; StoreError where either is missing."""
    sidecar = Sidecar(folder)
    try:
        adopted = sidecar.adopted
        source = open_rows(adopted.address, adopted.fields)
        store = AdoptedStore(source, adopted.encoder, adopted.temperature, Catalog(source, sidecar))
    except BaseException:
        sidecar.store.close()
        raise
    return index_of(store, None, device=device, neighbors=neighbors)


def open_rows(address: str, given: RowFields) -> MilvusRows:
    """Return the rows of a collection; fields that are not given are guessed. Errors as of adopt_milvus()."""
    connection = connect(address)
    try:
        fields = choose_fields(connection, given)
        return MilvusRows(open_collection(connection, fields), fields)
    except BaseException:
        connection.close()
        raise


class MilvusRows:
    """The rows of a collection: the RowSource of Milvus."""

    max_limit = _MAX_ROWS
    copied_by = "`mvindex import milvus`"
    is_exact = False

    def __init__(self, collection: Collection, fields: RowFields) -> None:
        self._collection, self._fields = collection, fields
        self._parser = RowParser(collection, fields)
        self._vector, self._id = collection.vector, str(fields.id)
        self.where, self.dim = collection.where, collection.dim
        self.kind, self.metric = collection.kind, collection.metric
        self._num_rows: int | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows as last counted."""
        return self.count_rows() if self._num_rows is None else self._num_rows

    def count_rows(self) -> int:
        """Return the number of rows now, at the consistency level of the address."""
        self._num_rows = count = self._collection.count(self._collection.level)
        return count

    def close(self) -> None:
        """Close the connection."""
        self._collection.close()

    def error(self, query: Floats) -> float:
        """Return infinity: nothing is proven of a server's ranking."""
        return float("inf")

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query; they are counted anew where these may be all."""
        [hits] = self._collection.call(
            "searching",
            "search",
            data=[query.tolist()],
            anns_field=self._vector,
            limit=limit,
            output_fields=[self._id],
            search_params={"metric_type": self.metric.value, "params": {}},
        )
        documents = [str(self._collection.document_id(hit["entity"])) for hit in hits]
        sign = -1 if self.metric is Metric.SQUARED_DISTANCE else 1
        scores = np.array([sign * hit["distance"] for hit in hits], dtype=np.float32)
        if max(limit, len(hits)) >= self.num_rows:
            self.count_rows()
        return RankedRows(documents, scores, len(hits) >= self.num_rows)

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views in the order of their places, then their keys."""
        found: dict[str, AdoptedDocument] = {}
        collection, order = self._collection, [self._fields.order] * (self._fields.order is not None)
        fields = [collection.vector, *(collection.plain_fields if with_text else [collection.key, self._id, *order])]
        wanted = [doc_id for doc_id in ids if not collection.is_number or doc_id.lstrip("-").isdecimal()]
        for begin in range(0, len(wanted), _IDS_AT_ONCE):
            values = wanted[begin : begin + _IDS_AT_ONCE]
            numbers = [int(one) for one in values] if collection.is_number else values
            listed = json.dumps(numbers, ensure_ascii=False)
            by_id: dict[str, list[dict[str, Any]]] = {}
            for row in sorted(self._rows(f"{self._id} in {listed}", fields), key=self._place):
                by_id.setdefault(str(collection.document_id(row)), []).append(row)
            found |= {doc_id: self._document(doc_id, own, with_text=with_text) for doc_id, own in by_id.items()}
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

    def _place(self, row: Mapping[str, Any]) -> tuple[Any, Any]:
        return self._parser.place(row), row[self._collection.key]

    def _document(self, doc_id: str, rows: Sequence[Mapping[str, Any]], *, with_text: bool) -> AdoptedDocument:
        views = np.array([row[self._vector] for row in rows], dtype=np.float32)
        key = min(row[self._collection.key] for row in rows)
        if not with_text:
            return AdoptedDocument(doc_id, (), views, key)
        parsed = [self._parser.parse(row).fields for row in rows]
        document, _ = self._parser.document(doc_id, parsed)
        texts = [] if self._fields.text is None else [fields["text"] for fields in parsed]
        metadata = dump_metadata(document.metadata, doc_id)
        return AdoptedDocument(doc_id, texts, views, key, document.title, metadata)

    def scan(self) -> Iterator[tuple[list[str], Floats]]:
        """Yield all vectors, a page at a time, with the document of each."""
        for page in self._collection.pages("", [self._collection.key, self._id, self._vector]):
            ids = [str(self._collection.document_id(row)) for row in page]
            yield ids, np.array([row[self._vector] for row in page], dtype=np.float32)

    def _rows(self, condition: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Return all rows that match, page by page."""
        rows: list[dict[str, Any]] = []
        for page in self._collection.pages(condition, fields):
            rows += page
        return rows

    def ids(self) -> Iterator[str]:
        """Yield the id of each document once, in the order of their first keys."""
        seen: set[str] = set()
        for page in self._collection.pages("", [self._collection.key, self._id]):
            for row in page:
                doc_id = str(self._collection.document_id(row))
                if doc_id not in seen:
                    seen.add(doc_id)
                    yield doc_id
