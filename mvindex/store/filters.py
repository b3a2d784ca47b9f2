"""Metadata filters: a small JSON grammar, parsed once into conditions that say all that a store needs to know.

A filter is an object. Each of its members must hold:
    {"lang": "en"}                      short for {"lang": {"eq": "en"}}
    {"year": {"gte": 1990, "lt": 2000}} operators eq, ne, lt, lte, gt, gte, in, nin, exists
    {"tags": {"contains": "red"}}       lists: contains, contains_any, contains_all
    {"and": [F, G]}, {"or": [F, G]}, {"not": F}
Operators, and, or and not may also be written as "$gte", "$and" and so on.
"id" means the document's id, any other name a key of its metadata; "author.name" is the key "author.name", else a key
inside an object, see fields.py. The id and declared fields have a type, and operands of another one are refused.
Numbers compare with numbers, strings with strings (by code point), booleans with booleans; other pairs are not
equal and in no order. A whole number of the metadata beyond 64 bits counts as the nearest double. A missing key
and a JSON null are the same: only ne, nin, {"eq": null} and {"exists": false} hold for it. Members of a list compare
as single values do with eq; what is no list contains nothing.
{"$date": "2024-05-01"}, or a date or datetime of Python, compares with texts that are dates in ISO 8601, and with
nothing else; so does a text of at least a day with lt, lte, gt and gte. See fields.py. Scalars and arrays of NumPy are
numbers, strings, booleans, dates and lists.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import plain_value, short_repr
from mvindex.store.fields import (
    DATE_KEY,
    ID,
    LOGIC,
    SIGIL,
    FieldType,
    Period,
    field_paths,
    is_date,
    names_day,
    parse_period,
)

Filter: TypeAlias = Mapping[str, Any]
# What a field is compared with: parsed, so that dates are periods.
Operand: TypeAlias = "str | int | float | bool | Period | None"

ORDER = ("lt", "lte", "gt", "gte")
_MAX_DEPTH = 20
# SQLite takes up to a second for so many and a thousand documents, and 32,766 parameters: each has up to five.
_MAX_CONDITIONS = 4_000
# SQLite reads a name again for every document.
_MAX_NAME_CHARS = 1_000
# A date is compared as a text, then as a moment, which calls Python.
_CONDITIONS_OF_DATE = 4
_INT64 = 1 << 63
_NO_LISTS = (str, bytes, bytearray, memoryview)


class And(NamedTuple):
    """All parts hold."""

    parts: tuple[Condition, ...]


class Or(NamedTuple):
    """At least one part holds."""

    parts: tuple[Condition, ...]


class Not(NamedTuple):
    """The part does not hold."""

    part: Condition


class OneOf(NamedTuple):
    """The field's value equals one of the operands; None equals a missing value."""

    field: str
    operands: tuple[Operand, ...]


class Ordered(NamedTuple):
    """The field's value is lower or higher than the operand; operator: of ORDER."""

    field: str
    operator: str
    operand: Any


class Exists(NamedTuple):
    """The field has a value."""

    field: str


class Contains(NamedTuple):
    """The field's value is a list with a member that equals one of the operands."""

    field: str
    operands: tuple[Operand, ...]


class IsList(NamedTuple):
    """The field's value is a list, which may be empty."""

    field: str


Comparison: TypeAlias = "OneOf | Ordered | Exists | Contains | IsList"
Condition: TypeAlias = "And | Or | Not | Comparison"


def parse_filter(condition: Filter, types: Mapping[str, str] | None = None) -> Condition:
    """Return the parsed filter; QueryError names the part that is not understood.

    types: of declared filter fields, by name; their operands must be of them.
    """
    return _Parser({name: FieldType(kind) for name, kind in (types or {}).items()}).parse(condition, 0)


def field_names(condition: Condition) -> set[str]:
    """Return the names of the fields that a parsed filter compares."""
    if isinstance(condition, And | Or):
        return set().union(*map(field_names, condition.parts))
    return field_names(condition.part) if isinstance(condition, Not) else {condition.field}


