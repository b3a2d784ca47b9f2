"""LlamaIndex's nodes as documents of an index, and back, each of its kind, with its metadata in their order."""

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
    kept,
    own_metadata,
    stored_metadata,
)
from mvindex_connectors.frameworks.llamaindex_filters import NO_REF, REF_KEYS

_KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, ImageNode, IndexNode, Node, Document, ImageDocument)
}
_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
_ELSEWHERE = ("id_", "text", "metadata", "embedding", "class_name")


class NodeMetadata(CitedMetadata):
    """A found node's metadata, whose text leaves the citation out too.

    LlamaIndex hashes that text: a node is the same whatever question found it, and QueryFusionRetriever fuses it.
    """

    def __repr__(self) -> str:
        return repr(own_metadata(self))


def stored_node(node: BaseNode, ours: Mapping[str, Any]) -> mvindex.Document:
    """The node as an index holds it: what it has no place for is kept under our key of the metadata."""
    told = node.model_dump(mode="json")
    metadata, text = told["metadata"], node_text(node)
    kept_node: dict[str, Any] = {"kind": _kind(node), "fields": _fields(node, told)} | dict(ours)
    if node.ref_doc_id is not None:
        kept_node["ref"] = node.ref_doc_id
    keys = list(own_metadata(metadata))
    if keys != sorted(keys):
        kept_node["keys"] = keys
    return mvindex.Document(node.node_id, text, cited_title(metadata), stored_metadata(metadata, kept_node))


def node_text(node: BaseNode) -> str:
    """The node's own text, without its metadata."""
    if isinstance(node, Node):
        return (node.text_resource.text if node.text_resource else None) or ""
    return str(getattr(node, "text", ""))


def given_node(stored: mvindex.Document | Hit, cited: Mapping[str, Any] | None = None) -> BaseNode:
    """The node as it was added, without its embedding; with the citation where there is one."""
    ours = kept(stored.metadata)
    kind = _KINDS[ours.get("kind", TextNode.class_name())]
    fields = {**ours.get("fields", {}), "id_": stored.id, "metadata": _in_order(stored.metadata, ours)}
    if not issubclass(kind, Node):
        fields["text"] = stored.text
    elif fields.get("text_resource") is not None:
        fields["text_resource"] = {**fields["text_resource"], "text": stored.text}
    node: BaseNode = kind.from_dict(fields)
    return node if cited is None else _with_citation(node, cited)


def filtered_metadata(stored: mvindex.Document | Hit) -> dict[str, Any]:
    """What filters see: the node's metadata, and the id of its document by the names that LlamaIndex gives it."""
    ref = kept(stored.metadata).get("ref", NO_REF)
    return own_metadata(stored.metadata) | dict.fromkeys(REF_KEYS, ref)


def packed(row: Floats) -> str:
    """The vector as text, two bytes a number, as views are stored."""
    return base64.b64encode(row.astype("<f2").tobytes()).decode("ascii")


def unpacked(text: str) -> Floats:
    """The vector of packed()."""
    return np.frombuffer(base64.b64decode(text), dtype="<f2").astype(np.float32)


def _kind(node: BaseNode) -> str:
    """The nearest kind that LlamaIndex itself has: of a kind of the user's own, what that adds is lost."""
    known = {kind: name for name, kind in _KINDS.items()}
    return next((known[kind] for kind in type(node).__mro__ if kind in known), TextNode.class_name())


def _fields(node: BaseNode, told: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in told.items() if name not in _ELSEWHERE and value is not None}
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = [key for key in fields.get(name, ()) if key != HIT_KEY]
    for name in _RESOURCES:
        resource = getattr(node, name, None)
        if isinstance(resource, MediaResource):
            fields[name] = _resource(name, resource, told[name])
    return fields


def _resource(name: str, resource: MediaResource, told: Mapping[str, Any]) -> dict[str, Any]:
    """The resource, with its bytes, which LlamaIndex leaves out."""
    is_ours = name == "text_resource"
    fields = {key: value for key, value in told.items() if value is not None and not (is_ours and key == "text")}
    return fields | ({} if resource.data is None else {"data": resource.data.decode("ascii")})


def _in_order(metadata: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    own = own_metadata(metadata)
    return {key: own[key] for key in ours.get("keys", ()) if key in own} | own


def _with_citation(node: BaseNode, cited: Mapping[str, Any]) -> BaseNode:
    """The node with the citation in its metadata, where neither an LLM nor an embedding is shown it."""
    for keys in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        keys.append(HIT_KEY)
    # Not by assignment, which would make it a plain dict again.
    node.__dict__["metadata"] = NodeMetadata(node.metadata | {HIT_KEY: dict(cited)})
    return node
