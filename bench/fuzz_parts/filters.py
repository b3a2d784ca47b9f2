"""Filters: JSON that was changed, and filters that were drawn, over an index' documents and over metadata drawn too.

An input's first byte: 0 draws filter and metadata from the rest; else the rest is the filter's JSON.
"""

import json
import math
import sqlite3
import sys
from pathlib import Path

import numpy as np

import mvindex
from fuzz_parts.target import Choices, Limits, require
from mvindex.errors import QueryError
from mvindex.index import store_of
from mvindex.records import dump_metadata
from mvindex.store.filter_reader import FilterReader
from mvindex.store.filter_sql import to_sql
from mvindex.store.filters import parse_filter

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers.filter_oracle import holds, is_of_grammar  # noqa: E402 - after the path

_KEYS = (
    "a", "b", "a.x", "a.x.b", "x.b", "a..b", ".", "id", "id.x", "é", "a b", "ａ", "A", "x", "[0]", "a[0]", "*", "and.x",
    "lang", "#-1", "a.a.a.a.a.a.a.a",
)  # fmt: skip
_BAD_KEYS = ("", "$", "$a.x", 'a"b', "a\\b", "a\nb", "\ud800", "\u200b", 1, None)
_OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "nin", "exists", "contains", "contains_any", "contains_all")
_SCALARS = (
    None, True, False, 0, 1, -1, -0.0, 1.0, 0.1, 0.1 + 0.2, 1e-300, 5e-324, 1.7976931348623157e308, 2**53, 2**53 + 1,
    float(2**53), 2**63 - 1, -(2**63), float(2**63), "", "a", "b", "é", "e\u0301", "A", "1", "true", "null", 
    "\U0001f600", "\uffff", "a b", "'; DROP TABLE documents; --", "%", "x" * 100, 1e22, 123456789012345680,
    0.30000000000000004, 9007199254740993.0, 2.2250738585072014e-308, 4.35, 1.1, 3.14159265358979, -2.5e-8,
    "\x7f", "\u2028", '"', "\\",
)  # fmt: skip
_LARGE = (2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 1e19)
_BAD = (math.nan, math.inf, 2**63, b"a", [1], {1}, 1j, "a\0", "\udfff", object)
_DOCUMENTS = 60


def open_target(name: str, folder: Path):
    return Filters(folder)


class Filters(Limits):
    """A filter, asked of an index by search and by what delete asks, and of a catalog row of drawn metadata."""

    name = "filters"
    refusals = (QueryError,)
    extra_mib = 64
    tokens = (b'"a"', b'"id"', b'"and": [', b'"or": [', b'"not": {', b'{"eq": ', b'{"ne": ', b'{"lt": ', b'{"gte": 1}',
              b'{"in": [', b'{"nin": [1]}', b'{"exists": true}', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true",
              b"NaN", b"1e999", b'"\\u0000"', b'"\\ud800"', b'"a.x"', b'"d1"', b"{}", b'{"a": 1},', b'{"id": "d1"},',
              b'{"not":', b'"lang": "en",', b'"$and": [',
              b'{"contains": ', b'{"contains_all": [')  # fmt: skip

    def __init__(self, folder: Path) -> None:
        sys.setrecursionlimit(1000)
        draw = np.random.default_rng(0).integers
        self._rows = {
            f"d{n}": _metadata(Choices(draw(0, 256, 60, dtype=np.uint8).tobytes())) for n in range(_DOCUMENTS)
        }
        self._index = mvindex.create(folder / "filters.mvx", dim=1)
        documents = [mvindex.Document(doc_id, "t", metadata=row) for doc_id, row in self._rows.items()]
        self._index.add_views(documents, np.ones((_DOCUMENTS, 1, 1)))
        self._index.search(np.ones(1))  # compiles its loops, which is no input's time and memory
        self._catalog = sqlite3.connect(":memory:")

    def seeds(self) -> list[bytes]:
        filters = (
            {"a": 1}, {"a": {"gte": 0, "lt": 2**53}}, {"and": [{"a": 1}, {"not": {"b": "x"}}]}, {"id": {"in": ["d1"]}},
            {"or": [{"a": {"exists": False}}, {"a.x": {"nin": [None, True]}}], "é": {"ne": "e"}}, {}, {"b": None},
            {"$and": [{"a": {"contains": 1}}, {"a.x": {"$contains_all": ["a", True]}}, {"b": {"contains_any": [1]}}]},
        )  # fmt: skip
        drawn = [bytes([0, *(number * step % 251 for number in range(80))]) for step in (1, 3, 5, 7, 11, 13, 17, 19)]
        return drawn + [b"{" + json.dumps(each).encode() for each in filters]

    def check(self, data: bytes) -> None:
        if data[:1] == b"\0":
            choices = Choices(data[1:])
            condition, row = _condition(choices, 3), _metadata(choices)
        else:
            condition, row = _parsed(data[1:]), {"a": 1, "b": {"x": None}}
        try:
            sql = to_sql(parse_filter(condition))
        except QueryError:
            # A filter of many operands is of the grammar, and too long.
            require(not is_of_grammar(condition) or len(data) > 2000, "refused:", condition)
            raise
        require(is_of_grammar(condition), "taken:", condition)
        self._check_row(sql, condition, row)
        if data[-1] % 4 == 0:
            self._check_index(condition)

    def _check_row(self, sql, condition, row: dict) -> None:
        query = f"SELECT count(*) FROM (SELECT ? AS id) AS d, (SELECT ? AS json) AS m WHERE {sql.text}"
        (count,) = self._catalog.execute(query, ("doc", dump_metadata(row, "doc"), *sql.parameters)).fetchone()
        require(bool(count) == holds(condition, row, "doc"), condition, "of", row, "is", bool(count))

    def _check_index(self, condition) -> None:
        wanted = [doc_id for doc_id, row in self._rows.items() if holds(condition, row, doc_id)]
        store = store_of(self._index)
        with store.reading(store.snapshot) as reader:
            rows = np.flatnonzero(FilterReader(reader).matching(condition)).tolist()
            found = [f"d{row}" for row in rows]
        require(found == wanted, condition, "matches", found, "expected", wanted)
        if len(wanted) % 8 == 3:
            hits = self._index.search(np.ones(1), top_k=_DOCUMENTS, filter=condition).hits
            require(sorted(hit.id for hit in hits) == sorted(wanted), condition, "finds", hits, "expected", wanted)


