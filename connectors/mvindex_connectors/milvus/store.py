"""The store in Milvus: settings, and documents that are each written atomically.

Order of a commit: views of the new version, then the records, which make it count, then settings, then the removal of
the views that no record names any more. What a crash leaves of the first and last step is never shown; see compact().
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from mvindex.errors import EncoderError, IndexLocked, QueryError, StaleReader, StoreError
from mvindex.kernels.score import decode
from mvindex.records import Floats, IndexInfo, Ints
from mvindex.store.batch import Batch
from mvindex.store.catalog import ExistingDocument
from mvindex.store.embedded import being_written, temperature_of
from mvindex.store.filters import Filter
from mvindex.store.marks import result_of, with_mark
from mvindex.store.protocol import Capabilities, Operation, Sharding, StorePart
from mvindex.store.reader import StoredDocument
from mvindex.store.views import ViewType, pack_views, row_norms
from mvindex_connectors.milvus.collections import check_ours, drop_store, make_views, parse_settings, settings_record
from mvindex_connectors.milvus.columns import Column, columns_of, upsert
from mvindex_connectors.milvus.connection import Connection, views_of
from mvindex_connectors.milvus.export import stored_batches
from mvindex_connectors.milvus.filters import FilterTable
from mvindex_connectors.milvus.kinds import FLAT
from mvindex_connectors.milvus.layout import (
    LIGHT_FIELDS,
    MAX_DOCUMENTS,
    MAX_VERSION,
    RECORD_FIELDS,
    REQUEST_BYTES,
    REQUEST_ROWS,
    SETTINGS_KEY,
    chunks,
    documents_of,
    view_keys,
)
from mvindex_connectors.milvus.lease import Lease
from mvindex_connectors.milvus.reader import PASS_NUMBERS, Reader
from mvindex_connectors.milvus.records import (
    check_limits,
    check_metadata,
    checked,
    light,
    new_records,
    sealed,
    stored_document,
)
from mvindex_connectors.milvus.seen_ids import SeenIds

logger = logging.getLogger(__name__)

# Retries of a read whose documents are replaced meanwhile.
RETRIES = 5
CAPABILITIES = Capabilities(
    {
        Operation.LEXICAL: "only an index in a directory has a lexical side; mode='dense' works here",
        Operation.FILTER_FIELDS: "only an index in a directory has columns for filters",
        Operation.SNAPSHOT: "mvindex migrate copies an index in Milvus to a directory",
        Operation.FILES: "an index in Milvus has no directory; mvindex migrate makes one",
    }
)

_REPLACED_FIELDS = ("pk", "id", "ordinal", "content_hash", "metadata", "version", "num_views")
_RECORDS_AT_ONCE = 1_025
_PROOF_SETTINGS = ("engine", "max_norm", "max_views", "has_views", "dim")
_KEYS_AT_ONCE = 16_384
# Rows of views of one run from which on Lite is told to write its files.
_FLUSHED_ROWS = 4_096


class State:
    """The settings of an index as last read."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.dim: int | None = settings["dim"]
        self.view_type = ViewType(settings["dtype"])


