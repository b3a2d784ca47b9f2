"""Metadata filters: a small JSON grammar, turned into parameterised SQL over one catalog row.

A filter is an object. Each of its members must hold:
    {"lang": "en"}                      short for {"lang": {"eq": "en"}}
    {"year": {"gte": 1990, "lt": 2000}} operators eq, ne, lt, lte, gt, gte, in, nin, exists
    {"and": [F, G]}, {"or": [F, G]}, {"not": F}
"id" means the document's id, any other name a key of its metadata; "author.name" is a key inside an object.
Numbers compare with numbers, strings with strings (by code point), booleans with booleans; other pairs are not
equal and in no order. A whole number of the metadata beyond 64 bits counts as the nearest double. A missing key
and a JSON null are the same: only ne, nin, {"eq": null} and {"exists": false} hold for it.
{"$date": "2024-05-01"}, or a date or datetime of Python, compares with texts that are dates in ISO 8601, and with
nothing else; so does a text of at least a day with lt, lte, gt and gte. See dates.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from mvindex.errors import QueryError
from mvindex.store.dates import DATE_KEY, FUNCTION, Period, first_text, is_date, last_text, names_day, parse_period

Filter: TypeAlias = Mapping[str, Any]

_ORDER = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_OPERATORS = ("eq", "ne", *_ORDER, "in", "nin", "exists")
_MAX_DEPTH = 20
# SQLite takes a second to prepare so many, and the time grows with their square.
_MAX_CONDITIONS = 5_000
_INT64 = 1 << 63
_ID = "d.id"
_NO_LISTS = (str, bytes, bytearray, memoryview)


class Sql(NamedTuple):
    """A condition over the tables d (documents) and m (metadata), with its parameters in order.

    size: the number of its conditions, without and, or, not.
    """

    text: str
    parameters: tuple[Any, ...]
    size: int = 1

    @property
    def reads_documents(self) -> bool:
        """Return whether the condition is about the table of documents too, for their ids."""
        return _ID in self.text


class _Field(NamedTuple):
    """SQL expressions for a field's value and its JSON type, each with parameters."""

    value: str
    type: str
    parameters: tuple[str, ...]


def parse_filter(condition: Filter) -> Sql:
    """Return the SQL of a filter; QueryError names the part that is not understood."""
    _check_size(condition)
    sql = _parse(condition, 0)
    if sql.size > _MAX_CONDITIONS:
        raise _too_many()
    return sql


def parse_parts(word: str, parts: Sequence[Filter]) -> Sql:
    """Return the SQL of parts of one filter that parse_filter() accepts, joined by "and" or "or"."""
    return _join(f" {word.upper()} ", [_parse(part, 0) for part in parts], empty="1" if word == "and" else "0")


def operators_of(value: object) -> list[tuple[str, Any]]:
    """Return the operators, with their operands, of what a filter says of a field."""
    return list(value.items()) if isinstance(value, Mapping) and not is_date(value) else [("eq", value)]


def split_name(name: str) -> tuple[str, ...] | None:
    """Return the keys of a metadata field, "author.name"; None for what names no field."""
    keys = name.split(".")
    return tuple(keys) if name.isprintable() and '"' not in name and "\\" not in name and all(keys) else None


def check_deletion(ids: object, condition: Filter | None, everything: bool) -> None:
    """Check what a deletion names; raise QueryError unless it is one of ids, a filter that can leave out, and all."""
    if [ids is not None, condition is not None, everything].count(True) != 1:
        raise QueryError("delete() takes one of ids=, filter= and all=True")
    if condition is not None:
        parse_filter(condition)
        if matches_everything(condition):
            raise QueryError(
                f"delete: expected a filter with a condition, got {_shown(condition)}, which matches every document. "
                "To delete all of them, give all=True (--all) instead"
            )


def matches_everything(condition: Filter) -> bool:
    """Return whether a filter leaves out no document, whatever its fields; it must be one that parse_filter() takes."""
    return _is_always(condition, True)


def _is_always(condition: Filter, value: bool) -> bool:
    """Return whether a filter has this value for every document because no field of it decides."""
    return (all if value else any)(_is_member_always(*member, value) for member in condition.items())


def _is_member_always(name: str, member: Any, value: bool) -> bool:
    if name == "not":
        return _is_always(member, not value)
    if name in ("and", "or"):
        return (all if (name == "and") == value else any)(_is_always(part, value) for part in member)
    return (all if value else any)(_is_operator_always(name, *each, value) for each in operators_of(member))


def _is_operator_always(name: str, operator: str, operand: Any, value: bool) -> bool:
    """Return whether an operator has this value for every document: one of an empty list, or of ids, which all have."""
    if operator in ("in", "nin") and not operand:
        return value == (operator == "nin")
    if name == "id" and operator == "exists":
        return bool(value == operand)
    return name == "id" and operand is None and value == (operator == "ne")


