"""Operations of a LlamaIndex store on the nodes that match a filter: list, delete, plan a query."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

import mvindex
from mvindex.records import check_id
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.connection import AsyncIndexAPI
from mvindex_connectors.frameworks.filter_pushdown import ALL, PushedFilter, all_of
from mvindex_connectors.frameworks.llamaindex.filters import REF_FIELD, matches, pushed_filter
from mvindex_connectors.frameworks.llamaindex.nodes import filtered_metadata, original_node
from mvindex_connectors.frameworks.query import FilterPlan


def plan_filters(query: VectorStoreQuery) -> FilterPlan:
    """Return the nodes that a query's ids, documents and filters allow; an empty list of ids allows all."""
    parts = [pushed_filter(query.filters)]
    if query.node_ids:
        parts.append(PushedFilter({"id": {"in": list(query.node_ids)}}, True))
    if query.doc_ids:
        parts.append(PushedFilter(_of_documents(query.doc_ids), True))
    pushed = ALL if parts == [ALL] else all_of(parts)
    return FilterPlan(pushed, lambda stored: matches(query.filters, filtered_metadata(stored)))


async def delete_document(api: AsyncIndexAPI, ref_doc_id: str | None) -> int:
    """Delete the nodes of a document, none for None; return how many there were."""
    return await api.delete(filter=_of_documents([ref_doc_id]))


def _of_documents(ref_doc_ids: Sequence[str | None]) -> Filter:
    """Return the filter for the nodes of these documents; nodes without a document are of none, not even of None."""
    return {REF_FIELD: {"in": [check_id(each) for each in ref_doc_ids if each is not None]}}


async def scan_matching(api: AsyncIndexAPI, filters: MetadataFilters | None) -> AsyncIterator[mvindex.Document]:
    """Yield the stored documents that match."""
    async for stored in api.scan(pushed_filter(filters).filter):
        if matches(filters, filtered_metadata(stored)):
            yield stored


async def list_nodes(
    api: AsyncIndexAPI, node_ids: Sequence[str] | None, filters: MetadataFilters | None
) -> list[BaseNode]:
    """Return the nodes that match, all or those of the ids that exist, in the order of the ids."""
    if node_ids is None:
        return [original_node(stored) async for stored in scan_matching(api, filters)]
    pushed_filter(filters)  # a malformed filter is an error even where no node is read
    documents = await api.get([node_ids] if isinstance(node_ids, str) else node_ids)
    return [original_node(stored) for stored in documents if matches(filters, filtered_metadata(stored))]


async def delete_nodes(api: AsyncIndexAPI, node_ids: Sequence[str] | None, filters: MetadataFilters | None) -> int:
    """Delete the nodes of the ids that match, in one step where the index can evaluate the filters.

    Returns:
        The number of nodes deleted.

    Raises:
        ValueError: For neither ids nor filters.

    """
    if node_ids is None and filters is None:
        raise ValueError("delete_nodes(): expected node_ids or filters, got neither. clear() deletes everything")
    if filters is None:
        return await api.delete(ids=list(node_ids or ()))
    pushed = pushed_filter(filters)
    if pushed.is_exact:
        parts = [pushed.filter or {}] + ([] if node_ids is None else [{"id": {"in": list(node_ids)}}])
        return await api.delete(filter={"and": parts})
    if node_ids is None:
        return await api.delete(ids=[stored.id async for stored in scan_matching(api, filters)])
    return await api.delete(ids=[node.node_id for node in await list_nodes(api, node_ids, filters)])
