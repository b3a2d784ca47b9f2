"""Ranges of live ids with a checksum each: a few hundred ids prove that one is not there, whatever the number of ids.

In a damaged SQL index of ids, one that is not found might only stand in the wrong place. A range begins at its `first`
and ends before the next one's; all ranges together cover all ids. A range is sound when the ids that the SQL index has
in it are in order, have the range's checksum, and the lowest and the highest are found by themselves. Then a look-up of
any id between these two takes the same way through the tree, or one that lies between theirs, whose entries were read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mvindex.errors import DamagedIndex
from mvindex.store.rows import ids_checksum, ids_in_order, row_checksum

# Whether an index has ranges, in its settings. Those of version 0.2 have none until `compact` drops rows.
ID_RANGES_KEY = "id_ranges"
SCHEMA = """
CREATE TABLE id_ranges(first TEXT PRIMARY KEY, ids INTEGER NOT NULL, ids_checksum INTEGER NOT NULL,
    checksum INTEGER NOT NULL) WITHOUT ROWID;
"""
# A range of more ids is divided into ranges of half as many.
_MOST_IDS = 512
_MASK = (1 << 64) - 1

IdRow = tuple[int, str]


def insert_first(connection: sqlite3.Connection) -> None:
    """Insert the range of all ids, without any yet."""
    _write(connection, "", 0, 0)


def remove(connection: sqlite3.Connection, rows: Sequence[IdRow]) -> int:
    """Remove rows with their ids, and return their checksum; ranges are checked and divided when rows are added."""
    removed = 0
    for first, gone in _by_range(connection, rows).items():
        (count, total, _), gone_sum = _range(connection, first), ids_checksum(gone)
        if count < len(gone):
            raise _damaged(f"from {first!r} on: expected {len(gone)} ids or more, got {count}")
        _write(connection, first, count - len(gone), (total - gone_sum) & _MASK)
        removed += gone_sum
    return removed


def add(connection: sqlite3.Connection, rows: Sequence[IdRow]) -> int:
    """Add rows with their ids, all that a commit adds, once the SQL index of live ids has its last state.

    Returns their checksum.
    """
    total = 0
    for first, added in _by_range(connection, rows).items():
        (count, before, _), added_sum = _range(connection, first), ids_checksum(added)
        _write(connection, first, count + len(added), (before + added_sum) & _MASK)
        if count + len(added) > _MOST_IDS:
            _divide(connection, first)
        total += added_sum
    return total


def _by_range(connection: sqlite3.Connection, rows: Sequence[IdRow]) -> dict[str, list[IdRow]]:
    """Return the rows by the `first` of the range that they are in."""
    found: dict[str, list[IdRow]] = {}
    for row, first in zip(rows, _firsts(connection, [doc_id for _, doc_id in rows]), strict=True):
        found.setdefault(first, []).append(row)
    return found


def check(connection: sqlite3.Connection, ids: Iterable[str], checked: set[str]) -> None:
    """Check the ranges of these ids that are not among the checked, by `first`; add them there. DamagedIndex if wrong.

    An id that was not found is not there if this passes.
    """
    for first in sorted({*_firsts(connection, list(ids))} - checked):
        _checked(connection, first)
        checked.add(first)


def check_totals(connection: sqlite3.Connection, expected: Sequence[int]) -> None:
    """Check that all ranges together have this number of ids and this checksum."""
    # Halves of the checksums: SQLite's sums may not exceed 63 bits.
    query = "SELECT total(1), sum(ids), sum(ids_checksum & 0xFFFFFFFF), sum(ids_checksum >> 32) FROM id_ranges"
    _, count, low, high = connection.execute(query).fetchone()
    if [count or 0, ((low or 0) + ((high or 0) << 32)) & _MASK] != list(expected):
        raise _damaged("do not have the checksum of all ids together")


def check_all(connection: sqlite3.Connection, expected: Sequence[int]) -> None:
    """Check all ranges; DamagedIndex names the first that is wrong."""
    check_totals(connection, expected)
    # The one of the lowest id, which begins at "".
    check(connection, [""], set())
    for (first,) in connection.execute("SELECT first FROM id_ranges ORDER BY first"):
        _checked(connection, first)


def _checked(connection: sqlite3.Connection, first: str) -> list[IdRow]:
    """Return the rows and ids of a range as the SQL index of live ids has them; DamagedIndex if they are others."""
    count, total, end = _range(connection, first)
    below, parameters = ("", (first,)) if end is None else ("AND id < ?", (first, end))
    query = f"SELECT doc_row, id FROM documents INDEXED BY documents_live WHERE alive AND id >= ? {below} ORDER BY id"  # noqa: S608 - fixed text
    rows = connection.execute(query, parameters).fetchall()
    if ids_in_order(rows) != (count, total):
        raise _damaged(f"from {first!r} on: the ids there do not match their checksum")
    ends = [rows[place][1] for place in (0, -1)] if rows else []
    query = (
        "SELECT count(*) FROM json_each(?) AS g "
        "JOIN documents AS d INDEXED BY documents_live ON d.id = g.value AND d.alive"
    )
    (found,) = connection.execute(query, (_as_json(ends),)).fetchone()
    if found != len(ends):
        raise _damaged(f"from {first!r} on: the index of ids does not lead to {ends[0]!r} or {ends[1]!r}")
    return rows


def _divide(connection: sqlite3.Connection, first: str) -> None:
    """Divide a range that has grown."""
    rows = _checked(connection, first)
    for begin in range(0, len(rows), _MOST_IDS // 2):
        part = rows[begin : begin + _MOST_IDS // 2]
        _write(connection, part[0][1] if begin else first, len(part), ids_checksum(part))


def _firsts(connection: sqlite3.Connection, ids: Sequence[str]) -> Iterator[str]:
    """Yield the `first` of the range that each id is in."""
    query = (
        "SELECT (SELECT first FROM id_ranges WHERE first <= g.value ORDER BY first DESC LIMIT 1) "
        "FROM json_each(?) AS g ORDER BY g.key"
    )
    for (first,) in connection.execute(query, (_as_json(ids),)):
        if first is None:
            raise _damaged("have no first one")
        yield first


def _range(connection: sqlite3.Connection, first: str) -> tuple[int, int, str | None]:
    """Return the number of ids in a range, their checksum, and where the next range begins; None for the last."""
    query = "SELECT first, ids, ids_checksum, checksum FROM id_ranges WHERE first >= ? ORDER BY first LIMIT 2"
    found = connection.execute(query, (first,)).fetchall()
    if not found or found[0][0] != first or found != [(*row[:3], row_checksum(*row[:3])) for row in found]:
        raise _damaged(f"from {first!r} on: a row does not match its checksum")
    return found[0][1], found[0][2] & _MASK, found[1][0] if len(found) > 1 else None


def _write(connection: sqlite3.Connection, first: str, count: int, total: int) -> None:
    signed = total - (total >> 63 << 64)
    row = (first, count, signed, row_checksum(first, count, signed))
    connection.execute("INSERT OR REPLACE INTO id_ranges VALUES (?, ?, ?, ?)", row)


def _as_json(ids: Sequence[Any]) -> str:
    return json.dumps(list(ids), ensure_ascii=False)


def _damaged(what: str) -> DamagedIndex:
    return DamagedIndex(f"catalog.sqlite: its ranges of ids {what}; `mvindex verify --salvage` saves the documents")
