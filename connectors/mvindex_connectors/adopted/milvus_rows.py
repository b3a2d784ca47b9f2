"""A collection in Milvus with one row for each vector, opened as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mvindex.encoder import EncoderLike
from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.index import Index
from mvindex.records import Floats
from mvindex_connectors.adopted.source import AdoptedDocument, Metric, RankedRows
from mvindex_connectors.adopted.store import adopted_index
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.connection import Connection

# Milvus returns no more rows of one search or query.
_MAX_ROWS = 16_384
_IDS_AT_ONCE = 64
_PAGE = 1024


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
    connection = Connection(parse_address(address))
    try:
        source = _MilvusRows(connection, vector_field, id_field, text_field)
    except BaseException:
        connection.close()
        raise
    return adopted_index(source, encoder, temperature)


class _MilvusRows:
    """The rows of a collection."""

    max_limit = _MAX_ROWS
    copied_by = "docs/how-to/migration.md (From rows in Milvus)"
    is_exact = False

    def __init__(self, connection: Connection, vector_field: str, id_field: str, text_field: str | None) -> None:
        self._connection = connection
        self._vector, self._id, self._text = vector_field, id_field, text_field
        self._name, self.where = connection.address.collection, connection.address.shown
        described = self._call("describing it", "describe_collection")
        fields = {field["name"]: field for field in described["fields"]}
        is_dynamic = bool(described.get("enable_dynamic_field"))
        for name in (vector_field, id_field, *([text_field] if text_field else [])):
            if name not in fields and (name == vector_field or not is_dynamic):
                raise ConfigError(f"{self.where}: expected one of the fields {', '.join(fields)}, got {name!r}")
        type_name = {name: getattr(field["type"], "name", str(field["type"])) for name, field in fields.items()}
        if type_name[vector_field] != "FLOAT_VECTOR":
            raise ConfigError(f"{self.where}: {vector_field}: expected FLOAT_VECTOR, got {type_name[vector_field]}")
        if type_name.get(id_field, "VARCHAR") not in ("VARCHAR", "INT64"):
            raise ConfigError(f"{self.where}: {id_field}: expected VARCHAR or INT64, got {type_name[id_field]}")
        self._key = next(name for name, field in fields.items() if field.get("is_primary"))
        self.dim = int(fields[vector_field]["params"]["dim"])
        index = self._index()
        try:
            self.metric = Metric(index["metric_type"])
        except ValueError as err:
            raise Unsupported(
                f"{self.where}: expected the metric IP, L2 or COSINE, got {index['metric_type']}"
            ) from err
        self.kind = str(index["index_type"])
        connection.load(self._name)
        self._is_number = type_name[id_field] == "INT64" if id_field in fields else self._is_dynamic_number()

    def _is_dynamic_number(self) -> bool:
        """Return whether a dynamic field has numbers as ids, judged by one row."""
        rows = self._call("reading a row", "query", filter="", limit=1, output_fields=[self._id])
        value = rows[0].get(self._id, "") if rows else ""
        if not isinstance(value, str | int):
            raise ConfigError(f"{self.where}: {self._id}: expected texts or whole numbers, got {value!r:.60}")
        return isinstance(value, int)

    def _index(self) -> Mapping[str, Any]:
        names = self._call("listing its indexes", "list_indexes", field_name=self._vector)
        if not names:
            raise ConfigError(f"{self.where}: {self._vector}: expected a field with an index, got none")
        found: Mapping[str, Any] = self._call("describing its index", "describe_index", index_name=names[0])
        return found

    def _call(self, step: str, method: str, **arguments: Any) -> Any:
        return self._connection.call(
            step, lambda client, **options: getattr(client, method)(self._name, **arguments, **options)
        )

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, as of the first time that it is asked for."""
        found = self._call("counting its rows", "query", filter="", output_fields=["count(*)"])
        return int(found[0]["count(*)"])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def error(self, query: Floats) -> float:
        """Return infinity: nothing is proven of a server's ranking."""
        return float("inf")

    def rank(self, query: Floats, limit: int) -> RankedRows:
        """Return the best rows of a query."""
        [hits] = self._call(
            "searching",
            "search",
            data=[query.tolist()],
            anns_field=self._vector,
            limit=limit,
            output_fields=[self._id],
            search_params={"metric_type": self.metric.value, "params": {}},
        )
        documents = [str(self._checked(hit["entity"])) for hit in hits]
        sign = -1 if self.metric is Metric.SQUARED_DISTANCE else 1
        scores = np.array([sign * hit["distance"] for hit in hits], dtype=np.float32)
        return RankedRows(documents, scores, len(hits) >= self.num_rows)

    def read(self, ids: Sequence[str], *, with_text: bool) -> Mapping[str, AdoptedDocument]:
        """Return the documents that exist, each with all its views in the order of their keys."""
        found: dict[str, AdoptedDocument] = {}
        text_fields = [self._text] if self._text and with_text else []
        fields = [self._key, self._id, self._vector, *text_fields]
        wanted = [doc_id for doc_id in ids if not self._is_number or doc_id.lstrip("-").isdecimal()]
        for begin in range(0, len(wanted), _IDS_AT_ONCE):
            values = wanted[begin : begin + _IDS_AT_ONCE]
            listed = json.dumps([int(one) for one in values] if self._is_number else values, ensure_ascii=False)
            rows = self._rows(f"{self._id} in {listed}", fields)
            by_id: dict[str, list[dict[str, Any]]] = {}
            for row in sorted(rows, key=lambda row: row[self._key]):
                by_id.setdefault(str(self._checked(row)), []).append(row)
            for doc_id, own in by_id.items():
                views = np.array([row[self._vector] for row in own], dtype=np.float32)
                texts = [str(row.get(field) or "") for field in text_fields for row in own]
                found[doc_id] = AdoptedDocument(doc_id, texts, views, own[0][self._key])
        return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}

    def _checked(self, row: Mapping[str, Any]) -> str | int:
        """Return the document id of a row; StoreError where a dynamic field has none, or one of another type."""
        value = row.get(self._id)
        if isinstance(value, bool) or not isinstance(value, int if self._is_number else str):
            kind = "a whole number" if self._is_number else "a text"
            raise StoreError(f"{self.where}: {self._id}: expected {kind} in every row, got {value!r:.60}")
        return value

    def _rows(self, condition: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Return all rows that match, page by page."""
        rows: list[dict[str, Any]] = []
        for page in self._pages(condition, fields):
            rows += page
        return rows

    def _pages(self, condition: str, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        iterator = self._connection.call(
            "reading rows",
            lambda client, timeout: client.query_iterator(
                self._name, batch_size=_PAGE, filter=condition, output_fields=list(fields), timeout=timeout
            ),
        )
        try:
            while page := iterator.next():
                yield list(page)
        finally:
            iterator.close()

    def ids(self) -> Iterator[str]:
        """Yield the id of each document once, in the order of their first keys."""
        seen: set[str] = set()
        for page in self._pages("", [self._key, self._id]):
            for row in page:
                doc_id = str(self._checked(row))
                if doc_id not in seen:
                    seen.add(doc_id)
                    yield doc_id