class MilvusStore:
    """Documents and views of one index in Milvus.

    Attributes:
        snapshot: The settings, as of opening, refresh() or own writes.
        filters: The table that filters are evaluated on, dropped with every write and refresh().
    """

    def __init__(self, connection: Connection) -> None:
        """Open the store; StoreError when there is no index of mvindex there."""
        self.connection = connection
        self.directory = Path(connection.address.collection)
        self.where = connection.address.shown
        self.reader = Reader(connection)
        self._strong = Reader(connection, "Strong")
        self.filters = FilterTable()
        self._lease: Lease | None = None
        self._turn = Lock()
        self._num_written = 0
        self._looked_up: tuple[frozenset[str], dict[str, dict[str, Any]]] = frozenset(), {}
        self._seen: SeenIds | None = None
        check_ours(connection)
        connection.load(connection.address.collection)
        self.snapshot = self._read()
        if self.has_views:
            connection.load(views_of(connection.address.collection))
            self._strong.view_keys_of(0, 1)  # once strong: sessions then never go back behind this moment

    def reopening(self) -> Mapping[str, Any]:
        """Return the address; ConfigError where it holds a secret."""
        if self._lease is not None:
            raise being_written(self.where)
        return {"path": self.connection.address.reopens}

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the store has."""
        return CAPABILITIES

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
    def sharding(self) -> Sharding | None:
        """None: there are no shards of ours."""
        return None

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever stored."""
        return int(self.settings["version"]) == 0

    def parts(self) -> Sequence[StorePart]:
        """Return none: views are in no files of this machine."""
        return ()

    def remove_if_untouched(self) -> None:
        """Close the store, and drop its collections if nothing was ever stored in it, by anyone."""
        try:
            self.refresh()
            if self.is_untouched and self.count() == 0:
                drop_store(self.connection)
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
            index_id=settings["index_id"],
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
        for some in chunks(numbers[numbers >= begin].tolist(), PASS_NUMBERS):
            found = reader.records(some)
            yield from (stored_document(found[number], self.where) for number in sorted(found))

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist with its views, (k, d) float32, by id, both of one version."""
        found: dict[str, tuple[StoredDocument, Floats]] = {}
        reader, left = self.reader, list(ids)
        for _ in range(RETRIES):
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

    def matching(self, condition: Filter) -> Ints:
        """Return the numbers of the documents that match, rising, (m,) int64."""
        return self.filters.matching(condition, self.reader, int(self.settings["next_document"]))

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all documents as they are stored, by rising numbers."""
        return stored_batches(self.reader.strongly(), int(self.settings["next_document"]), self.dim or 1, size)

    @property
    def has_views(self) -> bool:
        """Whether there is a collection of views, which is made before their first batch."""
        return bool(self.snapshot.settings["has_views"])

    def close(self) -> None:
        """Close the connection."""
        self.filters.forget()
        self.connection.close()

    def refresh(self) -> bool:
        """Read the settings again; return whether another client had written."""
        before = self.snapshot.settings
        self.filters.forget()
        self.snapshot = self._read()
        if self.has_views:
            if not before["has_views"]:
                self.connection.load(views_of(self.connection.address.collection))
            self._strong.view_keys_of(0, 1)
        return bool(before["version"] != self.snapshot.settings["version"])

    def _read(self) -> State:
        rows = self._strong.query(f"pk == {SETTINGS_KEY}", ["text"], "reading the settings")
        if not rows:
            raise StoreError(f"{self.where}: the index has no settings: it was removed, or not made completely")
        return State(parse_settings(rows[0]["text"], self.where))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make this the only writer for the block, which sees all writes of others; IndexLocked if another writes."""
        if not self._turn.acquire(blocking=False):
            raise IndexLocked(f"{self.where}: another thread of this process is writing to this index")
        try:
            lease = Lease(self.connection)
            with lease.hold():
                self._lease = lease
                self.refresh()
                self._recover()
                # Numbers are never reused: before the first one there is no document, and nobody else adds one.
                self._seen = None if self.snapshot.settings["next_document"] else SeenIds()
                before = self._num_written
                yield
                if self.connection.features.is_lite and self._num_written - before >= _FLUSHED_ROWS:
                    self._flush()
        finally:
            self._lease = self._seen = None
            self._looked_up = frozenset(), {}
            self.filters.forget()
            self._turn.release()

    def _flush(self) -> None:
        """Flush the views: Lite searches its files some ten times as fast as its memory."""
        name = views_of(self.connection.address.collection)
        self.connection.call("flushing", lambda client, **options: client.flush(name, **options))

    def _recover(self) -> None:
        """Count the numbers of a batch whose writer died before it wrote the settings, so that none is used twice."""
        settings = self.snapshot.settings
        last, ordinal = settings["next_document"] - 1, settings["next_ordinal"] - 1
        for row in self._strong.query(f"pk > {last}", ("pk", "ordinal"), "looking for an unfinished batch"):
            last, ordinal = max(last, int(row["pk"])), max(ordinal, int(row["ordinal"]))
        if last >= settings["next_document"]:
            logger.info("%s: a writer died here; its last batch counts", self.where)
            self.change_settings(next_document=last + 1, next_ordinal=ordinal + 1)

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now; rows are document numbers."""
        self._looked_up = frozenset(ids), self._find(ids)
        return {
            doc_id: ExistingDocument(
                int(row["pk"]), int(row["ordinal"]), bytes.fromhex(row["content_hash"]), row["metadata"]
            )
            for doc_id, row in self._looked_up[1].items()
        }

    def _olds(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the records of the ids that exist, without reading again what known() just read under the lease."""
        looked_up, found = self._looked_up
        if looked_up.issuperset(ids):
            return {doc_id: found[doc_id] for doc_id in ids if doc_id in found}
        return self._find(ids)

    def _find(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the records of the ids that exist, with the fields that replacing them needs."""
        candidates = ids if self._seen is None else self._seen.among(ids)
        return self._writing_reader().find(candidates, _REPLACED_FIELDS)

    def _writing_reader(self) -> Reader:
        """Return a reader for the writer: under the lease, after a strong read, a session sees everything."""
        return self._strong if self._lease is None else Reader(self.connection, "Session")

    def commit(self, batch: Batch) -> None:
        """Store the batch, each document as a whole. Call inside writing().

        After an error some documents of the batch may be stored; committing it again completes it.
        """
        self._writer()
        check_limits(batch)
        self._check_dim(batch)
        packed = pack_views(batch.views, self.snapshot.view_type, [document.id for document in batch.documents])
        rows = decode(packed)
        olds = self._olds([document.id for document in batch.documents])
        keys = self._keys(batch, olds)
        self._prepare(batch, rows)
        with ThreadPoolExecutor(1, "mvindex-milvus-views") as meanwhile:
            writing = meanwhile.submit(self._write_views, keys, rows, np.diff(batch.views.starts))
            records = new_records(batch, rows, keys)
            writing.result()
        if self._seen is not None:
            self._seen.add([document.id for document in batch.documents])
        # The mark comes with the last step that the batch needs.
        marked = {} if batch.metadata_updates else with_mark(self.settings, batch.mark, len(batch.documents))
        self._write_records(records, {**self._counted(batch, olds), **marked})
        if batch.metadata_updates:
            self.set_metadata(batch.metadata_updates, batch.mark)
        self._remove_views(olds.values())

    def _keys(self, batch: Batch, olds: Mapping[str, Mapping[str, Any]]) -> dict[str, list[int]]:
        """Return number, version and ordinal of each document: a known one keeps number and ordinal."""
        settings = self.snapshot.settings
        next_document, next_ordinal = settings["next_document"], settings["next_ordinal"]
        ordinals = None if batch.ordinals is None else batch.ordinals.tolist()
        keys: dict[str, list[int]] = {"pk": [], "version": [], "ordinal": []}
        fresh = 0
        for number, document in enumerate(batch.documents):
            old = olds.get(document.id)
            if old is not None:
                chosen = int(old["pk"]), int(old["version"]) + 1, int(old["ordinal"])
            else:
                ordinal = next_ordinal + fresh if ordinals is None else ordinals[number]
                chosen, fresh = (next_document + fresh, 0, ordinal), fresh + 1
            if chosen[1] >= MAX_VERSION or chosen[0] >= MAX_DOCUMENTS:
                raise StoreError(
                    f"{self.where}: document {document.id!r}: expected a number below {MAX_DOCUMENTS:,} and a version "
                    f"below {MAX_VERSION:,}, got {chosen[0]:,} and {chosen[1]:,}"
                )
            for name, value in zip(keys, chosen, strict=True):
                keys[name].append(value)
        return keys

    def _prepare(self, batch: Batch, rows: Floats) -> None:
        """Make the collection of views, and raise the bounds in the settings, before the views are written."""
        dim = int(rows.shape[1])
        changed: dict[str, Any] = {}
        if not self.has_views:
            make_views(self.connection, dim)
            changed |= {"has_views": True, "dim": dim}
        most = int(np.diff(batch.views.starts).max())
        if most > self.snapshot.settings["max_views"]:
            changed["max_views"] = most
        if (norm := float(row_norms(rows).max())) > self.snapshot.settings["max_norm"]:
            changed["max_norm"] = norm
        if changed:
            self.change_settings(**changed)

    def _write_views(self, keys: Mapping[str, Sequence[int]], rows: Floats, counts: Ints) -> None:
        numbers, versions = (np.array(keys[name], dtype=np.int64) for name in ("pk", "version"))
        pks = view_keys(numbers, versions, counts)
        documents = documents_of(pks).tolist()
        name = views_of(self.connection.address.collection)
        step = max(1, min(REQUEST_ROWS, REQUEST_BYTES // (4 * rows.shape[1])))
        self._num_written += len(pks)
        for begin in range(0, len(pks), step):
            at = slice(begin, begin + step)
            columns = {"pk": pks[at].tolist(), "doc": documents[at], "vec": rows[at]}
            self._upsert(name, columns, "writing views")

    def _write_records(self, records: list[dict[str, Any]], changed: Mapping[str, Any]) -> None:
        """Write the records, the settings last: this is the commit."""
        self._writer().check()
        self._looked_up = frozenset(), {}
        settings = _following(self.snapshot.settings, changed)
        for part in _by_bytes([*records, settings_record(settings)]):
            self._upsert(self.connection.address.collection, columns_of(part), "writing records")
        self.snapshot = State(settings)

    def _counted(self, batch: Batch, olds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the settings that the batch changes."""
        settings, fresh = self.snapshot.settings, len(batch.documents) - len(olds)
        gone = sum(int(old["num_views"]) for old in olds.values())
        changed = {
            **batch.settings,
            "next_document": settings["next_document"] + fresh,
            "documents": settings["documents"] + fresh,
            "views": settings["views"] + len(batch.views.rows) - gone,
        }
        return changed if batch.ordinals is not None else {**changed, "next_ordinal": settings["next_ordinal"] + fresh}

    def delete(self, documents: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these numbers, the mark last; see Store.delete()."""
        self._writer().check()
        if (deleted := result_of(self.settings, mark)) is not None:
            return deleted
        numbers = sorted(documents)
        if not numbers and not mark:
            return 0
        rows = self._writing_reader().records(numbers, LIGHT_FIELDS) if numbers else {}
        self._looked_up = frozenset(), {}
        for part in chunks(sorted(rows), _KEYS_AT_ONCE):
            self._delete(self.connection.address.collection, part, "deleting documents")
        gone = sum(int(row["num_views"]) for row in rows.values())
        settings = self.snapshot.settings
        self.change_settings(
            documents=settings["documents"] - len(rows),
            views=settings["views"] - gone,
            **with_mark(settings, mark, len(rows)),
        )
        self._remove_views(rows.values())
        return len(rows)

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set metadata by document number, the mark last. Call inside writing()."""
        rows = self._writing_reader().records(updates, RECORD_FIELDS)
        for number, row in rows.items():
            check_metadata(updates[number], row["id"])
            checked(row, self.where)
        records = [sealed({**row, "metadata": updates[number]}) for number, row in rows.items()]
        self._write_records(records, with_mark(self.settings, mark, len(updates)))

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out, as of the settings last read."""
        return result_of(self.settings, mark) is not None

    def change_settings(self, **changed: Any) -> None:
        """Write the settings, with a version one higher. Call inside writing()."""
        old = self.snapshot.settings
        settings = _following(old, changed)
        row = columns_of([settings_record(settings)])
        self._upsert(self.connection.address.collection, row, "writing the settings")
        self.snapshot = State(settings)

    def remove_rows(self, pks: list[int]) -> None:
        """Delete these views, which no record names."""
        for part in chunks(pks, _KEYS_AT_ONCE):
            self._delete(views_of(self.connection.address.collection), part, "removing old views")

    def _remove_views(self, rows: Iterable[Mapping[str, Any]]) -> None:
        old = [(int(row["pk"]), int(row["version"]), int(row["num_views"])) for row in rows]
        if old:
            numbers, versions, counts = np.array(old, dtype=np.int64).T
            self.remove_rows(view_keys(numbers, versions, counts).tolist())

    def _upsert(self, name: str, columns: Mapping[str, Column], step: str) -> None:
        self.connection.call(step, lambda client, **options: upsert(client, name, columns, **options))

    def _delete(self, name: str, keys: list[int], step: str) -> None:
        self.connection.call(step, lambda client, **options: client.delete(name, ids=keys, **options))

    def _writer(self) -> Lease:
        if self._lease is None:
            raise StoreError(f"{self.where}: expected a write inside writing(), got one outside")
        return self._lease

    def _check_dim(self, batch: Batch) -> None:
        dim = self.snapshot.dim
        if dim is not None and batch.views.rows.shape[1] != dim:
            raise EncoderError(f"views: expected {dim} dims, got {batch.views.rows.shape[1]}")


def _following(old: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings; epoch rises with those that a search's proof depends on."""
    is_new = any(old.get(name) != changed[name] for name in _PROOF_SETTINGS if name in changed)
    return {**old, **changed, "version": old["version"] + 1, "epoch": old["epoch"] + is_new}


def _by_bytes(records: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the records in lists that fit one request; nearly always one."""
    part: list[dict[str, Any]] = []
    size = 0
    for record in records:
        length = sum(4 * len(record[name]) for name in ("id", "title", "text", "metadata", "spans"))
        if part and (size + length > REQUEST_BYTES or len(part) == _RECORDS_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(record)
        size += length
    if part:
        yield part
