"""Reads vectors from NumPy files, memory-mapped and never unpickled, and their ids."""

from __future__ import annotations

import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.corpus.paths import STDIN
from mvindex.corpus.streams import read_lines
from mvindex.errors import ConfigError, CorpusError
from mvindex.io.join import Texts, join_texts
from mvindex.io.json_rows import read_document, read_json_spans, read_objects, read_ordinal
from mvindex.io.staging_table import VectorTable
from mvindex.io.validation import Array, Columns, VectorDocument, VectorSource, check_id
from mvindex.records import ProgressCallback

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
    names = read_ids(ids)
    while chunk := list(islice(names, _CHUNK)):
        table.add_ids([doc_id for doc_id in chunk for _ in range(each)])
        on_progress("reading ids", table.num_rows // each, count)
    if table.num_rows != count * each:
        raise CorpusError(f"{ids}: expected {count:,} ids, one for each of {path}, got {table.num_rows // each:,}")
    table.matrix = array.reshape(-1, array.shape[-1])
    return join_texts(table, texts, on_progress)


def open_export(directory: Path, columns: Columns) -> VectorSource:
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
