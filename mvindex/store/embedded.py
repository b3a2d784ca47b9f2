"""The embedded store: a directory NAME.mvx with a catalog, views and document rows; one writer, many readers.

Order of every write: bytes appended, file fsynced (its directory too, when new), then one durable transaction.
"""

from __future__ import annotations

import logging
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from mvindex.errors import IndexLocked, MvindexError, QueryError, StoreError
from mvindex.records import CountCallback, Floats, IndexInfo, Ints, Views, dump_metadata
from mvindex.store import catalog
from mvindex.store.batch import Batch
from mvindex.store.catalog import ExistingDocument
from mvindex.store.copies_file import copies_path
from mvindex.store.create import start_generation
from mvindex.store.files import Current, read_current
from mvindex.store.filters import Filter
from mvindex.store.generation import (
    Generation,
    generations_in,
    lock_generation,
    open_generation,
    publish,
    remove_superseded,
    unfinished,
)
from mvindex.store.lexical.tokenizer import Lexical, StoredLexical
from mvindex.store.locks import writer_lock
from mvindex.store.marks import result_of, with_mark
from mvindex.store.network_fs import refuse_network
from mvindex.store.protocol import Capabilities, Sharding, Store, StorePart
from mvindex.store.reader import SnapshotReader, StoredDocument, StoredRow, check_ids
from mvindex.store.rows import FORMAT_VERSION, pack_spans
from mvindex.store.sizes import file_bytes, size_of
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.transfer import stored_batches
from mvindex.store.views import ViewType, pack_views
from mvindex.store.writer import GenerationWriter, Rows, Transaction

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Documents read at once by scan().
_SCANNED = 1024


