"""Columns: the values of declared filter fields, kept beside the metadata, so that a filter need not read all of that.

A column holds a state and a value for each document row, in blocks of 4,096 rows with a checksum each. Rows whose value
is of another kind than the field's are marked: filters are answered from the metadata for these. So a column changes
what a filter costs, never what it matches.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import ConfigError, DamagedIndex
from mvindex.records import Bools
from mvindex.store.dates import DATE_KEY, is_date, names_day, parse_period
from mvindex.store.filters import Filter, operators_of, split_name
from mvindex.store.rows import as_signed

SCHEMA = """
CREATE TABLE columns(field TEXT, block INTEGER, data BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY(field, block));
"""
_BLOCK_ROWS = 4096
_MISSING, _VALUE, _OTHER = 0, 1, 2
_INT64 = 1 << 63
NOT_FIELDS = frozenset({"id", "and", "or", "not"})
_DIGEST_BYTES = 16


class FieldType(Enum):
    """The kind of values that a declared filter field mostly has."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    DATE = "date"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a row: its state, and a number, the microseconds of a date, or the digest of a text."""
        value = {FieldType.FLOAT: "<f8", FieldType.TEXT: f"S{_DIGEST_BYTES}"}.get(self, "<i8")
        return np.dtype([("state", "u1"), ("value", value)])


class Column(NamedTuple):
    """The values of one field, (n,) each; checksums: of its blocks. Text values are (n, 2) uint64, of a digest."""

    type: FieldType
    states: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    checksums: tuple[int, ...]


def parse_filter_fields(fields: Mapping[str, str] | None) -> dict[str, str]:
    """Return declared filter fields, name to type, in order of their names; ConfigError for what cannot be one."""
    found = {}
    for name, kind in sorted((fields or {}).items()):
        if name in NOT_FIELDS or split_name(name) is None:
            raise ConfigError(f"filter field {name!r}: expected a key of the metadata, or keys joined by dots")
        if kind not in [each.value for each in FieldType]:
            expected = ", ".join(each.value for each in FieldType)
            raise ConfigError(f"filter field {name!r}: expected one of {expected}, got {kind!r}")
        found[name] = kind
    return found


def append_columns(
    connection: sqlite3.Connection, fields: Mapping[str, str], first_row: int, dumped: Sequence[str]
) -> None:
    """Add the values of the rows from first_row on, whose metadata is given as JSON, in the caller's transaction."""
    metadata = [json.loads(each) for each in dumped] if fields else []
    for name, kind in fields.items():
        data = _encoded(FieldType(kind), name, metadata).tobytes()
        item = FieldType(kind).dtype.itemsize
        block, kept = divmod(first_row, _BLOCK_ROWS)
        before = _read_block(connection, name, block)[: kept * item] if kept else b""
        if len(before) != kept * item:
            raise _damaged(name, block, f"expected {kept} rows, got {len(before) // item}")
        data = before + data
        for number, begin in enumerate(range(0, len(data), _BLOCK_ROWS * item), block):
            _write_block(connection, name, number, data[begin : begin + _BLOCK_ROWS * item])


