"""A collection in Milvus with one row for each vector, opened as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mvindex.encoder import EncoderLike
from mvindex.index import Index
from mvindex.records import Floats
from mvindex_connectors.adopted.collection import Collection, connect
from mvindex_connectors.adopted.source import AdoptedDocument, Metric, RankedRows
from mvindex_connectors.adopted.store import adopted_index

# Milvus returns no more rows of one search or query.
_MAX_ROWS = 16_384
_IDS_AT_ONCE = 64


def adopt_milvus(  # noqa: PLR0913 - what a collection of others may name in its own way
    address: str,
    *,
    vector_field: str,
    id_field: str,
    text_field: str | None = None,
    encoder: EncoderLike | None = None,
    temperature: float = 1.0,
) -> Index:
    """Open a collection of others as it is, read-only: rows with a vector and the id of its document.

    Results are distinct documents by their best vector, or by DRPQ over all of theirs, scored from the stored vectors.
    They are never called exact. A search sees up to 16,384 rows; short_by says how many documents these were short of.

    Args:
        address: milvus://HOST:PORT/COLLECTION, or milvus-lite:PATH?collection=NAME (docs/how-to/milvus.md).
        vector_field: The field of the vectors, of metric IP, L2 (the score is then the negative squared distance) or
            COSINE.
        id_field: The field of the document's id, VARCHAR or INT64.
        text_field: The field of the row's text, the document's or a part of it. A hit has, and cites, that of the row
            that scored best; get() returns the distinct texts of all rows, in the order of their keys.
        encoder: The encoder of the vectors, for queries that are texts; see load_encoder().
        temperature: T of DRPQ scoring.

    Raises:
        ConfigError: When a field is missing, or of another type.
        StoreError: Or EngineUnavailable, when the collection cannot be read.

    """
    connection = connect(address)
    try:
        collection = Collection(connection, vector_field, id_field, [text_field] if text_field else [])
    except BaseException:
        connection.close()
        raise
    return adopted_index(_MilvusRows(collection, vector_field, id_field, text_field), encoder, temperature)


class _MilvusRows:
    """The rows of a collection."""

    max_limit = _MAX_ROWS
    copied_by = "`mvindex import milvus`"
    is_exact = False

    def __init__(self, collection: Collection, vector_field: str, id_field: str, text_field: str | None) -> None:
        self._collection = collection
        self._vector, self._id, self._text = vector_field, id_field, text_field
        self.where, self.dim = collection.where, collection.dim
        self.kind, self.metric = collection.kind, collection.metric

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, as of the first time that it is asked for."""
        return self._collection.count()

    def close(self) -> None:
        """Close the connection."""
        self._collection.close()

    def error(self, query: Floats) -> float:
        """Return infinity: nothing is proven of a server's ranking."""
        return float("inf")

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query."""
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
        return RankedRows(documents, scores, len(hits) >= self.num_rows)

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views in the order of their keys."""
        found: dict[str, AdoptedDocument] = {}
        text_fields = [self._text] if self._text and with_text else []
        fields = [self._collection.key, self._id, self._vector, *text_fields]
        wanted = [doc_id for doc_id in ids if not self._collection.is_number or doc_id.lstrip("-").isdecimal()]
        for begin in range(0, len(wanted), _IDS_AT_ONCE):
            values = wanted[begin : begin + _IDS_AT_ONCE]
            numbers = [int(one) for one in values] if self._collection.is_number else values
            listed = json.dumps(numbers, ensure_ascii=False)
            rows = self._rows(f"{self._id} in {listed}", fields)
            by_id: dict[str, list[dict[str, Any]]] = {}
            for row in sorted(rows, key=lambda row: row[self._collection.key]):
                by_id.setdefault(str(self._collection.document_id(row)), []).append(row)
            for doc_id, own in by_id.items():
                views = np.array([row[self._vector] for row in own], dtype=np.float32)
                texts = [str(row.get(field) or "") for field in text_fields for row in own]
                found[doc_id] = AdoptedDocument(doc_id, texts, views, own[0][self._collection.key])
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

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
