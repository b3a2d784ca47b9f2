"""What a Haystack store does with documents by their filters: list, count, delete, update and search them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils.filters import document_matches_filter

import mvindex
from mvindex.records import Hit, SearchResult
from mvindex_connectors.frameworks.citations import HIT_KEY
from mvindex_connectors.frameworks.connection import Reach
from mvindex_connectors.frameworks.filter_pushdown import Pushed, all_of
from mvindex_connectors.frameworks.haystack_documents import given_document, has_view
from mvindex_connectors.frameworks.haystack_filters import pushed_filter
from mvindex_connectors.frameworks.query import Asked, Wanted, found

Filters = Mapping[str, Any]
_WITH_VIEWS = {f"{HIT_KEY}.is_embedded": {"ne": False}}


async def matching(reach: Reach, filters: Filters | None) -> AsyncIterator[Document]:
    """The documents that match, one after the other."""
    async for stored in reach.listed(pushed_filter(filters).filter):
        document = given_document(stored)
        if not filters or document_matches_filter(dict(filters), document):
            yield document


async def listed(reach: Reach, filters: Filters | None) -> list[Document]:
    """The documents that match."""
    return [document async for document in matching(reach, filters)]


async def counted(reach: Reach, filters: Filters) -> int:
    """How many match."""
    count = 0
    async for _ in matching(reach, filters):
        count += 1
    return count


async def deleted(reach: Reach, filters: Filters) -> int:
    """How many matched, and are gone: in one step where the index can tell all of the filters."""
    pushed = pushed_filter(filters)
    if pushed.is_exact:
        return await reach.delete(filter=pushed.filter or {})
    return await reach.delete(ids=[document.id async for document in matching(reach, filters)])


async def updated(reach: Reach, filters: Filters, meta: dict[str, Any]) -> int:
    """How many matched; these keys of their meta have the new values."""
    if HIT_KEY in meta:
        raise ValueError(f"meta key {HIT_KEY!r} is the citation's; rename the key")
    changed = {
        stored.id: {**stored.metadata, **meta}
        async for stored in reach.listed(pushed_filter(filters).filter)
        if not filters or document_matches_filter(dict(filters), given_document(stored))
    }
    return await reach.update_all(changed)


async def writable(reach: Reach, documents: list[Document], policy: DuplicatePolicy) -> list[Document]:
    """The documents to be written, each id once; DuplicateDocumentError where one is there already and none may."""
    if policy is DuplicatePolicy.OVERWRITE:
        return list({document.id: document for document in documents}.values())
    known = {document.id for document in await reach.get_all(list({document.id for document in documents}))}
    first: dict[str, Document] = {}
    for document in documents:
        is_known = document.id in first or document.id in known
        if is_known and policy is not DuplicatePolicy.SKIP:
            _refuse(document.id)
        if not is_known:
            first[document.id] = document
    return list(first.values())


def _refuse(doc_id: str) -> NoReturn:
    raise DuplicateDocumentError(f"document {doc_id!r} is there already, or twice in what is written")


async def found_with_views(
    reach: Reach, asked: Asked, filters: Filters | None, top_k: int, search: Mapping[str, Any]
) -> SearchResult:
    """The top_k best documents that match, of those that have an embedding unless words alone are asked for."""
    pushed = pushed_filter(filters)

    def passes(stored: mvindex.Document | Hit) -> bool:
        return not filters or document_matches_filter(dict(filters), given_document(stored))

    mode = search.get("mode", "dense")
    if mode != "hybrid":
        result = await found(reach, asked, Wanted(pushed, passes), top_k, search)
        if mode == "lexical" or all(map(has_view, result.hits)):
            return result
    # What stands for no view scores 0: before all that score less, and among what fusion scales by.
    with_views = all_of([pushed, Pushed(_WITH_VIEWS, True)])
    return await found(reach, asked, Wanted(with_views, passes), top_k, search)