class EmbeddedStore:
    """Documents and views in one directory. Reads go through immutable snapshots; writes take the writer lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._refresh_lock = Lock()
        self._writer: GenerationWriter | None = None
        self._snapshot: Snapshot | None = read_snapshot(open_generation(self.directory))

    @property
    def where(self) -> str:
        """The directory, for messages."""
        return str(self.directory)

    def reopening(self) -> Mapping[str, Any]:
        """Return the directory; see Store.reopening()."""
        if self.snapshot is not None and self._writer is not None:
            raise being_written(self.where)
        return {"path": self.where}

    @property
    def capabilities(self) -> Capabilities:
        """The operations that the store has."""
        return Capabilities()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the index as of the snapshot."""
        return self.snapshot.settings

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""
        return self.snapshot.dim

    @property
    def view_type(self) -> ViewType:
        """The number type of stored views."""
        return self.snapshot.view_type

    @property
    def missing_shards(self) -> tuple[int, ...]:
        """Empty: there are no shards."""
        return ()

    @property
    def sharding(self) -> Sharding | None:
        """None: there are no shards."""
        return None

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was ever stored."""
        # The choice of terms is a write of its own, before the first documents.
        has_chosen = self.settings.get(catalog.CHOOSE_LEXICAL_KEY) is False
        return int(self.settings["version"]) == int(has_chosen)

    def parts(self) -> Sequence[StorePart]:
        """Return the store itself, the only part."""
        return [StorePart(self)]

    def all_parts(self) -> Sequence[StorePart]:
        """Return the store itself, the only part."""
        return self.parts()

    def attempt(self, read: Callable[[], T]) -> T:
        """Return what `read` returns."""
        return read()

    @property
    def snapshot(self) -> Snapshot:
        """The committed state that this store shows; StoreError once it is closed."""
        if (current := self._snapshot) is None:
            raise StoreError(f"{self.directory}: this index was closed; open it again")
        return current

    def close(self) -> None:
        """Close the store's connections; every later call is refused. A second time nothing happens."""
        closed, self._snapshot = self._snapshot, None
        if closed is not None:
            closed.source.close()

    def remove_if_untouched(self) -> None:
        """Close the store, and remove its directory if nothing was ever stored in it, by anyone."""
        remove_untouched(self, self.directory, [self.directory])

    def count(self) -> int:
        """Return the number of live documents."""
        return self.snapshot.num_documents

    def info(self) -> IndexInfo:
        """Describe the index."""
        self._check_there()
        snapshot, settings = self.snapshot, self.settings
        engine = settings["engine"]
        built_rows = engine["built_rows"] if engine else snapshot.num_rows
        return IndexInfo(
            path=self.where,
            format_version=settings["format_version"],
            documents=snapshot.num_documents,
            views=snapshot.num_live_views,
            num_deleted=snapshot.num_rows - snapshot.num_documents,
            dim=snapshot.dim,
            dtype=settings["dtype"],
            encoder=settings["encoder"],
            kind=engine["kind"] if engine else "exact",
            temperature=temperature_of(settings),
            prune_views=settings.get("prune_views"),
            lexical=None if (setting := settings.get("lexical")) is None else StoredLexical.parse(setting).kind.value,
            fusion=settings.get("fusion"),
            filter_fields=settings.get("filter_fields") or {},
            search=engine["settings"].get("search") if engine else None,
            fresh_documents=int(np.count_nonzero(snapshot.alive[built_rows:])),
            size_bytes=size_of(self.directory),
            copies_file_bytes=file_bytes(copies_path(snapshot.directory, snapshot.generation)),
            text_bytes=snapshot.source.recent.size_bytes,
            shard=_shard_of(settings),
            term_bytes=snapshot.source.postings.size_bytes,
            index_id=settings["index_id"],
        )

    def get(self, ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the documents of the ids that exist in the snapshot, by id."""
        with self.reading(self.snapshot) as reader:
            rows = _find(reader, ids)
            documents = reader.documents(list(rows.values()))
        return {doc_id: documents[row] for doc_id, row in rows.items()}

    def views(self, ids: Sequence[str]) -> dict[str, tuple[StoredDocument, Floats]]:
        """Return each of the documents that exist in the snapshot with its views, (k, d) as stored, by id."""
        snapshot = self.snapshot
        with self.reading(snapshot) as reader:
            rows = _find(reader, ids)
            documents = reader.documents(list(rows.values()))
        if not rows:
            return {}
        views, starts = snapshot.views.fetch(np.array(list(rows.values()), dtype=np.int64))
        bounds = zip(rows.items(), starts.tolist(), starts[1:].tolist(), strict=False)
        return {doc_id: (documents[row], views[begin:end]) for (doc_id, row), begin, end in bounds}

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents of the snapshot that match, by rising ordinals; see Store.scan()."""
        return (document for _, document in self.scan_ordinals(condition, after))

    def scan_ordinals(self, condition: Filter | None, after: str | int | None) -> Iterator[tuple[int, StoredDocument]]:
        """Yield (ordinal, document) in one transaction, behind the document of an id or behind an ordinal."""
        snapshot = self.snapshot
        with self.reading(snapshot) as reader:
            rows = snapshot.rows_by_ordinal
            if after is not None:
                last = self._ordinal_of(reader, after) if isinstance(after, str) else after
                # By bisection: a page of a large index must not read all ordinals.
                rows = rows[bisect_right(range(len(rows)), last, key=lambda at: self._ordinal(int(rows[at]))) :]
            if condition is not None:
                rows = rows[reader.matching(condition)[rows]]
            for begin in range(0, len(rows), _SCANNED):
                some = rows[begin : begin + _SCANNED]
                documents = reader.documents(some.tolist())
                ordinals = snapshot.views.ordinals(some).tolist()
                yield from ((ordinal, documents[row]) for ordinal, row in zip(ordinals, some.tolist(), strict=True))

    def ordinal_of(self, doc_id: str) -> int:
        """Return the ordinal of a document; QueryError when there is no such id."""
        with self.reading(self.snapshot) as reader:
            return self._ordinal_of(reader, doc_id)

    def _ordinal_of(self, reader: SnapshotReader, doc_id: str) -> int:
        row = reader.find(doc_id)
        if row is None:
            raise QueryError(
                f"{self.where}: after={doc_id!r}: expected the id of a document, got one that is not there"
            )
        return self._ordinal(row)

    def _ordinal(self, row: int) -> int:
        return int(self.snapshot.views.ordinals(np.array([row]))[0])

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the live documents as they are stored, by rising ordinals; DamagedIndex when one is not sound."""
        return stored_batches(self.snapshot, self.reading, size)

    def matching(self, condition: Filter) -> Ints:
        """Return the rows of the live documents that match, (m,) int64."""
        with self.reading(self.snapshot) as reader:
            return np.flatnonzero(reader.matching(condition))

    def refresh(self) -> bool:
        """Make the snapshot the latest committed state; return whether it changed."""
        with self._refresh_lock:  # so that of two threads the later one never brings back the older state
            latest = self._latest_generation()
            with latest.catalog.reading() as connection:
                settings = catalog.read_settings(connection)
            _check_identity(self.directory, self.snapshot, settings)
            if (latest.number, settings["version"]) == self.snapshot.state:
                return False
            self._snapshot = read_snapshot(latest, self.snapshot)
            return True

    @contextmanager
    def reading(self, snapshot: Snapshot) -> Iterator[SnapshotReader]:
        """Yield a reader of the snapshot's texts, metadata and filters, inside one transaction."""
        for segment in snapshot.segments:
            segment.check_length()
        with snapshot.source.catalog.reading() as connection:
            settings = catalog.current_settings(connection)
            _check_identity(self.directory, snapshot, settings)
            yield SnapshotReader(connection, snapshot, settings.get("version"))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make this store the only writer, with the latest snapshot, inside the block; IndexLocked otherwise.

        Commits show in this store's own snapshot when the block ends, in other processes at once.
        """
        self._check_there()
        refuse_network(self.directory)
        with writer_lock(self.directory):
            self.refresh()
            self._tidy_up(logging.INFO, self._remove_superseded)
            self._writer = GenerationWriter(self.snapshot.source, self.snapshot)
            has_failed = True
            try:
                yield
                has_failed = False
            finally:
                self._writer = None
                self._settle(has_failed)

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return the live documents among the ids, as committed now."""
        source = self.snapshot.source
        with source.catalog.reading() as connection:
            known = catalog.find_existing(connection, ids)
            if len(known) < len(set(ids)):
                check_ids(source, connection)
            return known

    def commit(self, batch: Batch) -> None:
        """Commit the whole batch, durably: new documents are added, existing ids replaced.

        Call inside writing(). On StoreError the store is as it was.
        """
        writer, ids = self._current_writer(), [document.id for document in batch.documents]
        self._check_dim(writer, batch.views)
        packed = pack_views(batch.views, self.snapshot.view_type, ids)
        known = self.known(ids)
        first = writer.settings["next_ordinal"]
        rows = Rows(
            documents=_stored_rows(batch),
            ordinals=_ordinals(first, batch, known),
            packed=packed,
            starts=batch.views.starts,
        )
        marked = with_mark(writer.settings, batch.mark, len(ids))
        settings = {**batch.settings, **marked, "dim": int(batch.views.rows.shape[1])}
        if batch.ordinals is None:
            settings["next_ordinal"] = first + len(ids) - len(known)
        deleted = [entry.doc_row for entry in known.values()]
        writer.commit(Transaction(rows=rows, deleted=deleted, metadata=batch.metadata_updates, settings=settings))

    def delete(self, doc_rows: Iterable[int], mark: str = "") -> int:
        """Delete the documents of these live rows in one commit; see Store.delete()."""
        writer, rows = self._current_writer(), list(doc_rows)
        if (deleted := result_of(writer.settings, mark)) is not None:
            return deleted
        # A mark is stored also where nothing is deleted: sent again, the write must not find what came since.
        if rows or mark:
            writer.commit(Transaction(deleted=rows, settings=with_mark(writer.settings, mark, len(rows))))
        return len(rows)

    def set_metadata(self, updates: Mapping[int, str], mark: str = "") -> None:
        """Set the metadata (canonical JSON) of these rows in one commit. Call inside writing()."""
        writer = self._current_writer()
        writer.commit(Transaction(metadata=updates, settings=with_mark(writer.settings, mark, len(updates))))

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out, as of the snapshot; inside writing(), by now."""
        return result_of((self._writer or self).settings, mark) is not None

    def change_settings(self, **settings: Any) -> None:
        """Set the settings, durably. Call inside writing()."""
        self._current_writer().commit(Transaction(settings=settings))

    def set_lexical(self, lexical: Lexical | None, on_progress: CountCallback) -> None:
        """Build the lexical index of all texts, or remove it (None). Call inside writing().

        On an error nothing has changed. on_progress: called with the number of document rows done since the last call,
        deleted ones included.
        """
        self._current_writer().set_lexical(self.snapshot, lexical, on_progress)

    def set_filter_fields(self, fields: Mapping[str, str]) -> None:
        """Build the columns of declared filter fields, name to type, or remove them ({}). Call inside writing()."""
        self._current_writer().set_filter_fields(fields)

    @contextmanager
    def new_generation(self) -> Iterator[tuple[Generation, GenerationWriter]]:
        """Yield an empty generation with this index's settings to fill; it then becomes the active one.

        Call inside writing(). Readers stay on theirs until they refresh. On an error nothing has changed.
        """
        source, settings = self.snapshot.source, dict(self.snapshot.settings)
        # Beyond one that a compaction published before it was killed, should a reader have it locked.
        number = 1 + max([source.number, *(number for number, _ in generations_in(self.directory))])
        index_id = str(settings["index_id"])
        try:
            directory = unfinished(self.directory, number)
            fresh_settings = {**settings, "version": settings["version"] + 1}
            start_generation(directory, fresh_settings, number=number, index_id=index_id)
            with closing(lock_generation(number, directory)) as fresh:
                yield fresh, GenerationWriter(fresh, read_snapshot(fresh))
                fresh.catalog.checkpoint()
            current = Current(format_version=FORMAT_VERSION, generation=number, index_id=index_id)
            publish(self.directory, directory, current, settings)
        except OSError as err:
            raise StoreError(f"{self.directory}: cannot write a new generation: {err.strerror or err}") from err
        finally:
            self.refresh()
            self._writer = GenerationWriter(self.snapshot.source, self.snapshot)

    def _check_there(self) -> None:
        """Raise StaleReader when the directory was moved or removed."""
        if not self.directory.is_dir():
            raise catalog.other_index(self.directory, is_gone=True)

    def _latest_generation(self) -> Generation:
        """Return the active generation: the open one, unless another took its place."""
        current, source = read_current(self.directory), self.snapshot.source
        if current is None:
            self._check_there()
            return open_generation(self.directory)  # raises, and says why
        _check_identity(self.directory, self.snapshot, {"index_id": current.index_id})
        return source if current.generation == source.number else open_generation(self.directory)

    def _settle(self, has_failed: bool) -> None:
        """Show the commits in this store's snapshot, and move the catalog's log into the database if possible.

        A failure is only logged: it must not make a durable write look like a failed one, and no step depends on the
        others. has_failed: the write itself did, and its error says why.
        """
        level = logging.INFO if has_failed else logging.WARNING
        for step in (self._remove_superseded, self.refresh, self._checkpoint):
            self._tidy_up(level, step)

    def _tidy_up(self, level: int, step: Callable[[], object]) -> None:
        try:
            step()
        except (MvindexError, OSError) as err:
            logger.log(level, "%s: the write is durable; tidying up failed: %s", self.directory, err)

    def _remove_superseded(self) -> None:
        remove_superseded(self.directory, self.snapshot.source)

    def _checkpoint(self) -> None:
        self.snapshot.source.catalog.checkpoint()

    def _current_writer(self) -> GenerationWriter:
        if self._writer is None:
            raise StoreError(f"{self.directory}: a write outside of writing()")
        return self._writer

    def _check_dim(self, writer: GenerationWriter, views: Views) -> None:
        dim = writer.settings["dim"]
        if dim is not None and views.rows.shape[1] != dim:
            raise StoreError(f"{self.directory}: expected views of {dim} dims, got {views.rows.shape[1]}")


def being_written(where: str) -> StoreError:
    """Return the error of an index that is copied or pickled in the middle of a write."""
    return StoreError(
        f"{where}: expected an index that nothing is written to, got one in the middle of a write, which has the "
        "writer lock. Copy or pickle it after the write"
    )


def remove_untouched(store: Store, directory: Path, locked: Sequence[Path]) -> None:
    """Close the store, and remove its directory if nothing was ever stored; `locked`: the directories writers lock."""
    try:
        with ExitStack() as stack:
            for path in locked:
                stack.enter_context(writer_lock(path))
            store.refresh()
            if store.is_untouched:
                shutil.rmtree(directory)
    except IndexLocked:
        logger.info("%s is being written to by another process; it stays", directory)
    finally:
        store.close()


def temperature_of(settings: Mapping[str, Any]) -> float:
    """Return the temperature of DRPQ scoring that an index has: its own, else its encoder's, else 1.0."""
    return float(settings.get("temperature") or (settings["encoder"] or {}).get("temperature", 1.0))


def _find(reader: SnapshotReader, ids: Sequence[str]) -> dict[str, int]:
    return {doc_id: row for doc_id in ids if (row := reader.find(doc_id)) is not None}


def _shard_of(settings: Mapping[str, Any]) -> str | None:
    place = settings.get("shard")
    return None if place is None else f"{place['number']}/{place['count']}"


def _ordinals(first: int, batch: Batch, known: Mapping[str, ExistingDocument]) -> Ints:
    """Return the ordinals: a replaced document keeps its own, a new one gets the next, or the one in the batch."""
    ordinals = np.empty(len(batch.documents), dtype=np.int64)
    is_new = np.array([document.id not in known for document in batch.documents], dtype=bool)
    ordinals[is_new] = first + np.arange(is_new.sum()) if batch.ordinals is None else batch.ordinals[is_new]
    ordinals[~is_new] = [known[document.id].ordinal for document in batch.documents if document.id in known]
    return ordinals


def _stored_rows(batch: Batch) -> list[StoredRow]:
    bounds = pairwise(batch.views.starts.tolist())
    columns = zip(batch.documents, bounds, batch.content_hashes, strict=True)
    # Of given vectors no view stands for a span: looked at once, not for every document.
    has_spans = bool((batch.views.spans >= 0).any())
    return [
        StoredRow(
            id=document.id,
            title=document.title,
            text=document.text,
            metadata=dump_metadata(document.metadata, document.id),
            spans=pack_spans(batch.views.spans[begin:end]) if has_spans else None,
            content_hash=digest,
        )
        for document, (begin, end), digest in columns
    ]


def _check_identity(directory: Path, snapshot: Snapshot, settings: Mapping[str, Any]) -> None:
    """Raise StaleReader when another index is at the path of the one that was opened."""
    if settings.get("index_id") != snapshot.settings["index_id"]:
        raise catalog.other_index(directory, is_gone=False)
