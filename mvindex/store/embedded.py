"""The embedded store: a directory NAME.mvx with a catalog, views and document rows; one writer, many readers.

Order of every write: bytes appended, file fsynced (its directory too, when new), then one durable transaction.
"""

from __future__ import annotations

import logging
import shutil
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from mvindex.errors import IndexLocked, MvindexError, QueryError, StaleReader, StoreError
from mvindex.records import Floats, IndexInfo, Ints
from mvindex.store import catalog
from mvindex.store.catalog import ExistingDocument
from mvindex.store.connections import other_index
from mvindex.store.copies_file import copies_path
from mvindex.store.embedded_writer import EmbeddedWriter
from mvindex.store.files import file_bytes, read_current, refuse_network, size_of, write_current, writer_lock
from mvindex.store.filter_reader import FilterReader
from mvindex.store.filters import Filter
from mvindex.store.generation import (
    Generation,
    open_generation,
    remove_superseded,
)
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.protocol import Capabilities, Store, Writer
from mvindex.store.reader import SnapshotReader, StoredDocument
from mvindex.store.rows import Batch, result_of
from mvindex.store.shard_switch import active_current
from mvindex.store.snapshot import Snapshot, read_snapshot
from mvindex.store.views import ViewType, check_mapped
from mvindex.store.writer import GenerationWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Documents read at once by scan().
_SCANNED = 1024


class StorePart(NamedTuple):
    """One of the embedded stores that are searched together; inside errors(), an error names the shard."""

    store: EmbeddedStore
    errors: Callable[[], AbstractContextManager[None]] = nullcontext


class LocalWriter(Writer, Protocol):
    """The writer of a store whose views are in files of this machine."""

    @property
    def parts(self) -> Sequence[EmbeddedWriter]:
        """The writer of each part."""

    def new_generations(
        self, changes: Sequence[Mapping[str, Any]]
    ) -> AbstractContextManager[Sequence[tuple[Generation, GenerationWriter]]]:
        """Yield an empty generation for each part, to be filled; then all become the active ones in one commit.

        changes: the settings that differ, of each part. On an error nothing has changed.
        """


