"""What an index can tell of a framework's filter: parts of its own filters, and how they are joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from mvindex.errors import QueryError
from mvindex.store.filters import Filter, parse_filter
from mvindex_connectors.frameworks.citations import HIT_KEY

_INT64 = 1 << 63


class Pushed(NamedTuple):
    """What an index can tell: every document that matches passes the filter (None: any may); none else, if is_exact."""

    filter: Filter | None
    is_exact: bool


UNKNOWN = Pushed(None, False)
ALL = Pushed(None, True)


def checked(pushed: Pushed) -> Pushed:
    """The same; unknown where it is deeper, or of more conditions, than an index takes."""
    try:
        parse_filter(pushed.filter or {})
    except QueryError:
        return UNKNOWN
    return pushed


def all_of(parts: Sequence[Pushed]) -> Pushed:
    """What matches every part; a part that the index cannot tell is left out."""
    told = [part.filter for part in parts if part.filter is not None]
    return Pushed({"and": told}, all(part.is_exact for part in parts))


def any_of(parts: Sequence[Pushed]) -> Pushed:
    """What matches one of the parts."""
    told = [part.filter for part in parts if part.filter is not None]
    if len(told) < len(parts):
        return UNKNOWN
    return Pushed({"or": told}, all(part.is_exact for part in parts))


def none_of(part: Pushed) -> Pushed:
    """What does not match; what more documents pass than match cannot be turned round."""
    return Pushed({"not": part.filter or {}}, True) if part.is_exact else UNKNOWN


def is_key(name: str) -> bool:
    """True for a name that an index reads as a key of the metadata (keys inside objects: joined by dots)."""
    keys = name.split(".")
    is_plain = name.isprintable() and '"' not in name and "\\" not in name and all(keys)
    return is_plain and name not in ("id", "and", "or", "not") and keys[0] != HIT_KEY


def equal(name: str, value: object) -> Filter | None:
    """That the key has this value, as Python compares; None where the index cannot tell."""
    if value is None:
        return {name: {"eq": None}}
    if isinstance(value, str):
        return {name: {"eq": value}} if _is_storable(value) else None
    if not isinstance(value, int | float) or not _fits(value):
        return None
    # To Python True is 1 and False 0.
    as_bool: list[Filter] = [{name: {"eq": bool(value)}}] if value in (0, 1) else []
    return {"or": [{name: {"eq": value + 0}}, *as_bool]}


def ordered(name: str, operator: str, value: object) -> Filter | None:
    """That the key's value is so to this number: lt, lte, gt, gte; None where the index cannot tell."""
    if not isinstance(value, int | float) or not _fits(value):
        return None
    number = value + 0
    holds = {"gt": lambda flag: flag > number, "gte": lambda flag: flag >= number}
    holds |= {"lt": lambda flag: flag < number, "lte": lambda flag: flag <= number}
    flags: list[Filter] = [{name: {"eq": flag}} for flag in (False, True) if holds[operator](flag)]
    return {"or": [{name: {operator: number}}, *flags]}


def ordered_text(name: str, operator: str, value: str) -> Filter | None:
    """That the key's text is so to this one, by code points; None where the index cannot tell."""
    return {name: {operator: value}} if _is_storable(value) else None


def _fits(value: int | float) -> bool:
    return math.isfinite(value) and -_INT64 < value < _INT64


def _is_storable(text: str) -> bool:
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text
