"""Translate LlamaIndex's filters to filters of an index, as far as it can evaluate them; check the rest in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from mvindex.store.fields import names_day, value_at
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import HIT_KEY
from mvindex_connectors.frameworks.filter_pushdown import (
    ALL,
    UNKNOWN,
    PushedFilter,
    all_of,
    any_of,
    checked,
    containing,
    equal,
    is_key,
    none_of,
    ordered,
    ordered_text,
)

# Names by which a filter means the id of the node's document.
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


def pushed_filter(filters: MetadataFilters | None) -> PushedFilter:
    """Return the part of the filters that an index can evaluate; ValueError for malformed filters.

    The rest: parts of texts, an order of dates, keys with quotes or backslashes.
    """
    if filters is None:
        return ALL
    check_filters(filters)
    return checked(_push(filters))


def check_filters(filters: MetadataFilters) -> None:
    """Raise ValueError for a value that its operator cannot take."""
    for each in filters.filters:
        if isinstance(each, MetadataFilters):
            check_filters(each)
        else:
            _check(each)


def matches(filters: MetadataFilters | None, metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata match, by LlamaIndex's own function; what it cannot compare does not match."""
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
    # LlamaIndex knows no keys inside objects.
    seen = metadata if each.key in metadata else {**metadata, each.key: value_at(metadata, each.key)}
    try:
        return bool(build_metadata_filter_fn(lambda _: seen, MetadataFilters(filters=[each]))(""))
    except TypeError:
        return False


def _check(each: MetadataFilter) -> None:
    operator, value = each.operator, each.value
    if operator in _LISTS and not isinstance(value, list | str):
        raise ValueError(f"filter on {each.key!r}: expected a list for {operator.value!r}, got {value!r:.80}")
    if operator in _TEXTS and not isinstance(value, str):
        raise ValueError(f"filter on {each.key!r}: expected a text for {operator.value!r}, got {value!r:.80}")
    if (operator in _ORDER or operator is FilterOperator.CONTAINS) and value is None:
        raise ValueError(f"filter on {each.key!r}: expected a value for {operator.value!r}, got None")


def _push(filters: MetadataFilters) -> PushedFilter:
    if not filters.filters:
        return ALL
    parts = [_push(each) if isinstance(each, MetadataFilters) else _push_one(each) for each in filters.filters]
    if filters.condition is FilterCondition.OR:
        return any_of(parts)
    return none_of(any_of(parts)) if filters.condition is FilterCondition.NOT else all_of(parts)


def _push_one(each: MetadataFilter) -> PushedFilter:
    """Return the part of one comparison that the index can evaluate."""
    name = _name(each)
    if name is None:
        return UNKNOWN
    operator, value = each.operator, each.value
    known: Filter | None = None
    if operator in _ORDER:
        if isinstance(value, str) and names_day(value):
            # An index compares dates, LlamaIndex their texts.
            return PushedFilter({name: {"exists": True}}, False)
        order = _ORDER[operator]
        known = ordered_text(name, order, value) if isinstance(value, str) else ordered(name, order, value)
    elif operator in (FilterOperator.EQ, FilterOperator.NE):
        known = _one_of(name, [value])
    elif operator in (FilterOperator.IN, FilterOperator.NIN) and isinstance(value, list):
        known = _one_of(name, value)
    elif operator is FilterOperator.CONTAINS:
        return _containing(name, [value], all_of)
    elif operator in (FilterOperator.ANY, FilterOperator.ALL) and isinstance(value, list):
        return _containing(name, value, any_of if operator is FilterOperator.ANY else all_of)
    elif operator is not FilterOperator.IS_EMPTY:
        # Every other operator needs a value.
        return UNKNOWN if operator is FilterOperator.NIN else PushedFilter({name: {"exists": True}}, False)
    if known is None:
        return UNKNOWN
    return PushedFilter({"not": known} if operator in _NEGATED else known, True)


def _containing(name: str, values: list[Any], join: Callable[[Sequence[PushedFilter]], PushedFilter]) -> PushedFilter:
    """Return the part of the condition that a list has such members that the index can evaluate.

    To LlamaIndex a text contains its parts, which is left to check: every text is from "" on.
    """
    has_value = PushedFilter({name: {"exists": True}}, True)
    known = [each for each in (containing(name, value) for value in values) if each is not None]
    if len(known) < len(values):
        return has_value._replace(is_exact=False)
    lists = all_of([has_value, join([PushedFilter(each, True) for each in known])])
    if not any(isinstance(value, str) for value in values):
        return lists
    return any_of([lists, PushedFilter({name: {"gte": ""}}, False)])


def _one_of(name: str, values: list[Any]) -> Filter | None:
    """Return the condition that the key has one of the values; a missing key equals nothing, not even None."""
    conditions = [equal(name, value) for value in values if value is not None]
    known = [each for each in conditions if each is not None]
    return {"or": known} if len(known) == len(conditions) else None


def _name(each: MetadataFilter) -> str | None:
    """Return the index's name of the key; None where it has none."""
    if each.key in REF_KEYS:
        values = each.value if isinstance(each.value, list) else [each.value]
        is_equality = each.operator in (FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN)
        return REF_FIELD if is_equality and NO_REF not in values else None
    return each.key if is_key(each.key) else None
