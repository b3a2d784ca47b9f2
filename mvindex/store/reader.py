"""Reader of one snapshot's documents: rows are checked when they are first read, and those that hits show are kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from mvindex.errors import DamagedIndex, StoreError
from mvindex.records import ALL_FIELDS, Document, Field, Ints, Span
from mvindex.store.byte_limit import limited
from mvindex.store.catalog import check_document, find_existing
from mvindex.store.connections import FILE_NAME
from mvindex.store.rows import (
    DOCUMENT_COLUMNS,
    Batch,
    PackedViews,
    Rows,
    StoredRow,
    metadata_checksum,
    text_checksum,
    unpack_span,
    unpack_spans,
)

if TYPE_CHECKING:
    from mvindex.store.snapshot import Snapshot

# Of all open generations of this process together.
_MOST_BYTES = 32 << 20
# Of a row number and its entry in a dict.
_ENTRY_BYTES = 128
# The fields of a StoredDocument as a bare tuple. The garbage collector passes over tuples of strings, but each of its
# full collections looks at every NamedTuple, and holds up all threads for longer the more of them are kept.
KeptDocument = tuple[str | bytes | None, ...]
# Rows that room is made for at once.
_LEAST_ROWS = 1 << 16
_COLUMNS = f"{DOCUMENT_COLUMNS}, d.checksum"


class StoredDocument(NamedTuple):
    """A document as the store holds it; metadata and spans are decoded when they are asked for.

    Attributes:
        id: The id.
        title: The title; empty if it was not read.
        text: The text; empty if it was not read.
        metadata_json: A JSON object.
        packed_spans: See pack_spans().

    """

    id: str
    title: str
    text: str
    metadata_json: str
    packed_spans: bytes | None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, decoded anew each time."""
        if self.metadata_json == "{}":
            return {}
        found: dict[str, Any] = json.loads(self.metadata_json)
        return found

    @property
    def spans(self) -> Ints:
        """The spans of all views, (k, 2) int64, -1 where a view stands for no span; no rows where none does."""
        return unpack_spans(self.packed_spans)

    def span(self, slot: int) -> Span | None:
        """Return the span that a view stands for; None where it stands for none."""
        return unpack_span(self.packed_spans, slot)

    def only(self, fields: Collection[Field]) -> StoredDocument:
        """Return the document with these fields only."""
        return StoredDocument(
            self.id,
            self.title if Field.TITLE in fields else "",
            self.text if Field.TEXT in fields else "",
            self.metadata_json if Field.METADATA in fields else "{}",
            self.packed_spans if Field.TEXT in fields else None,
        )


# What StoredDocument._make() calls, which takes twice as long.
_AS_TUPLE: Callable[[type[StoredDocument], Iterable[Any]], StoredDocument] = tuple.__new__