def update_columns(connection: sqlite3.Connection, fields: Mapping[str, str], updates: Mapping[int, str]) -> None:
    """Set the values of the rows whose metadata (JSON) changes, in the caller's transaction."""
    if not (fields and updates):
        return
    rows = np.array(sorted(updates), dtype=np.int64)
    metadata = [json.loads(updates[row]) for row in rows.tolist()]
    blocks, begins = np.unique(rows // _BLOCK_ROWS, return_index=True)
    ends = [*begins[1:].tolist(), len(rows)]
    for name, kind in fields.items():
        encoded = _encoded(FieldType(kind), name, metadata)
        for block, begin, end in zip(blocks.tolist(), begins.tolist(), ends, strict=True):
            values = np.frombuffer(_read_block(connection, name, block), dtype=FieldType(kind).dtype).copy()
            values[rows[begin:end] - block * _BLOCK_ROWS] = encoded[begin:end]
            _write_block(connection, name, block, values.tobytes())


def read_column(
    connection: sqlite3.Connection, name: str, kind: FieldType, num_rows: int, before: Column | None
) -> Column:
    """Return the column of the first num_rows rows; blocks that `before` holds unchanged are not read again.

    Raises:
        DamagedIndex: When a block is missing, short, or does not match its checksum.

    """
    query = "SELECT checksum FROM columns WHERE field = ? ORDER BY block LIMIT ?"
    count = -(-num_rows // _BLOCK_ROWS)
    checksums = tuple(checksum for (checksum,) in connection.execute(query, (name, count)))
    known = before.checksums if before is not None else ()
    if before is not None and checksums == known and len(before.states) == num_rows:
        return before
    states = np.zeros(num_rows, dtype=np.uint8)
    values = np.zeros((num_rows, 2) if kind is FieldType.TEXT else num_rows, dtype=_loaded_dtype(kind))
    for block in range(count):
        begin, end = block * _BLOCK_ROWS, min((block + 1) * _BLOCK_ROWS, num_rows)
        is_kept = block < min(len(known), len(checksums)) and known[block] == checksums[block]
        if before is not None and is_kept and end <= len(before.states):
            states[begin:end], values[begin:end] = before.states[begin:end], before.values[begin:end]
            continue
        stored = np.frombuffer(_read_block(connection, name, block), dtype=kind.dtype)[: end - begin]
        if len(stored) != end - begin:
            raise _damaged(name, block, f"expected {end - begin} rows, got {len(stored)}")
        states[begin:end] = stored["state"]
        loaded = np.ascontiguousarray(stored["value"]).view(_loaded_dtype(kind))
        values[begin:end] = loaded.reshape(values[begin:end].shape)
    return Column(kind, states, values, checksums)


def check_columns(connection: sqlite3.Connection, fields: Mapping[str, str], num_rows: int) -> None:
    """Compare all columns with the metadata; DamagedIndex names the first block that differs."""
    query = "SELECT json FROM metadata WHERE doc_row >= ? AND doc_row < ? ORDER BY doc_row"
    for block in range(-(-num_rows // _BLOCK_ROWS) if fields else 0):
        begin, end = block * _BLOCK_ROWS, min((block + 1) * _BLOCK_ROWS, num_rows)
        metadata = [json.loads(dumped) for (dumped,) in connection.execute(query, (begin, end))]
        for name, kind in fields.items():
            if _encoded(FieldType(kind), name, metadata).tobytes() != _read_block(connection, name, block):
                raise _damaged(name, block, "does not hold what the metadata does")


class ColumnFilter:
    """Evaluates filters on columns, and by `select` what columns cannot decide."""

    def __init__(
        self,
        num_rows: int,
        names: Iterable[str],
        column: Callable[[str], Column],
        select: Callable[[str, Sequence[Filter], Bools], Bools],
    ) -> None:
        """Prepare an evaluation.

        names: of the fields with a column, which column() returns. select: returns which rows, of the given ones,
        (num_rows,), satisfy filters joined by "and" or "or".
        """
        self._num_rows = num_rows
        self._names = frozenset(names)
        self._column = column
        self._select = select

    def matching(self, condition: Filter) -> Bools:
        """Return which rows satisfy a filter that parse_filter() accepts, (num_rows,)."""
        return self._all_of([condition])

    def _all_of(self, parts: Sequence[Filter]) -> Bools:
        """Return which rows satisfy all parts; the columns first, so that fewer rows are left to read."""
        found = np.ones(self._num_rows, dtype=bool)
        others: list[Filter] = []
        for part in parts:
            for name, value in part.items():
                if not self._has_column({name: value}):
                    others.append({name: value})
                elif name == "and":
                    found &= self._all_of(value)
                elif name == "or":
                    found &= self._any_of(value)
                elif name == "not":
                    found &= ~self.matching(value)
                else:
                    for operator, operand in operators_of(value):
                        answer = self._compared(name, operator, operand)
                        if answer is None:
                            others.append({name: {operator: operand}})
                        else:
                            found &= answer
        return self._select("and", others, found) if others else found

    def _any_of(self, parts: Sequence[Filter]) -> Bools:
        found = np.zeros(self._num_rows, dtype=bool)
        others = [part for part in parts if not self._has_column(part)]
        for part in parts:
            if self._has_column(part):
                found |= self.matching(part)
        return found | self._select("or", others, ~found) if others else found

    def _has_column(self, condition: Filter) -> bool:
        """Return whether a field of the condition has a column."""
        for name, value in condition.items():
            if name in ("and", "or"):
                if any(self._has_column(part) for part in value):
                    return True
            elif self._has_column(value) if name == "not" else name in self._names:
                return True
        return False

    def _compared(self, name: str, operator: str, operand: Any) -> Bools | None:
        """Return which rows satisfy a comparison; None where the column cannot tell."""
        column = self._column(name)
        if operator == "exists":
            is_missing: Bools = column.states == _MISSING
            return ~is_missing if operand else is_missing
        if operator in ("ne", "nin"):
            opposite = self._compared(name, "eq" if operator == "ne" else "in", operand)
            return None if opposite is None else ~opposite
        found = np.zeros(self._num_rows, dtype=bool)
        for each in operand if operator == "in" else [operand]:
            answer = _values_that(column, "eq" if operator == "in" else operator, each)
            if answer is None:
                return None
            found |= answer
        # parse_filter() has refused what no row could be compared with.
        is_other = column.states == _OTHER
        return found | self._select("and", [{name: {operator: operand}}], is_other) if is_other.any() else found


def _values_that(column: Column, operator: str, operand: Any) -> Bools | None:
    """Return which rows hold a value of the column's type that compares so; None where the column cannot tell."""
    if operand is None:
        is_missing: Bools = column.states == _MISSING
        return is_missing
    is_value: Bools = column.states == _VALUE
    none = np.zeros(len(is_value), dtype=bool)
    if is_date(operand) or (column.type is FieldType.DATE and operator != "eq" and _is_day(operand)):
        if column.type is FieldType.TEXT:
            return None
        return is_value & _in_period(column.values, operator, operand) if column.type is FieldType.DATE else none
    if isinstance(operand, str):
        if column.type is FieldType.TEXT and operator == "eq":
            low, high = _digest(operand).view("<u8")
            is_same: Bools = (column.values[:, 0] == low) & (column.values[:, 1] == high)
            return is_value & is_same
        return None if column.type in (FieldType.TEXT, FieldType.DATE) else none
    if isinstance(operand, bool) or column.type in (FieldType.TEXT, FieldType.DATE):
        return none
    return is_value & _compared_numbers(column, operator, operand)


def _is_day(operand: Any) -> bool:
    return isinstance(operand, str) and names_day(operand)


def _in_period(values: npt.NDArray[np.int64], operator: str, operand: Any) -> Bools:
    """Return which moments compare so with a date; a day is over when the next one begins."""
    period = parse_period(operand[DATE_KEY] if isinstance(operand, Mapping) else operand)
    assert period is not None  # noqa: S101 - parse_filter() refuses others
    if operator == "eq":
        return _is_in(values, period.begin, period.end)
    border = period.begin if operator in ("lt", "gte") else period.end
    return _is_in(values, border, _INT64 - 1) if operator in ("gt", "gte") else _is_in(values, -_INT64, border)


def _is_in(values: npt.NDArray[np.int64], begin: int, end: int) -> Bools:
    found: Bools = (values >= begin) & (values < end)
    return found


def _compared_numbers(column: Column, operator: str, operand: float) -> Bools:
    """Return which numbers compare so; a number with a fraction is replaced by the whole one that compares alike."""
    values = column.values
    if column.type is FieldType.FLOAT:
        # A whole number that no double equals lies between two of them.
        nearest = float(operand)
        if nearest != operand:
            if operator == "eq":
                return np.zeros(len(values), dtype=bool)
            is_upper = operator in ("lt", "lte")
            operator = ("lte" if is_upper else "gt") if nearest < operand else ("lt" if is_upper else "gte")
        operand = nearest
    elif isinstance(operand, float):
        if operator == "eq" and not operand.is_integer():
            return np.zeros(len(values), dtype=bool)
        operand = math.ceil(operand) if operator in ("lt", "gte") else math.floor(operand)
    if column.type is FieldType.INT and not -_INT64 <= operand < _INT64:
        is_below = operand > 0  # whether every value is below the operand
        return np.full(len(values), operator in (("lt", "lte") if is_below else ("gt", "gte")))
    compare = {"eq": np.equal, "lt": np.less, "lte": np.less_equal, "gt": np.greater, "gte": np.greater_equal}
    found: Bools = compare[operator](values, operand)
    return found


def _loaded_dtype(kind: FieldType) -> np.dtype[Any]:
    return np.dtype("<u8") if kind is FieldType.TEXT else kind.dtype["value"]


def _encoded(kind: FieldType, name: str, metadata: Sequence[Mapping[str, Any]]) -> npt.NDArray[Any]:
    """Return the rows of a column, (n,) of the type's dtype, of n documents' metadata."""
    keys, encode = split_name(name) or (), _ENCODE[kind]
    states, values = [_MISSING] * len(metadata), [kind.dtype["value"].type()] * len(metadata)
    for number, each in enumerate(metadata):
        value: Any = each
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            encoded = encode(value)
            states[number] = _OTHER if encoded is None else _VALUE
            values[number] = values[number] if encoded is None else encoded
    rows = np.zeros(len(metadata), dtype=kind.dtype)
    rows["state"], rows["value"] = states, values
    return rows


def _encode_int(value: Any) -> int | None:
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _encode_float(value: Any) -> float | None:
    # Beyond 2^53 a whole number may have no double, and SQLite compares it exactly.
    return float(value) if type(value) is float or (type(value) is int and abs(value) <= 1 << 53) else None


def _encode_text(value: Any) -> bytes | None:
    return _digest(value).tobytes() if isinstance(value, str) else None


def _encode_date(value: Any) -> int | None:
    period = parse_period(value)
    return None if period is None else period.begin


_ENCODE: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.INT: _encode_int,
    FieldType.FLOAT: _encode_float,
    FieldType.TEXT: _encode_text,
    FieldType.DATE: _encode_date,
}


def _digest(text: str) -> npt.NDArray[np.uint8]:
    """Return 128 bits of the text's BLAKE2b, which no other text has."""
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(), dtype=np.uint8)


def _read_block(connection: sqlite3.Connection, name: str, block: int) -> bytes:
    query = "SELECT data, checksum FROM columns WHERE field = ? AND block = ?"
    found = connection.execute(query, (name, block)).fetchone()
    if found is None:
        raise _damaged(name, block, "is missing")
    data, checksum = found
    if not isinstance(data, bytes) or _checksum(name, block, data) != checksum:
        raise _damaged(name, block, "does not match its checksum")
    return data


def _write_block(connection: sqlite3.Connection, name: str, block: int, data: bytes) -> None:
    values = (name, block, data, _checksum(name, block, data))
    connection.execute("INSERT OR REPLACE INTO columns VALUES (?, ?, ?, ?)", values)


def _checksum(name: str, block: int, data: bytes) -> int:
    return as_signed(xxhash.xxh3_64_intdigest(f"{name} {block} ".encode() + data))


def _damaged(name: str, block: int, what: str) -> DamagedIndex:
    return DamagedIndex(f"catalog.sqlite: block {block} of the column of filter field {name!r} {what}")
