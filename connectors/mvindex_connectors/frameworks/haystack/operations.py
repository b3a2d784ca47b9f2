"""Operations of a Haystack store on the documents that match a filter: list, count, change, search, statistics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

import mvindex
from mvindex.records import Hit, SearchResult
from mvindex_connectors.frameworks.citations import HIT_KEY
from mvindex_connectors.frameworks.connection import AsyncIndexAPI
from mvindex_connectors.frameworks.filter_pushdown import PushedFilter, all_of
from mvindex_connectors.frameworks.haystack.documents import has_view, original_document
from mvindex_connectors.frameworks.haystack.filters import matches, pushed_filter
from mvindex_connectors.frameworks.query import FilterPlan, Query, search_filtered

Filters = Mapping[str, Any]
_WITH_VIEWS = {f"{HIT_KEY}.is_embedded": {"ne": False}}


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


async def scan_matching(api: AsyncIndexAPI, filters: Filters | None) -> AsyncIterator[Document]:
    """Yield the documents that match."""
    async for stored in api.scan(pushed_filter(filters).filter):
        document = original_document(stored)
        if matches(filters, document):
            yield document


async def list_matching(api: AsyncIndexAPI, filters: Filters | None) -> list[Document]:
    """Return the documents that match."""
    return [document async for document in scan_matching(api, filters)]


async def count_matching(api: AsyncIndexAPI, filters: Filters) -> int:
    """Return the number of documents that match."""
    count = 0
    async for _ in scan_matching(api, filters):
        count += 1
    return count


async def delete_matching(api: AsyncIndexAPI, filters: Filters) -> int:
    """Delete the documents that match, in one step where the index can evaluate the filters; return how many."""
    pushed = pushed_filter(filters)
    if pushed.is_exact:
        return await api.delete(filter=pushed.filter or {})
    return await api.delete(ids=[document.id async for document in scan_matching(api, filters)])


async def update_matching(api: AsyncIndexAPI, filters: Filters, meta: dict[str, Any]) -> int:
    """Set these keys of the meta of the documents that match; return how many matched."""
    if not isinstance(meta, Mapping):
        raise ValueError(f"meta: expected an object of the keys to set, got {type(meta).__name__}")
    if HIT_KEY in meta:
        raise ValueError(f"meta key {HIT_KEY!r}: expected another name, this one is the citation's. Rename the key")
    with api.write_lock:
        matching = [document.id async for document in scan_matching(api, filters)]
        return await api.update_all(dict.fromkeys(matching, meta))


async def documents_to_write(api: AsyncIndexAPI, documents: list[Document], policy: DuplicatePolicy) -> list[Document]:
    """Return the documents that the policy lets be written, each id once.

    Raises:
        DuplicateDocumentError: When the policy is FAIL or NONE and an id is stored already, or comes twice.

    """
    if policy is DuplicatePolicy.OVERWRITE:
        return list({document.id: document for document in documents}.values())
    known = {document.id for document in await api.get(list({document.id for document in documents}))}
    first: dict[str, Document] = {}
    for document in documents:
        is_known = document.id in first or document.id in known
        if is_known and policy is not DuplicatePolicy.SKIP:
            raise DuplicateDocumentError(
                f"document {document.id!r}: expected a new id, got one that is stored already, or comes twice"
            )
        if not is_known:
            first[document.id] = document
    return list(first.values())


async def search_documents(
    api: AsyncIndexAPI, query: Query, filters: Filters | None, top_k: int, options: Mapping[str, Any]
) -> SearchResult:
    """Return the best documents that match; but for lexical search, only documents with an embedding."""
    pushed = pushed_filter(filters)

    def passes(stored: mvindex.Document | Hit) -> bool:
        return matches(filters, original_document(stored))

    mode = options.get("mode", "auto")
    # Hits of some fields only do not tell whether they were written with an embedding.
    if mode == "lexical" or not (options.get("fields") is not None or await query.is_hybrid(api, options)):
        result = await search_filtered(api, query, FilterPlan(pushed, passes), top_k, options)
        if mode == "lexical" or all(map(has_view, result.hits)):
            return result
    # A document without an embedding scores 0: above negative scores, and among those that fusion scales by.
    with_views = all_of([pushed, PushedFilter(_WITH_VIEWS, True)])
    return await search_filtered(api, query, FilterPlan(with_views, passes), top_k, options)
