"""Statistics of the fields of documents' meta: types, extremes, distinct values; documents are read once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from haystack import Document


async def field_types(documents: AsyncIterator[Document]) -> dict[str, dict[str, str]]:
    """Return each field with its "type": keyword, int, float or boolean, by its last value that is not null."""
    types: dict[str, dict[str, str]] = {}
    async for document in documents:
        types |= {key: {"type": _type(value)} for key, value in document.meta.items() if value is not None}
    return types


async def min_and_max(documents: AsyncIterator[Document], field: str) -> dict[str, Any]:
    """Return the least and the greatest value of a field; None for no value, or a mix of texts and numbers."""
    least: Any = None
    greatest: Any = None
    async for document in documents:
        value = document.meta.get(_key(field))
        if not isinstance(value, int | float | str):
            continue
        if least is not None and isinstance(value, str) != isinstance(least, str):
            return {"min": None, "max": None}
        least = value if least is None else min(least, value)
        greatest = value if greatest is None else max(greatest, value)
    return {"min": least, "max": greatest}


async def count_distinct(documents: AsyncIterator[Document], fields: list[str]) -> dict[str, int]:
    """Return the number of distinct values of each field."""
    values: dict[str, set[str]] = {field: set() for field in fields}
    async for document in documents:
        for field, seen in values.items():
            value = document.meta.get(_key(field))
            if value is not None:
                seen.add(_json(value))
    return {field: len(seen) for field, seen in values.items()}


async def list_values(
    documents: AsyncIterator[Document], field: str, search_term: str | None, page: slice
) -> tuple[list[Any], int]:
    """Return a page of a field's distinct values that have the term, sorted by their text, and how many there are."""
    values: dict[str, Any] = {}
    async for document in documents:
        value = document.meta.get(_key(field))
        if value is not None and (search_term or "").lower() in str(value).lower():
            values.setdefault(_json(value), value)
    ordered = sorted(values.values(), key=lambda value: (str(value), type(value).__name__))
    return ordered[page], len(ordered)


def _key(field: str) -> str:
    return field.removeprefix("meta.")


def _json(value: Any) -> str:
    """Return the value as JSON, so that 1, 1.0, "1" and true are four values."""
    return json.dumps(value, sort_keys=True)


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "int", float: "float"}
    return names.get(type(value), "keyword")
