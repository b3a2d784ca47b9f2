"""Collections that others made: which of their fields hold what of a document, as far as their names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mvindex_connectors.milvus.address import Address

VECTOR_TYPE = "FLOAT_VECTOR"
# Of what applications call them, in the order in which they are looked for.
_ID_NAMES = ("doc_id", "document_id", "docid", "doc", "document", "parent_id", "source_id", "file_id")
_TEXT_NAMES = ("text", "content", "page_content", "body", "chunk_text", "chunk", "passage")
_ORDER_NAMES = ("chunk_index", "chunk_no", "chunk_number", "chunk_id", "chunk_order", "position", "seq", "part")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFields:
    """The fields of rows that are parts of documents; None: no such field, or not known.

    Attributes:
        vector: The vector.
        id: The id of the document.
        text: The text of the row.
        order: What orders the rows of a document; the rows' keys do without.
        title: The document's title.

    """

    vector: str | None = None
    id: str | None = None
    text: str | None = None
    order: str | None = None
    title: str | None = None


def field_types(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of each field of the schema, by name."""
    return {each["name"]: getattr(each["type"], "name", str(each["type"])) for each in described["fields"]}


def guess_fields(
    described: Mapping[str, Any], dynamic: Iterable[str] = (), given: RowFields | None = None
) -> RowFields:
    """Return the fields as their names tell; a given one is not guessed.

    Args:
        described: What describe_collection() of pymilvus returns.
        dynamic: Names of dynamic fields that rows have.
        given: Those that the caller named.

    """
    types, given = field_types(described), given or RowFields()
    taken = {given.vector, given.id, given.text, given.order, given.title}
    names = [name for name in (*types, *dynamic) if name not in taken]

    def first(choices: Iterable[str]) -> str | None:
        return next((name for name in choices if name in names), None)

    vectors = [name for name, kind in types.items() if kind == VECTOR_TYPE]
    return RowFields(
        vector=given.vector or (vectors[0] if len(vectors) == 1 else None),
        id=given.id or first(_ID_NAMES),
        text=given.text or first(_TEXT_NAMES),
        order=given.order or first(_ORDER_NAMES),
        title=given.title or first(("title",)),
    )


def how_to_take_over(address: Address, described: Mapping[str, Any]) -> str:
    """Return how a collection of others is imported, or searched as it is; nothing where it has no vectors."""
    vectors = [name for name, kind in field_types(described).items() if kind == VECTOR_TYPE]
    if not vectors:
        return ""
    guessed = guess_fields(described)
    vector = guessed.vector or vectors[0]
    flags = [f"--vector-field {vector}", f"--id-field {guessed.id or '...'}", f"--text-field {guessed.text or '...'}"]
    flags += [f"--order-field {guessed.order}"] * (guessed.order is not None)
    given = " ".join(flags)
    return (
        f". By their names: `mvindex import milvus '{address.shown}' --index NEW.mvx {given}` copies it; "
        f"`mvindex adopt NEW.side '{address.shown}' {given}` searches it as it is, by --index adopted:NEW.side"
    )
