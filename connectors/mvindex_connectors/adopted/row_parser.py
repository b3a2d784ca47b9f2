"""Rows of a collection of others become documents: by their ids, in their order, with the fields that they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mvindex.errors import CorpusError, DocumentError, StoreError
from mvindex.io.staging import check_id
from mvindex.records import Document, Floats, Ints, ProgressCallback
from mvindex_connectors.adopted.collection import Collection
from mvindex_connectors.adopted.row_spool import RowSpool, SpooledRow
from mvindex_connectors.adopted.source import join_texts
from mvindex_connectors.milvus.foreign import RowFields


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
