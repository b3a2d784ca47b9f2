"""Conditions of --filter, such as `lang = en and date >= 2024-05-01`, as a filter of an index."""

from __future__ import annotations

import json
import re
from typing import Any

from mvindex.errors import QueryError
from mvindex.store.fields import DATE_KEY, ID, parse_period
from mvindex.store.filters import OPERATORS, Takes

_SIGNS = {"=": "eq", "==": "eq", "!=": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_OF_LISTS = tuple(word for word, operator in OPERATORS.items() if operator.takes.is_list)
_WORDS = (*_OF_LISTS, *(word for word, operator in OPERATORS.items() if operator.takes is Takes.MEMBER))
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ITEM = rf'(?:{_QUOTED}|[^\s"<>=!,\[\]]+)'
_CONDITION = re.compile(
    rf"""\s*(?P<field>[^\s<>=!"']+)
    \s*(?P<operator>==|!=|<=|>=|=|<|>|(?<=\s)(?:{"|".join(_WORDS)})(?=[\s\["]))
    \s*(?P<value>{_QUOTED}|\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*\s*)?\]|[^\s"<>=!\[][^\s"<>=!]*)""",
    re.VERBOSE,
)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_OR = re.compile(r"\s+or\s+", re.IGNORECASE)
_REST = re.compile(r"\s*\S")


def parse_conditions(text: str) -> dict[str, Any]:
    """Return the filter of conditions joined by `and`, such as `tags contains red and year >= 1990`.

    A value is a number, true, false, null, a text in double quotes, or a word. A word that is a date in ISO 8601, from
    the month on, compares as a date; in quotes it is a text. An id is always a text. A list is values in brackets, with
    commas between.

    Raises:
        QueryError: Naming the place from which on it cannot be read.

    """
    conditions: list[dict[str, Any]] = []
    place = 0
    while found := _CONDITION.match(text, place):
        operator = _SIGNS.get(found["operator"], found["operator"])
        conditions.append({found["field"]: {operator: _operand(found["field"], operator, found["value"])}})
        place = found.end()
        if not _REST.match(text, place):
            return conditions[0] if len(conditions) == 1 else {"and": conditions}
        joined = _AND.match(text, place)
        if joined is None:
            break
        place = joined.end()
    if _OR.match(text, place):
        raise QueryError(
            "--filter: expected conditions joined by `and`, or for `or` JSON such as "
            f'{{"or": [{{"year": 1990}}, {{"lang": "en"}}]}}, got {text[place:].strip()!r:.60}'
        )
    raise QueryError(
        "--filter: expected conditions such as 'year >= 1990 and date < 2024-05-01', or JSON such as "
        f'{{"year": {{"gte": 1990}}}}, got {text[place:].strip()!r:.60}'
    )


def _operand(field: str, operator: str, text: str) -> Any:
    """Return the value of a condition, or the list of values."""
    is_list = text.startswith("[")
    if is_list != (operator in _OF_LISTS):
        expected = "a list such as [red, blue]" if operator in _OF_LISTS else "a number, word or text in quotes"
        raise QueryError(f"--filter: {field} {operator}: expected {expected}, got {text!r:.60}")
    values = [_value_of(field, each) for each in re.findall(_ITEM, text)] if is_list else [_value_of(field, text)]
    return values if is_list else values[0]


def _value_of(field: str, text: str) -> Any:
    is_bare = not text.startswith('"')
    if is_bare and field == ID:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        raise QueryError(
            f"--filter: expected a number, word or text in quotes, got {text!r:.60}; write JSON for objects"
        )
    return {DATE_KEY: value} if is_bare and isinstance(value, str) and parse_period(value) else value
