"""Conditions of --filter, such as `lang = en and date >= 2024-05-01`, as a filter of an index."""

from __future__ import annotations

import json
import re
from typing import Any

from mvindex.errors import QueryError
from mvindex.store.dates import DATE_KEY, parse_period

_OPERATORS = {"=": "eq", "==": "eq", "!=": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_CONDITION = re.compile(
    r"""\s*(?P<field>[^\s<>=!"']+)\s*(?P<operator>==|!=|<=|>=|=|<|>)\s*(?P<value>"(?:[^"\\]|\\.)*"|[^\s"<>=!]+)"""
)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


def parse_conditions(text: str) -> dict[str, Any]:
    """Return the filter of conditions joined by `and`.

    A value is a number, true, false, null, a text in double quotes, or a word. A word that is a date in ISO 8601, from
    the month on, compares as a date; in quotes it is a text.

    Raises:
        QueryError: Naming the place from which on it cannot be read.

    """
    conditions: list[dict[str, Any]] = []
    place = 0
    while found := _CONDITION.match(text, place):
        operator = _OPERATORS[found["operator"]]
        conditions.append({found["field"]: {operator: _value_of(found["value"])}})
        place = found.end()
        if not text[place:].strip():
            return conditions[0] if len(conditions) == 1 else {"and": conditions}
        joined = _AND.match(text, place)
        if joined is None:
            break
        place = joined.end()
    raise QueryError(
        "--filter: expected conditions such as 'year >= 1990 and date < 2024-05-01', or JSON such as "
        f'{{"year": {{"gte": 1990}}}}, got {text[place:].strip()!r:.60}'
    )


def _value_of(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, list | dict):
        raise QueryError(f"--filter: expected a number, word or text in quotes, got {text!r:.60}; write JSON for lists")
    is_bare = not text.startswith('"')
    return {DATE_KEY: value} if is_bare and isinstance(value, str) and parse_period(value) else value