def operand_as_json(value: object) -> Any:
    """Return a date, or a value of NumPy, as a filter in JSON holds it; TypeError for others, for json.dumps()."""
    plain = list(value) if isinstance(value, np.ndarray) and value.ndim == 1 else plain_value(value)
    if isinstance(plain, datetime.date):
        return {DATE_KEY: plain.isoformat()}
    if plain is value:
        raise TypeError(f"{type(value).__name__} {value!r:.60}")
    return plain


def check_deletion(ids: object, condition: Filter | None, everything: bool) -> None:
    """Check what a deletion names; raise QueryError unless it is one of ids, a filter that can leave out, and all."""
    if not isinstance(everything, bool):
        raise QueryError(f"delete: all: expected true or false, got {short_repr(everything)}")
    if [ids is not None, condition is not None, everything].count(True) != 1:
        raise QueryError("delete() takes one of ids=, filter= and all=True")
    if condition is not None and matches_everything(condition):
        raise QueryError(
            f"delete: expected a filter with a condition, got {short_repr(condition)}, which matches every document. "
            "To delete all of them, give all=True (--all) instead"
        )


def matches_everything(condition: Filter) -> bool:
    """Return whether a filter leaves out no document, whatever its fields; QueryError where it is malformed."""
    return _is_always(parse_filter(condition), True)


def _is_always(condition: Condition, value: bool) -> bool:
    """Return whether a condition has this value for every document because no field of it decides."""
    if isinstance(condition, Not):
        return _is_always(condition.part, not value)
    if isinstance(condition, And | Or):
        return (all if isinstance(condition, And) == value else any)(
            _is_always(part, value) for part in condition.parts
        )
    if isinstance(condition, OneOf | Contains) and not condition.operands:
        return not value
    return value and isinstance(condition, Exists) and condition.field == ID


class _Parser:
    """Parses one filter, and counts its conditions, so that it stops at too many however long their list is."""

    def __init__(self, types: Mapping[str, FieldType]) -> None:
        self._types = types
        self._count = 0

    def parse(self, condition: object, depth: int) -> Condition:
        if not isinstance(condition, Mapping):
            raise QueryError(
                f"filter: expected an object such as {{'year': {{'gte': 1990}}}}, got {short_repr(condition)}"
            )
        if depth > _MAX_DEPTH:
            raise QueryError(f"filter is nested more than {_MAX_DEPTH} deep")
        if not condition:
            self._add(1)
        return _all_of([self._member(name, value, depth) for name, value in condition.items()])

    def _member(self, name: object, value: object, depth: int) -> Condition:
        if not isinstance(name, str) or not name:
            raise QueryError(f"filter field: expected a non-empty string, got {short_repr(name)}")
        word = name.removeprefix(SIGIL)
        if word == "not":
            return Not(self.parse(value, depth + 1))
        if word in LOGIC:
            if not isinstance(value, Sequence) or isinstance(value, _NO_LISTS):
                raise QueryError(f"filter {name!r}: expected a list of filters, got {short_repr(value)}")
            parts = [self.parse(part, depth + 1) for part in value]
            return _all_of(parts) if word == "and" else Or(tuple(parts))
        _check_name(name)
        if not isinstance(value, Mapping) or is_date(value):
            return self._comparison(name, "eq", value)
        if not value:
            raise QueryError(f"filter on {name!r}: expected one of {', '.join(OPERATORS)}, got {{}}")
        return _all_of([self._comparison(name, operator, operand) for operator, operand in value.items()])

    def _comparison(self, name: str, operator: object, operand: object) -> Condition:
        word = operator.removeprefix(SIGIL) if isinstance(operator, str) else ""
        if word not in OPERATORS:
            raise QueryError(
                f"filter on {name!r}: expected one of {', '.join(OPERATORS)}, got unknown operator "
                f"{short_repr(operator)}{_nearest(operator, list(OPERATORS))}"
            )
        known = OPERATORS[word]
        if known.takes is Takes.FLAG:
            operands: list[Operand] = [_flag(name, word, operand)]
        else:
            listed = _listed(name, word, operand) if known.takes.is_list else [operand]
            operands = [_parsed(name, each) for each in listed]
            _check_types(name, operands, self._types.get(name))
        condition = known.build(name, word, operands)
        self._add(_num_conditions(condition) * max(1, len(field_paths(name))))
        return condition

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > _MAX_CONDITIONS:
            raise QueryError(
                f"filter: expected at most {_MAX_CONDITIONS:,} conditions, got more; use in with a list. A date counts "
                f"as {_CONDITIONS_OF_DATE}, a name such as 'a.b.c' once for each way to read its dots"
            )