class LocalStore(Store, ABC):
    """A store whose views are in files of this machine, in one embedded store or in several."""

    @abstractmethod
    def parts(self) -> Sequence[StorePart]:
        """Return the embedded stores that are read together."""

    @abstractmethod
    def all_parts(self) -> Sequence[StorePart]:
        """Return all parts, for an operation that needs the whole index; StoreError when one is missing."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[LocalWriter]:
        """Take the writer lock of every part, and yield the only writer; IndexLocked when there is another."""

    @abstractmethod
    def scan_ordinals(self, condition: Filter | None, after: str | int | None) -> Iterator[tuple[int, StoredDocument]]:
        """Yield (ordinal, document) as scan() does, behind the document of an id or behind an ordinal."""

    @abstractmethod
    def attempt(self, read: Callable[[Sequence[StorePart]], T]) -> T:
        """Return what `read` returns for the parts that are there.

        Where partial answers are allowed, call it again without a part that failed.
        """


class EmbeddedStore(LocalStore):
    """Documents and views in one directory. Reads go through immutable snapshots; writes take the writer lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._refresh_lock = Lock()
        self._is_written = False
        # The committed state that this store shows.
        self.snapshot = read_snapshot(open_generation(self.directory))

    @property
    def where(self) -> str:
        """The directory, for messages."""
        return str(self.directory)

    def reopening(self) -> Mapping[str, Any]:
        """Return the directory; see Store.reopening()."""
        if self.settings and self._is_written:
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

    def attempt(self, read: Callable[[Sequence[StorePart]], T]) -> T:
        """Return what `read` returns for the store, the only part."""
        return read(self.parts())

    def close(self) -> None:
        """Close the store's connections; every later call is refused. A second time nothing happens."""
        if not isinstance(self.snapshot, _ClosedSnapshot):
            self.snapshot.source.close()
            self.snapshot = _ClosedSnapshot(self.directory)

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
            confidence=settings.get(catalog.CONFIDENCE_KEY),
            filter_fields=settings.get("filter_fields") or {},
            search=_search_of(engine["settings"]) if engine else None,
            fresh_documents=int(np.count_nonzero(snapshot.alive[built_rows:])),
            size_bytes=size_of(self.directory),
            copies_file_bytes=file_bytes(copies_path(snapshot.directory, snapshot.generation)),
            text_bytes=snapshot.source.recent.size_bytes,
            shard=_shard_of(settings),
            term_bytes=snapshot.source.postings.size_bytes,
            index_id=settings["index_id"],
            whole_id=settings.get("whole_id"),
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
        return {doc_id: (documents[rows[doc_id]], views) for doc_id, views in _fetch(snapshot, rows).items()}

    def vectors(self, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the views, (k, d) as stored, of each of the documents that exist in the snapshot; no text is read."""
        snapshot = self.snapshot
        with self.reading(snapshot) as reader:
            rows = _find(reader, ids)
        return _fetch(snapshot, rows)

    def stored(self, ids: Sequence[str], encoder: str) -> Iterator[Batch]:
        """Yield the documents of the ids that are in the snapshot, and still are, as stored; see Store.stored()."""
        snapshot = self.snapshot
        if _fingerprint(snapshot.settings) == encoder:
            with self.reading(snapshot) as reader:
                rows = reader.find_live(ids)
                if len(rows):
                    yield reader.batch(rows)

    def scan(self, condition: Filter | None, after: str | None) -> Iterator[StoredDocument]:
        """Yield the documents of the snapshot that match, by rising ordinals; see Store.scan()."""
        return (document for _, document in self.scan_ordinals(condition, after))

    def each_ordinal(self) -> Iterator[tuple[int, StoredDocument]]:
        """Yield all documents of the snapshot with their ordinals, which rise."""
        return self.scan_ordinals(None, None)

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
                rows = rows[FilterReader(reader).matching(condition)[rows]]
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
        with self.reading(self.snapshot) as reader:
            yield from reader.batches(size)

    def matching(self, condition: Filter) -> Ints:
        """Return the rows of the live documents that match, (m,) int64."""
        with self.reading(self.snapshot) as reader:
            return np.flatnonzero(FilterReader(reader).matching(condition))

    def refresh(self) -> bool:
        """Make the snapshot the latest committed state; return whether it changed."""
        with self._refresh_lock:  # so that of two threads the later one never brings back the older state
            latest = self._latest_generation()
            with latest.catalog.reading() as connection:
                settings = connection.settings()
            _check_identity(self.directory, self.snapshot, settings)
            if (latest.number, settings["version"]) == self.snapshot.state:
                return False
            self.snapshot = read_snapshot(latest, self.snapshot)
            return True

    @contextmanager
    def reading(self, snapshot: Snapshot) -> Iterator[SnapshotReader]:
        """Yield a reader of the snapshot's texts, metadata and filters, inside one transaction."""
        check_mapped(snapshot.mapped_files)
        with snapshot.source.catalog.reading() as connection:
            settings = connection.settings()
            _check_identity(self.directory, snapshot, settings)
            yield SnapshotReader(connection, snapshot, settings)

    @contextmanager
    def writing(self) -> Iterator[EmbeddedWriter]:
        """Yield the only writer, with the latest snapshot; IndexLocked when there is another.

        Commits show in this store's own snapshot when the block ends, in other processes at once. StaleReader where
        another process has re-embedded the index since the snapshot: views of the old encoder must not be added.
        """
        self._check_there()
        refuse_network(self.directory)
        with writer_lock(self.directory):
            before = _fingerprint(self.settings)
            self.refresh()
            if _fingerprint(self.settings) != before:
                raise StaleReader(
                    f"{self.directory}: expected the encoder {before!r}, got {_fingerprint(self.settings)!r}: the "
                    "index was re-embedded since it was opened. Nothing was written; it is refreshed now, try again"
                )
            self._tidy_up(logging.INFO, self._remove_superseded)
            writer, has_failed = EmbeddedWriter(self), True
            self._is_written = True
            try:
                yield writer
                has_failed = False
            finally:
                self._is_written = False
                self._settle(writer, has_failed)

    def known(self, ids: Sequence[str]) -> dict[str, ExistingDocument]:
        """Return the live documents among the ids, as committed now."""
        source = self.snapshot.source
        with source.catalog.reading() as connection:
            known = catalog.find_existing(connection, ids)
            if missing := set(ids) - known.keys():
                source.check_not_live(connection, missing, connection.settings())
            return known

    def has_mark(self, mark: str) -> bool:
        """Return whether the write of this mark was carried out, as of the snapshot."""
        return result_of(self.settings, mark) is not None

    def _check_there(self) -> None:
        """Raise StaleReader when the directory was moved or removed."""
        if not self.directory.is_dir():
            raise other_index(self.directory, is_gone=True)

    def _latest_generation(self) -> Generation:
        """Return the active generation: the open one, unless another took its place."""
        current, source = active_current(self.directory), self.snapshot.source
        if current is None:
            self._check_there()
            return open_generation(self.directory)  # raises, and says why
        _check_identity(self.directory, self.snapshot, {"index_id": current.index_id})
        return source if current.generation == source.number else open_generation(self.directory)

    def _settle(self, writer: EmbeddedWriter, has_failed: bool) -> None:
        """Move the catalog's log into the database if possible, and show the commits in this store's snapshot.

        A failure is only logged: it must not make a durable write look like a failed one, and no step depends on the
        others. has_failed: the write itself did, and its error says why; then the writer may not know what it left.
        """
        level = logging.INFO if has_failed else logging.WARNING
        # The log first: what is read before it was moved is read again.
        show = self.refresh if has_failed else partial(self._show, writer)
        for step in (self._remove_superseded, self._checkpoint, show):
            self._tidy_up(level, step)

    def _show(self, writer: EmbeddedWriter) -> None:
        """Make the snapshot what the writer has left: nobody else can have made another generation the active one."""
        with self._refresh_lock:
            if writer.settings["version"] != self.snapshot.settings["version"]:
                self.snapshot = writer.snapshot(self.snapshot)

    def _tidy_up(self, level: int, step: Callable[[], object]) -> None:
        try:
            step()
        except (MvindexError, OSError) as err:
            logger.log(level, "%s: the write is durable; tidying up failed: %s", self.directory, err)

    def _remove_superseded(self) -> None:
        self.adopt_switch()
        remove_superseded(self.directory, self.snapshot.source)

    def adopt_switch(self) -> None:
        """Write the generation that this shard has moved to in a switch of all shards to its current.json."""
        if self.settings.get("shard") is not None:
            current, active = read_current(self.directory), active_current(self.directory)
            if active is not None and active != current:
                self.refresh()  # the settings are those of the generation that is named
                write_current(self.directory, active, self.settings)

    def _checkpoint(self) -> None:
        self.snapshot.source.catalog.checkpoint()


class _ClosedSnapshot(Snapshot):
    """The snapshot of a store that was closed: every use of it is refused."""

    def __init__(self, directory: Path) -> None:
        self._index = directory

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise StoreError(f"{object.__getattribute__(self, '_index')}: this index was closed; open it again")


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


def _search_of(settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the search parameters of an engine, with what it has measured of itself; None for the defaults."""
    search, measured = settings.get("search"), settings.get("measured")
    return search if measured is None else {**(search or {}), "measured": measured}


def _fetch(snapshot: Snapshot, rows: Mapping[str, int]) -> dict[str, Floats]:
    """Return the views, (k, d), of the documents with these ids and rows."""
    if not rows:
        return {}
    views, starts = snapshot.views.fetch(np.array(list(rows.values()), dtype=np.int64))
    bounds = zip(rows, starts.tolist(), starts[1:].tolist(), strict=False)
    return {doc_id: views[begin:end] for doc_id, begin, end in bounds}


def _find(reader: SnapshotReader, ids: Sequence[str]) -> dict[str, int]:
    return {doc_id: row for doc_id in ids if (row := reader.find(doc_id)) is not None}


def _shard_of(settings: Mapping[str, Any]) -> str | None:
    place = settings.get("shard")
    return None if place is None else f"{place['number']}/{place['count']}"


def _fingerprint(settings: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the index's encoder; None for an index of given vectors."""
    return (settings["encoder"] or {}).get("fingerprint")


def _check_identity(directory: Path, snapshot: Snapshot, settings: Mapping[str, Any]) -> None:
    """Raise StaleReader when another index is at the path of the one that was opened."""
    if settings.get("index_id") != snapshot.settings["index_id"]:
        raise other_index(directory, is_gone=False)
