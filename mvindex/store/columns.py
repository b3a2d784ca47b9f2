"""Columns: the values of declared filter fields, kept beside the metadata, so that a filter need not read all of that.

A column holds a state and a value for each document row, in blocks of 4,096 rows with a checksum each. Rows whose value
is of another kind than the field's are marked: filters are answered from the metadata for these. So a column changes
what a filter costs, never what it matches.

Beside it stand the members of lists, of each block a list of row, state and value, under a name that no field has.
Columns of version 0.2 have no members: what lists contain is then read from the metadata.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import DamagedIndex
from mvindex.records import Bools
from mvindex.store.fields import FieldType, Period, parse_period, value_at
from mvindex.store.filters import And, Comparison, Condition, Contains, Exists, IsList, Not, Operand, Or, Ordered
from mvindex.store.rows import as_signed

SCHEMA = """
CREATE TABLE columns(field TEXT, block INTEGER, data BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY(field, block));
"""
_BLOCK_ROWS = 4096
_MISSING, _VALUE, _OTHER = 0, 1, 2
_INT64 = 1 << 63
_DIGEST_BYTES = 16
# No field's name ends so.
_MEMBERS = '"members'


class Column(NamedTuple):
    """The values of one field, (n,) each; checksums: of its blocks. Text values are (n, 2) uint64, of a digest."""

    type: FieldType
    states: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    checksums: tuple[int, ...]


class Members(NamedTuple):
    """The members of the lists in one field: the document row of each, (m,), of num_rows, and its state and value."""

    rows: npt.NDArray[np.int64]
    column: Column
    num_rows: int


def append_columns(
    connection: sqlite3.Connection, fields: Mapping[str, str], first_row: int, dumped: Sequence[str]
) -> None:
    """Add the values of the rows from first_row on, whose metadata is given as JSON, in the caller's transaction."""
    metadata = [json.loads(each) for each in dumped] if fields else []
    for name, kind in fields.items():
        values = [value_at(each, name) for each in metadata]
        data = _encoded(FieldType(kind), values).tobytes()
        item = _dtype(FieldType(kind)).itemsize
        block, kept = divmod(first_row, _BLOCK_ROWS)
        before = _read_block(connection, name, block)[: kept * item] if kept else b""
        if len(before) != kept * item:
            raise _damaged(name, block, f"expected {kept} rows, got {len(before) // item}")
        data = before + data
        for number, begin in enumerate(range(0, len(data), _BLOCK_ROWS * item), block):
            _write_block(connection, name, number, data[begin : begin + _BLOCK_ROWS * item])
        _append_members(connection, name, FieldType(kind), first_row, values)


