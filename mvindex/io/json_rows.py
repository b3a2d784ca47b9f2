"""Reads documents with their views from JSON Lines: an object a line, its vectors among its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np

from mvindex.corpus.inputs import UTF8_MARK, Input
from mvindex.corpus.json_records import parse_object
from mvindex.corpus.lines import Lines
from mvindex.errors import CorpusError, DocumentError
from mvindex.io.validation import (
    ID_NAMES,
    VECTOR_NAMES,
    Array,
    Columns,
    VectorDocument,
    VectorSource,
    check_first_dim,
    choose_column,
)
from mvindex.records import Document

# A document of 50,000 views of 768 dims.
_MAX_LINE_BYTES = 1 << 30


def open_jsonl(paths: Sequence[str], columns: Columns, *, is_export: bool) -> VectorSource:
    """Read the documents of the files, plain, gzip or zstd, in their order; see open_parquet."""
    documents = _all_documents(paths, columns, is_export=is_export)
    first = next(documents, None)
    if first is None:
        raise CorpusError(f"{paths[0]}: holds no documents")
    check_first_dim(first.source_location, first.rows.shape[1])
    return VectorSource(dim=first.rows.shape[1], dtype=np.dtype(np.float32), documents=chain([first], documents))


def read_objects(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, each with its location; raise CorpusError at the first line that is none."""
    with closing(Input(path)) as file:
        lines = Lines(file.stream(), file.name, _MAX_LINE_BYTES)
        while line := lines.take():
            if lines.is_cut:
                raise CorpusError(f"{lines.location}: the row is over {_MAX_LINE_BYTES:,} bytes")
            if lines.number == 1:
                line = line.removeprefix(UTF8_MARK)
            if line.isspace():
                continue
            try:
                yield str(lines.location), parse_object(line)
            except DocumentError as err:
                raise CorpusError(f"{lines.location}: {err}") from err


def read_document(place: str, fields: Mapping[str, Any], columns: Columns, taken: set[str]) -> Document:
    """Return the document of the fields; fields without a role that are not `taken` are its metadata."""
    doc_id = fields[choose_column(place, list(fields), columns.id, ID_NAMES, "--id-column")]
    text, title = columns.text or "text", columns.title or "title"
    own = fields.get("metadata")
    roles = {*taken, text, title, "metadata", *(name for name in ID_NAMES if fields.get(name) is doc_id)}
    extra = {name: value for name, value in fields.items() if name not in roles}
    if columns.id:
        extra.pop(columns.id, None)
    if own is not None and (not isinstance(own, dict) or set(own) & set(extra)):
        raise CorpusError(f'{place}: "metadata" is no object, or has a field that also occurs beside it')
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    try:
        return Document(doc_id, _text(fields.get(text)), _text(fields.get(title)), {**(own or {}), **extra})
    except DocumentError as err:
        raise CorpusError(f"{place}: {err}") from err


def read_json_spans(place: str, fields: Mapping[str, Any], count: int) -> Array | None:
    """Return the spans of the field "spans", -1 for null; None where there is no such field."""
    value = fields.get("spans")
    if value is None:
        return None
    spans = [(-1, -1) if span is None else span for span in value] if isinstance(value, list) else []
    is_right = all(
        isinstance(span, list | tuple)
        and len(span) == 2
        and all(type(end) is int and abs(end) < 1 << 40 for end in span)
        for span in spans
    )
    if len(spans) != count or not is_right:
        raise CorpusError(f'{place}: "spans": expected [begin, end] or null for each of the {count} views')
    return np.array(spans, dtype=np.int64).reshape(count, 2)


def read_ordinal(place: str, fields: Mapping[str, Any]) -> int:
    """Return the field "ordinal" of an export."""
    value = fields.get("ordinal")
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise CorpusError(f'{place}: "ordinal": expected an integer from 0 on, got {value!r:.40}')
    return value


def _all_documents(paths: Sequence[str], columns: Columns, *, is_export: bool) -> Iterator[VectorDocument]:
    """Yield the documents; at the end raise CorpusError for a named column that no line has."""
    unseen = {name for name in (columns.text, columns.title) if name is not None}
    for path in paths:
        yield from _documents(path, columns, unseen, is_export=is_export)
    if unseen:
        raise CorpusError(f"{paths[0]}: no line has a field {min(unseen)!r}; see --text-column and --title-column")


def _documents(path: str, columns: Columns, unseen: set[str], *, is_export: bool) -> Iterator[VectorDocument]:
    for place, fields in read_objects(path):
        if unseen:
            unseen.difference_update(fields)
        name = choose_column(place, list(fields), columns.vector, VECTOR_NAMES, "--vector-column")
        rows = _rows(place, name, fields[name])
        spans = read_json_spans(place, fields, len(rows))
        taken = {name, "spans"} | ({"ordinal"} if is_export else set())
        document = read_document(place, fields, columns, taken)
        yield VectorDocument(place, document, rows, spans, read_ordinal(place, fields) if is_export else None)


def _rows(place: str, name: str, value: object) -> Array:
    """Return a vector, or a list of vectors, as (k, d) float32."""
    try:
        array = np.array(value)
    except ValueError:  # of lists of several lengths
        array = np.empty((0,), dtype=object)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
        raise CorpusError(f'{place}: "{name}": expected a list of numbers, or a list of such lists of one length')
    with np.errstate(over="ignore"):  # what overflows is found, and named, when it is packed
        return array.astype(np.float32)


def _text(value: object) -> Any:
    return "" if value is None else value
