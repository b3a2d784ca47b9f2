"""Tables of Arrow: their schema and rows as documents, read from Parquet and from Arrow files and streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from mvindex.corpus.formats import BinaryFormat
from mvindex.corpus.inputs import Input
from mvindex.corpus.lines import document_of
from mvindex.corpus.rows import (
    Columns,
    CorpusOptions,
    FileIds,
    Reject,
    Row,
    Source,
    SourceLocation,
    find_roles,
    list_names,
)
from mvindex.errors import CorpusError, DocumentError
from mvindex.plugins import require

# A value of a dictionary may be far larger in the rows than in the file.
BATCH_ROWS = 64
_BATCH_BYTES = 2**24
# A table that gives more than so many times its size, and in all more than that, is refused.
_MOST_SWELLING = 1_000
_MIN_SWOLLEN_BYTES = 2**26
# Of the lists and objects of a row, and of a value in them.
_MOST_NESTED_BYTES = 2**26
_VALUE_BYTES = 8
# Of a row in memory, besides its values.
_ROW_BYTES = 400
_SAMPLE_ROWS = 1000
# No value counts as more, so that sums fit in 64 bits.
_MOST_COUNTED_BYTES = 2**30
_BINARIES = {"string": "binary", "large_string": "large_binary", "string_view": "binary_view"}
_STRINGS = tuple(_BINARIES)
_VIEWS = ("list_view", "large_list_view")
_LISTS = ("list", "large_list", "map", *_VIEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that is read in batches.

    Attributes:
        path: Its file or name, for messages.
        format: The format of the file.
        schema: Its Arrow schema.
        batches: Returns its record batches from the first on, of these columns. Raises CorpusError for damage.
        ids: Makes the ids of its rows; by default they begin with the path.
        size_bytes: Its stored size; None where it is unknown.

    """

    path: str
    format: str
    schema: Any
    batches: Callable[[Sequence[str]], Generator[Any, None, None]]
    ids: FileIds | None = None
    size_bytes: int | None = None