def update_columns(connection: sqlite3.Connection, fields: Mapping[str, str], updates: Mapping[int, str]) -> None:
    """Set the values of the rows whose metadata (JSON) changes, in the caller's transaction."""
    if not (fields and updates):
        return
    rows = np.array(sorted(updates), dtype=np.int64)
    metadata = [json.loads(updates[row]) for row in rows.tolist()]
    blocks, begins = np.unique(rows // _BLOCK_ROWS, return_index=True)
    ends = [*begins[1:].tolist(), len(rows)]
    for name, kind in fields.items():
        given = [value_at(each, name) for each in metadata]
        encoded, members = _encoded(FieldType(kind), given), _encoded_members(FieldType(kind), given)
        for block, begin, end in zip(blocks.tolist(), begins.tolist(), ends, strict=True):
            values = np.frombuffer(_read_block(connection, name, block), dtype=_dtype(FieldType(kind))).copy()
            changed = rows[begin:end] - block * _BLOCK_ROWS
            values[changed] = encoded[begin:end]
            _write_block(connection, name, block, values.tobytes())
            if _has_block(connection, name + _MEMBERS, block):
                fresh = members[(begin <= members["row"]) & (members["row"] < end)]
                fresh["row"] = changed[fresh["row"] - begin]
                kept = _read_members(connection, name, block, FieldType(kind))
                kept = kept[~np.isin(kept["row"], changed)]
                _write_block(connection, name + _MEMBERS, block, np.concatenate([kept, fresh]).tobytes())


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
        stored = np.frombuffer(_read_block(connection, name, block), dtype=_dtype(kind))[: end - begin]
        if len(stored) != end - begin:
            raise _damaged(name, block, f"expected {end - begin} rows, got {len(stored)}")
        states[begin:end] = stored["state"]
        loaded = np.ascontiguousarray(stored["value"]).view(_loaded_dtype(kind))
        values[begin:end] = loaded.reshape(values[begin:end].shape)
    return Column(kind, states, values, checksums)


def has_members(connection: sqlite3.Connection, name: str, num_rows: int) -> bool:
    """Return whether all blocks of a column have their members, which is not so where version 0.2 wrote some."""
    query = "SELECT count(*) FROM columns WHERE field = ? AND block < ?"
    count = -(-num_rows // _BLOCK_ROWS)
    return bool(connection.execute(query, (name + _MEMBERS, count)).fetchone()[0] == count)


def read_members(
    connection: sqlite3.Connection, name: str, kind: FieldType, num_rows: int, before: Members | None
) -> Members:
    """Return the members of a field's lists in the first num_rows rows; `before` if it is still what is stored.

    Call it where has_members(). Raises DamagedIndex for a block that does not match its checksum.
    """
    query = "SELECT checksum FROM columns WHERE field = ? ORDER BY block LIMIT ?"
    count = -(-num_rows // _BLOCK_ROWS)
    checksums = tuple(checksum for (checksum,) in connection.execute(query, (name + _MEMBERS, count)))
    if before is not None and (before.num_rows, before.column.checksums) == (num_rows, checksums):
        return before
    blocks = [_read_members(connection, name, block, kind) for block in range(count)]
    for block, members in enumerate(blocks):
        members["row"] += block * _BLOCK_ROWS
    stored = np.concatenate([np.zeros(0, dtype=_members_dtype(kind)), *blocks])
    stored = stored[stored["row"] < num_rows]
    values = np.ascontiguousarray(stored["value"]).view(_loaded_dtype(kind))
    values = values.reshape(-1, 2) if kind is FieldType.TEXT else values
    return Members(stored["row"].astype(np.int64), Column(kind, stored["state"].copy(), values, checksums), num_rows)


def check_columns(connection: sqlite3.Connection, fields: Mapping[str, str], num_rows: int) -> None:
    """Compare all columns with the metadata; DamagedIndex names the first block that differs."""
    query = "SELECT json FROM metadata WHERE doc_row >= ? AND doc_row < ? ORDER BY doc_row"
    for block in range(-(-num_rows // _BLOCK_ROWS) if fields else 0):
        begin, end = block * _BLOCK_ROWS, min((block + 1) * _BLOCK_ROWS, num_rows)
        metadata = [json.loads(dumped) for (dumped,) in connection.execute(query, (begin, end))]
        for name, kind in fields.items():
            values = [value_at(each, name) for each in metadata]
            if _encoded(FieldType(kind), values).tobytes() != _read_block(connection, name, block):
                raise _damaged(name, block, "does not hold what the metadata does")
            if _has_block(connection, name + _MEMBERS, block):
                pair = (
                    _read_members(connection, name, block, FieldType(kind)),
                    _encoded_members(FieldType(kind), values),
                )
                if len({np.sort(each).tobytes() for each in pair}) > 1:
                    raise _damaged(name, block, "does not hold the members that the metadata does")


class ColumnFilter:
    """Evaluates parsed filters on columns, and by `select` what columns cannot decide."""

    def __init__(
        self,
        num_rows: int,
        names: Iterable[str],
        columns: ColumnSource,
        select: Callable[[Condition, Bools], Bools],
    ) -> None:
        """Prepare an evaluation.

        names: of the fields with a column. select: returns which rows, of the given ones, (num_rows,), satisfy a
        condition.
        """
        self._num_rows = num_rows
        self._names = frozenset(names)
        self._columns = columns
        self._select = select

    def matching(self, condition: Condition) -> Bools:
        """Return which rows satisfy a parsed filter, (num_rows,)."""
        answer = self._answer(condition)
        return self._select(condition, np.ones(self._num_rows, dtype=bool)) if answer is None else answer

    def _answer(self, condition: Condition) -> Bools | None:
        """Return which rows satisfy a condition; None where no column can tell."""
        if isinstance(condition, Not):
            opposite = self._answer(condition.part)
            return None if opposite is None else ~opposite
        if isinstance(condition, And | Or):
            return self._joined(condition)
        return self._compared(condition) if condition.field in self._names else None

    def _joined(self, condition: And | Or) -> Bools | None:
        """Return which rows satisfy all parts, or any; the columns first, so that fewer rows are left to read."""
        is_and = isinstance(condition, And)
        found = np.full(self._num_rows, is_and)
        others: list[Condition] = []
        for part in condition.parts:
            answer = self._answer(part)
            if answer is None:
                others.append(part)
            else:
                found = found & answer if is_and else found | answer
        if not others:
            return found
        if len(others) == len(condition.parts):
            return None
        if is_and:
            return self._select(And(tuple(others)), found)
        return found | self._select(Or(tuple(others)), ~found)

    def _compared(self, condition: Comparison) -> Bools | None:
        """Return which rows satisfy a comparison; None where the column cannot tell."""
        column = self._columns.column(condition.field)
        is_other = column.states == _OTHER
        if isinstance(condition, Exists):
            exists: Bools = column.states != _MISSING
            return exists
        if isinstance(condition, Contains):
            return self._containing(condition, is_other)
        if isinstance(condition, IsList):
            return self._select(condition, is_other)
        if isinstance(condition, Ordered):
            found = _values_that(column, condition.operator, condition.operand)
        else:
            found = _any_equal(column, condition.operands)
        if found is None or not is_other.any():
            return found
        return found | self._select(condition, is_other)

    def _containing(self, condition: Contains, is_other: Bools) -> Bools:
        """Return which rows have a list with such a member; is_other: rows that may have a list."""
        members = self._columns.members(condition.field)
        is_equal = None if members is None else _any_equal(members.column, condition.operands)
        if members is None or is_equal is None:
            return self._select(condition, is_other)
        found, unsure = np.zeros((2, self._num_rows), dtype=bool)
        found[members.rows[is_equal]] = True
        unsure[members.rows[members.column.states == _OTHER]] = True
        unsure &= ~found
        return found | self._select(condition, unsure) if unsure.any() else found


class ColumnSource(Protocol):
    """Reads the columns of a snapshot, and keeps them."""

    def column(self, name: str) -> Column:
        """Return the column of a declared filter field."""

    def members(self, name: str) -> Members | None:
        """Return the members of the lists in a declared filter field; None where the columns are without."""


def _any_equal(column: Column, operands: Sequence[Operand]) -> Bools | None:
    """Return which values equal one of the operands; None where the column cannot tell."""
    found = np.zeros(len(column.states), dtype=bool)
    for operand in operands:
        answer = _values_that(column, "eq", operand)
        if answer is None:
            return None
        found |= answer
    return found


def _values_that(column: Column, operator: str, operand: Operand) -> Bools | None:
    """Return which rows hold a value of the column's type that compares so; None where the column cannot tell."""
    if operand is None:
        is_missing: Bools = column.states == _MISSING
        return is_missing
    is_value: Bools = column.states == _VALUE
    if column.type is FieldType.DATE:
        return is_value & _in_period(column.values, operator, operand) if isinstance(operand, Period) else None
    if column.type is FieldType.TEXT:
        if not isinstance(operand, str) or operator != "eq":
            return None
        low, high = _digest(operand).view("<u8")
        is_same: Bools = (column.values[:, 0] == low) & (column.values[:, 1] == high)
        return is_value & is_same
    # parse_filter() has refused operands of other types.
    assert isinstance(operand, int | float)  # noqa: S101 - see above
    return is_value & _compared_numbers(column, operator, operand)


def _in_period(values: npt.NDArray[np.int64], operator: str, period: Period) -> Bools:
    """Return which moments compare so with a date; a day is over when the next one begins."""
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


def _dtype(kind: FieldType) -> np.dtype[Any]:
    """Return the type of a row: its state, and a number, the microseconds of a date, or the digest of a text."""
    value = {FieldType.FLOAT: "<f8", FieldType.TEXT: f"S{_DIGEST_BYTES}"}.get(kind, "<i8")
    return np.dtype([("state", "u1"), ("value", value)])


def _members_dtype(kind: FieldType) -> np.dtype[Any]:
    """Return the type of a member: the row of its list in the block, and its state and value."""
    return np.dtype([("row", "<u4"), *((name, _dtype(kind)[name]) for name in ("state", "value"))])


def _loaded_dtype(kind: FieldType) -> np.dtype[Any]:
    return np.dtype("<u8") if kind is FieldType.TEXT else _dtype(kind)["value"]


def _encoded(kind: FieldType, given: Sequence[Any]) -> npt.NDArray[Any]:
    """Return the rows of a column, (n,) of the type's dtype, of n documents' values."""
    encode, zero = _ENCODE[kind], _dtype(kind)["value"].type()
    states, values = [_MISSING] * len(given), [zero] * len(given)
    for number, value in enumerate(given):
        if value is not None:
            encoded = encode(value)
            states[number] = _OTHER if encoded is None else _VALUE
            values[number] = zero if encoded is None else encoded
    rows = np.zeros(len(given), dtype=_dtype(kind))
    rows["state"], rows["value"] = states, values
    return rows


def _encoded_members(kind: FieldType, given: Sequence[Any]) -> npt.NDArray[Any]:
    """Return the members of those of n documents' values that are lists."""
    encode, zero = _ENCODE[kind], _dtype(kind)["value"].type()
    found = []
    for number, value in enumerate(given):
        for member in value if isinstance(value, list) else ():
            encoded = encode(member)
            found.append((number, _OTHER, zero) if encoded is None else (number, _VALUE, encoded))
    return np.array(found, dtype=_members_dtype(kind))


def _append_members(
    connection: sqlite3.Connection, name: str, kind: FieldType, first_row: int, given: Sequence[Any]
) -> None:
    """Add the members of the rows from first_row on; a block that version 0.2 began stays without."""
    first_block, kept = divmod(first_row, _BLOCK_ROWS)
    members = _encoded_members(kind, given)
    blocks, rows = np.divmod(members["row"].astype(np.int64) + first_row, _BLOCK_ROWS)
    members["row"] = rows
    for block in range(first_block, -(-(first_row + len(given)) // _BLOCK_ROWS)):
        fresh = members[blocks == block]
        if block == first_block and kept:
            if not _has_block(connection, name + _MEMBERS, block):
                continue
            before = _read_members(connection, name, block, kind)
            fresh = np.concatenate([before[before["row"] < kept], fresh])
        _write_block(connection, name + _MEMBERS, block, fresh.tobytes())


def _read_members(connection: sqlite3.Connection, name: str, block: int, kind: FieldType) -> npt.NDArray[Any]:
    """Return the members of a block, in memory of its own."""
    data, item = _read_block(connection, name + _MEMBERS, block), _members_dtype(kind).itemsize
    if len(data) % item:
        raise _damaged(name, block, f"expected members of {item} bytes, got {len(data)} bytes")
    return np.frombuffer(data, dtype=_members_dtype(kind)).copy()


def _has_block(connection: sqlite3.Connection, name: str, block: int) -> bool:
    query = "SELECT 1 FROM columns WHERE field = ? AND block = ?"
    return connection.execute(query, (name, block)).fetchone() is not None


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
