"""What a reader sees: one committed state of the store, unchanged by later writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from mvindex.errors import DamagedIndex, QueryError, StaleReader
from mvindex.records import Bools, Ints
from mvindex.store import catalog
from mvindex.store.filters import Filter, parse_filter
from mvindex.store.segments import MappedSegment
from mvindex.store.views import MappedViews, ViewType

_FETCH_ROWS = 65_536


class StoredDocument(NamedTuple):
    """A document as the store holds it; spans: (k, 2) int64, -1 where a view stands for no span."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    spans: Ints


class Snapshot:
    """One committed state: settings, views, and which document rows are alive, (num_rows,) bool."""

    def __init__(
        self,
        directory: Path,
        connection: sqlite3.Connection,
        settings: Mapping[str, Any],
        previous: Snapshot | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.dim: int | None = settings["dim"]
        self.view_type = ViewType(settings["dtype"])
        names = segment_names(settings)
        segments = [catalog.read_committed(connection, name) for name in names]
        olds: Sequence[MappedSegment | None] = previous.segments if previous else [None] * len(segments)
        pairs = zip(segments, olds, strict=True)
        self.segments: list[MappedSegment] = [MappedSegment(directory, segment, old) for segment, old in pairs]
        self.views = MappedViews(self.segments[0], self.segments[1], self.view_type.dtype, self.dim or 1)
        self.alive: Bools = np.ones(self.views.num_rows, dtype=bool)
        dead = connection.execute("SELECT doc_row FROM documents INDEXED BY documents_dead WHERE NOT alive").fetchall()
        self.alive[np.array(dead, dtype=np.int64).reshape(-1)] = False
        self.alive.flags.writeable = False
        self._living_views: tuple[int, Bools] | None = None

    @property
    def num_rows(self) -> int:
        """Document rows, dead ones included."""
        return self.views.num_rows

    @cached_property
    def num_documents(self) -> int:
        """Living documents."""
        return int(np.count_nonzero(self.alive))

    @property
    def num_living_views(self) -> int:
        """Views of living documents."""
        return int(self.views.counts(0, self.num_rows)[self.alive].sum())

    def views_of(self, documents: Bools, num_rows: int) -> Bools:
        """Which views belong to the documents (num_rows,) bool; (views of the first num_rows rows,)."""
        return np.repeat(documents[:num_rows], self.views.counts(0, num_rows))

    def living_views(self, num_rows: int) -> Bools:
        """The views of living documents, as views_of() gives them, kept for the next search."""
        if self._living_views is None or self._living_views[0] != num_rows:
            self._living_views = (num_rows, self.views_of(self.alive, num_rows))
        return self._living_views[1]

    @property
    def generation(self) -> int:
        """Changes when document rows are renumbered (by a compaction): what was derived from rows is void then."""
        return int(self.settings["generation"])


class SnapshotReader:
    """Text, metadata and filters of one snapshot, read inside one transaction of the catalog."""

    def __init__(self, connection: sqlite3.Connection, snapshot: Snapshot) -> None:
        self._connection = connection
        self._snapshot = snapshot

    def matching(self, condition: Filter) -> Bools:
        """Which document rows are alive and satisfy the filter, (num_rows,)."""
        sql = parse_filter(condition)
        # The grammar emits fixed text only; every value of the user is a parameter.
        query = (
            "SELECT m.doc_row FROM metadata AS m JOIN documents AS d ON d.doc_row = m.doc_row "
            f"WHERE m.doc_row < ? AND {sql.text}"
        )
        is_match = np.zeros(self._snapshot.num_rows, dtype=bool)
        try:
            cursor = self._connection.execute(query, (self._snapshot.num_rows, *sql.parameters))
        except sqlite3.OperationalError as err:
            if "overflow" not in str(err) and "too large" not in str(err):
                raise
            raise QueryError(f"the filter is too deep or too long for SQLite: {err}") from err
        while rows := cursor.fetchmany(_FETCH_ROWS):
            is_match[np.array(rows, dtype=np.int64)[:, 0]] = True
        return is_match & self._snapshot.alive

    def find(self, doc_id: str) -> int | None:
        """The row of the document that has this id in the snapshot, or None."""
        # Two queries, each on its own partial index: a document retired since the snapshot counts as alive here.
        for state in ("alive", "NOT alive"):
            rows = self._connection.execute(f"SELECT doc_row FROM documents WHERE {state} AND id = ?", (doc_id,))
            for (doc_row,) in rows:
                if doc_row < self._snapshot.num_rows and self._snapshot.alive[doc_row]:
                    return int(doc_row)
        return None

    def ids(self, doc_rows: Sequence[int]) -> dict[int, str]:
        """The id of each document row."""
        rows = self._connection.execute(
            "SELECT d.doc_row, d.id FROM json_each(?) AS wanted JOIN documents AS d ON d.doc_row = wanted.value",
            (json.dumps([int(row) for row in doc_rows]),),
        )
        return dict(rows.fetchall())

    def documents(self, doc_rows: Sequence[int]) -> dict[int, StoredDocument]:
        """The documents of these rows, by row; DamagedIndex when a text does not match its checksum."""
        wanted = sorted({int(row) for row in doc_rows})
        rows = self._connection.execute(
            "SELECT d.doc_row, d.id, t.title, t.text, m.json, t.spans, t.checksum, m.checksum "
            "FROM json_each(?) AS wanted "
            "JOIN documents AS d ON d.doc_row = wanted.value "
            "JOIN texts AS t ON t.doc_row = d.doc_row JOIN metadata AS m ON m.doc_row = d.doc_row",
            (json.dumps(wanted),),
        )
        found = {row[0]: _stored_document(row) for row in rows}
        if len(found) != len(wanted):
            raise StaleReader(f"{self._snapshot.directory}: documents of this snapshot are gone; open the index again")
        return found

    def all_documents(self) -> Iterator[StoredDocument]:
        """Every living document of the snapshot, by row, a few thousand in memory at a time."""
        rows = np.flatnonzero(self._snapshot.alive)
        for begin in range(0, len(rows), 1024):
            yield from self.documents(rows[begin : begin + 1024].tolist()).values()


def segment_names(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The files of a generation: its views and its document rows."""
    generation, suffix = int(settings["generation"]), ViewType(settings["dtype"]).suffix
    return f"views-{generation:06d}.{suffix}", f"rows-{generation:06d}.bin"


def row_checksum(*parts: str | bytes) -> int:
    """The xxh3-64 of the parts of a catalog row, as the signed integer that SQLite holds."""
    pieces: list[bytes] = []
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        pieces += (len(data).to_bytes(8, "little"), data)
    digest = xxhash.xxh3_64_intdigest(b"".join(pieces))
    return digest - (1 << 64) if digest >> 63 else digest


def pack_spans(spans: Ints) -> bytes | None:
    """Spans as little-endian int32 pairs, or None where no view stands for a span."""
    return None if (spans < 0).all() else spans.astype("<i4").tobytes()


def _stored_document(row: tuple[Any, ...]) -> StoredDocument:
    doc_row, doc_id, title, text, metadata, spans, checksum, metadata_checksum = row
    if row_checksum(doc_id, title, text, spans or b"") != checksum:
        raise DamagedIndex(f"id or text of document {doc_id!r} (row {doc_row}) do not match their checksum")
    if row_checksum(doc_id, metadata) != metadata_checksum:
        raise DamagedIndex(f"the metadata of document {doc_id!r} (row {doc_row}) does not match its checksum")
    pairs = np.frombuffer(spans or b"", dtype="<i4").astype(np.int64).reshape(-1, 2)
    return StoredDocument(doc_id, title, text, json.loads(metadata) if metadata != "{}" else {}, pairs)