def open_table(table: Table, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the table is read, by its schema and first rows, and its rows.

    Raises:
        CorpusError: It lacks a column, or one of the id, text or title has the wrong type.

    """
    source = _table_source(table, options)
    return source, _read_rows(table, source, options.max_row_bytes)


def table_rows(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a record batch; dates and times are ISO 8601 texts, to the microsecond.

    Objects have no nulls: one has the keys of all objects of its column. Bytes of a string that are not UTF-8 become
    lone surrogates.
    """
    batch = _with_plain_values(batch)
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except UnicodeDecodeError:  # Arrow does not check its strings
        columns = [_lenient(column) for column in batch.columns]
        rows = [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    types = require("pyarrow", "files", "reading a table").types
    has_objects = any(types.is_nested(field.type) for field in batch.schema)
    return list(map(without_nulls, rows)) if has_objects else rows


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose objects, at any depth, lack the keys that have no value; the row itself keeps them."""
    return {name: _without_nulls(value) for name, value in row.items()}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return list(map(_without_nulls, value)) if isinstance(value, list) else value


def small_batches(batch: Any) -> Iterator[Any]:
    """Yield a record batch in parts of at most BATCH_ROWS rows, fewer where they may be large, without a copy.

    CorpusError for a row whose lists, objects and repeated texts take more than _MOST_NESTED_BYTES.
    """
    types = require("pyarrow", "files", "reading a table").types
    dictionaries = (column.dictionary for column in batch.columns if types.is_dictionary(column.type))
    num_rows = batch_rows(sum(dictionary.nbytes for dictionary in dictionaries))
    nested = (_value_bytes(types, column) for column in batch.columns if _is_nested(types, column.type))
    row_bytes = np.broadcast_to(sum(nested), batch.num_rows)
    for begin in range(0, batch.num_rows, num_rows):
        part = batch.slice(begin, num_rows)
        if row_bytes[begin : begin + num_rows].sum() <= _BATCH_BYTES:
            yield part
            continue
        for row in range(part.num_rows):
            num_bytes = row_bytes[begin + row]
            if num_bytes > _MOST_NESTED_BYTES:
                raise CorpusError(
                    f"expected lists and objects of at most {_MOST_NESTED_BYTES:,} bytes in a row, got {num_bytes:,}"
                )
            yield part.slice(row, 1)


def _is_nested(types: Any, kind: Any) -> bool:
    return bool(types.is_nested(kind.value_type if types.is_dictionary(kind) else kind))


def _value_bytes(types: Any, column: Any) -> Any:
    """Return how many bytes each value takes in memory as rows, without making them: a few bytes may stand for many.

    It is one number where all take as many: there may be far more values than memory.
    """
    own: Any = 0
    if types.is_dictionary(column.type):
        own = _referred_bytes(types, column)
    elif types.is_struct(column.type):
        own = sum(_value_bytes(types, column.field(number)) for number in range(column.type.num_fields))
    elif types.is_fixed_size_list(column.type) or str(column.type).partition("<")[0] in _LISTS:
        own = _list_bytes(types, column)
    elif str(column.type) in _STRINGS:
        own = _text_bytes(column, np.arange(len(column)))
    return np.minimum(own + _VALUE_BYTES, _MOST_COUNTED_BYTES)


def _referred_bytes(types: Any, column: Any) -> Any:
    values = column.dictionary
    if not len(values):
        return 0
    places = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if str(values.type) in _STRINGS:
        return _text_bytes(values, places)
    own = _value_bytes(types, values)
    return own[places] if np.ndim(own) else own


def _list_bytes(types: Any, column: Any) -> Any:
    begins, ends = _borders(types, column)
    if types.is_map(column.type):
        values = _value_bytes(types, column.keys) + _value_bytes(types, column.items)
    else:
        values = _value_bytes(types, column.values)
    if not np.ndim(values):
        return values * (ends - begins)
    sums = np.append(0, np.cumsum(values))
    return sums[ends] - sums[begins]


def _borders(types: Any, column: Any) -> tuple[Any, Any]:
    """Return where the list of each row begins and ends in the values of the column; a null has none."""
    if types.is_fixed_size_list(column.type):
        begins = column.type.list_size * np.arange(column.offset, column.offset + len(column))
        ends = begins + column.type.list_size
    elif str(column.type).partition("<")[0] in _VIEWS:
        begins = column.offsets.to_numpy().astype(np.int64)
        ends = begins + column.sizes.to_numpy()
    else:
        offsets = column.offsets.to_numpy().astype(np.int64)
        begins, ends = offsets[:-1], offsets[1:]
    return begins, np.where(column.is_valid().to_numpy(zero_copy_only=False), ends, begins)


def _text_bytes(column: Any, places: Any) -> Any:
    """Return how many bytes the texts at these places have."""
    if not len(places):
        return np.zeros(0, np.int64)
    if str(column.type) == "string_view":
        # The length of a text begins the 16 bytes that stand for it; many may stand for the same bytes.
        return np.frombuffer(column.buffers()[1], np.int32)[4 * (places + column.offset)].astype(np.int64)
    kind = np.int64 if str(column.type) == "large_string" else np.int32
    ends = np.frombuffer(column.buffers()[1], kind)[column.offset :]
    return ends[places + 1].astype(np.int64) - ends[places]


def check_batch(arrow: Any, batch: Any) -> None:
    """Raise ArrowInvalid where lists or texts of a batch of others lie outside their values; any bytes are a text."""
    for column in batch.columns:
        values = column
        if arrow.types.is_dictionary(column.type):
            values = column.dictionary
            arrow.DictionaryArray.from_arrays(column.indices, arrow.nulls(len(values)))  # which checks the indices
        binary = _BINARIES.get(str(values.type))
        (values.view(getattr(arrow, binary)()) if binary else values).validate(full=True)


def batch_rows(most_bytes: int) -> int:
    """Return how many rows are read at once, where one may have so many bytes."""
    return max(1, min(BATCH_ROWS, _BATCH_BYTES // max(1, most_bytes)))


def first_line(err: Exception) -> str:
    """Return the first line of an error's message."""
    return str(err).partition("\n")[0]


def _fields_of(table: Table, columns: Sequence[str]) -> Generator[dict[str, Any], None, None]:
    """Yield the rows of a table, of these columns; CorpusError, with its path and row, for what cannot be read."""
    number = 0
    with closing(table.batches(columns)) as batches:
        for batch in batches:
            parts = small_batches(batch)
            while True:
                try:
                    part = next(parts, None)
                except CorpusError as err:
                    raise CorpusError(f"{table.path}:{number + 1}: {err}; the rest is left out") from err
                if part is None:
                    break
                number += part.num_rows
                yield from table_rows(part)


def _read_rows(table: Table, source: Source, max_row_bytes: int) -> Iterator[Row | Reject]:
    roles = source.roles
    columns = [name for name in source.columns if name not in source.left_out]
    rows = _fields_of(table, columns)
    num_bytes = 0
    most_bytes = None if table.size_bytes is None else max(_MIN_SWOLLEN_BYTES, _MOST_SWELLING * table.size_bytes)
    for number, fields in enumerate(rows, start=1):
        location = SourceLocation(source.path, number)
        # A lone surrogate is written as the escape \udcXX, which JSON has and the reader of the rejects refuses again.
        raw = (json.dumps(fields, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
        num_bytes += len(raw) + _ROW_BYTES
        if most_bytes is not None and num_bytes > most_bytes:
            raise CorpusError(
                f"{table.path}: its rows up to row {number:,} take over {most_bytes:,} bytes, {_MOST_SWELLING:,} times "
                "the size of the file or more; the rest is left out"
            )
        if len(raw) > max_row_bytes + 1:
            yield Reject(location, f"the row is over {max_row_bytes:,} bytes (max_row_bytes)", (raw,))
            continue
        try:
            yield Row(location, document_of(fields, roles, source.ids, number), raw)
        except DocumentError as err:
            yield Reject(location, str(err), (raw,))


def _with_plain_values(batch: Any) -> Any:
    """Return the batch with texts in place of dates and times, and nulls in place of NaN."""
    pyarrow = require("pyarrow", "files", "reading a table")
    for place, field in enumerate(batch.schema):
        if pyarrow.types.is_floating(field.type):
            compute = require("pyarrow.compute", "files", "reading a table")
            numbers = batch.column(place).cast(pyarrow.float64())
            kept = compute.if_else(compute.is_nan(numbers), pyarrow.scalar(None, numbers.type), numbers)
            batch = batch.set_column(place, field.name, kept)
        if pyarrow.types.is_timestamp(field.type) or pyarrow.types.is_date(field.type):
            texts = pyarrow.array(_date_texts(pyarrow, batch.column(place), field.type), pyarrow.string())
            batch = batch.set_column(place, field.name, texts)
    return batch


def _date_texts(pyarrow: Any, column: Any, kind: Any) -> list[str | None]:
    """Return dates or times as texts; by Arrow's form where there is a year that Python has not."""
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    try:
        return [None if value is None else value.isoformat() for value in column.to_pylist()]
    except (ValueError, OverflowError):
        texts: list[str | None] = column.cast(pyarrow.string()).to_pylist()
        return texts


def _lenient(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        pyarrow = require("pyarrow", "files", "reading a table")
    types = pyarrow.types
    is_valid = column.is_valid().to_pylist()
    if types.is_dictionary(column.type):
        values, places = _lenient(column.dictionary), column.indices.to_pylist()
        return [None if place is None else values[place] for place in places]
    if types.is_struct(column.type):
        names = [field.name for field in column.type]
        rows = zip(*(_lenient(column.field(number)) for number in range(len(names))), strict=True)
        return [
            dict(zip(names, row, strict=True)) if valid else None for row, valid in zip(rows, is_valid, strict=True)
        ]
    if types.is_nested(column.type):
        begins, ends = _borders(types, column)
        first = int(begins.min())
        own = slice(first, int(ends.max()))
        if types.is_map(column.type):
            values = list(zip(_lenient(column.keys[own]), _lenient(column.items[own]), strict=True))
        else:
            values = _lenient(column.values[own])
        borders = zip((begins - first).tolist(), (ends - first).tolist(), is_valid, strict=True)
        return [values[begin:end] if valid else None for begin, end, valid in borders]
    stored: list[bytes | None] = column.cast(pyarrow.large_binary()).to_pylist()
    return [value and value.decode(errors="surrogateescape") for value in stored]


def _table_source(table: Table, options: CorpusOptions) -> Source:
    types = require("pyarrow", "files", f"reading {table.path}").types
    columns = tuple(table.schema.names)
    if len(set(columns)) < len(columns):
        raise CorpusError(f"{table.path}: two columns have the same name (columns: {list_names(columns)})")
    left_out = tuple(field.name for field in table.schema if not _is_metadata_type(types, field.type))

    def sample() -> list[dict[str, Any]]:
        kept = [name for name in columns if name not in left_out]
        with closing(_fields_of(table, kept)) as rows:
            return list(islice(rows, _SAMPLE_ROWS))

    roles = find_roles(Columns(place=table.path, kind="column", names=columns, sample=sample), options)
    source = Source.of(
        table.path,
        table.format,
        options,
        roles,
        columns=columns,
        left_out=left_out,
        # Rejected rows of a table are written as JSON.
        rejects_format="beir" if roles.id == "_id" else "jsonl",
        ids=table.ids or FileIds(file=table.path, label=table.path),
    )
    if roles.id is not None:
        _check_type(types, table, roles.id, "strings or integers")
    for name in () if roles.is_row else (*roles.text, roles.title):
        if name is not None:
            _check_type(types, table, name, "strings")
    return source


def _check_type(types: Any, table: Table, name: str, expected: str) -> None:
    if name not in table.schema.names:
        raise CorpusError(
            f'{table.path}: has no column "{name}" (columns: {list_names(table.schema.names)}); name the text with '
            "--text-field"
        )
    kind = table.schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_integer = types.is_integer(kind) and "integers" in expected
    if not (is_integer or types.is_null(kind) or str(kind) in _STRINGS):
        raise CorpusError(f'{table.path}: column "{name}" holds {kind}; expected {expected}')


def _is_metadata_type(types: Any, kind: Any) -> bool:
    """Return whether metadata can hold the values: JSON, dates and times."""
    return is_json_type(types, kind) or types.is_date(kind) or types.is_timestamp(kind)


def is_json_type(types: Any, kind: Any) -> bool:
    """Return whether the values are JSON. Lists of floats do not count: they are vectors, far larger than the text."""
    if types.is_dictionary(kind):
        return is_json_type(types, kind.value_type)
    if types.is_struct(kind):
        return all(is_json_type(types, kind.field(position).type) for position in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return is_json_type(types, kind.value_type) and not types.is_floating(kind.value_type)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return is_number or types.is_null(kind) or str(kind) in _STRINGS


PARQUET = "parquet"
_MAGIC = b"PAR1"
_BUFFER_BYTES = 2**20
# Texts are compressed to a twentieth at best; what is smaller repeats itself.
_MOST_COMPRESSION = 100
# Of a column of a row group in memory, which takes over _MOST_SWELLING times the file only in a trap; of a value in it.
_MOST_CHUNK_BYTES = 2**26
_CHUNK_VALUE_BYTES = 4


def open_parquet(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, by its schema, and its rows; raise CorpusError for a pipe or a damaged file."""
    if not file.is_seekable:
        raise CorpusError(f"{file.name}: is Parquet, which cannot be read from a pipe; name the file")
    arrow = require("pyarrow", "files", f"reading {file.name} (Parquet)")
    try:
        stored = parquet_file(file.file)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:  # the last for a column's name
        raise CorpusError(f"{file.name}: is not a whole Parquet file: {first_line(err)}") from err

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        num_rows = max(1, stored.metadata.num_rows)
        size_bytes = file.size_bytes or 0
        done_rows = 0
        check_sizes(file.name, stored.metadata, columns, size_bytes)
        num_rows_at_once = batch_rows(most_row_bytes(stored.metadata))
        try:
            reader = parquet_file(file.file, swelling_lists(stored, file.file, columns))
            # Columns in turn: side by side they seek to and fro, and fetch ranges of a remote file again.
            for batch in reader.iter_batches(num_rows_at_once, columns=columns, use_threads=False):
                yield batch
                done_rows += batch.num_rows
                file.bytes_read = size_bytes * done_rows // num_rows
        except (arrow.ArrowException, OSError) as err:
            raise CorpusError(f"{file.name}: is damaged after row {done_rows}: {first_line(err)}") from err

    table = Table(
        path=file.name,
        format=PARQUET,
        schema=stored.schema_arrow,
        batches=batches,
        ids=file.ids,
        size_bytes=file.size_bytes,
    )
    return open_table(table, options)


def parquet_file(file: Any, dictionaries: Sequence[str] = ()) -> Any:
    """Open Parquet, its columns of these paths as dictionaries; pages are read as they are needed.

    The default would fetch whole row groups ahead.
    """
    parquet = require("pyarrow.parquet", "files", "reading Parquet")
    return parquet.ParquetFile(
        file,
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
        read_dictionary=list(dictionaries),
    )


def swelling_lists(stored: Any, file: Any, columns: Sequence[str]) -> list[str]:
    """Return the paths of texts in lists of which each may stand for many times what is stored of all.

    They are read as dictionaries, so that the sizes of rows are known before there is any.
    """
    paths, metadata = set(), stored.metadata
    for group in range(metadata.num_row_groups):
        for place, chunk in enumerate(_chunks(metadata, group)):
            path, num_values = chunk.path_in_schema, chunk.num_values
            most_bytes = max(_MOST_CHUNK_BYTES, _MOST_COMPRESSION * chunk.total_compressed_size)
            may_swell = chunk.has_dictionary_page and num_values * chunk.total_uncompressed_size > most_bytes
            is_list = stored.schema.column(place).max_repetition_level > 0
            name = _column_of(path, columns)
            if not may_swell or not is_list or name is None or path in paths or chunk.physical_type != "BYTE_ARRAY":
                continue
            # The dictionary precedes all rows of the group.
            [first] = islice(parquet_file(file, [path]).iter_batches(1, row_groups=[group], columns=[path]), 1)
            if num_values * _longest_text(first.column(0)) > most_bytes:
                paths.add(path)
    return sorted(paths)


def _longest_text(column: Any) -> int:
    """Return how many bytes the longest text has of the dictionaries in a column."""
    types = require("pyarrow", "files", "reading Parquet").types
    if types.is_dictionary(column.type):
        texts = column.dictionary
        return int(_text_bytes(texts, np.arange(len(texts))).max(initial=0)) if str(texts.type) in _STRINGS else 0
    if types.is_struct(column.type):
        return max(map(_longest_text, (column.field(number) for number in range(column.type.num_fields))), default=0)
    if types.is_map(column.type):
        return max(_longest_text(column.keys), _longest_text(column.items))
    return _longest_text(column.values) if types.is_nested(column.type) else 0


def _column_of(path: str, columns: Sequence[str]) -> str | None:
    """Return the column of a path in the schema of Parquet; None where it is not one of these."""
    return next((name for name in columns if path == name or path.startswith(name + ".")), None)


def check_sizes(path: str, metadata: Any, columns: Sequence[str], size_bytes: int) -> None:
    """Raise CorpusError where a column is far larger in memory than in the file: one row may have all of it.

    Sizes are those that the footer claims; the pages may have others.
    """
    most_bytes = max(_MOST_CHUNK_BYTES, _MOST_SWELLING * size_bytes)
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        for chunk in _chunks(metadata, group):
            name = _column_of(chunk.path_in_schema, columns)
            num_bytes = max(chunk.total_uncompressed_size, (chunk.num_values - num_rows) * _CHUNK_VALUE_BYTES)
            if name is not None and num_bytes > most_bytes:
                raise CorpusError(
                    f"{path}: column {name!r} unpacks to {num_bytes:,} bytes; expected at most {most_bytes:,}, "
                    f"{_MOST_SWELLING:,} times the size of the file or {_MOST_CHUNK_BYTES >> 20} MiB"
                )


def _chunks(metadata: Any, group: int) -> Iterator[Any]:
    return (metadata.row_group(group).column(column) for column in range(metadata.num_columns))


def most_row_bytes(metadata: Any) -> int:
    """Return how many bytes one row may have of a column that is stored in far fewer; 0 where there is none."""
    chunks = (chunk for group in range(metadata.num_row_groups) for chunk in _chunks(metadata, group))
    sizes = ((chunk.total_uncompressed_size, chunk.total_compressed_size) for chunk in chunks)
    return max((size for size, stored in sizes if size > stored * _MOST_COMPRESSION), default=0)


def is_parquet(head: bytes) -> bool:
    """Return whether a file with these first bytes is Parquet."""
    # An id may be "PAR1" too, but then a tab or a printable character follows.
    return head.startswith(_MAGIC) and head[4:5] < b" " and head[4:5] != b"\t"


PARQUET_FORMATS = (BinaryFormat(name=PARQUET, matches=is_parquet, open=open_parquet),)


ARROW = "arrow"
_FILE_MAGIC = b"ARROW1\0\0"
# Of the first message of a stream, its schema; the length follows.
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_MAX_SCHEMA_BYTES = 1 << 28


def open_arrow(file: Input, options: CorpusOptions) -> tuple[Source, Iterator[Row | Reject]]:
    """Return how the file is read, by its schema, and its rows; raise CorpusError for a pipe or a damaged file."""
    if not file.is_seekable:
        raise CorpusError(f"{file.name}: is an Arrow file, which cannot be read from a pipe; name the file")
    arrow = require("pyarrow", "files", f"reading {file.name} (Arrow)")

    def open_reader() -> Any:
        file.file.seek(0)
        return arrow.ipc.open_file(file.file) if file.head == _FILE_MAGIC else arrow.ipc.open_stream(file.file)

    def batches(columns: Sequence[str]) -> Generator[Any, None, None]:
        done_rows = 0
        try:
            for batch in _record_batches(open_reader()):
                selected = batch.select(list(columns))
                check_batch(arrow, selected)
                yield selected
                done_rows += batch.num_rows
                file.bytes_read = file.file.tell()
        except (arrow.ArrowException, OSError) as err:
            raise CorpusError(f"{file.name}: is damaged after row {done_rows}: {first_line(err)}") from err

    try:
        schema = open_reader().schema
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as err:
        raise CorpusError(f"{file.name}: is not a whole Arrow file: {first_line(err)}") from err
    table = Table(
        path=file.name, format=ARROW, schema=schema, batches=batches, ids=file.ids, size_bytes=file.size_bytes
    )
    return open_table(table, options)


def is_arrow(head: bytes) -> bool:
    """Return whether a file with these first bytes is an Arrow file or stream."""
    schema_bytes = int.from_bytes(head[4:8], "little")
    is_stream = head.startswith(_STREAM_MAGIC) and 0 < schema_bytes < _MAX_SCHEMA_BYTES and schema_bytes % 8 == 0
    return head == _FILE_MAGIC or is_stream


ARROW_FORMATS = (BinaryFormat(name=ARROW, matches=is_arrow, open=open_arrow, suffixes=(".arrow", ".feather")),)


def _record_batches(reader: Any) -> Iterator[Any]:
    """Yield the record batches of a file or stream, each read when it is asked for."""
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)