def _check_size(condition: Filter) -> None:
    """Raise QueryError for more conditions than SQLite takes, as soon as so many were counted."""
    parts: list[object] = [condition]
    count = 0
    while parts:
        part = parts.pop()
        members = part if isinstance(part, Mapping) else {}
        count += len(members.keys() - {"and", "or", "not"})
        for inner in (members.get("and"), members.get("or")):
            if isinstance(inner, Sequence) and not isinstance(inner, _NO_LISTS):
                parts += inner[: _MAX_CONDITIONS + 1]
        if "not" in members:
            parts.append(members["not"])
        if count + len(parts) > _MAX_CONDITIONS:
            raise _too_many()


def _too_many() -> QueryError:
    return QueryError(f"filter: expected at most {_MAX_CONDITIONS:,} conditions, got more; use in with a list")


def _parse(condition: object, depth: int) -> Sql:
    if not isinstance(condition, Mapping):
        raise QueryError(f"filter: expected an object such as {{'year': {{'gte': 1990}}}}, got {_shown(condition)}")
    if depth > _MAX_DEPTH:
        raise QueryError(f"filter is nested more than {_MAX_DEPTH} deep")
    return _join(" AND ", [_parse_member(name, value, depth) for name, value in condition.items()], empty="1")


def _parse_member(name: object, value: object, depth: int) -> Sql:
    if not isinstance(name, str) or not name:
        raise QueryError(f"filter field: expected a non-empty string, got {_shown(name)}")
    if name in ("and", "or"):
        if not isinstance(value, Sequence) or isinstance(value, _NO_LISTS):
            raise QueryError(f"filter {name!r}: expected a list of filters, got {_shown(value)}")
        parts = [_parse(part, depth + 1) for part in value]
        return _join(f" {name.upper()} ", parts, empty="1" if name == "and" else "0")
    if name == "not":
        inner = _parse(value, depth + 1)
        return _negated(inner)
    return _parse_field(_field(name), name, value)


def _parse_field(field: _Field, name: str, value: object) -> Sql:
    if not isinstance(value, Mapping) or is_date(value):
        return _equals(field, name, value)
    if not value:
        raise QueryError(f"filter on {name!r}: expected one of {', '.join(_OPERATORS)}, got {{}}")
    return _join(" AND ", [_parse_operator(field, name, op, operand) for op, operand in value.items()], empty="1")


def _parse_operator(field: _Field, name: str, operator: object, operand: object) -> Sql:
    if operator not in _OPERATORS:
        raise QueryError(
            f"filter on {name!r}: expected one of {', '.join(_OPERATORS)}, got unknown operator {_shown(operator)}"
        )
    if operator in _ORDER:
        return _ordered(field, name, str(operator), operand)
    build: dict[str, Callable[[], Sql]] = {
        "eq": lambda: _equals(field, name, operand),
        "ne": lambda: _negated(_equals(field, name, operand)),
        "in": lambda: _any_of(field, name, operand),
        "nin": lambda: _negated(_any_of(field, name, operand)),
        "exists": lambda: _exists(field, name, operand),
    }
    return build[str(operator)]()


def _equals(field: _Field, name: str, operand: object) -> Sql:
    if operand is None:
        return Sql(f"(coalesce({field.type}, 'null') = 'null')", field.parameters)
    if is_date(operand):
        period = _period(name, operand)
        return _dated(field, period.begin, period.end)
    types, value = _typed(name, operand)
    return _compared(field, "= ?", types, value)


def _ordered(field: _Field, name: str, operator: str, operand: object) -> Sql:
    if operand is None or isinstance(operand, bool):
        raise QueryError(f"filter on {name!r}: {operator}: expected a number or a string, got {operand}")
    if isinstance(operand, str) and name != "id" and names_day(operand):
        operand = {DATE_KEY: operand}
    if is_date(operand):
        period = _period(name, operand)
        # A day is over when the next one begins: what is later than it, or not, is so by its end.
        border = period.begin if operator in ("lt", "gte") else period.end
        return _dated(field, begin=border) if operator in ("gt", "gte") else _dated(field, end=border)
    types, value = _typed(name, operand)
    return _compared(field, f"{_ORDER[operator]} ?", types, value)


