"""Translate Haystack's filters to filters of an index, as far as it can evaluate them; check the rest in Python.

Beside Haystack's operators those of the index on lists are taken: contains, contains_any and contains_all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from mvindex.errors import QueryError
from mvindex.store.fields import value_at
from mvindex.store.filter_sql import FilterMatcher
from mvindex.store.filters import OPERATORS, Filter, Takes, parse_filter
from mvindex_connectors.frameworks.filter_pushdown import (
    ALL,
    UNKNOWN,
    PushedFilter,
    all_of,
    any_of,
    checked,
    equal,
    is_key,
    none_of,
    ordered,
)

_ORDER = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_MEMBERS = tuple(word for word, operator in OPERATORS.items() if operator.takes in (Takes.MEMBER, Takes.MEMBERS))
_COMPARISONS = ("==", "!=", *_ORDER, "in", "not in", *_MEMBERS)
_LOGIC = ("AND", "OR", "NOT")
_DOCUMENT_FIELDS = frozenset(field.name for field in fields(Document))


def pushed_filter(filters: Mapping[str, Any] | None) -> PushedFilter:
    """Return the part of Haystack's filters that an index can evaluate.

    The rest: texts that look like dates (Haystack compares them as times), lists and objects, the document's own fields
    but its id. A text compared with a number by order does not match.

    Raises:
        FilterError: For malformed filters.

    """
    if not filters:
        return ALL
    check_filters(filters)
    return checked(_push(filters))


def matches(filters: Mapping[str, Any] | None, document: Document) -> bool:
    """Return whether the document matches the filters, by Haystack's own function, but for keys with dots and lists.

    A value of another type than the filter's has no order beside it, and does not match; Haystack's function raises.
    """
    if not filters:
        return True
    if "field" in filters:
        return _is_met(filters, document)
    results = (matches(each, document) for each in filters["conditions"])
    return any(results) if filters["operator"] == "OR" else all(results) == (filters["operator"] == "AND")


def _is_met(condition: Mapping[str, Any], document: Document) -> bool:
    name = _name(condition["field"])
    if name is not None and condition["operator"] in _MEMBERS:
        matcher = FilterMatcher({name: {condition["operator"]: condition["value"]}})
        return bool(matcher.matching({document.id: document.meta}))
    condition = dict(condition)
    if name is not None and "." in name:
        # Haystack knows no keys with dots.
        document = Document(id=document.id, meta={"value": value_at(document.meta, name)})
        condition["field"] = "meta.value"
    try:
        return bool(document_matches_filter(condition, document))
    except (TypeError, FilterError):
        # The filter is wrong where its own text is no date: texts have no order.
        if isinstance(condition["value"], str) and not _is_date(condition["value"]):
            raise
        return False


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def check_filters(filters: object) -> None:
    """Raise FilterError unless the filters are well-formed."""
    if not isinstance(filters, Mapping):
        raise FilterError(f"filter: expected an object with field, operator and value, got {filters!r:.80}")
    for key in ("operator", "value" if "field" in filters else "conditions"):
        if key not in filters:
            raise FilterError(f"filter: expected a key {key!r}, got {filters!r:.200}")
    if "field" in filters:
        _check_comparison(filters)
        return
    if filters["operator"] not in _LOGIC or not isinstance(filters["conditions"], list | tuple):
        raise FilterError(f"filter: expected one of {', '.join(_LOGIC)} and a list of conditions, got {filters!r:.200}")
    for condition in filters["conditions"]:
        check_filters(condition)


def _check_comparison(condition: Mapping[str, Any]) -> None:
    operator, value = condition["operator"], condition["value"]
    if operator not in _COMPARISONS:
        raise FilterError(f"filter operator: expected one of {', '.join(_COMPARISONS)}, got {operator!r}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"{condition['field']!r}: expected a list for {operator!r}, got {type(value).__name__}")
    if operator in _ORDER and isinstance(value, list | tuple | dict):
        raise FilterError(f"{condition['field']!r}: expected a number or a date for {operator!r}, got {value!r:.80}")
    if operator in _MEMBERS:
        name = _name(condition["field"])
        if name is None:
            raise FilterError(f"{condition['field']!r}: expected a key of meta for {operator!r}")
        try:
            parse_filter({name: {operator: value}})
        except QueryError as err:
            raise FilterError(str(err)) from err


def _push(condition: Mapping[str, Any]) -> PushedFilter:
    if "field" in condition:
        known = _comparison(condition)
        return UNKNOWN if known is None else PushedFilter(known, True)
    parts = [_push(part) for part in condition["conditions"]]
    if condition["operator"] == "AND":
        return all_of(parts)
    return any_of(parts) if condition["operator"] == "OR" else none_of(all_of(parts))


def _comparison(condition: Mapping[str, Any]) -> Filter | None:
    """Return the comparison as a filter of the index; None where it has none for it."""
    name, operator, value = _name(condition["field"]), condition["operator"], condition["value"]
    if name is None:
        return None
    if operator in _MEMBERS:
        return {name: {operator: value}}
    if operator in _ORDER:
        return {"or": []} if value is None else ordered(name, _ORDER[operator], value)
    values = [_equal(name, item) for item in (value if operator in ("in", "not in") else [value])]
    known = [item for item in values if item is not None]
    if len(known) < len(values):
        return None
    return {"or": known} if operator in ("==", "in") else {"not": {"or": known}}


def _name(field: object) -> str | None:
    """Return the index's name of a field; None where it has none."""
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
    """Return whether Haystack could read the text as a time."""
    return len(text) >= 10 and text[:4].isdigit() and text[4] == "-"
