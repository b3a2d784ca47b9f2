"""Parsed filters as parameterised SQL over one catalog row, and as a function of one document's metadata."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from mvindex.records import dump_metadata
from mvindex.store import fields
from mvindex.store.fields import FUNCTION, ID, Period, field_paths, first_text, last_text
from mvindex.store.filters import (
    And,
    Condition,
    Contains,
    Exists,
    Filter,
    IsList,
    Not,
    OneOf,
    Operand,
    Or,
    Ordered,
    parse_filter,
)

_SYMBOLS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ID = "d.id"


class Sql(NamedTuple):
    """A condition over the tables d and m, with its parameters in order."""

    text: str
    parameters: tuple[Any, ...]

    @property
    def reads_documents(self) -> bool:
        """Return whether the condition is about the table of documents too, for their ids."""
        return _ID in self.text


class _Value(NamedTuple):
    """SQL expressions for a value and its JSON type, each with these parameters."""

    value: str
    type: str
    parameters: tuple[str, ...]


# A row of json_each(), for the members of a list.
_MEMBER = _Value("e.value", "e.type", ())


def to_sql(condition: Condition) -> Sql:
    """Return the SQL of a parsed filter; it is never NULL."""
    if isinstance(condition, And):
        return _join(" AND ", [to_sql(part) for part in condition.parts], empty="1")
    if isinstance(condition, Or):
        return _join(" OR ", [to_sql(part) for part in condition.parts], empty="0")
    if isinstance(condition, Not):
        inner = to_sql(condition.part)
        return Sql(f"NOT ({inner.text})", inner.parameters)
    field = _field(condition.field)
    if isinstance(condition, OneOf):
        return _one_of(field, condition.operands)
    if isinstance(condition, Ordered):
        return _ordered(field, condition.operator, condition.operand)
    if isinstance(condition, Exists):
        return Sql(f"(coalesce({field.type}, 'null') != 'null')", field.parameters)
    return _contains(condition)


def _field(name: str) -> _Value:
    if name == ID:
        return _Value(_ID, "'text'", ())
    place, parameters = _place(name)
    return _Value(f"json_extract(m.json, {place})", f"json_type(m.json, {place})", parameters)


def _place(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the SQL expression for the path of a field in the metadata, the first that is there."""
    *others, last = ("$" + "".join(f'."{key}"' for key in path) for path in field_paths(name))
    if not others:
        return "?", (last,)
    choices = " ".join("WHEN json_type(m.json, ?) IS NOT NULL THEN ?" for _ in others)
    return f"CASE {choices} ELSE ? END", (*(path for path in others for _ in range(2)), last)


def _contains(condition: Contains | IsList) -> Sql:
    place, parameters = _place(condition.field)
    is_list = Sql(f"(coalesce(json_type(m.json, {place}), 'null') = 'array')", parameters)
    if isinstance(condition, IsList):
        return is_list
    member = _one_of(_MEMBER, condition.operands)
    members = f"EXISTS (SELECT 1 FROM json_each(m.json, {place}) AS e WHERE {member.text})"
    # json_each() has a row for what is no list, too.
    return _join(" AND ", [is_list, Sql(members, (*parameters, *member.parameters))], empty="1")


def _one_of(field: _Value, operands: Sequence[Operand]) -> Sql:
    dates = [_dated(field, each.begin, each.end) for each in operands if isinstance(each, Period)]
    by_type: dict[str, list[Any]] = {}
    for operand in operands:
        if not isinstance(operand, Period):
            by_type.setdefault(_types_of(operand), []).append(operand)
    parts = [_equal(field, types, values) for types, values in by_type.items()]
    return _join(" OR ", [*parts, *dates], empty="0")


def _equal(field: _Value, types: str, values: list[Any]) -> Sql:
    if types == "null":
        return Sql(f"(coalesce({field.type}, 'null') = 'null')", field.parameters)
    if len(values) == 1:
        return _compared(field, "= ?", values[0])
    # One JSON parameter, not one per value: SQLite limits the number of parameters, and lists may be long.
    given = json.dumps([int(value) if isinstance(value, bool) else value for value in values], ensure_ascii=False)
    return _compared(field, "IN (SELECT value FROM json_each(?))", given, types)


