"""The part of a framework's filter that an index can evaluate: filters of the index, and how they are combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mvindex.errors import QueryError
from mvindex.records import plain_value
from mvindex.store.fields import ID, LOGIC, field_paths
from mvindex.store.filters import Filter, parse_filter
from mvindex_connectors.frameworks.citations import HIT_KEY

_INT64 = 1 << 63


class PushedFilter(NamedTuple):
    """The part of a framework's filter that the index evaluates.

    Attributes:
        filter: A filter of the index that every matching document passes; None lets all pass.
        is_exact: Whether no other document passes, so that nothing is left to check.

    """

    filter: Filter | None
    is_exact: bool


UNKNOWN = PushedFilter(None, False)
ALL = PushedFilter(None, True)


def checked(pushed: PushedFilter) -> PushedFilter:
    """Return the filter; UNKNOWN where it is deeper, or has more conditions, than an index accepts."""
    try:
        parse_filter(pushed.filter or {})
    except QueryError:
        return UNKNOWN
    return pushed


def all_of(parts: Sequence[PushedFilter]) -> PushedFilter:
    """Return the conjunction; a part that the index cannot evaluate is left out."""
    known = [part.filter for part in parts if part.filter is not None]
    return PushedFilter({"and": known}, all(part.is_exact for part in parts))


def any_of(parts: Sequence[PushedFilter]) -> PushedFilter:
    """Return the disjunction; UNKNOWN where the index cannot evaluate a part."""
    known = [part.filter for part in parts if part.filter is not None]
    if len(known) < len(parts):
        return UNKNOWN
    return PushedFilter({"or": known}, all(part.is_exact for part in parts))


def none_of(part: PushedFilter) -> PushedFilter:
    """Return the negation; UNKNOWN where the part lets more documents pass than match, which cannot be negated."""
    return PushedFilter({"not": part.filter or {}}, True) if part.is_exact else UNKNOWN


def is_key(name: str) -> bool:
    """Return whether an index reads the name as a key of the metadata (keys inside objects: joined by dots)."""
    return bool(field_paths(name)) and name not in (ID, *LOGIC) and name.split(".")[0] != HIT_KEY


def equal(name: str, value: object) -> Filter | None:
    """Return the condition that the key has this value, as Python compares; None where the index cannot tell."""
    values = _equals_of(value)
    return None if values is None else {name: {"in": values}}


def containing(name: str, value: object) -> Filter | None:
    """Return the condition that the key has a list with this member, as Python compares; None as of equal()."""
    values = _equals_of(value)
    return None if value is None or values is None else {name: {"contains_any": values}}


def _equals_of(value: object) -> list[Any] | None:
    """Return the values that equal a value in Python; None where the index cannot compare it."""
    value = plain_value(value)
    if value is None:
        return [None]
    if isinstance(value, str):
        return [value] if _is_storable(value) else None
    if not isinstance(value, int | float) or not _fits(value):
        return None
    # To Python True is 1 and False 0.
    return [value + 0, bool(value)] if value in (0, 1) else [value]


def ordered(name: str, operator: str, value: object) -> Filter | None:
    """Return the condition that compares the key's value with a number; None where the index cannot tell.

    Args:
        name: The key.
        operator: "lt", "lte", "gt" or "gte".
        value: The number.

    """
    value = plain_value(value)
    if not isinstance(value, int | float) or not _fits(value):
        return None
    number = value + 0
    holds = {"gt": lambda flag: flag > number, "gte": lambda flag: flag >= number}
    holds |= {"lt": lambda flag: flag < number, "lte": lambda flag: flag <= number}
    flags: list[Filter] = [{name: {"in": _equals_of(flag)}} for flag in (0, 1) if holds[operator](flag)]
    return {"or": [{name: {operator: number}}, *flags]}


def ordered_text(name: str, operator: str, value: str) -> Filter | None:
    """Return the condition that compares the key's text by code points; None where the index cannot tell."""
    return {name: {operator: value}} if _is_storable(value) else None


def _fits(value: int | float) -> bool:
    return math.isfinite(value) and -_INT64 < value < _INT64


def _is_storable(text: str) -> bool:
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text
