"""Make the record of a document and its views, and read it back, verified."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, DocumentError, Unsupported
from mvindex.records import Floats, Ints, dump_metadata
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import Batch, as_signed, pack_spans, row_checksum
from mvindex.store.views import view_checksums
from mvindex_connectors.milvus.layout import MAX_BYTES, MAX_DIM, MAX_ID_BYTES, MAX_VIEWS, MIN_DIM, id_hash

_NO_VECTOR = np.zeros(2, dtype=np.float32)
# The fields that the checksum of a record covers, in this order.
_CHECKED = (
    "pk", "id", "ordinal", "version", "num_views", "title", "text", "metadata", "spans", "content_hash",
    "views_checksum",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """The fields of a record that scoring needs: the version and the number of its views, and its ordinal."""

    document: int
    ordinal: int
    version: int
    num_views: int
    views_checksum: int


def light(row: Mapping[str, Any]) -> Light:
    """Return the light record of a row."""
    return Light(
        document=int(row["pk"]),
        ordinal=int(row["ordinal"]),
        version=int(row["version"]),
        num_views=int(row["num_views"]),
        views_checksum=int(row["views_checksum"]),
    )


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with its checksum, and the vector that Milvus requires of every row."""
    kept = {name: value for name, value in row.items() if name not in ("checksum", "vec")}
    return {**kept, "checksum": _checksum(kept), "vec": _NO_VECTOR}


def checked(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the record; DamagedIndex when it does not match its checksum."""
    if _checksum(row) != row["checksum"]:
        raise DamagedIndex(f"{where}: the record of document {row['id']!r} does not match its checksum")
    return row


def stored_document(row: Mapping[str, Any], where: str) -> StoredDocument:
    """Return the document of a record; DamagedIndex when the record is not as it was written."""
    checked(row, where)
    try:
        json.loads(row["metadata"])
        spans = base64.b64decode(row["spans"], validate=True)
    except (ValueError, RecursionError, binascii.Error) as err:
        raise DamagedIndex(f"{where}: the record of document {row['id']!r} cannot be read: {err}") from err
    return StoredDocument(row["id"], row["title"], row["text"], row["metadata"], spans or None)


def _checksum(row: Mapping[str, Any]) -> int:
    return row_checksum(*(row[name] for name in _CHECKED))


def new_records(batch: Batch, packed: Floats, keys: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the records of a batch. packed: its views as stored; keys: pk, version and ordinal of each document."""
    sums = view_checksums(np.ascontiguousarray(packed), batch.views.starts).tolist()
    counts = np.diff(batch.views.starts).tolist()
    records = []
    for number, document in enumerate(batch.documents):
        begin, end = batch.views.starts[number : number + 2]
        record = {
            "id": document.id,
            "idhash": id_hash(document.id),
            "title": document.title,
            "text": document.text,
            "metadata": dump_metadata(document.metadata, document.id),
            "spans": _packed_spans(batch.views.spans[begin:end]),
            "content_hash": batch.content_hashes[number].hex(),
            "num_views": counts[number],
            "views_checksum": as_signed(sums[number]),
        }
        records.append(sealed({**record, **{name: values[number] for name, values in keys.items()}}))
    return records


def _packed_spans(spans: Ints) -> str:
    return base64.b64encode(pack_spans(spans) or b"").decode()


def check_limits(batch: Batch) -> None:
    """Raise DocumentError or Unsupported for what Milvus cannot store."""
    dim = batch.views.rows.shape[1]
    if not MIN_DIM <= dim <= MAX_DIM:
        raise Unsupported(f"views: expected {MIN_DIM} to {MAX_DIM:,} dims in Milvus, got {dim}")
    counts = np.diff(batch.views.starts)
    for document, num_views in zip(batch.documents, counts.tolist(), strict=True):
        if num_views > MAX_VIEWS:
            raise DocumentError(
                f"document {document.id!r}: expected at most {MAX_VIEWS:,} views in Milvus, got {num_views:,}"
            )
        metadata = dump_metadata(document.metadata, document.id)
        parts = {"id": document.id, "title": document.title, "text": document.text, "metadata": metadata}
        for name, part in parts.items():
            _check_size(name, part, document.id)


def check_metadata(metadata: str, doc_id: str) -> None:
    """Raise DocumentError when Milvus cannot store the metadata of a document."""
    _check_size("metadata", metadata, doc_id)


def _check_size(name: str, part: str, doc_id: str) -> None:
    most = MAX_ID_BYTES if name == "id" else MAX_BYTES
    if len(part) * 4 > most and (size := len(part.encode())) > most:
        raise DocumentError(
            f"document {doc_id[:80]!r}: {name}: expected at most {most:,} bytes in Milvus, got {size:,}. Split the "
            "document, or use an index in a directory"
        )


def views_match(record: Light, packed: npt.NDArray[Any]) -> bool:
    """Return whether these are the views that the record was written with."""
    if len(packed) != record.num_views:
        return False
    digest = int(view_checksums(np.ascontiguousarray(packed), np.array([0, len(packed)]))[0])
    return as_signed(digest) == record.views_checksum
