"""Writes to documents that a store has: each in one step, and once for each mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mvindex.errors import QueryError
from mvindex.records import check_id, check_ids, dump_metadata, shown
from mvindex.store.filters import Filter, check_deletion
from mvindex.store.protocol import Store


def replace_metadata(store: Store, metadata: Mapping[str, Mapping[str, Any]], mark: str = "") -> int:
    """Replace the metadata of several documents, by id; return how many of the ids exist.

    mark: names the write; one that was carried out already changes nothing.
    """
    if not isinstance(metadata, Mapping):
        raise QueryError(f"metadata: expected objects by id, got {shown(metadata)}")
    dumped = {check_id(doc_id): dump_metadata(value, doc_id) for doc_id, value in metadata.items()}
    with store.writing() as writer:
        if writer.has_mark(mark):
            return len(dumped)
        known = writer.known(list(dumped))
        if known:
            writer.set_metadata({old.doc_row: dumped[doc_id] for doc_id, old in known.items()}, mark)
    return len(known)


def delete_documents(
    store: Store, ids: str | Iterable[str] | None, condition: Filter | None, everything: bool, mark: str = ""
) -> int:
    """Delete documents by id, by a filter, or all; return how many there were.

    mark: names the write; one that was carried out already deletes nothing more.
    """
    check_deletion(ids, condition, everything)
    checked = [] if ids is None else check_ids(ids)
    with store.writing() as writer:
        if ids is None:
            rows = store.matching(condition or {}).tolist()
        else:
            rows = sorted(known.doc_row for known in writer.known(checked).values())
        return writer.delete(rows, mark)
