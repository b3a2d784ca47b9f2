"""Documents on their way into the store: a batch with its packed views, and the rows that the catalog keeps.

The mark of a write is stored in its transaction, so that no kill parts them: a write that is sent again, its response
lost, is not carried out again.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.errors import StoreError
from mvindex.kernels.score import decode
from mvindex.records import Document, Floats, Ints, Span, Views
from mvindex.store.views import MAX_NORM, ViewType, range_checksums

FP16_MAX_RELATIVE_ERROR = 1e-3
_SETTING = "served_writes"
# More than are on their way at once; those of a running server are in its memory as well.
_MAX_MARKS = 256


class PackedViews(NamedTuple):
    """The views of n documents as an index stores them, ragged.

    rows: (r, d) fp16 or fp32; starts: (n + 1,) int64, document i has rows[starts[i]:starts[i + 1]]; spans: (r, 2)
    int64, the characters [begin, end) of the text that a view stands for, -1 for none.
    """

    rows: npt.NDArray[Any]
    starts: Ints
    spans: Ints

    def packed_as(self, view_type: ViewType, ids: Sequence[str]) -> PackedViews:
        """Return the views as this type; StoreError as of pack_views()."""
        if self.rows.dtype == view_type.dtype:
            return self
        return pack_views(Views(decode(self.rows), self.starts, self.spans), view_type, ids)


def pack_views(views: Views, view_type: ViewType, ids: Sequence[str]) -> PackedViews:
    """Return the views as stored; StoreError names the first document whose views the type cannot hold.

    Refused: NaN or infinity, a norm above MAX_NORM, and for fp16 overflow or a relative error above 1e-3.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", views.rows, views.rows, dtype=np.float64))
    _refuse(~np.isfinite(norms), views, ids, "holds NaN or infinity", "finite numbers")
    _refuse(norms > MAX_NORM, views, ids, "has a norm above 1e18", "smaller vectors: scores are float32")
    if view_type is ViewType.FP32:
        return PackedViews(views.rows.astype("<f4", copy=False), views.starts, views.spans)
    with np.errstate(over="ignore"):
        packed = views.rows.astype("<f2")
    _refuse(~np.isfinite(packed).all(axis=1), views, ids, "overflows fp16 (65504)", "dtype='fp32' for this index")
    lost = packed.astype(np.float32) - views.rows
    error = np.sqrt(np.einsum("ij,ij->i", lost, lost, dtype=np.float64))
    too_coarse = error > FP16_MAX_RELATIVE_ERROR * norms
    _refuse(too_coarse, views, ids, "loses more than 1e-3 of its norm in fp16", "dtype='fp32' for this index")
    return PackedViews(packed, views.starts, views.spans)


def _refuse(is_bad: npt.NDArray[np.bool_], views: Views, ids: Sequence[str], problem: str, expected: str) -> None:
    if not is_bad.any():
        return
    row = int(np.argmax(is_bad))
    document = int(np.searchsorted(views.starts, row, side="right")) - 1
    slot = row - int(views.starts[document])
    raise StoreError(f"document {ids[document]!r}: view {slot} {problem}; expected {expected}")