class SnapshotReader:
    """Reads one snapshot's rows of the catalog, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, snapshot: Snapshot, settings: Mapping[str, Any]) -> None:
        """Read inside the connection's transaction; settings: the catalog's in it, which may be later."""
        self.connection = connection
        self.snapshot = snapshot
        self.settings, self._version = settings, settings.get("version")

    def find(self, doc_id: str) -> int | None:
        """Return the row of the document that has this id in the snapshot, or None; see Generation.check_not_live()."""
        # Two queries, each on its own partial index: a document deleted since the snapshot is still live in it. Of one
        # that was replaced a thousand times only the last row of the snapshot is read.
        for state, condition in (("live", "alive"), ("deleted", "NOT alive")):
            query = (
                f"SELECT {_COLUMNS} FROM documents AS d INDEXED BY documents_{state} "  # noqa: S608 - fixed text
                f"WHERE {condition} AND id = ? AND doc_row < ? ORDER BY doc_row DESC LIMIT 1"
            )
            for row in self.connection.execute(query, (doc_id, self.snapshot.num_rows)):
                check_document(row)
                if row[1] != doc_id:
                    raise DamagedIndex(f"{FILE_NAME}: the index of ids leads from {doc_id!r} to document {row[1]!r}")
                if self.snapshot.alive[row[0]]:
                    return int(row[0])
        self.snapshot.source.check_not_live(self.connection, [doc_id], self.settings)
        if self._version != self.snapshot.settings["version"]:
            # It might have been deleted since the snapshot.
            self.snapshot.source.check_ids(self.connection, ["deleted"])
        return None

    def ids(self, doc_rows: Sequence[int]) -> dict[int, str]:
        """Return the id of each document row."""
        return {row: stored.id for row, stored in self.stored(doc_rows).items()}

    def hit_documents(
        self, doc_rows: Collection[int], fields: Collection[Field] = ALL_FIELDS
    ) -> dict[int, StoredDocument]:
        """Return what documents() does, of whole documents that were shown lately from memory."""
        if not ALL_FIELDS.issubset(fields):
            return self.documents(doc_rows, fields)
        source = self.snapshot.source
        recent = source.recent
        if recent.version != self._version:
            recent = source.recent = RecentDocuments(self._version)
        found = {row: _AS_TUPLE(StoredDocument, each) for row, each in recent.find(doc_rows).items()}
        if len(found) < len(doc_rows):
            read = self.documents([row for row in doc_rows if row not in found])
            recent.add({row: tuple(each) for row, each in read.items()})
            found |= read
        return found

    def documents(self, doc_rows: Collection[int], fields: Collection[Field] = ALL_FIELDS) -> dict[int, StoredDocument]:
        """Return the documents of these rows, by row, verified where this process reads them for the first time.

        Args:
            doc_rows: Document rows.
            fields: What is read beside the id; the rest is left empty.

        Raises:
            DamagedIndex: When a document does not match its checksum, or its metadata is no JSON object.

        """
        verified, wanted = self.snapshot.source.verified, sorted(set(doc_rows))
        fresh = verified.without_texts(wanted)
        known = [row for row in wanted if row not in fresh] if fresh else wanted
        found = {}
        if known:
            rows = list(limited(self.connection.execute(_query_of(frozenset(fields)), (str(known),))))
            fresh |= verified.without_metadata(rows) if Field.METADATA in fields else set()
            found = {row[0]: StoredDocument(row[2], row[3], row[4], row[5], row[6]) for row in rows}
            fresh |= set(known).difference(found) if len(found) != len(known) else set()
        if fresh:
            found |= self._verified(fresh, fields)
        return found

    def _verified(self, doc_rows: set[int], fields: Collection[Field]) -> dict[int, StoredDocument]:
        """Read the documents of these rows whole, check them, and remember that they are sound; return the fields."""
        rows: list[int] = []
        are_all = ALL_FIELDS.issubset(fields)

        def documents() -> Iterator[StoredDocument]:
            for row in self._rows(sorted(doc_rows)):
                rows.append(row[0])
                whole = self._verified_one(row)
                yield whole if are_all else whole.only(fields)

        found = list(limited(documents()))
        return dict(zip(rows, found, strict=True))

    def _verified_one(self, row: tuple[Any, ...]) -> StoredDocument:
        stored = self._stored(row, is_shown=True)
        whole = StoredDocument(stored.id, stored.title, stored.text, stored.metadata, stored.spans)
        _check_metadata(whole)
        self.snapshot.source.verified.add(row[0], metadata_checksum=row[-1])
        return whole

    def stored(self, doc_rows: Sequence[int]) -> dict[int, StoredRow]:
        """Return the documents of these rows as they are written, by row, each checked."""
        rows = self._rows(sorted({int(row) for row in doc_rows}))
        return {row[0]: self._stored(row, is_shown=False) for row in rows}

    def rows(self, doc_rows: Ints) -> Rows:
        """Return the documents of these rows with their views, as they are written; each checked."""
        stored = self.stored(doc_rows.tolist())
        packed, starts = self.snapshot.views.fetch(doc_rows)
        documents = [stored[row] for row in doc_rows.tolist()]
        return Rows(documents, self.snapshot.views.ordinals(doc_rows), packed, starts)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the live documents, by rising ordinals, up to `size` at a time; DamagedIndex when one is not sound."""
        live = self.snapshot.rows_by_ordinal
        for begin in range(0, len(live), size):
            yield self.batch(live[begin : begin + size])

    def batch(self, doc_rows: Ints) -> Batch:
        """Return the documents of these rows as they are stored; DamagedIndex when one is not sound."""
        documents, ordinals, packed, starts = self.rows(doc_rows)
        spans = np.full((int(starts[-1]), 2), -1, dtype=np.int64)
        for document, first in zip(documents, starts.tolist(), strict=False):
            own = unpack_spans(document.spans)
            spans[first : first + len(own)] = own
        return Batch(
            documents=[Document(each.id, each.text, each.title, json.loads(each.metadata)) for each in documents],
            views=PackedViews(packed, starts, spans),
            content_hashes=[each.content_hash for each in documents],
            ordinals=ordinals,
        )

    def find_live(self, ids: Sequence[str]) -> Ints:
        """Return the rows of the ids that were in the snapshot and still are, (m,) int64."""
        found = find_existing(self.connection, ids).values()
        rows = np.array([known.doc_row for known in found if known.doc_row < self.snapshot.num_rows], dtype=np.int64)
        return rows[self.snapshot.alive[rows]]

    def _rows(self, doc_rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the catalog with these numbers; DamagedIndex when one is missing."""
        rows = self.connection.execute(
            f"SELECT {_COLUMNS}, t.title, t.text, t.spans, t.checksum, m.json, m.checksum "  # noqa: S608 - fixed text
            "FROM json_each(?) AS given "
            "JOIN documents AS d ON d.doc_row = given.value "
            "JOIN texts AS t ON t.doc_row = d.doc_row JOIN metadata AS m ON m.doc_row = d.doc_row",
            (str(doc_rows),),
        )
        missing = set(doc_rows)
        for row in rows:
            missing.discard(row[0])
            yield row
        if missing:
            raise DamagedIndex(f"{FILE_NAME}: document row {min(missing)} was committed, and is missing")

    def _stored(self, row: tuple[Any, ...], is_shown: bool) -> StoredRow:
        """Return a document that was checked.

        is_shown: only id, texts and metadata are used, whose own checksums cover them; the row of documents, which
        says where the views are, is then not checked.
        """
        if not is_shown:
            check_document(row)
        doc_row, doc_id, num_views, content_hash = row[0], row[1], row[4], row[6]
        title, text, spans, checksum, metadata, metadata_sum = row[8:]
        if text_checksum(doc_row, doc_id, title, text, spans) != checksum:
            raise DamagedIndex(
                f"{FILE_NAME}: id or text of document {doc_id!r} (row {doc_row}) do not match their checksum"
            )
        if metadata_checksum(doc_row, metadata) != metadata_sum:
            raise DamagedIndex(
                f"{FILE_NAME}: the metadata of document {doc_id!r} (row {doc_row}) does not match its checksum"
            )
        if not are_texts((doc_id, title, text, metadata), spans, num_views):
            raise DamagedIndex(
                f"{FILE_NAME}: texts of document {doc_id!r} (row {doc_row}), or spans for its {num_views} views, are "
                "of other types or lengths"
            )
        return StoredRow(doc_id, title, text, metadata, spans, content_hash)


def are_texts(texts: Sequence[object], spans: object, num_views: int) -> bool:
    """Return whether the types are those that mvindex writes: text everywhere, and spans for all views, or none.

    A checksum does not cover types: a forged row has a matching checksum.
    """
    has_spans = spans is None or (isinstance(spans, bytes) and len(spans) == 8 * num_views)
    return has_spans and all(isinstance(text, str) for text in texts)


@cache
def _query_of(fields: frozenset[Field]) -> str:
    """Return the query of some fields of given rows; each table that no field needs costs a look-up less."""
    has_texts = not fields.isdisjoint((Field.TEXT, Field.TITLE))
    title = "t.title" if Field.TITLE in fields else "''"
    text, spans = ("t.text", "t.spans") if Field.TEXT in fields else ("''", "NULL")
    checksum, metadata = ("m.checksum", "m.json") if Field.METADATA in fields else ("NULL", "'{}'")
    query = f"SELECT d.doc_row, {checksum}, d.id, {title}, {text}, {metadata}, {spans} FROM json_each(?) AS given "
    query += "JOIN documents AS d ON d.doc_row = given.value"
    query += " JOIN texts AS t ON t.doc_row = d.doc_row" if has_texts else ""
    return query + (" JOIN metadata AS m ON m.doc_row = d.doc_row" if Field.METADATA in fields else "")


def _check_metadata(stored: StoredDocument) -> None:
    """Raise DamagedIndex unless the metadata is a JSON object: a forged row has a matching checksum."""
    try:
        metadata = stored.metadata
    except RecursionError as err:
        raise StoreError(
            f"{FILE_NAME}: the metadata of document {stored.id!r} is nested too deep for the stack of this call, which "
            "is deep itself; nothing is damaged. Call from a less deep stack"
        ) from err
    except ValueError as err:
        raise DamagedIndex(f"{FILE_NAME}: the metadata of document {stored.id!r} is no JSON: {err}") from err
    if not isinstance(metadata, dict):
        raise DamagedIndex(f"{FILE_NAME}: the metadata of document {stored.id!r} is no object")


class RecentDocuments:
    """Documents of one generation, by row, as of one version of its catalog: metadata may change with every commit.

    When half of the room is taken, documents that were not asked for since the last time give way. Threads may
    overtake each other: a document is then read once more at worst.
    """

    def __init__(self, version: object = None) -> None:
        self.version = version
        self._recent: dict[int, KeptDocument] = {}
        self._older: dict[int, KeptDocument] = {}
        self._sizes = (0, 0)
        _OPEN.add(self)

    @property
    def size_bytes(self) -> int:
        """The memory that the documents take."""
        return sum(self._sizes)

    def find(self, doc_rows: Collection[int]) -> dict[int, KeptDocument]:
        """Return those of the documents that are here, by row."""
        recent, older = self._recent, self._older
        found = {row: recent[row] for row in doc_rows if row in recent}
        if older and len(found) < len(doc_rows):
            again = {row: older[row] for row in doc_rows if row in older and row not in found}
            self.add(again)
            found |= again
        return found

    def add(self, documents: Mapping[int, KeptDocument]) -> None:
        """Keep the documents, by row, unless they take more than half of the room."""
        size = sum(map(getsizeof, chain.from_iterable(documents.values()))) + _ENTRY_BYTES * len(documents)
        room = _MOST_BYTES // (2 * len(_OPEN))
        taken = self._sizes[0]
        if taken + size <= room:
            self._recent.update(documents)
            self._sizes = (taken + size, self._sizes[1])
        elif size <= room:
            self._older, self._recent, self._sizes = self._recent, dict(documents), (size, taken)


_OPEN: WeakSet[RecentDocuments] = WeakSet()


class VerifiedRows:
    """Which document rows of one generation were found sound: 9 bytes a row, in memory once a row is read.

    Texts never change. Metadata may: it is trusted while its row has the checksum that it was verified with. A thread
    that overtakes another one verifies a row twice at worst.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._texts = bytearray()
        # Zero, too, where nothing was verified: metadata with this checksum is verified each time.
        self._metadata = np.zeros(0, dtype=np.int64).data

    def without_texts(self, doc_rows: Iterable[int]) -> set[int]:
        """Return the rows whose id and texts were not verified yet."""
        texts = self._texts
        size = len(texts)
        return {row for row in doc_rows if row >= size or not texts[row]}

    def without_metadata(self, rows: Sequence[tuple[Any, ...]]) -> set[int]:
        """Return the rows whose metadata was not verified yet.

        Args:
            rows: Document row, checksum of its metadata, and anything else. Their texts were verified.

        """
        metadata = self._metadata
        return {row[0] for row in rows if row[1] != metadata[row[0]]}

    def add(self, doc_row: int, metadata_checksum: int) -> None:
        """Note that a row was found sound."""
        with self._lock:
            if doc_row >= len(self._texts):
                self._grow(max(_LEAST_ROWS, 2 * len(self._texts), doc_row + 1))
            self._metadata[doc_row] = metadata_checksum
            self._texts[doc_row] = True

    def _grow(self, size: int) -> None:
        metadata = np.zeros(size, dtype=np.int64)
        metadata[: len(self._metadata)] = self._metadata
        self._metadata = metadata.data
        self._texts = self._texts + bytes(size - len(self._texts))
