"""Haystack's filters: what an index can tell of one, so that Python need check the rest only, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from haystack import Document
from haystack.errors import FilterError

from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.filter_pushdown import (
    ALL,
    UNKNOWN,
    Pushed,
    all_of,
    any_of,
    checked,
    equal,
    is_key,
    none_of,
    ordered,
)

_ORDER = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_COMPARISONS = ("==", "!=", *_ORDER, "in", "not in")
_LOGIC = ("AND", "OR", "NOT")
_DOCUMENT_FIELDS = frozenset(field.name for field in fields(Document))


def pushed_filter(filters: Mapping[str, Any] | None) -> Pushed:
    """What an index can tell of Haystack's filters; FilterError for filters that are none.

    What it cannot say: text compared as dates (Haystack reads strings that look so as times), lists and objects, the
    document's own fields but its id. A string is in no order with a number: it does not match.
    """
    if not filters:
        return ALL
    check_filters(filters)
    return checked(_push(filters))


def check_filters(filters: object) -> None:
    """Nothing; FilterError names what is wrong."""
    if not isinstance(filters, Mapping):
        raise FilterError(f"filter {filters!r:.80}: wanted an object with field, operator and value")
    wanted = ("operator", "value") if "field" in filters else ("operator", "conditions")
    for key in wanted:
        if key not in filters:
            raise FilterError(f"{key!r} key missing in {filters!r:.200}")
    if "field" in filters:
        _check_comparison(filters)
        return
    if filters["operator"] not in _LOGIC or not isinstance(filters["conditions"], list | tuple):
        raise FilterError(f"filter {filters!r:.200}: wanted one of {', '.join(_LOGIC)} and a list of conditions")
    for condition in filters["conditions"]:
        check_filters(condition)


def _check_comparison(condition: Mapping[str, Any]) -> None:
    operator, value = condition["operator"], condition["value"]
    if operator not in _COMPARISONS:
        raise FilterError(f"unknown operator {operator!r}; wanted one of {', '.join(_COMPARISONS)}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"{condition['field']!r}: {operator!r} wants a list; found {type(value).__name__}")
    if operator in _ORDER and isinstance(value, list | tuple | dict):
        raise FilterError(f"{condition['field']!r}: {operator!r} wants a number or a date; found {value!r:.80}")


def _push(condition: Mapping[str, Any]) -> Pushed:
    if "field" in condition:
        told = _comparison(condition)
        return UNKNOWN if told is None else Pushed(told, True)
    parts = [_push(part) for part in condition["conditions"]]
    if condition["operator"] == "AND":
        return all_of(parts)
    return any_of(parts) if condition["operator"] == "OR" else none_of(all_of(parts))


def _comparison(condition: Mapping[str, Any]) -> Filter | None:
    """The same as a filter of an index; None where it has no words for it."""
    name, operator, value = _name(condition["field"]), condition["operator"], condition["value"]
    if name is None:
        return None
    if operator in _ORDER:
        return {"or": []} if value is None else ordered(name, _ORDER[operator], value)
    values = [_equal(name, item) for item in (value if operator in ("in", "not in") else [value])]
    known = [item for item in values if item is not None]
    if len(known) < len(values):
        return None
    return {"or": known} if operator in ("==", "in") else {"not": {"or": known}}


def _name(field: object) -> str | None:
    """The index's name of a field; None where it has none."""
    if field == "id":
        return "id"
    if not isinstance(field, str) or field in _DOCUMENT_FIELDS:
        return None
    if "." in field and not field.startswith("meta."):
        return None
    name = field.removeprefix("meta.")
    return name if is_key(name) else None


def _equal(name: str, value: object) -> Filter | None:
    return None if isinstance(value, str) and _may_be_date(value) else equal(name, value)


def _may_be_date(text: str) -> bool:
    """True for any text that Haystack could read as a time."""
    return len(text) >= 10 and text[:4].isdigit() and text[4] == "-"
