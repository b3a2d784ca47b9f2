"""Check of every byte of an index against its checksum (`mvindex verify`): damage is reported, not raised."""

from __future__ import annotations

import re
import sqlite3
import stat
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.durable import file_checksum
from mvindex.errors import MvindexError, StoreError
from mvindex.maintenance.read import CatalogRow, DeletedRows, Problem, StoredViews, each_row, find_generation
from mvindex.records import CountCallback, no_progress
from mvindex.store import catalog, id_ranges, schema
from mvindex.store.columns import check_columns
from mvindex.store.copies_file import copies_faults, copies_path
from mvindex.store.files import (
    ACKNOWLEDGED,
    CURRENT,
    check_regular,
    read_acknowledged,
    read_kept_settings,
)
from mvindex.store.generation import Generation
from mvindex.store.lexical.reader import check_lexical
from mvindex.store.rows import FORMAT_VERSION
from mvindex.store.shard_switch import active_current
from mvindex.store.snapshot import Snapshot, read_checked, read_snapshot, segment_names
from mvindex.store.views import BLOCK_BYTES, ROW_DTYPE, CommittedSegment, ViewType, block_checksum

_MAX_MESSAGES = 100
_FILES = re.compile(r"current\.json|writer\.lock|catalog\.sqlite|acknowledged|views-|rows-|copies-")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of a check.

    Attributes:
        path: The index.
        format_version: Its format version.
        documents: How many live documents it has.
        damaged_documents: How many of them are not wholly sound.
        size_bytes: How many bytes were read.
        problems: What is damaged; empty for a sound index.
    """

    path: str
    format_version: int
    documents: int
    damaged_documents: int
    size_bytes: int
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        """Whether every byte is as it was written."""
        return not self.problems


def verify(path: str | Path, on_progress: CountCallback = no_progress) -> VerifyReport:
    """Read and check every file, document and row of the index at path.

    Takes no lock; a state that is committed while it runs is not read. on_progress: called with the number of bytes
    read since the last call. StoreError when there is no index at the path.
    """
    index = Path(path).absolute()
    with closing(find_generation(index)) as source:
        check = _Check(index, source, on_progress)
        check.entries()
        try:
            check.acknowledged()
            with source.catalog.reading() as connection:
                check.catalog(connection)
                check.contents(connection)
            # An index that it refuses is not sound, whatever the checksums say.
            check.copies(None if check.problems else read_snapshot(source))
        except MvindexError as err:
            check.add(source.catalog.path, str(err))
        return VerifyReport(
            path=str(index),
            format_version=FORMAT_VERSION,
            documents=check.documents,
            damaged_documents=check.damaged,
            size_bytes=check.size_bytes,
            problems=tuple(sorted(check.problems, key=lambda problem: problem.is_derived)),
        )


class _Check:
    """The check of one generation, and the problems found so far."""

    def __init__(self, index: Path, source: Generation, on_progress: CountCallback) -> None:
        self._index, self._source = index, source
        self._on_progress = on_progress
        self._acknowledged = 0
        self.problems: list[Problem] = []
        self.documents = self.damaged = self.size_bytes = 0

    def add(self, file: Path, what: str, *, document: str | None = None, is_derived: bool = False) -> None:
        """Note a problem."""
        self.problems.append(Problem(str(file), document, what, is_derived))

    def entries(self) -> None:
        """Check current.json, and that all entries are regular files and directories."""
        index = self._index
        try:
            current = active_current(index)
            # A compaction may have published a later one since.
            if current is None or current.generation < self._source.number:
                self.add(index / CURRENT, f"does not name {self._source.directory.name}", is_derived=True)
        except MvindexError as err:
            self.add(index / CURRENT, str(err), is_derived=True)
        for entry in sorted({*_entries(index), *_entries(self._source.directory)}):
            is_derived = entry.name in (CURRENT, ACKNOWLEDGED) or entry.name.startswith(("rows-", "copies-"))
            try:
                mode = entry.lstat().st_mode
            except FileNotFoundError:  # old files of a compaction are removed once no reader uses them
                continue
            if stat.S_ISLNK(mode):
                self.add(entry, "is a symbolic link; an index has none", is_derived=is_derived)
            elif not stat.S_ISREG(mode) and (not stat.S_ISDIR(mode) or _FILES.match(entry.name)):
                self.add(entry, "is no regular file", is_derived=is_derived)

    def acknowledged(self) -> None:
        """Read the last acknowledged version; before the catalog, which may hold a later one."""
        try:
            self._acknowledged = read_acknowledged(self._source.directory)
        except MvindexError as err:
            self.add(self._source.directory / ACKNOWLEDGED, str(err), is_derived=True)

    def catalog(self, connection: sqlite3.Connection) -> None:
        """Check the database as SQLite sees it, and its version against the acknowledged one."""
        path = self._source.catalog.path
        try:
            schema.check_application(connection, path)
            schema.check_schema(connection)
            for (message,) in connection.execute(f"PRAGMA integrity_check({_MAX_MESSAGES})"):
                if message != "ok":
                    self.add(path, message)
        except (sqlite3.Error, UnicodeDecodeError) as err:
            self.add(path, f"SQLite cannot read it whole: {err}")
        self._read(path.stat().st_size)
        version = int(read_checked(self._source, connection)["version"])
        if version < self._acknowledged:
            what = f"holds version {version}; version {self._acknowledged} was acknowledged: later commits are lost"
            self.add(path, what)

    def contents(self, connection: sqlite3.Connection) -> None:
        """Check all documents, views, document rows and engine files."""
        settings = read_checked(self._source, connection)
        if not agrees(read_kept_settings(self._index), settings):
            self.add(self._index / CURRENT, "its settings are not those of the catalog", is_derived=True)
        self._derived_tables(connection, settings)
        view_file, row_file = (catalog.read_committed(connection, name) for name in segment_names(settings))
        row_bytes = (settings["dim"] or 1) * ViewType(settings["dtype"]).dtype.itemsize
        views = StoredViews(self._source.directory / view_file.name, row_bytes)
        if views.refused is not None:
            self.add(views.path, views.refused)
            return
        blocks = BlockCheck(views.bytes, view_file)
        deleted = DeletedRows()
        damaged_views: list[tuple[int, int]] = []
        for chunk in each_row(connection, range(row_file.size_bytes // ROW_DTYPE.itemsize)):
            rows = self._sound_rows(chunk)
            deleted.add([row.document[0] for row in rows if not row.alive])
            documents = [row.document for row in rows]
            for row, is_sound in zip(rows, views.are_sound(documents).tolist(), strict=True):
                if not is_sound:
                    damaged_views.append((row.document[3] * row_bytes, (row.document[3] + row.document[4]) * row_bytes))
                    self._add_document(views.path, row, "its views do not match their checksum")
            ends = [document[3] + document[4] for document in documents]
            self._read(blocks.check_until(max(ends, default=0) * row_bytes))
        self._read(blocks.check_until(view_file.size_bytes))
        self._add_blocks(views.path, blocks, damaged_views)
        self._row_file(row_file)
        if not deleted.matches(settings["deleted"]):
            self.add(self._source.catalog.path, "the set of deleted documents does not match its checksum")
        self._engine(settings["engine"])

    def copies(self, snapshot: Snapshot | None) -> None:
        """Check the file of copies, which is derived; that it is of the snapshot's views, too, where that is sound."""
        path = copies_path(self._source.directory, self._source.number)
        for fault in copies_faults(path, snapshot.views if snapshot is not None else None):
            self.add(path, fault, is_derived=True)
        with suppress(FileNotFoundError):
            self._read(path.stat().st_size)

    def _derived_tables(self, connection: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
        """Check the ranges of ids, the lexical index, and the columns of filter fields."""
        num_rows = int(settings["ids"]["live"][0]) + int(settings["ids"]["deleted"][0])
        fields = settings.get(schema.FILTER_FIELDS_KEY) or {}
        has_lexical = settings.get(schema.LEXICAL_KEY) is not None
        has_ranges = bool(settings.get(id_ranges.ID_RANGES_KEY))
        for is_there, is_derived, check in (
            (has_ranges, False, partial(id_ranges.check_all, connection, settings["ids"]["live"])),
            (bool(fields), True, partial(check_columns, connection, fields, num_rows)),
            (has_lexical, True, partial(check_lexical, connection, num_rows)),
        ):
            try:
                if is_there:
                    check()
            except (sqlite3.Error, ValueError, MvindexError) as err:
                self.add(self._source.catalog.path, str(err), is_derived=is_derived)

    def _sound_rows(self, chunk: list[CatalogRow | int]) -> list[CatalogRow]:
        """Return the rows without faults; note the others, each with its faults."""
        sound = []
        for row in chunk:
            if not isinstance(row, CatalogRow):
                self.damaged += 1
                self.add(self._source.catalog.path, "its rows cannot be read", document=f"row {row}")
                continue
            self.documents += bool(row.alive)
            faults = row.faults()
            if faults:
                self._add_document(self._source.catalog.path, row, "; ".join(faults))
            else:
                sound.append(row)
        return sound

    def _add_document(self, file: Path, row: CatalogRow, what: str) -> None:
        """Note a document's damage, of a deleted one too: the file is not as it was written."""
        self.damaged += bool(row.alive)
        state = "" if row.alive else " (deleted or replaced)"
        self.add(file, what, document=f"{row.document[1]!s} (row {row.document[0]}){state}")

    def _add_blocks(self, path: Path, blocks: BlockCheck, damaged_views: list[tuple[int, int]]) -> None:
        """Note damaged blocks whose documents are all sound: then the checksum is damaged, or bytes of no view."""
        if blocks.is_short:
            self.add(
                path,
                f"expected {blocks.committed.size_bytes} bytes, by catalog.sqlite; got {len(blocks.bytes)} on disk",
            )
        for begin, end in blocks.damaged:
            if not any(low < end and begin < high for low, high in damaged_views):
                self.add(
                    path,
                    f"bytes {begin} to {end} do not match the block's checksum in catalog.sqlite, its documents do",
                )

    def _row_file(self, committed: CommittedSegment) -> None:
        """Check the file of document rows, which is derived from the catalog."""
        rows = StoredViews(self._source.directory / committed.name, ROW_DTYPE.itemsize)
        if rows.refused is not None:
            self.add(rows.path, rows.refused)
            return
        blocks = BlockCheck(rows.bytes, committed)
        self._read(blocks.check_until(committed.size_bytes))
        if blocks.is_short or blocks.damaged:
            self.add(rows.path, "does not match its length or checksums in catalog.sqlite", is_derived=True)

    def _engine(self, record: Mapping[str, Any] | None) -> None:
        """Check the files of the engine, all derived."""
        if record is None:
            return
        for name, checksum in record["checksums"].items():
            path = self._source.directory / record["directory"] / name
            try:
                check_regular(path)
                if file_checksum(path) != checksum:
                    self.add(path, "does not match its checksum", is_derived=True)
                self._read(path.stat().st_size)
            except (OSError, MvindexError) as err:
                if self._is_replaced(record):
                    return
                self.add(path, f"cannot be read: {err}", is_derived=True)

    def _is_replaced(self, record: Mapping[str, Any]) -> bool:
        """Return whether another engine was built since: the files of this one are then gone, as they should be."""
        with self._source.catalog.reading() as connection:
            return bool(schema.read_settings(connection)["engine"] != record)

    def _read(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._on_progress(size_bytes)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as err:
        raise StoreError(f"{directory}: cannot be listed: {err.strerror or err}") from err


def agrees(kept: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> bool:
    """Return whether the settings kept in current.json are the catalog's, as far as they were known when written."""
    return all(value in (None, settings.get(name)) for name, value in (kept or {}).items())


class BlockCheck:
    """The blocks of an append-only file, checked from first to last; damaged: where each bad one begins and ends."""

    def __init__(self, data: npt.NDArray[np.uint8], committed: CommittedSegment) -> None:
        self.bytes = data
        self.committed = committed
        self.damaged: list[tuple[int, int]] = []
        self._next = 0

    @property
    def is_short(self) -> bool:
        """Whether committed bytes are missing."""
        return len(self.bytes) < self.committed.size_bytes

    def check_until(self, end: int) -> int:
        """Check all blocks that end up to there; return how many bytes were checked now."""
        begin = self._next * BLOCK_BYTES
        while self._next < len(self.committed.checksums):
            low = self._next * BLOCK_BYTES
            high = min(low + BLOCK_BYTES, self.committed.size_bytes)
            if high > end:
                return low - begin
            if block_checksum(self.bytes[low:high]) != int(self.committed.checksums[self._next]):
                self.damaged.append((low, high))
            self._next += 1
        return self.committed.size_bytes - begin if begin < self.committed.size_bytes else 0