def _num_conditions(condition: Condition) -> int:
    """Return as how many a condition on a key counts: a list of other values than dates is one."""
    if isinstance(condition, Not):
        return _num_conditions(condition.part)
    if isinstance(condition, And | Or):
        return sum(map(_num_conditions, condition.parts))
    if isinstance(condition, Ordered):
        return _CONDITIONS_OF_DATE if isinstance(condition.operand, Period) else 1
    if isinstance(condition, OneOf | Contains):
        return max(1, _CONDITIONS_OF_DATE * sum(isinstance(each, Period) for each in condition.operands))
    return 1


def _ordered(name: str, operator: str, operands: list[Operand]) -> Condition:
    [operand] = operands
    if operand is None or isinstance(operand, bool):
        raise QueryError(f"filter on {name!r}: {operator}: expected a number or a string, got {operand}")
    if isinstance(operand, str) and name != ID and names_day(operand):
        operand = parse_period(operand)
    return Ordered(name, operator, operand)


def _contains(name: str, operator: str, operands: list[Operand]) -> Condition:
    if name == ID:
        raise QueryError(
            f"filter on 'id': {operator}: expected a field of lists, got the id, which is a string. Use in"
        )
    if None in operands:
        raise QueryError(f"filter on {name!r}: {operator}: expected strings, numbers, booleans or dates, got null")
    if operator != "contains_all":
        return Contains(name, tuple(operands))
    return _all_of([Contains(name, (each,)) for each in operands]) if operands else IsList(name)


def _one_of(name: str, operator: str, operands: list[Operand]) -> Condition:
    return OneOf(name, tuple(operands))


def _none_of(name: str, operator: str, operands: list[Operand]) -> Condition:
    return Not(OneOf(name, tuple(operands)))


def _exists(name: str, operator: str, operands: list[Operand]) -> Condition:
    return Exists(name) if operands == [True] else Not(Exists(name))


class Takes(Enum):
    """Name the operands that an operator compares a field with."""

    SCALAR = "a string, number, boolean, date or null"
    ORDERED = "a string, number or date"
    SCALARS = "a list of scalars"
    MEMBER = "a string, number, boolean or date"
    MEMBERS = "a list of members"
    FLAG = "true or false"

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return self in (Takes.SCALARS, Takes.MEMBERS)


class Operator(NamedTuple):
    """An operator: what it takes, and the function of field, operator and operands that makes its condition."""

    takes: Takes
    build: Callable[[str, str, list[Operand]], Condition]


# The command line, the HTTP schema and the frameworks read the operators from here.
OPERATORS = {
    "eq": Operator(Takes.SCALAR, _one_of),
    "ne": Operator(Takes.SCALAR, _none_of),
    **{word: Operator(Takes.ORDERED, _ordered) for word in ORDER},
    "in": Operator(Takes.SCALARS, _one_of),
    "nin": Operator(Takes.SCALARS, _none_of),
    "exists": Operator(Takes.FLAG, _exists),
    "contains": Operator(Takes.MEMBER, _contains),
    "contains_any": Operator(Takes.MEMBERS, _contains),
    "contains_all": Operator(Takes.MEMBERS, _contains),
}


def _flag(name: str, operator: str, operand: object) -> bool:
    value = plain_value(operand)
    if not isinstance(value, bool):
        raise QueryError(f"filter on {name!r}: {operator}: expected true or false, got {short_repr(operand)}")
    return value


def _listed(name: str, operator: object, operand: object) -> Sequence[object]:
    if isinstance(operand, np.ndarray) and operand.ndim == 1:
        return list(operand)
    if not isinstance(operand, Sequence) or isinstance(operand, _NO_LISTS):
        raise QueryError(f"filter on {name!r}: {operator}: expected a list, got {short_repr(operand)}")
    return operand