def view_checksums(packed: npt.NDArray[Any], starts: Ints) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of each document's rows, (n,); packed must be C-contiguous."""
    ends = starts * (packed.shape[1] * packed.itemsize)
    return range_checksums(packed.data.cast("B") if len(packed) else memoryview(b""), ends[:-1], ends[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One commit: documents with distinct ids, their views, and everything that is stored in the same transaction.

    Attributes:
        documents: Documents to add or replace.
        views: Their views, as they are stored.
        content_hashes: The content_hash() of each document.
        metadata_updates: Metadata (canonical JSON) to set on other documents, by document row.
        ordinals: (n,) int64, used for documents that are new; None numbers them on.
        settings: Settings of the index to set.
        mark: Names the write, and is stored with it; empty for none.

    """

    documents: Sequence[Document]
    views: PackedViews
    content_hashes: Sequence[bytes]
    metadata_updates: Mapping[int, str] = field(default_factory=dict)
    ordinals: Ints | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""

    def select(self, numbers: Sequence[int]) -> Batch:
        """Return the documents at these positions as a batch of their own, without what is set beside them."""
        counts = np.diff(self.views.starts)[list(numbers)]
        bounds = [np.arange(self.views.starts[number], self.views.starts[number + 1]) for number in numbers]
        rows = np.concatenate(bounds) if bounds else np.empty(0, dtype=np.int64)
        return Batch(
            documents=[self.documents[number] for number in numbers],
            views=PackedViews(self.views.rows[rows], np.append(0, np.cumsum(counts)), self.views.spans[rows]),
            content_hashes=[self.content_hashes[number] for number in numbers],
            ordinals=None if self.ordinals is None else self.ordinals[list(numbers)],
        )


def content_hash(document: Document, views: Floats | None = None, spans: Ints | None = None) -> bytes:
    """Return the xxh3-128 of a document's title, text, view_texts, given views (k, d) and spans (k, 2)."""
    title, text = document.title.encode(), document.text.encode()
    parts = [len(title).to_bytes(8, "little"), title, len(text).to_bytes(8, "little"), text]
    if len(document.view_texts):
        parts += [repr((str(each.text), each.span)).encode() for each in document.own_view_texts]
    if views is not None:
        parts.append(np.ascontiguousarray(views, dtype="<f4").tobytes())
    if spans is not None and (spans >= 0).any():
        parts.append(np.ascontiguousarray(spans, dtype="<i8").tobytes())
    return xxhash.xxh3_128_digest(b"".join(parts))


def result_of(settings: Mapping[str, Any], mark: str) -> int | None:
    """Return how many documents the write of this mark changed; None unless it was carried out."""
    return dict(settings.get(_SETTING, ())).get(mark) if mark else None


def with_mark(settings: Mapping[str, Any], mark: str, result: int) -> dict[str, Any]:
    """Return the change of settings that records a write and how many documents it changed; none without a mark."""
    return {_SETTING: [*settings.get(_SETTING, ()), [mark, result]][-_MAX_MARKS:]} if mark else {}


# The one format that is read and written: current.json names the directory of the active generation.
FORMAT_VERSION = 3
# A faster way to pack rows of the types that mvindex writes. Other types, of damaged rows, raise one of these errors,
# and are packed one by one by row_checksum().
_NUMBER_AND_SIZE, _SIZE, _FOUR_AND_SIZE = struct.Struct("<qq"), struct.Struct("<q"), struct.Struct("<qqqqq")
_SPAN = struct.Struct("<ii")
_digest: Callable[[bytes], int] = xxhash.xxh3_64_intdigest
_OTHER_TYPES = (struct.error, TypeError, AttributeError)


class StoredRow(NamedTuple):
    """A document's catalog rows as they are written: metadata as JSON, spans packed."""

    id: str
    title: str
    text: str
    metadata: str
    spans: bytes | None
    content_hash: bytes

    @property
    def lexical_text(self) -> str:
        """The text that lexical search indexes."""
        return lexical_text(self.title, self.text)


class Rows(NamedTuple):
    """Documents to be appended, n of them; document i owns the rows starts[i]:starts[i + 1] of packed.

    packed: (r, d) views as stored; ordinals: (n,) int64; starts: (n + 1,) int64.
    """

    documents: Sequence[StoredRow]
    ordinals: Ints
    packed: npt.NDArray[Any]
    starts: Ints


def lexical_text(title: str, text: str) -> str:
    """Return the text that lexical search indexes of a document."""
    return f"{title}\n{text}"


def row_checksum(*parts: str | bytes | int | float | None) -> int:
    """Return the xxh3-64 of the parts of a catalog row, as the signed integer that SQLite holds.

    Any value that SQLite may return is allowed: in a damaged row a text can turn up as a number.
    """
    return as_signed(_digest(b"".join(map(_packed, parts))))


def _packed(part: str | bytes | int | float | None) -> bytes:
    if isinstance(part, int):
        return part.to_bytes(8, "little", signed=True)
    if isinstance(part, str):
        part = part.encode()
    if isinstance(part, bytes):
        return len(part).to_bytes(8, "little") + part
    return repr(part).encode()


def as_signed(digest: int) -> int:
    """Return the signed number of the same bits as an unsigned 64-bit number."""
    return digest - (1 << 64) if digest >> 63 else digest


def text_checksum(doc_row: int, doc_id: str, title: str, text: str, spans: bytes | None) -> int:
    """Return the checksum of a row of texts; spans are packed."""
    try:
        id_bytes, title_bytes, text_bytes, span_bytes = doc_id.encode(), title.encode(), text.encode(), spans or b""
        begin, between = _NUMBER_AND_SIZE.pack(doc_row, len(id_bytes)), _SIZE.pack(len(title_bytes))
        end = _SIZE.pack(len(span_bytes))
        digest = _digest(
            b"".join((begin, id_bytes, between, title_bytes, _SIZE.pack(len(text_bytes)), text_bytes, end, span_bytes))
        )
        return digest - (digest >> 63 << 64)
    except _OTHER_TYPES:
        return row_checksum(doc_row, doc_id, title, text, spans or b"")


def metadata_checksum(doc_row: int, dumped: str) -> int:
    """Return the checksum of a row of metadata."""
    try:
        dumped_bytes = dumped.encode()
        digest = _digest(_NUMBER_AND_SIZE.pack(doc_row, len(dumped_bytes)) + dumped_bytes)
        return digest - (digest >> 63 << 64)
    except _OTHER_TYPES:
        return row_checksum(doc_row, dumped)


def first_wrong_metadata(rows: Iterable[tuple[int, str, int]]) -> tuple[int, int | None]:
    """Return how many rows of metadata match their checksum, until one does not, and its doc_row, or None.

    A loop without calls of Python's functions: a first filter checks the metadata of all documents.
    """
    count, pack, digest = 0, _NUMBER_AND_SIZE.pack, _digest
    for doc_row, dumped, checksum in rows:
        try:
            dumped_bytes = dumped.encode()
            is_right = digest(pack(doc_row, len(dumped_bytes)) + dumped_bytes) == checksum % (1 << 64)
        except _OTHER_TYPES:
            is_right = False  # a row of the right types alone is one that was written
        if not is_right:
            return count, doc_row
        count += 1
    return count, None


# What a document row's checksum covers, in this order.
DOCUMENT_COLUMNS = "d.doc_row, d.id, d.ordinal, d.view_start, d.num_views, d.views_checksum, d.content_hash"


def document_checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum of a row: doc_row, id, ordinal, view_start, num_views, views_checksum, content_hash."""
    try:
        doc_row, doc_id, ordinal, view_start, num_views, checksum, content = row
        id_bytes = doc_id.encode()
        numbers = _FOUR_AND_SIZE.pack(ordinal, view_start, num_views, checksum, len(content))
        digest = _digest(_NUMBER_AND_SIZE.pack(doc_row, len(id_bytes)) + id_bytes + numbers + content)
        return digest - (digest >> 63 << 64)
    except _OTHER_TYPES:
        return row_checksum(*row)


def deleted_checksum(doc_rows: Ints) -> int:
    """Return the checksum of a set of deleted rows: the sum, modulo 2^64, of a hash of each, so that rows can be added.

    The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, fig. 15).
    """
    mixed = doc_rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    total: npt.NDArray[np.uint64] = np.add.reduce(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
    return int(total)


def ids_checksum(rows: Iterable[tuple[int, str]]) -> int:
    """Return the checksum of a set of rows with their ids; that of a union of disjoint sets is the sum of theirs."""
    return sum([_digest(f"{doc_row} {doc_id}".encode()) for doc_row, doc_id in rows]) % (1 << 64)


def ids_in_order(rows: Sequence[tuple[int, str]], last: str = "") -> tuple[int, int]:
    """Return the number of rows, and the checksum of their ids, or -1 for it when they do not rise from `last` on."""
    ids = [last, *(str(row[1]) for row in rows)]
    return len(rows), ids_checksum(rows) if all(map(le, ids, ids[1:])) else -1


def pack_spans(spans: Ints) -> bytes | None:
    """Return spans as little-endian int32 pairs, or None where no view stands for a span."""
    return None if (spans < 0).all() else spans.astype("<i4").tobytes()


def unpack_spans(packed: bytes | None) -> Ints:
    """Return packed spans as (k, 2) int64; for None no rows."""
    return np.frombuffer(packed or b"", dtype="<i4").astype(np.int64).reshape(-1, 2)


def unpack_span(packed: bytes | None, slot: int) -> Span | None:
    """Return one of the packed spans; None where the view of this slot stands for none."""
    if packed is None or _SPAN.size * slot >= len(packed):
        return None
    begin, end = _SPAN.unpack_from(packed, _SPAN.size * slot)
    return None if begin < 0 else (begin, end)


def is_whole(connection: sqlite3.Connection, doc_row: int) -> bool:
    """Return whether a document's row, and those of its text and metadata, are there and match their checksums."""
    query = (
        f"SELECT {DOCUMENT_COLUMNS}, d.checksum, t.title, t.text, t.spans, t.checksum, m.json, m.checksum "  # noqa: S608
        "FROM documents AS d JOIN texts AS t ON t.doc_row = d.doc_row JOIN metadata AS m ON m.doc_row = d.doc_row "
        "WHERE d.doc_row = ?"
    )
    row: tuple[Any, ...] | None = connection.execute(query, (doc_row,)).fetchone()
    if row is None:
        return False
    doc_id, texts, text_sum, dumped, metadata_sum = row[1], row[8:11], *row[11:]
    found = (
        document_checksum(row[:7]),
        text_checksum(doc_row, doc_id, *texts),
        metadata_checksum(doc_row, dumped),
    )
    return found == (row[7], text_sum, metadata_sum)


def insert(connection: sqlite3.Connection, first_row: int, rows: Rows, records: npt.NDArray[Any]) -> None:
    """Insert the documents, from document row first_row on, with their records outside the catalog, (n,)."""
    documents = rows.documents
    numbers = range(first_row, first_row + len(documents))
    columns = (
        numbers,
        [document.id for document in documents],
        records["ordinal"].tolist(),
        records["view_start"].tolist(),
        np.diff(rows.starts).tolist(),
        records["checksum"].view(np.int64).tolist(),
        [document.content_hash for document in documents],
    )
    narrow = [(*row, document_checksum(row)) for row in zip(*columns, strict=True)]
    connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)", narrow)
    pairs = list(zip(numbers, documents, strict=True))
    texts = [
        (row, each.title, each.text, each.spans, text_checksum(row, each.id, each.title, each.text, each.spans))
        for row, each in pairs
    ]
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?, ?)", texts)
    metadata = [(row, each.metadata, metadata_checksum(row, each.metadata)) for row, each in pairs]
    connection.executemany("INSERT INTO metadata VALUES (?, ?, ?)", metadata)
