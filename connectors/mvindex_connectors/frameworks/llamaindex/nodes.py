"""Convert LlamaIndex's nodes to documents of an index and back, each to its class, with its metadata in order."""

from __future__ import annotations

import base64
from collections.abc import Mapping
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

import mvindex
from mvindex.records import Floats, Hit
from mvindex_connectors.frameworks.citations import (
    HIT_KEY,
    CitedMetadata,
    cited_title,
    own_metadata,
    stored_fields,
    stored_metadata,
)
from mvindex_connectors.frameworks.llamaindex.filters import NO_REF, REF_KEYS

_KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, ImageNode, IndexNode, Node, Document, ImageDocument)
}
_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
_STORED_ELSEWHERE = ("id_", "text", "metadata", "embedding", "class_name")


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
    """Return the node as it was added, without its embedding; with the citation if given."""
    ours = stored_fields(stored.metadata)
    kind = _KINDS[ours.get("kind", TextNode.class_name())]
    fields = {**ours.get("fields", {}), "id_": stored.id, "metadata": _in_order(stored.metadata, ours)}
    if not issubclass(kind, Node):
        fields["text"] = stored.text
    elif fields.get("text_resource") is not None:
        fields["text_resource"] = {**fields["text_resource"], "text": stored.text}
    node: BaseNode = kind.from_dict(fields)
    return node if cited is None else _with_citation(node, cited)


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
