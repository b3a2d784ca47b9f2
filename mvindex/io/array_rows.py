"""Documents with their views from JSON Lines, and vectors of NumPy files with their ids."""

from __future__ import annotations

import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.corpus.inputs import UTF8_MARK, Input, read_lines
from mvindex.corpus.json_files import parse_object
from mvindex.corpus.lines import Lines
from mvindex.corpus.paths import STDIN
from mvindex.errors import ConfigError, CorpusError, DocumentError
from mvindex.io.staging import (
    ID_NAMES,
    VECTOR_NAMES,
    Array,
    Columns,
    Texts,
    VectorDocument,
    VectorSource,
    VectorTable,
    check_first_dim,
    check_id,
    choose_column,
    join_texts,
)
from mvindex.records import Document, ProgressCallback, batched

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


_CHUNK = 4096
_MAX_JSON_BYTES = 1 << 30
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
# Besides its own errors, NumPy raises these for damaged headers.
_BAD_HEADERS = (
    ValueError,
    EOFError,
    OverflowError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def open_array(path: str, ids: str, table: VectorTable, texts: Texts, on_progress: ProgressCallback) -> VectorSource:
    """Read a file of vectors (n, d), with an id for each, or (n, k, d), with an id for each k of them.

    Several vectors of one id are its views, in order. CorpusError when the numbers of ids and vectors differ.
    """
    array = read_array(path)
    count, each = array.shape[0], array.shape[1] if array.ndim == 3 else 1
    for chunk in batched(read_ids(ids), _CHUNK):
        table.add_ids([doc_id for doc_id in chunk for _ in range(each)])
        on_progress("reading ids", table.num_rows // each, count)
    if table.num_rows != count * each:
        raise CorpusError(f"{ids}: expected {count:,} ids, one for each of {path}, got {table.num_rows // each:,}")
    table.matrix = array.reshape(-1, array.shape[-1])
    return join_texts(table, texts, on_progress)


def open_export(directory: Path) -> VectorSource:
    """Read the documents of an export as NumPy files."""
    vectors = read_array(str(directory / "vectors.npy"))
    if vectors.ndim != 2:
        raise CorpusError(f"{directory / 'vectors.npy'}: expected shape (r, d), got {vectors.shape}")
    documents = _read_exported(str(directory / "documents.jsonl"), vectors)
    return VectorSource(dim=vectors.shape[1], dtype=vectors.dtype, documents=documents)


def _read_exported(path: str, vectors: Array) -> Iterator[VectorDocument]:
    begin = 0
    for place, fields in read_objects(path):
        count = fields.get("views")
        if type(count) is not int or not 1 <= count <= len(vectors) - begin:
            raise CorpusError(f'{place}: "views" is {count!r:.40}; {len(vectors) - begin:,} vectors are left')
        document = read_document(place, fields, Columns(), {"views", "spans", "ordinal"})
        spans = read_json_spans(place, fields, count)
        yield VectorDocument(place, document, vectors[begin : begin + count], spans, read_ordinal(place, fields))
        begin += count
    if begin != len(vectors):
        raise CorpusError(f"{path}: its documents have {begin:,} views together; vectors.npy has {len(vectors):,}")


def read_array(path: str) -> Array:
    """Map the array of a file; raise CorpusError for anything but floats of shape (n, d) or (n, k, d)."""
    array = _map_array(path)
    if array.dtype.kind != "f" or array.dtype.itemsize not in (2, 4, 8) or array.ndim not in (2, 3) or not array.size:
        raise CorpusError(
            f"{path}: expected float16, float32 or float64 of shape (n, d) or (n, k, d), got {array.dtype} of "
            f"{array.shape}"
        )
    if not array.flags.c_contiguous:
        raise CorpusError(f"{path}: is in Fortran order; save it again: np.save(path, np.ascontiguousarray(array))")
    return array


def read_ids(path: str) -> Iterator[str]:
    """Yield the ids of a file: .npy of strings or integers, .json of a list of them, else one a line."""
    if path == STDIN:
        raise ConfigError("--ids -: the ids are read from a file; name it")
    if path.endswith(".npy"):
        yield from _array_ids(path)
    elif path.endswith(".json"):
        yield from (_id(path, number, value) for number, value in enumerate(_json_list(path), start=1))
    else:
        yield from (_id(path, number, line) for number, line in read_lines(path))


def read_id_map(path: str) -> Mapping[int, str] | None:
    """Read a .json object of ids by 64-bit integers; return None for a file of another kind."""
    if not path.endswith(".json"):
        return None
    value = _json(path)
    if not isinstance(value, dict):
        return None
    return {_number(path, key): _id(path, key, doc_id) for key, doc_id in value.items()}


def _number(path: str, key: str) -> int:
    if _NUMBER.fullmatch(key) is None or not -(1 << 63) <= int(key) < 1 << 63:
        raise CorpusError(f"{path}: expected names that are 64-bit integers, such as 17, got {key!r:.40}")
    return int(key)


def _array_ids(path: str) -> Iterator[str]:
    array = _map_array(path)
    if array.ndim != 1 or array.dtype.kind not in "Uiu":
        raise CorpusError(f"{path}: expected strings or integers of shape (n,), got {array.dtype} of {array.shape}")
    for begin in range(0, len(array), _CHUNK):
        try:
            values = array[begin : begin + _CHUNK].tolist()
            ids = [_id(path, number, value) for number, value in enumerate(values, start=begin + 1)]
        except CorpusError:
            raise
        except (ValueError, SystemError) as err:  # of what are no characters
            raise CorpusError(f"{path}: after id {begin}: invalid text: {err}") from err
        yield from ids


def _json_list(path: str) -> Sequence[Any]:
    value = _json(path)
    if not isinstance(value, list):
        raise CorpusError(f"{path}: expected a list of ids, got {type(value).__name__}")
    return value


def _json(path: str) -> Any:
    try:
        if Path(path).stat().st_size > _MAX_JSON_BYTES:
            raise CorpusError(
                f"{path}: expected at most 1 GiB, since JSON is read whole; give the ids one a line instead"
            )
        return json.loads(Path(path).read_bytes(), object_pairs_hook=_object)
    except (ValueError, RecursionError) as err:
        raise CorpusError(f"{path}: is not JSON: {err}") from err
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _id(path: str, number: object, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise CorpusError(f"{path}:{number}: expected an id, a string or an integer, got {value!r:.40}")
    return check_id(f"{path}:{number}", value)


def _map_array(path: str) -> Array:
    try:
        with open(path, "rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise CorpusError(
                    f"{path}: is an archive of arrays (.npz); give the one that holds the vectors as .npy"
                )
        array: Array = np.lib.format.open_memmap(path, mode="r")
        return array
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err
    except _BAD_HEADERS as err:
        why = str(err).partition("\n")[0] or "nested too deeply"
        raise CorpusError(f"{path}: is not a whole .npy file of plain numbers: {why}") from err