def _ordered(field: _Value, operator: str, operand: Any) -> Sql:
    if not isinstance(operand, Period):
        return _compared(field, f"{_SYMBOLS[operator]} ?", operand)
    # A day is over when the next one begins: what is later than it, or not, is so by its end.
    border = operand.begin if operator in ("lt", "gte") else operand.end
    return _dated(field, begin=border) if operator in ("gt", "gte") else _dated(field, end=border)


def _dated(field: _Value, begin: int | None = None, end: int | None = None) -> Sql:
    """Return the condition that the value is a date that begins in [begin, end).

    Texts are compared first: that costs a fraction of reading the date, and decides for most of them.
    """
    texts: list[str] = []
    moments: list[str] = []
    parameters: list[Any] = []
    for compared, moment, text in ((">=", begin, first_text), ("<", end, last_text)):
        if moment is not None:
            texts.append(f"{field.value} {compared} ?")
            parameters += [*field.parameters, text(moment)]
    for compared, moment in ((">=", begin), ("<", end)):
        if moment is not None:
            moments.append(f"{FUNCTION}({field.value}) {compared} ?")
            parameters += [*field.parameters, moment]
    # SQLite evaluates both sides of an AND, but only one branch of a CASE.
    chosen = f"CASE WHEN {' AND '.join(texts)} THEN {' AND '.join(moments)} END"
    return Sql(f"(coalesce({chosen}, 0))", tuple(parameters))


def _compared(field: _Value, comparison: str, operand: Any, types: str | None = None) -> Sql:
    """Return the condition that the value has one of the JSON types, by default the operand's, and compares so with it.

    The value comes first: few documents have it, and only of these the type is read. A field without a value has the
    type null, so the condition is never NULL.
    """
    condition = f"({field.value} {comparison} AND coalesce({field.type}, 'null') IN {types or _types_of(operand)})"
    return Sql(condition, (*field.parameters, operand, *field.parameters))


def _types_of(operand: Operand | str) -> str:
    """Return the JSON types, as an SQL list, that an operand compares with."""
    if operand is None:
        return "null"
    if isinstance(operand, bool):
        return "('true', 'false')"
    return "('text')" if isinstance(operand, str) else "('integer', 'real')"


def _join(word: str, parts: Sequence[Sql], *, empty: str) -> Sql:
    if not parts:
        return Sql(empty, ())
    parameters = tuple(parameter for part in parts for parameter in part.parameters)
    return Sql(_balanced(word, [part.text for part in parts]), parameters)


def _balanced(word: str, texts: Sequence[str]) -> str:
    """Join the texts as a balanced tree: SQLite refuses expressions nested more than 1,000 deep."""
    if len(texts) == 1:
        return f"({texts[0]})"
    half = len(texts) // 2
    return f"({_balanced(word, texts[:half])}{word}{_balanced(word, texts[half:])})"


class FilterMatcher:
    """Decides whether documents match a filter; it is for one thread at a time.

    SQLite evaluates the same SQL as for stored documents, so that both always agree.
    """

    def __init__(self, condition: Filter) -> None:
        """Read the filter; QueryError for one that is malformed."""
        sql = to_sql(parse_filter(condition))
        self._query = f"SELECT {sql.text} FROM (SELECT ? AS id) AS d, (SELECT ? AS json) AS m"
        self._parameters = sql.parameters

    def matching(self, documents: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Return the ids that match, of documents given as metadata by id."""
        return self.matching_stored({doc_id: dump_metadata(own, doc_id) for doc_id, own in documents.items()})

    def matching_stored(self, documents: Mapping[str, str]) -> set[str]:
        """Return the ids that match, of documents given as metadata in JSON by id."""
        with closing(sqlite3.connect(":memory:")) as connection:
            fields.register(connection)
            return {doc_id for doc_id, stored in documents.items() if self._holds(connection, doc_id, stored)}

    def _holds(self, connection: sqlite3.Connection, doc_id: str, stored: str) -> bool:
        return bool(connection.execute(self._query, (*self._parameters, doc_id, stored)).fetchone()[0])
