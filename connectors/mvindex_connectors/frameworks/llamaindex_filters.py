"""LlamaIndex's filters: what an index can tell of one, and the check in Python of what it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import HIT_KEY
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
    ordered_text,
)

# By these names a filter asks for the id of the node's document.
REF_KEYS = ("doc_id", "document_id", "ref_doc_id")
REF_FIELD = f"{HIT_KEY}.ref"
# What LlamaIndex writes where a node belongs to no document.
NO_REF = "None"
_ORDER = {
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
}
_LISTS = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
_TEXTS = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
_NEGATED = (FilterOperator.NE, FilterOperator.NIN)


def pushed_filter(filters: MetadataFilters | None) -> Pushed:
    """What an index can tell of the filters; ValueError for filters that are none.

    What it cannot tell: lists, parts of texts, keys with dots, quotes or backslashes.
    """
    if filters is None:
        return ALL
    check_filters(filters)
    return checked(_push(filters))


def check_filters(filters: MetadataFilters) -> None:
    """Nothing; ValueError names the filter whose value cannot be what its operator wants."""
    for each in filters.filters:
        if isinstance(each, MetadataFilters):
            check_filters(each)
        else:
            _check(each)


def matches(filters: MetadataFilters | None, metadata: Mapping[str, Any]) -> bool:
    """True where the metadata match, by LlamaIndex's own function; what it cannot compare does not match."""
    if filters is None or not filters.filters:
        return True
    results = (
        matches(each, metadata) if isinstance(each, MetadataFilters) else _is_met(each, metadata)
        for each in filters.filters
    )
    if filters.condition is FilterCondition.OR:
        return any(results)
    return not any(results) if filters.condition is FilterCondition.NOT else all(results)


def _is_met(each: MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    try:
        return bool(build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[each]))(""))
    except TypeError:
        return False


def _check(each: MetadataFilter) -> None:
    operator, value = each.operator, each.value
    if operator in _LISTS and not isinstance(value, list | str):
        raise ValueError(f"filter on {each.key!r}: {operator.value!r} wants a list; found {value!r:.80}")
    if operator in _TEXTS and not isinstance(value, str):
        raise ValueError(f"filter on {each.key!r}: {operator.value!r} wants a text; found {value!r:.80}")
    if (operator in _ORDER or operator is FilterOperator.CONTAINS) and value is None:
        raise ValueError(f"filter on {each.key!r}: {operator.value!r} wants a value; found None")


def _push(filters: MetadataFilters) -> Pushed:
    if not filters.filters:
        return ALL
    parts = [_push(each) if isinstance(each, MetadataFilters) else _told(each) for each in filters.filters]
    if filters.condition is FilterCondition.OR:
        return any_of(parts)
    return none_of(any_of(parts)) if filters.condition is FilterCondition.NOT else all_of(parts)


def _told(each: MetadataFilter) -> Pushed:
    """What the index can tell of one comparison."""
    name = _name(each)
    if name is None:
        return UNKNOWN
    operator, value = each.operator, each.value
    told: Filter | None = None
    if operator in _ORDER:
        way = _ORDER[operator]
        told = ordered_text(name, way, value) if isinstance(value, str) else ordered(name, way, value)
    elif operator in (FilterOperator.EQ, FilterOperator.NE):
        told = _one_of(name, [value])
    elif operator in (FilterOperator.IN, FilterOperator.NIN) and isinstance(value, list):
        told = _one_of(name, value)
    elif operator is not FilterOperator.IS_EMPTY:
        # Whatever else is asked of a value, there must be one.
        return UNKNOWN if operator is FilterOperator.NIN else Pushed({name: {"exists": True}}, False)
    if told is None:
        return UNKNOWN
    return Pushed({"not": told} if operator in _NEGATED else told, True)


def _one_of(name: str, values: list[Any]) -> Filter | None:
    """That the key has one of the values; a missing one equals nothing, not even None."""
    told = [equal(name, value) for value in values if value is not None]
    known = [each for each in told if each is not None]
    return {"or": known} if len(known) == len(told) else None


def _name(each: MetadataFilter) -> str | None:
    """The index's name of the key; None where it has none."""
    if each.key in REF_KEYS:
        values = each.value if isinstance(each.value, list) else [each.value]
        is_equality = each.operator in (FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN)
        return REF_FIELD if is_equality and NO_REF not in values else None
    return each.key if is_key(each.key) and "." not in each.key else None
