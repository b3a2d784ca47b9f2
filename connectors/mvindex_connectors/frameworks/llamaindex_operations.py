"""What a LlamaIndex store does with nodes by their filters: list and delete them; which ones a query is about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery

import mvindex
from mvindex_connectors.frameworks.connection import Reach
from mvindex_connectors.frameworks.filter_pushdown import ALL, Pushed, all_of
from mvindex_connectors.frameworks.llamaindex_filters import REF_FIELD, matches, pushed_filter
from mvindex_connectors.frameworks.llamaindex_nodes import filtered_metadata, given_node
from mvindex_connectors.frameworks.query import Wanted


def wanted_nodes(query: VectorStoreQuery) -> Wanted:
    """The nodes that a query's ids, documents and filters allow; an empty list of ids allows all."""
    parts = [pushed_filter(query.filters)]
    if query.node_ids:
        parts.append(Pushed({"id": {"in": list(query.node_ids)}}, True))
    if query.doc_ids:
        parts.append(Pushed({REF_FIELD: {"in": list(query.doc_ids)}}, True))
    pushed = ALL if parts == [ALL] else all_of(parts)
    return Wanted(pushed, lambda stored: matches(query.filters, filtered_metadata(stored)))


async def matching(reach: Reach, filters: MetadataFilters | None) -> AsyncIterator[mvindex.Document]:
    """The documents that match, one after the other."""
    async for stored in reach.listed(pushed_filter(filters).filter):
        if matches(filters, filtered_metadata(stored)):
            yield stored


async def listed(reach: Reach, node_ids: Sequence[str] | None, filters: MetadataFilters | None) -> list[BaseNode]:
    """The nodes of the ids that exist, in their order, or all, that match."""
    if node_ids is None:
        return [given_node(stored) async for stored in matching(reach, filters)]
    pushed_filter(filters)
    found = await reach.get_all(node_ids)
    return [given_node(stored) for stored in found if matches(filters, filtered_metadata(stored))]


async def deleted(reach: Reach, node_ids: Sequence[str] | None, filters: MetadataFilters | None) -> int:
    """How many nodes were of the ids and matched, and are gone: in one step where the index can tell the filters."""
    if node_ids is None and filters is None:
        raise ValueError("delete_nodes() wants node_ids or filters; clear() deletes everything")
    if filters is None:
        return await reach.delete(ids=list(node_ids or ()))
    pushed = pushed_filter(filters)
    if pushed.is_exact:
        parts = [pushed.filter or {}] + ([] if node_ids is None else [{"id": {"in": list(node_ids)}}])
        return await reach.delete(filter={"and": parts})
    if node_ids is None:
        return await reach.delete(ids=[stored.id async for stored in matching(reach, filters)])
    return await reach.delete(ids=[node.node_id for node in await listed(reach, node_ids, filters)])
