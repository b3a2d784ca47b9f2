"""Declared filter fields and their types, and how dates are read and compared.

A date is a year, a month, a day, or a moment: "2024", "2024-05", "2024-05-01", "2024-05-01T12:30:00.5+02:00". A moment
without an offset is in UTC. Moments are compared by microseconds; further digits are cut off.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import re
import sqlite3
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

from mvindex.errors import ConfigError

DATE_KEY = "$date"
# The SQL function that register() adds: a text to microseconds since 1970, NULL for what is no date.
FUNCTION = "mvindex_date"
_ISO = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?([Zz]|[+-]\d\d(?::?\d\d)?)?)?)?)?",
    re.ASCII,
)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECONDS = 1_000_000
_DAY = 86_400 * _MICROSECONDS
# Texts whose dates are kept. Longer ones than the longest date, and an offset, are none.
_CACHED_TEXTS = 16_384
_MOST_CHARS = len("2024-05-01T12:30:00.123456789+02:00")


class Period(NamedTuple):
    """Microseconds since 1970 in UTC, [begin, end): all of a year, month or day; of a moment one microsecond."""

    begin: int
    end: int


def parse_period(value: object) -> Period | None:
    """Return the period of an ISO 8601 text or of a date or datetime of Python; None for what is none."""
    if isinstance(value, datetime.date):
        # The text of a datetime always has a time, that of a date never.
        return _parse_text(value.isoformat())
    return _parse_text(value) if isinstance(value, str) else None


def is_date(value: object) -> bool:
    """Return whether an operand of a filter is a date: of Python, or {"$date": ...}."""
    return isinstance(value, datetime.date) or (isinstance(value, Mapping) and set(value) == {DATE_KEY})


def names_day(text: str) -> bool:
    """Return whether a text is a date of at least a day, such as "2024-05-01" or "2024-05-01T12:30:00Z"."""
    return len(text) >= len("2024-05-01") and _parse_text(text) is not None


def first_text(moment: int) -> str:
    """Return a text that no date from this moment on is before, by code point: local time may be a day behind UTC."""
    return _day_text(moment // _DAY - 1, before="", after="9999-12-31")


def last_text(moment: int) -> str:
    """Return a text that every date before this moment is before, by code point: local time may be a day ahead."""
    return _day_text(moment // _DAY + 2, before="0001-01-01", after="~")


def register(connection: sqlite3.Connection) -> None:
    """Add the SQL function that filters on dates call."""
    connection.create_function(FUNCTION, 1, _begin_of, deterministic=True)


def _begin_of(value: object) -> int | None:
    return _kept_begin_of(value) if isinstance(value, str) and len(value) <= _MOST_CHARS else None


@functools.lru_cache(_CACHED_TEXTS)
def _kept_begin_of(text: str) -> int | None:
    period = _parse_text(text)
    return None if period is None else period.begin


def _parse_text(text: str) -> Period | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    try:
        first = datetime.date(int(year), int(month or 1), int(day or 1)).toordinal()
        if hour is None:
            return Period(_days(first) * _DAY, _days(_day_after(int(year), month, day)) * _DAY)
        datetime.time(int(hour), int(minute), int(second or 0))
        shift = _offset_minutes(offset)
    except ValueError:
        return None
    seconds = int(hour) * 3600 + (int(minute) - shift) * 60 + int(second or 0)
    begin = _days(first) * _DAY + seconds * _MICROSECONDS + int((fraction or "0").ljust(6, "0")[:6])
    return Period(begin, begin + 1)


def _days(ordinal: int) -> int:
    return ordinal - _EPOCH_DAY


def _day_after(year: int, month: str | None, day: str | None) -> int:
    """Return the ordinal of the day after a year, month or day."""
    last_month = int(month or 12)
    last_day = int(day) if day is not None else calendar.monthrange(year, last_month)[1]
    return datetime.date(year, last_month, last_day).toordinal() + 1


def _day_text(days: int, *, before: str, after: str) -> str:
    """Return the date that many days after 1970; before and after the years that texts can hold, what is given."""
    ordinal = days + _EPOCH_DAY
    if ordinal < 1:
        return before
    return after if ordinal > datetime.date.max.toordinal() else datetime.date.fromordinal(ordinal).isoformat()


def _offset_minutes(offset: str | None) -> int:
    """Return the minutes that local time is ahead of UTC; ValueError for an offset of a day or more."""
    if offset is None or offset in "Zz":
        return 0
    digits = offset[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(offset)
    return (hours * 60 + minutes) * (-1 if offset[0] == "-" else 1)


ID = "id"
LOGIC = ("and", "or", "not")
# Written before the name of an operator by some databases: {"$and": [...]}, {"year": {"$gt": 1990}}.
SIGIL = "$"
# A name of n parts may be cut in 2^(n - 1) ways: of a longer one two are tried, no cut and all.
_MAX_PARTS = 7


class FieldType(Enum):
    """The kind of values that a declared filter field mostly has, or of the members of its lists."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    DATE = "date"


def parse_filter_fields(fields: Mapping[str, str] | None) -> dict[str, str]:
    """Return declared filter fields, name to type, in order of their names; ConfigError for what cannot be one."""
    if not isinstance(fields, Mapping | None):
        raise ConfigError(f"filter_fields: expected names with their types, {{'year': 'int'}}, got {fields!r:.60}")
    found = {}
    for name, kind in sorted((fields or {}).items(), key=lambda field: str(field[0])):
        if not isinstance(name, str) or not field_paths(name) or name in (ID, *LOGIC):
            raise ConfigError(f"filter field {name!r}: expected a key of the metadata, or keys joined by dots")
        if kind not in [each.value for each in FieldType]:
            expected = ", ".join(each.value for each in FieldType)
            raise ConfigError(f"filter field {name!r}: expected one of {expected}, got {kind!r}")
        found[name] = kind
    return found


@lru_cache(1024)
def field_paths(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys that may lead to a field, in the order in which they are tried; none for what names no field.

    A key may hold dots: "a.b.c" is the key "a.b.c", else "c" in "a.b", "b.c" in "a", or "c" in "b" in "a".
    """
    parts = name.split(".")
    if not name.isprintable() or '"' in name or "\\" in name or name.startswith(SIGIL):
        return ()
    places = range(1, len(parts))
    counts = range(len(parts)) if len(parts) <= _MAX_PARTS else (0, len(places))
    # Fewer cuts first, later ones before earlier ones: the longest first key wins.
    cuts = (cut for count in counts for cut in sorted(combinations(places, count), reverse=True))
    paths = (_cut(parts, cut) for cut in cuts)
    return tuple(path for path in paths if all(path))


def value_at(metadata: Mapping[str, Any], name: str) -> Any:
    """Return the value that metadata hold for a field; None where they hold none."""
    for path in field_paths(name):
        value: Any = metadata
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            return value
    return None


def _cut(parts: list[str], cut: tuple[int, ...]) -> tuple[str, ...]:
    begins, ends = (0, *cut), (*cut, len(parts))
    return tuple(".".join(parts[begin:end]) for begin, end in zip(begins, ends, strict=True))
