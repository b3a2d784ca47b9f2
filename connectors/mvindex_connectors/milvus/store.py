"""The store in Milvus: settings, and documents that are each written atomically.

Order of a commit: views of the new version, then the records, which make it count, then settings, then the removal of
the views that no record names any more. What a crash leaves of the first and last step is never shown; see compact().
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from mvindex.errors import IndexLocked, QueryError, StaleReader, StoreError
from mvindex.records import Floats, IndexInfo, Ints, sliced
from mvindex.retries import Retries
from mvindex.store.catalog import CONFIDENCE_KEY, ExistingDocument
from mvindex.store.embedded import being_written, temperature_of
from mvindex.store.filters import Filter
from mvindex.store.lexical.tokenizer import required_lexical
from mvindex.store.protocol import Capabilities, Operation
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import Batch, result_of
from mvindex.store.views import ViewType
from mvindex_connectors.milvus.collections import check_ours, drop_store, load_views, parse_settings, read_home
from mvindex_connectors.milvus.connection import Connection, terms_of
from mvindex_connectors.milvus.filters import FilterTable
from mvindex_connectors.milvus.kinds import FLAT
from mvindex_connectors.milvus.layout import (
    SETTINGS_KEY,
    State,
)
from mvindex_connectors.milvus.lease import Lease
from mvindex_connectors.milvus.reader import (
    PASS_NUMBERS,
    Reader,
    light,
    stored_batch,
    stored_batches,
    stored_document,
)
from mvindex_connectors.milvus.term_search import LexicalState
from mvindex_connectors.milvus.writer import MilvusWriter, stored_versions

logger = logging.getLogger(__name__)

# Of a read whose documents are replaced meanwhile.
TRIES = 5
CAPABILITIES = Capabilities(
    {
        Operation.FILTER_FIELDS: "only an index in a directory has columns for filters",
        Operation.SNAPSHOT: "mvindex migrate copies an index in Milvus to a directory",
        Operation.FILES: "an index in Milvus has no directory; mvindex migrate makes one",
    }
)
_WITHOUT_SPARSE = Capabilities(
    {
        **CAPABILITIES.unsupported,
        Operation.LEXICAL: "this Milvus has no sparse vectors, which Milvus Lite and servers from 2.4 on have; "
        "mode='dense' works here",
    }
)


class MilvusStore:
    """Documents and views of one index in Milvus.

    Attributes:
        snapshot: The settings, as of opening, refresh() or own writes.
        filters: The table that filters are evaluated on, read again after each commit.
    """

    def __init__(self, connection: Connection) -> None:
        """Open the store; StoreError when there is no index of mvindex there."""
        self.connection, self.root = connection, connection.address.collection
        self.directory = Path(connection.address.collection)
        self.where = connection.address.shown
        self.filters = FilterTable()
        self._turn, self._refreshing, self._is_written, self._has_readers = Lock(), Lock(), False, False
        check_ours(connection)
        connection.load(self.root)
        self._go_home()
        self.snapshot = State(self._read())
        if self.has_views:
            load_views(connection)
            self._strong.view_keys_of(0, 1)  # once strong: sessions then never go back behind this moment
        self._open_terms()

    def reopening(self) -> Mapping[str, Any]:
        """Return the address; ConfigError where it holds a secret."""
        if self._is_written:
            raise being_written(self.where)
        return {"path": self.connection.address.reopens}

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the store has."""
        return CAPABILITIES if self.connection.features.has_sparse else _WITHOUT_SPARSE

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the index as last read."""
        return self.snapshot.settings

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""
        return self.snapshot.dim

    @property
    def view_type(self) -> ViewType:
        """The number type that views are rounded to; Milvus holds them as float32."""
        return self.snapshot.view_type

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """Empty: there are no shards of ours."""
        return ()

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever stored."""
        return int(self.settings["version"]) == 0

    def remove_if_untouched(self) -> None:
        """Close the store, and drop its collections if nothing was ever stored in it, by anyone."""
        try:
            self.refresh()
            if self.is_untouched and self.count() == 0:
                drop_store(self.connection, self.root)
        finally:
            self.close()

    def count(self) -> int:
        """Return the number of documents."""
        return self.reader.count()

    def info(self) -> IndexInfo:
        """Describe the index, and what the server can do."""
        settings, engine = self.settings, self.settings["engine"]
        views = int(settings["views"])
        return IndexInfo(
            path=self.where,
            format_version=settings["format_version"],
            documents=self.count(),
            views=views,
            num_deleted=0,
            dim=self.dim,
            dtype=settings["dtype"],
            encoder=settings["encoder"],
            kind=engine["kind"] if engine else FLAT,
            temperature=temperature_of(settings),
            prune_views=settings.get("prune_views"),
            search=(engine or {}).get("search") or None,
            fresh_documents=0,
            size_bytes=views * 4 * (self.dim or 0),
            server=self.connection.described(),
            lexical=None if (lexical := self.snapshot.lexical) is None else lexical.kind.value,
            index_id=settings["index_id"],
            confidence=settings.get(CONFIDENCE_KEY),
        )

    def get(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of the ids that exist, by id."""
        rows = self.reader.find(ids)
        return {doc_id: stored_document(rows[doc_id], self.where) for doc_id in ids if doc_id in rows}

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents that match, by rising numbers; see Store.scan()."""
        reader = self.reader.strongly()
        begin = 0
        if after is not None:
            last = reader.find([after]).get(after)
            if last is None:
                raise QueryError(
                    f"{self.where}: after={after!r}: expected the id of a document, got one that is not there"
                )
            begin = int(last["pk"]) + 1
        end = int(self.settings["next_document"])
        if condition is None:
            for rows in reader.each(end, begin=begin):
                yield from (stored_document(row, self.where) for row in rows)
            return
        numbers = self.matching(condition)
        for some in sliced(numbers[numbers >= begin].tolist(), PASS_NUMBERS):
            found = reader.records(some)
            yield from (stored_document(found[number], self.where) for number in sorted(found))

    def each_ordinal(self) -> Iterator[tuple[int, StoredDocument]]:
        """Yield all documents with their ordinals, by rising numbers."""
        for rows in self.reader.strongly().each(int(self.settings["next_document"])):
            yield from ((int(row["ordinal"]), stored_document(row, self.where)) for row in rows)

    def vectors(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the views, (k, d) float32, of each of the documents that exist, by id."""
        return {doc_id: rows for doc_id, (_, rows) in self.views(ids).items()}

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist with its views, (k, d) float32, by id, both of one version."""
        found: dict[str, tuple[StoredDocument, Floats]] = {}
        reader, left = self.reader, list(ids)

        def read_left() -> dict[str, tuple[StoredDocument, Floats]]:
            nonlocal reader, left
            records = reader.find(left)
            views = reader.views([light(row) for row in records.values()], int(self.dim or 1))
            left = []
            for doc_id, row in records.items():
                # None: it was deleted just now.
                record, rows = views.get(int(row["pk"]), (None, None))
                if record is not None and record.version != row["version"]:
                    left.append(doc_id)
                elif rows is not None:
                    found[doc_id] = (stored_document(row, self.where), rows)
            if not left:
                return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}
            reader = reader.strongly()
            raise StaleReader(f"{self.where}: document {left[0]!r} was replaced again and again; try later")

        return Retries(StaleReader, tries=TRIES).run(read_left)

    def stored(self, ids: Sequence[str], encoder: str) -> Iterator[Batch]:
        """Yield the documents of the ids that exist, as stored; see Store.stored()."""
        if (self.settings["encoder"] or {}).get("fingerprint") == encoder:
            rows = list(self.reader.strongly().find(ids).values())
            if rows and (batch := stored_batch(self.reader.strongly(), rows, self.dim or 1)) is not None:
                yield batch

    def matching(self, condition: Filter) -> Ints:
        """Return the numbers of the documents that match, rising, (m,) int64."""
        return self.filters.matching(condition, self.reader, self.settings)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all documents as they are stored, by rising numbers."""
        return stored_batches(self.reader.strongly(), int(self.settings["next_document"]), self.dim or 1, size)

    @property
    def has_views(self) -> bool:
        """Whether there is a collection of views, which is made before their first batch."""
        return self.snapshot.has_views

    def close(self) -> None:
        """Close the connection."""
        self.filters.forget()
        self.connection.close()

    def refresh(self) -> bool:
        """Read the settings again; return whether another client had written."""
        with self._refreshing:
            # During a write of its own the store shows what that has committed, and nobody else writes.
            return False if self._is_written else self._read_again()

    def _read_again(self) -> bool:
        before, has_moved = self.snapshot.settings, self._go_home()
        self.snapshot.settings = self._read()
        if self.has_views:
            if has_moved or not before["has_views"]:
                load_views(self.connection)
            self._strong.view_keys_of(0, 1)
        self._open_terms()
        return has_moved or bool(before["version"] != self.snapshot.settings["version"])

    def _go_home(self) -> bool:
        """Read and write where the index is now; return whether it has moved since, with other views."""
        home = read_home(self.connection, self.root)
        address = self.connection.address
        has_moved = address.collection != home.collection
        if has_moved:
            self.connection.address = replace(address, collection=home.collection)
            self.connection.load(home.collection)
        if has_moved or not self._has_readers:
            self.reader, self._strong = Reader(self.connection), Reader(self.connection, "Strong")
            self._has_readers = True
        return has_moved

    def _open_terms(self) -> None:
        """Load the terms, where there are any, and see all that was written of them."""
        if self.snapshot.lexical is not None:
            self.connection.load(terms_of(self.connection.address.collection))
            self._strong.term_rows("pk == 0", ["pk"])

    def lexical_state(self) -> LexicalState:
        """Return what lexical searches count by, as of now; see state_and_records()."""
        return self.state_and_records(())[0]

    def state_and_records(self, numbers: Sequence[int]) -> tuple[LexicalState, dict[int, dict[str, Any]]]:
        """Return what lexical searches count by, as of now, and the documents of these numbers that exist.

        Raises:
            Unsupported: There is no lexical side.
            StaleReader: It was removed since.

        """
        required_lexical(self.settings.get("lexical"), self.where)
        return LexicalState.read(self.connection, self.reader, numbers)

    def _read(self) -> Mapping[str, Any]:
        rows = self._strong.query(f"pk == {SETTINGS_KEY}", ["text"], "reading the settings")
        if not rows:
            raise StoreError(
                f"{self.where}: the index has no settings: it was removed, or not made completely. Run the command "
                "again that makes it, drop its collections, or give another name"
            )
        return parse_settings(rows[0]["text"], self.where)

    @contextmanager
    def writing(self) -> Iterator[MilvusWriter]:
        """Yield the only writer, which sees all writes of others; IndexLocked if another writes."""
        if not self._turn.acquire(blocking=False):
            raise IndexLocked(f"{self.where}: another thread of this process is writing to this index")
        try:
            lease = Lease(self.connection)
            with lease.hold():
                before = self.connection.address.collection
                with self._refreshing:
                    self._is_written = True
                    self._read_again()
                if self.connection.address.collection != before:
                    raise StaleReader(
                        f"{self.where}: the index was re-embedded since it was opened. Nothing was written; it is "
                        "refreshed now, try again"
                    )
                writer = MilvusWriter(self.connection.guarded(lease.check_kept), self.snapshot, lease)
                writer.recover()
                yield writer
                writer.finish()
        finally:
            self._is_written = False
            # A write that has failed may have changed metadata without a commit.
            self.filters.forget()
            self._turn.release()

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now; rows are document numbers."""
        return stored_versions(self._strong, ids)

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out, as of the settings last read."""
        return result_of(self.settings, mark) is not None