def _any_of(field: _Field, name: str, operand: object) -> Sql:
    if not isinstance(operand, Sequence) or isinstance(operand, _NO_LISTS):
        raise QueryError(f"filter on {name!r}: in and nin: expected a list, got {_shown(operand)}")
    dates = [_equals(field, name, item) for item in operand if is_date(item)]
    by_type: dict[str, list[object]] = {}
    for item in operand:
        if is_date(item):
            continue
        types, value = ("null", None) if item is None else _typed(name, item)
        by_type.setdefault(types, []).append(value)
    parts = [_one_of(field, types, values) for types, values in by_type.items()]
    return _join(" OR ", [*parts, *dates], empty="0")


def _dated(field: _Field, begin: int | None = None, end: int | None = None) -> Sql:
    """Return the condition that the field holds a date that begins in [begin, end).

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


def _period(name: str, operand: Any) -> Period:
    """Return the period of a date; QueryError where it is none."""
    value = operand[DATE_KEY] if isinstance(operand, Mapping) else operand
    period = parse_period(value)
    if period is None:
        raise QueryError(
            f"filter on {name!r}: {DATE_KEY}: expected a date in ISO 8601, such as 2024-05-01 or "
            f"2024-05-01T12:30:00Z, got {_shown(value)}"
        )
    return period


def _one_of(field: _Field, types: str, values: list[object]) -> Sql:
    if types == "null":
        return Sql(f"(coalesce({field.type}, 'null') = 'null')", field.parameters)
    # One JSON parameter, not one per value: SQLite limits the number of parameters, and lists may be long.
    return _compared(field, "IN (SELECT value FROM json_each(?))", types, json.dumps(values, ensure_ascii=False))


def _compared(field: _Field, comparison: str, types: str, operand: Any) -> Sql:
    """Return the condition that the field has one of the JSON types, and compares so with the operand.

    The value comes first: few documents have it, and only of these the type is read. A field without a value has the
    type null, so the condition is never NULL.
    """
    condition = f"({field.value} {comparison} AND coalesce({field.type}, 'null') IN {types})"
    return Sql(condition, (*field.parameters, operand, *field.parameters))


def _exists(field: _Field, name: str, operand: object) -> Sql:
    if not isinstance(operand, bool):
        raise QueryError(f"filter on {name!r}: exists: expected true or false, got {_shown(operand)}")
    return Sql(f"(coalesce({field.type}, 'null') {'!=' if operand else '='} 'null')", field.parameters)


def _field(name: str) -> _Field:
    if name == "id":
        return _Field(_ID, "'text'", ())
    keys = split_name(name)
    if keys is None:
        raise QueryError(
            f"filter field {_shown(name)}: expected a key, or keys joined by dots, without quotes or backslashes"
        )
    path = "$" + "".join(f'."{key}"' for key in keys)
    return _Field("json_extract(m.json, ?)", "json_type(m.json, ?)", (path,))


def _typed(name: str, operand: object) -> tuple[str, Any]:
    """Return the JSON types, as an SQL list, that an operand compares with, and the operand as SQLite holds it."""
    if isinstance(operand, bool):
        return "('true', 'false')", int(operand)
    if isinstance(operand, int) and not -_INT64 <= operand < _INT64:
        raise QueryError(f"filter on {name!r}: {_shown(operand)} does not fit 64 bits")
    if isinstance(operand, float) and not math.isfinite(operand):
        raise QueryError(f"filter on {name!r}: {operand} is not a finite number")
    if isinstance(operand, int | float):
        return "('integer', 'real')", operand
    if isinstance(operand, str):
        return "('text')", _checked_text(name, operand)
    raise QueryError(f"filter on {name!r}: expected a number, string, boolean or null, got {_shown(operand)}")


def _checked_text(name: str, operand: str) -> str:
    if "\0" in operand:
        raise QueryError(f"filter on {name!r}: {_shown(operand)} holds a NUL character; no stored text does")
    try:
        operand.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"filter on {name!r}: {_shown(operand)} is not valid Unicode") from err
    return operand


def _shown(value: object) -> str:
    """Return the beginning of a value for a message; its kind where it is nested too deep, or has too many digits."""
    try:
        return f"{value!r:.80}"
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} too large to show"


def _negated(condition: Sql) -> Sql:
    return Sql(f"NOT ({condition.text})", condition.parameters, condition.size)


def _join(word: str, parts: Sequence[Sql], *, empty: str) -> Sql:
    if not parts:
        return Sql(empty, ())
    parameters = tuple(parameter for part in parts for parameter in part.parameters)
    return Sql(_balanced(word, [part.text for part in parts]), parameters, sum(part.size for part in parts))


def _balanced(word: str, texts: Sequence[str]) -> str:
    """Join the texts as a balanced tree: SQLite refuses expressions nested more than 1,000 deep."""
    if len(texts) == 1:
        return f"({texts[0]})"
    half = len(texts) // 2
    return f"({_balanced(word, texts[:half])}{word}{_balanced(word, texts[half:])})"
