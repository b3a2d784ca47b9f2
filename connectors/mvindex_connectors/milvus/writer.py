"""MilvusWriter: the writes to one index in Milvus, made while its lease is held.

Order of a commit: views of the new version, then the records, which make it count, then settings, then the removal of
the views that no record names any more. What a crash leaves of the first and last step is never shown; see compact().
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from mvindex.errors import EncoderError, StoreError
from mvindex.kernels.score import decode
from mvindex.records import CountCallback, Floats, Ints, sliced
from mvindex.store.catalog import CHOOSE_LEXICAL_KEY, ExistingDocument
from mvindex.store.lexical.tokenizer import Lexical, StoredLexical
from mvindex.store.rows import Batch, lexical_text, result_of, with_mark
from mvindex.store.views import row_norms
from mvindex_connectors.milvus.collections import (
    Home,
    drop_collection,
    lexical_settings,
    make_terms,
    make_views,
    settings_record,
    write_home,
)
from mvindex_connectors.milvus.connection import Connection, terms_of, views_of
from mvindex_connectors.milvus.layout import (
    LIGHT_FIELDS,
    MAX_DOCUMENTS,
    MAX_VERSION,
    RECORD_FIELDS,
    REQUEST_BYTES,
    REQUEST_ROWS,
    State,
    documents_of,
    view_keys,
)
from mvindex_connectors.milvus.lease import Lease
from mvindex_connectors.milvus.reader import Reader, check_limits, check_metadata, checked, new_records, sealed
from mvindex_connectors.milvus.term_counts import COUNTED_KEY, TERMS_KEY, TermState, is_counted
from mvindex_connectors.milvus.term_writer import INTENT_DOCUMENTS, TermStep, TermWriter
from mvindex_connectors.milvus.writes import Column, WrittenIds, columns_of, upsert

logger = logging.getLogger(__name__)

_REPLACED_FIELDS = ("pk", "id", "ordinal", "content_hash", "metadata", "version", "num_views")
_RECORDS_AT_ONCE = 1_025
_PROOF_SETTINGS = ("engine", "max_norm", "max_views", "has_views", "dim")
_KEYS_AT_ONCE = 16_384
# Rows of views of one run from which on Lite is told to write its files.
_FLUSHED_ROWS = 512


@dataclass(frozen=True, slots=True)
class StoredVersion(ExistingDocument):
    """A document as it is stored, with the version of its views and their number; its row is its number."""

    version: int
    num_views: int


class MilvusWriter:
    """The only writer of an index in Milvus; MilvusStore.writing() yields it."""

    def __init__(self, connection: Connection, state: State, lease: Lease) -> None:
        self._connection, self._state, self._lease = connection, state, lease
        self._where = connection.address.shown
        # Under the lease, after a strong read, a session sees everything.
        self._reader = Reader(connection, "Session")
        self._seen: WrittenIds | None = None
        self._terms = TermWriter(connection, state, self._reader)
        self._num_written = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings as written last."""
        return self._state.settings

    def finish(self) -> None:
        """Adapt sparse vectors to a corpus that has grown, and flush many new rows.

        Lite searches its files some ten times as fast as its memory.
        """
        if (adapted := self._terms.adapted()) is not None:
            during, after = adapted
            self.change_settings(**{TERMS_KEY: during.as_setting()})
            self._terms.adapt(after)
            self.change_settings(**{TERMS_KEY: after.as_setting()})
        connection, name = self._connection, self._connection.address.collection
        for each, num_written in ((views_of(name), self._num_written), (terms_of(name), self._terms.num_written)):
            if connection.features.is_lite and num_written >= _FLUSHED_ROWS:
                connection.ask("flushing", "flush", each)

    def recover(self) -> None:
        """Count the numbers of a batch whose writer died before it wrote the settings: none is used twice."""
        settings = self._state.settings
        last, ordinal = settings["next_document"] - 1, settings["next_ordinal"] - 1
        for row in self._reader.strongly().query(f"pk > {last}", ("pk", "ordinal"), "looking for an unfinished batch"):
            last, ordinal = max(last, int(row["pk"])), max(ordinal, int(row["ordinal"]))
        changed, retired = self._terms.recovered()
        if last >= settings["next_document"]:
            changed |= {"next_document": last + 1, "next_ordinal": ordinal + 1}
        if changed:
            logger.info("%s: a writer died here; what it has stored of its last batch counts", self._where)
            self.change_settings(**changed)
            self._terms.remove_segments(retired)
        # Numbers are never reused: before the first one there is no document, and nobody else adds one.
        self._seen = None if self._state.settings["next_document"] else WrittenIds()

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return what is stored of the ids that exist, as committed now; rows are document numbers."""
        candidates = ids if self._seen is None else self._seen.among(ids)
        return stored_versions(self._reader, candidates)

    def commit(self, batch: Batch, known: Mapping[str, ExistingDocument]) -> None:
        """Store the batch, each document as a whole; see Writer.commit().

        After an error some documents of the batch may be stored; committing it again completes it.
        """
        check_limits(batch)
        self._check_dim(batch)
        ids = [document.id for document in batch.documents]
        views = batch.views.packed_as(self._state.view_type, ids)
        rows = decode(views.rows)
        olds = {doc_id: cast(StoredVersion, known[doc_id]) for doc_id in ids if doc_id in known}
        keys = self._keys(batch, olds)
        self._prepare(batch, rows)
        with ThreadPoolExecutor(1, "mvindex-milvus-views") as meanwhile:
            writing = meanwhile.submit(self._write_views, keys, rows, np.diff(batch.views.starts))
            records = new_records(batch, rows, keys)
            texts = [lexical_text(document.title, document.text) for document in batch.documents]
            step = self._terms.add(texts, keys, {old.doc_row: old.version for old in olds.values()})
            writing.result()
        if self._seen is not None:
            self._seen.add(ids)
        # The mark comes with the last step that the batch needs.
        marked = {} if batch.metadata_updates else with_mark(self._state.settings, batch.mark, len(batch.documents))
        self._write_records(records, {**self._counted(batch, olds), **marked}, step)
        if batch.metadata_updates:
            self.set_metadata(batch.metadata_updates, batch.mark)
        self._remove_views((old.doc_row, old.version, old.num_views) for old in olds.values())
        if step is not None:
            self._terms.finish(step)

    def _keys(self, batch: Batch, olds: Mapping[str, StoredVersion]) -> dict[str, list[int]]:
        """Return number, version and ordinal of each document: a known one keeps number and ordinal."""
        settings = self._state.settings
        next_document, next_ordinal = settings["next_document"], settings["next_ordinal"]
        ordinals = None if batch.ordinals is None else batch.ordinals.tolist()
        keys: dict[str, list[int]] = {"pk": [], "version": [], "ordinal": []}
        fresh = 0
        for number, document in enumerate(batch.documents):
            old = olds.get(document.id)
            if old is not None:
                chosen = old.doc_row, old.version + 1, old.ordinal
            else:
                ordinal = next_ordinal + fresh if ordinals is None else ordinals[number]
                chosen, fresh = (next_document + fresh, 0, ordinal), fresh + 1
            if chosen[1] >= MAX_VERSION or chosen[0] >= MAX_DOCUMENTS:
                raise StoreError(
                    f"{self._where}: document {document.id!r}: expected a number below {MAX_DOCUMENTS:,} and a "
                    f"version below {MAX_VERSION:,}, got {chosen[0]:,} and {chosen[1]:,}"
                )
            for name, value in zip(keys, chosen, strict=True):
                keys[name].append(value)
        return keys

    def _prepare(self, batch: Batch, rows: Floats) -> None:
        """Make the collection of views, and raise the bounds in the settings, before the views are written."""
        dim = int(rows.shape[1])
        changed: dict[str, Any] = {}
        if not self._state.has_views:
            make_views(self._connection, dim)
            changed |= {"has_views": True, "dim": dim}
        most = int(np.diff(batch.views.starts).max())
        if most > self._state.settings["max_views"]:
            changed["max_views"] = most
        if (norm := float(row_norms(rows).max())) > self._state.settings["max_norm"]:
            changed["max_norm"] = norm
        if changed:
            self.change_settings(**changed)

    def _write_views(self, keys: Mapping[str, Sequence[int]], rows: Floats, counts: Ints) -> None:
        numbers, versions = (np.array(keys[name], dtype=np.int64) for name in ("pk", "version"))
        pks = view_keys(numbers, versions, counts)
        documents = documents_of(pks).tolist()
        name = views_of(self._connection.address.collection)
        step = max(1, min(REQUEST_ROWS, REQUEST_BYTES // (4 * rows.shape[1])))
        self._num_written += len(pks)
        for begin in range(0, len(pks), step):
            at = slice(begin, begin + step)
            columns = {"pk": pks[at].tolist(), "doc": documents[at], "vec": rows[at]}
            self._upsert(name, columns, "writing views")

    def _write_records(
        self, records: list[dict[str, Any]], changed: Mapping[str, Any], step: TermStep | None = None
    ) -> None:
        """Write the records, the settings last: this is the commit."""
        self._lease.check()
        if step is not None:
            self._terms.announce(step)
            changed = {**changed, **step.settings}
        settings = _following(self._state.settings, changed)
        for part in _by_bytes([*records, settings_record(settings)]):
            self._lease.check()
            self._upsert(self._connection.address.collection, columns_of(part), "writing records")
        self._state.settings = settings

    def _counted(self, batch: Batch, olds: Mapping[str, StoredVersion]) -> dict[str, Any]:
        """Return the settings that the batch changes."""
        settings, fresh = self._state.settings, len(batch.documents) - len(olds)
        gone = sum(old.num_views for old in olds.values())
        changed = {
            **batch.settings,
            "next_document": settings["next_document"] + fresh,
            "documents": settings["documents"] + fresh,
            "views": settings["views"] + len(batch.views.rows) - gone,
        }
        return changed if batch.ordinals is not None else {**changed, "next_ordinal": settings["next_ordinal"] + fresh}

    def delete(self, documents: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these numbers, the mark last; see Store.delete()."""
        self._lease.check()
        if (deleted := result_of(self._state.settings, mark)) is not None:
            return deleted
        numbers = sorted(documents)
        if not numbers and not mark:
            return 0
        # With a lexical side each part is a commit of its own, as its terms are counted.
        size = INTENT_DOCUMENTS if self._terms.is_enabled else max(len(numbers), 1)
        parts = list(sliced(numbers, size)) or [[]]
        for part in parts:
            rows = self._reader.records(part, LIGHT_FIELDS) if part else {}
            deleted = (deleted or 0) + len(rows)
            self._delete_part(
                list(rows.values()), with_mark(self._state.settings, mark, deleted) if part is parts[-1] else {}
            )
        return deleted or 0

    def _delete_part(self, rows: Sequence[Mapping[str, Any]], marked: Mapping[str, Any]) -> None:
        """Delete the documents of these records, then change the settings, then remove their views and terms."""
        numbers, versions, counts = (
            np.array([(int(row["pk"]), int(row["version"]), int(row["num_views"])) for row in rows], dtype=np.int64)
            .reshape(-1, 3)
            .T
        )
        step = self._terms.remove(numbers, versions) if len(rows) else None
        self._lease.check()
        if step is not None:
            self._terms.announce(step)
        for part in sliced(numbers.tolist(), _KEYS_AT_ONCE):
            self._lease.check()
            self._connection.ask("deleting documents", "delete", self._connection.address.collection, ids=part)
        settings = self._state.settings
        self.change_settings(
            documents=settings["documents"] - len(rows),
            views=settings["views"] - int(counts.sum()),
            **marked,
            **({} if step is None else step.settings),
        )
        self._remove_views(zip(numbers.tolist(), versions.tolist(), counts.tolist(), strict=True))
        if step is not None:
            self._terms.finish(step)

    def set_lexical(self, kind: Lexical | None, on_progress: CountCallback) -> None:
        """Index the terms of all texts anew, or remove the lexical side (None); until it is done there is none."""
        chosen = {CHOOSE_LEXICAL_KEY: False} if CHOOSE_LEXICAL_KEY in self._state.settings else {}
        self.change_settings(**lexical_settings(None, TermState()), **chosen)
        if kind is None:
            drop_collection(self._connection, terms_of(self._connection.address.collection))
            return
        make_terms(self._connection)
        state = self._terms.fill(kind, on_progress)
        self.change_settings(**lexical_settings(StoredLexical(kind), state))

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set metadata by document number, the mark last."""
        rows = self._reader.records(updates, RECORD_FIELDS)
        for number, row in rows.items():
            check_metadata(updates[number], row["id"])
            checked(row, self._where)
        records = [sealed({**row, "metadata": updates[number]}) for number, row in rows.items()]
        self._write_records(records, with_mark(self._state.settings, mark, len(updates)))

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out, as of the settings last read."""
        return result_of(self._state.settings, mark) is not None

    def change_settings(self, **changed: Any) -> None:
        """Write the settings, with a version one higher: a commit."""
        self._lease.check()
        old = self._state.settings
        settings = _following(old, changed)
        row = columns_of([settings_record(settings)])
        self._upsert(self._connection.address.collection, row, "writing the settings")
        self._state.settings = settings

    def move(self, root: str, home: Home) -> None:
        """Make another collection the place of the index, in one record; nothing may be written here any more."""
        self._lease.check()
        write_home(self._connection, root, home)

    def remove_rows(self, pks: list[int]) -> None:
        """Delete these views, which no record names; IndexLocked where they may be those of another writer."""
        views = views_of(self._connection.address.collection)
        for part in sliced(pks, _KEYS_AT_ONCE):
            self._lease.check()
            self._connection.ask("removing old views", "delete", views, ids=part)

    def remove_terms(self, reader: Reader, begin: int, end: int, view_keys: Ints) -> None:
        """Remove the terms of documents numbered from `begin` to before `end` but for the versions of these views."""
        self._lease.check()
        self._terms.remove_leftovers(reader, begin, end, view_keys)

    def _remove_views(self, versions_of: Iterable[tuple[int, int, int]]) -> None:
        """Remove the views of old versions: number, version and number of views of each document."""
        old = list(versions_of)
        if old:
            numbers, versions, counts = np.array(old, dtype=np.int64).T
            self.remove_rows(view_keys(numbers, versions, counts).tolist())

    def _upsert(self, name: str, columns: Mapping[str, Column], step: str) -> None:
        self._connection.call(step, lambda client, **options: upsert(client, name, columns, **options))

    def _check_dim(self, batch: Batch) -> None:
        dim = self._state.dim
        if dim is not None and batch.views.rows.shape[1] != dim:
            raise EncoderError(f"views: expected {dim} dims, got {batch.views.rows.shape[1]}")


def stored_versions(reader: Reader, ids: Sequence[str]) -> dict[str, ExistingDocument]:
    """Return what is stored of the ids that exist, by id."""
    return {
        doc_id: StoredVersion(
            int(row["pk"]),
            int(row["ordinal"]),
            bytes.fromhex(row["content_hash"]),
            row["metadata"],
            int(row["version"]),
            int(row["num_views"]),
        )
        for doc_id, row in reader.find(ids, _REPLACED_FIELDS).items()
    }


def _following(old: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings; epoch rises with those that a search's proof depends on."""
    is_new = any(old.get(name) != changed[name] for name in _PROOF_SETTINGS if name in changed)
    has_terms = changed.get(TERMS_KEY, old.get(TERMS_KEY)) is not None
    counted = {COUNTED_KEY: old["version"] + 1} if has_terms and is_counted(old) else {}
    return {**old, **changed, **counted, "version": old["version"] + 1, "epoch": old["epoch"] + is_new}


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
