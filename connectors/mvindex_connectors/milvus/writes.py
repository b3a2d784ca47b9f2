"""Upsert and delete rows of a collection, as many at a time as one request takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mvindex_connectors.milvus.columns import Column, upsert
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import REQUEST_BYTES, chunks

_KEYS_AT_ONCE = 16_384


def upsert_columns(connection: Connection, name: str, columns: Mapping[str, Column], step: str, size: int) -> None:
    """Upsert the rows, up to `size` at a time; step: for messages."""
    for begin, end in _requests(columns, size):
        part = {field: column[begin:end] for field, column in columns.items()}
        connection.call(step, lambda client, part=part, **options: upsert(client, name, part, **options))


def delete_keys(connection: Connection, name: str, keys: list[int], step: str) -> None:
    """Delete the rows of these keys."""
    for part in chunks(keys, _KEYS_AT_ONCE):
        connection.call(step, lambda client, part=part, **options: client.delete(name, ids=part, **options))


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