def _parsed(data: bytes):
    """Return the JSON value, as --filter and a server parse it; anything else is refused."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as err:
        raise QueryError(f"not JSON: {err}") from err


def _metadata(choices: Choices) -> dict:
    row = {}
    for _ in range(choices.below(6)):
        row[choices.one_of([*_KEYS, 'q"', "b\\", "n\n"])] = _value(choices)
    return row


def _value(choices: Choices):
    kind = choices.below(12)
    if kind == 0:
        return {choices.one_of(_KEYS): choices.one_of(_SCALARS), "x": choices.one_of(_SCALARS)}
    if kind < 4:
        return [choices.one_of((*_SCALARS, *_LARGE, [1], {"a": 1})) for _ in range(choices.below(4))]
    return choices.one_of(_LARGE) if kind == 4 else _scalar(choices)


def _scalar(choices: Choices):
    """Return one of the edge values; now and then any double, or any whole number."""
    kind = choices.below(6)
    if kind == 0:
        number = np.frombuffer(bytes(choices.below(256) for _ in range(8)), dtype="<f8")[0]
        return float(number) if math.isfinite(number) else 0.5
    if kind == 1:
        return int.from_bytes(bytes(choices.below(256) for _ in range(8)), "little", signed=True)
    return choices.one_of(_SCALARS)


def _condition(choices: Choices, depth: int):
    kind = choices.below(10)
    if depth and kind < 3:
        parts = [_condition(choices, depth - 1) for _ in range(choices.below(4))]
        return ({"and": parts}, {"or": tuple(parts)}, {"not": _condition(choices, depth - 1)})[kind]
    if kind == 3:
        return {choices.one_of(_BAD_KEYS): 1} if choices.below(4) == 0 else {}
    members = {}
    for _ in range(1 + choices.below(2)):
        members[choices.one_of(_KEYS)] = _tests(choices)
    return members


def _tests(choices: Choices):
    if choices.below(4) == 0:
        return _scalar(choices)
    return {operator: _operand(choices, operator) for operator in _drawn_operators(choices)}


def _drawn_operators(choices: Choices) -> list[str]:
    return [choices.one_of(_OPERATORS) for _ in range(1 + choices.below(2))]


def _operand(choices: Choices, operator: str):
    if choices.below(40) == 0:
        return choices.one_of([*_BAD, "like", b"ab", (1, 2)])
    if operator in ("in", "nin", "contains_any", "contains_all"):
        return [_scalar(choices) for _ in range(choices.below(5))]
    return bool(choices.below(2)) if operator == "exists" else _scalar(choices)