def _all_of(parts: Sequence[Condition]) -> Condition:
    """Return the conjunction, those of parts that are one themselves joined to it."""
    flat = [each for part in parts for each in (part.parts if isinstance(part, And) else (part,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def _check_name(name: str) -> None:
    """Raise QueryError for a name that no field has, or that is too long."""
    if len(name) > _MAX_NAME_CHARS:
        raise QueryError(
            f"filter field: expected a name of at most {_MAX_NAME_CHARS:,} characters, got {short_repr(name)} of "
            f"{len(name):,}"
        )
    if name == ID or field_paths(name):
        return
    if name.startswith(SIGIL):
        raise QueryError(
            f"filter {short_repr(name)}: expected and, or, not or a field, got an unknown operator"
            f'{_nearest(name, LOGIC)}. Fields whose name begins with "$" cannot be filtered'
        )
    raise QueryError(
        f"filter field {short_repr(name)}: expected a key, or keys joined by dots, without quotes or backslashes"
    )


def _nearest(name: object, words: Sequence[str]) -> str:
    """Return the word that a misspelt one is most like, for a message."""
    [nearest] = get_close_matches(short_repr(name).lower(), words, 1, 0.0)
    return f"; the nearest is {nearest!r}"


def _parsed(name: str, operand: object) -> Operand:
    """Return an operand as Python's own value, or the period of a date; QueryError for what cannot be compared."""
    value = plain_value(operand)
    if is_date(value):
        return _period(name, value)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise QueryError(f"filter on {name!r}: {short_repr(value)} does not fit 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise QueryError(f"filter on {name!r}: {value} is not a finite number")
    if isinstance(value, str):
        return _checked_text(name, value)
    if value is None or isinstance(value, int | float):
        return value
    raise QueryError(f"filter on {name!r}: expected a number, string, boolean or null, got {short_repr(operand)}")


def _check_types(name: str, operands: Sequence[Operand], kind: FieldType | None) -> None:
    """Raise QueryError for an operand of another type than the id or a declared field has."""
    if name == ID:
        for operand in operands:
            if not isinstance(operand, str | Period):
                way_out = "" if operand is None else f": write {str(operand)!r}"
                raise QueryError(f"filter on 'id': expected a string, got {operand}. Ids are strings{way_out}")
    if kind is None:
        return
    expected = _EXPECTED[kind]
    # Frameworks to which true is 1 list both.
    with_booleans = expected is _NUMBER and any(map(expected.accepts, operands))
    for operand in operands:
        if not (operand is None or expected.accepts(operand) or (with_booleans and isinstance(operand, bool))):
            raise QueryError(
                f"filter on {name!r}, which is declared as {kind.value}: expected {expected.name}, got "
                f"{short_repr(operand)}. Give one, or declare the field with another type"
            )


class _Expected(NamedTuple):
    """The operands of a declared field."""

    name: str
    accepts: Callable[[Operand], bool]


_NUMBER = _Expected("a number", lambda operand: isinstance(operand, int | float) and not isinstance(operand, bool))
_EXPECTED = {
    FieldType.INT: _NUMBER,
    FieldType.FLOAT: _NUMBER,
    FieldType.TEXT: _Expected("a string", lambda operand: isinstance(operand, str | Period)),
    FieldType.DATE: _Expected(
        "a date in ISO 8601, such as 2024-05-01",
        lambda operand: isinstance(operand, Period) or bool(parse_period(operand)),
    ),
}


def _period(name: str, operand: Any) -> Period:
    """Return the period of a date; QueryError where it is none."""
    value = operand[DATE_KEY] if isinstance(operand, Mapping) else operand
    period = parse_period(plain_value(value))
    if period is None:
        raise QueryError(
            f"filter on {name!r}: {DATE_KEY}: expected a date in ISO 8601, such as 2024-05-01 or "
            f"2024-05-01T12:30:00Z, got {short_repr(value)}"
        )
    return period


def _checked_text(name: str, operand: str) -> str:
    if "\0" in operand:
        raise QueryError(f"filter on {name!r}: {short_repr(operand)} holds a NUL character; no stored text does")
    try:
        operand.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"filter on {name!r}: {short_repr(operand)} is not valid Unicode") from err
    return operand
