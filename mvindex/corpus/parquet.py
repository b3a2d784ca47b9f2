"""Parquet rows, streamed in small batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mvindex.corpus.detect import missing_field, title_column
from mvindex.corpus.fields import document_of
from mvindex.corpus.inputs import Input
from mvindex.corpus.options import CorpusFormat, CorpusOptions
from mvindex.corpus.rows import Place, Reject, Row, Source
from mvindex.errors import CorpusError, DocumentError
from mvindex.plugins import require

_BATCH_ROWS = 1024
_BUFFER_BYTES = 2**20
_STRINGS = ("string", "large_string", "string_view")


class ParquetRows:
    """The rows of one open Parquet file. Raises CorpusError where it is cut short, damaged or lacks a column."""

    def __init__(self, file: Input, options: CorpusOptions) -> None:
        parquet = require("pyarrow.parquet", "parquet", f"reading {file.name} (Parquet)")
        self._arrow = require("pyarrow", "parquet", "reading Parquet")
        self._file = file
        self._max_row_bytes = options.max_row_bytes
        try:
            # Pages are read as they are needed: the default would fetch whole row groups ahead.
            self._table = parquet.ParquetFile(
                file.file, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
            )
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as err:  # the last for a column's name
            raise CorpusError(f"{file.name}: is not a whole Parquet file: {_first_line(err)}") from err
        self.source = _parquet_source(self._arrow, file.name, self._table.schema_arrow, options)

    def __iter__(self) -> Iterator[Row | Reject]:
        number = 0
        for batch in self._batches():
            for fields in self._fields_of(batch):
                number += 1
                yield self._row(Place(self._file.name, number), fields)

    def _batches(self) -> Iterator[Any]:
        columns = [name for name in self.source.columns if name not in self.source.left_out]
        num_rows = max(1, self._table.metadata.num_rows)
        size_bytes = self._file.size_bytes
        done_rows = 0
        try:
            for batch in self._table.iter_batches(_BATCH_ROWS, columns=columns):
                yield batch
                done_rows += batch.num_rows
                self._file.bytes_read = size_bytes * done_rows // num_rows
        except (self._arrow.ArrowException, OSError) as err:
            raise CorpusError(f"{self._file.name}: is damaged after row {done_rows}: {_first_line(err)}") from err

    def _fields_of(self, batch: Any) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = batch.to_pylist()
            return rows
        except UnicodeDecodeError:  # Arrow does not check its strings; the bad bytes become lone surrogates below
            columns = [self._lenient(column) for column in batch.columns]
            return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _lenient(self, column: Any) -> list[Any]:
        try:
            values: list[Any] = column.to_pylist()
            return values
        except UnicodeDecodeError:
            stored: list[bytes | None] = column.cast(self._arrow.large_binary()).to_pylist()
            return [value and value.decode(errors="surrogateescape") for value in stored]

    def _row(self, place: Place, fields: dict[str, Any]) -> Row | Reject:
        # A lone surrogate is written as the escape \udcXX, which JSON has and the reader of the rejects refuses again.
        raw = (json.dumps(fields, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
        if len(raw) > self._max_row_bytes + 1:
            return Reject(place, f"the row is over {self._max_row_bytes:,} bytes (max_row_bytes)", (raw,))
        try:
            return Row(place, document_of(fields, self.source), raw)
        except DocumentError as err:
            return Reject(place, str(err), (raw,))


def _parquet_source(arrow: Any, path: str, schema: Any, options: CorpusOptions) -> Source:
    columns = tuple(schema.names)
    source = Source(
        path=path,
        format=CorpusFormat.PARQUET,
        is_detected=options.format is None,
        id_field=options.id_field or ("_id" if "_id" in columns and "id" not in columns else "id"),
        text_field=options.text_field or "text",
        title_field=title_column(columns, options),
        columns=columns,
        left_out=tuple(field.name for field in schema if not is_json_type(arrow.types, field.type)),
    )
    if len(set(columns)) < len(columns):
        raise CorpusError(f"{path}: two columns have the same name (columns: {', '.join(columns)})")
    _check_type(arrow.types, source, schema, source.id_field, "strings or integers")
    _check_type(arrow.types, source, schema, source.text_field, "strings")
    if source.title_field is not None:
        _check_type(arrow.types, source, schema, source.title_field, "strings")
    return source


def _check_type(types: Any, source: Source, schema: Any, name: str, wanted: str) -> None:
    if name not in source.columns:
        raise CorpusError(missing_field(source.path, "column", name, source.columns))
    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_integer = types.is_integer(kind) and "integers" in wanted
    if not (is_integer or types.is_null(kind) or str(kind) in _STRINGS):
        raise CorpusError(f'{source.path}: column "{name}" holds {kind}; wanted {wanted}')


def is_json_type(types: Any, kind: Any) -> bool:
    """True when the values are JSON. Lists of floats do not count: they are vectors, far larger than the text."""
    if types.is_dictionary(kind):
        return is_json_type(types, kind.value_type)
    if types.is_struct(kind):
        return all(is_json_type(types, kind.field(position).type) for position in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return is_json_type(types, kind.value_type) and not types.is_floating(kind.value_type)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return is_number or types.is_null(kind) or str(kind) in _STRINGS


def _first_line(err: Exception) -> str:
    return str(err).partition("\n")[0]
