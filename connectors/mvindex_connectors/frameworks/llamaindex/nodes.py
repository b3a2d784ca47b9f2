"""LlamaIndex's nodes as documents of an index and back, each to its class, with its metadata in order; and filters.

Filters are translated to those of an index, as far as it can evaluate them; the rest is checked in Python.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import mvindex
from mvindex.records import Floats, Hit, check_id
from mvindex.store.fields import names_day, value_at
from mvindex.store.filters import Filter
from mvindex_connectors.frameworks.citations import (
    HIT_KEY,
    CitedMetadata,
    cited_title,
    own_metadata,
    stored_fields,
    stored_metadata,
)
from mvindex_connectors.frameworks.connection import AsyncIndexAPI
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
from mvindex_connectors.frameworks.query import FilterPlan

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
_KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, ImageNode, IndexNode, Node, Document, ImageDocument)
}
_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
_STORED_ELSEWHERE = ("id_", "text", "metadata", "embedding", "class_name")


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


class NodeMetadata(CitedMetadata):
    """A returned node's metadata, whose repr() leaves out the citation too.

    LlamaIndex hashes that text: QueryFusionRetriever must see one node, whatever query found it.
    """

    def __repr__(self) -> str:
        return repr(own_metadata(self))


def stored_node(node: BaseNode, extra: Mapping[str, Any]) -> mvindex.Document:
    """Return the node for the index; the fields that an index lacks, and `extra`, go under our key of the metadata."""
    dumped = node.model_dump(mode="json")
    metadata, text = dumped["metadata"], node_text(node)
    fields: dict[str, Any] = {"kind": _kind(node), "fields": _fields(node, dumped)} | dict(extra)
    if node.ref_doc_id is not None:
        fields["ref"] = node.ref_doc_id
    keys = list(own_metadata(metadata))
    if keys != sorted(keys):
        fields["keys"] = keys
    return mvindex.Document(node.node_id, text, cited_title(metadata), stored_metadata(metadata, fields))


def node_text(node: BaseNode) -> str:
    """Return the node's own text, without its metadata."""
    if isinstance(node, Node):
        return (node.text_resource.text if node.text_resource else None) or ""
    return str(getattr(node, "text", ""))


def original_node(stored: mvindex.Document | Hit, cited: Mapping[str, Any] | None = None) -> BaseNode:
    """Return the node as it was added, without its embedding; with the citation if given.

    A document that another program wrote, with a value of its own under our key, is a TextNode.
    """
    try:
        node = _node(stored, stored_fields(stored.metadata))
    except (KeyError, TypeError, ValueError):
        node = _node(stored, {})
    return node if cited is None else _with_citation(node, cited)


def _node(stored: mvindex.Document | Hit, ours: Mapping[str, Any]) -> BaseNode:
    """Return the node of a document, and what is stored under our key."""
    kind = _KINDS[ours.get("kind", TextNode.class_name())]
    fields = {**ours.get("fields", {}), "id_": stored.id, "metadata": _in_order(stored.metadata, ours)}
    if not issubclass(kind, Node):
        fields["text"] = stored.text
    elif fields.get("text_resource") is not None:
        fields["text_resource"] = {**fields["text_resource"], "text": stored.text}
    node: BaseNode = kind.from_dict(fields)
    return node


def filtered_metadata(stored: mvindex.Document | Hit) -> dict[str, Any]:
    """Return the metadata that filters see: the node's, and the id of its document by LlamaIndex's names."""
    ref = stored_fields(stored.metadata).get("ref", NO_REF)
    return own_metadata(stored.metadata) | dict.fromkeys(REF_KEYS, ref)


def pack_row(row: Floats) -> str:
    """Return the vector as text, two bytes a number, as views are stored."""
    return base64.b64encode(row.astype("<f2").tobytes()).decode("ascii")


def unpack_row(text: str) -> Floats:
    """Return the vector of a text that pack_row() made."""
    return np.frombuffer(base64.b64decode(text), dtype="<f2").astype(np.float32)


def _kind(node: BaseNode) -> str:
    """Return the nearest class of LlamaIndex's own; fields that a user's subclass adds are lost."""
    known = {kind: name for name, kind in _KINDS.items()}
    return next((known[kind] for kind in type(node).__mro__ if kind in known), TextNode.class_name())


def _fields(node: BaseNode, dumped: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in dumped.items() if name not in _STORED_ELSEWHERE and value is not None}
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = [key for key in fields.get(name, ()) if key != HIT_KEY]
    for name in _RESOURCES:
        resource = getattr(node, name, None)
        if isinstance(resource, MediaResource):
            fields[name] = _resource(name, resource, dumped[name])
    return fields


def _resource(name: str, resource: MediaResource, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a resource, with its bytes, which model_dump() leaves out."""
    is_stored_text = name == "text_resource"
    fields = {
        key: value for key, value in dumped.items() if value is not None and not (is_stored_text and key == "text")
    }
    return fields | ({} if resource.data is None else {"data": resource.data.decode("ascii")})


def _in_order(metadata: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    own = own_metadata(metadata)
    return {key: own[key] for key in fields.get("keys", ()) if key in own} | own


def _with_citation(node: BaseNode, cited: Mapping[str, Any]) -> BaseNode:
    """Return the node with the citation in its metadata, hidden from LLMs and embedding models."""
    for keys in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        keys.append(HIT_KEY)
    # An assignment would make it a plain dict again.
    node.__dict__["metadata"] = NodeMetadata(node.metadata | {HIT_KEY: dict(cited)})
    return node


def as_ids(ids: str | Iterable[str]) -> list[str]:
    """Return the ids as a list; a text is one id."""
    return [ids] if isinstance(ids, str) else list(ids)


def plan_filters(query: VectorStoreQuery) -> FilterPlan:
    """Return the nodes that a query's ids, documents and filters allow; an empty list of ids allows all."""
    parts = [pushed_filter(query.filters)]
    if query.node_ids:
        parts.append(PushedFilter({"id": {"in": as_ids(query.node_ids)}}, True))
    if query.doc_ids:
        parts.append(PushedFilter(_of_documents(as_ids(query.doc_ids)), True))
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
    documents = await api.get(as_ids(node_ids))
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
        return await api.delete(ids=as_ids(node_ids or ()))
    pushed = pushed_filter(filters)
    if pushed.is_exact:
        parts = [pushed.filter or {}] + ([] if node_ids is None else [{"id": {"in": as_ids(node_ids)}}])
        return await api.delete(filter={"and": parts})
    if node_ids is None:
        return await api.delete(ids=[stored.id async for stored in scan_matching(api, filters)])
    return await api.delete(ids=[node.node_id for node in await list_nodes(api, node_ids, filters)])
