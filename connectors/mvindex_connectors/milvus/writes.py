"""Write and delete rows of Milvus: column by column, and by keys; know the ids that a run has written.

pymilvus takes longer row by row than the server for its part. The request is that of Milvus' protocol (schema.proto,
milvus.proto), which is stable. How it is passed to pymilvus' connection is not, so that is done for known versions
only; others are given rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mvindex.records import Floats, Ints, sliced
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import REQUEST_BYTES, id_hash

# Whole numbers, texts, sparse vectors on the wire (uint32 and float32, by rising dimension), or vectors (n, d) float32;
# all columns of a request are as long.
Column: TypeAlias = Sequence[int] | Sequence[str] | Sequence[bytes] | Floats

_KNOWN = ("3.0.",)
# An entry of a sparse vector.
SPARSE = np.dtype([("dim", "<u4"), ("value", "<f4")])
_KEYS_AT_ONCE = 16_384


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return the rows, at least one, by column."""
    columns: dict[str, Column] = {name: [row[name] for row in rows] for name in rows[0] if name != "vec"}
    return {**columns, "vec": np.stack([row["vec"] for row in rows])}


def upsert(client: Any, collection: str, columns: Mapping[str, Column], *, timeout: float) -> None:
    """Upsert the rows; return once the server has acknowledged them."""
    if is_known():
        _send(client, collection, columns, timeout)
    else:
        plain = {name: _plain(column) for name, column in columns.items()}
        rows = [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
        client.upsert(collection, rows, timeout=timeout)


def vectors_of(rows: Any, dim: int) -> tuple[list[int], Floats]:
    """Return the keys and the vectors, (r, d) float32, of rows as a query has returned them."""
    if not is_known():
        return [row["pk"] for row in rows], np.array([row["vec"] for row in rows], np.float32).reshape(-1, dim)
    # Its rows have no vector until they are looked at; it is decoded number by number then.
    keys = [row["pk"] for row in list.__iter__(rows)]
    packed = [
        field.vectors.float_vector for field in getattr(rows, "_lazy_field_data", ()) if field.field_name == "vec"
    ]
    body = packed[0].SerializeToString() if packed else b""
    # On the wire: a tag and a length, then the numbers.
    return keys, np.frombuffer(body[len(body) - 4 * dim * len(keys) :], "<f4").astype(np.float32).reshape(-1, dim)


def is_known() -> bool:
    """Return whether the connection of this pymilvus takes requests, and gives answers, as they are made here."""
    import pymilvus

    return str(pymilvus.__version__).startswith(_KNOWN)


def _send(client: Any, collection: str, columns: Mapping[str, Column], timeout: float) -> None:
    from pymilvus.client.ts_utils import update_collection_ts
    from pymilvus.client.utils import check_status

    handler, context = client._get_connection(), client._generate_call_context()  # noqa: SLF001 - see above
    metadata = context.to_grpc_metadata()
    response = handler._stub.Upsert(_request(collection, columns), timeout=timeout, metadata=metadata)  # noqa: SLF001
    check_status(response.status)
    # A session then reads its own writes.
    update_collection_ts(collection, response.timestamp, handler.server_address, context.get_db_name())


def _request(collection: str, columns: Mapping[str, Column]) -> Any:
    from pymilvus.grpc_gen.milvus_pb2 import UpsertRequest

    fields = [_field(name, column) for name, column in columns.items()]
    num_rows = len(next(iter(columns.values())))
    return UpsertRequest(collection_name=collection, fields_data=fields, num_rows=num_rows)


def _field(name: str, column: Column) -> Any:
    from pymilvus import DataType
    from pymilvus.grpc_gen.schema_pb2 import FieldData

    if isinstance(column, np.ndarray):
        field = FieldData(field_name=name, type=DataType.FLOAT_VECTOR)
        field.vectors.dim = column.shape[1]
        field.vectors.float_vector.MergeFromString(_packed(column))
    elif isinstance(column[0], bytes):
        field = FieldData(field_name=name, type=DataType.SPARSE_FLOAT_VECTOR)
        field.vectors.dim = field.vectors.sparse_float_vector.dim = max(map(_num_dimensions, column))
        field.vectors.sparse_float_vector.contents.extend(column)
    elif isinstance(column[0], str):
        field = FieldData(field_name=name, type=DataType.VARCHAR)
        field.scalars.string_data.data.extend(column)
    else:
        field = FieldData(field_name=name, type=DataType.INT64)
        field.scalars.long_data.data.extend(column)
    return field


def unpacked_vector(packed: bytes) -> dict[int, float]:
    """Return a sparse vector as pymilvus takes it."""
    pairs = np.frombuffer(packed, dtype=SPARSE)
    return dict(zip(pairs["dim"].tolist(), pairs["value"].tolist(), strict=True))


def _num_dimensions(packed: Any) -> int:
    return int(np.frombuffer(packed, dtype=SPARSE)["dim"][-1]) + 1


def _plain(column: Column) -> Sequence[Any]:
    """Return the column as pymilvus takes its values."""
    return [unpacked_vector(each) if isinstance(each, bytes) else each for each in column]


def _packed(vectors: Floats) -> bytes:
    """Return a FloatArray on the wire: field 1, its length as a varint, then little-endian float32."""
    body = vectors.astype("<f4", copy=False).tobytes()
    size, left = bytearray(), len(body)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return b"".join((b"\x0a", bytes(size), body))


def upsert_columns(connection: Connection, name: str, columns: Mapping[str, Column], step: str, size: int) -> None:
    """Upsert the rows, up to `size` at a time; step: for messages."""
    for begin, end in _requests(columns, size):
        part = {field: column[begin:end] for field, column in columns.items()}
        connection.call(step, lambda client, part=part, **options: upsert(client, name, part, **options))


def delete_keys(connection: Connection, name: str, keys: list[int], step: str) -> None:
    """Delete the rows of these keys."""
    for part in sliced(keys, _KEYS_AT_ONCE):
        connection.ask(step, "delete", name, ids=part)


def _requests(columns: Mapping[str, Column], size: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each request, and the one behind its last."""
    texts: list[Any] = [column for column in columns.values() if len(column) and isinstance(column[0], str | bytes)]
    begin = num_bytes = 0
    for row in range(len(columns["pk"])):
        length = sum(len(column[row]) for column in texts)
        if row > begin and (row - begin == size or num_bytes + length > REQUEST_BYTES):
            yield begin, row
            begin, num_bytes = row, 0
        num_bytes += length
    if len(columns["pk"]) > begin:
        yield begin, len(columns["pk"])


class WrittenIds:
    """Ids by their hashes, 8 bytes each; an id with the hash of another counts as seen too."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []

    def add(self, ids: Sequence[str]) -> None:
        """Add ids."""
        self._parts.append(np.sort(_hashes(ids)))
        # A part is merged with a longer one only when it has grown as long, so each hash is moved a few times.
        while len(self._parts) > 1 and len(self._parts[-2]) <= len(self._parts[-1]):
            self._parts[-2:] = [np.sort(np.concatenate(self._parts[-2:]))]

    def among(self, ids: Sequence[str]) -> list[str]:
        """Return the ids that may have been added."""
        hashes = _hashes(ids)
        is_there = np.zeros(len(ids), dtype=bool)
        for part in self._parts:
            at = np.searchsorted(part, hashes)
            is_there |= part[np.minimum(at, len(part) - 1)] == hashes
        return [doc_id for doc_id, there in zip(ids, is_there.tolist(), strict=True) if there]


def _hashes(ids: Sequence[str]) -> Ints:
    return np.array([id_hash(doc_id) for doc_id in ids], dtype=np.int64)
