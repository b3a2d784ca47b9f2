"""Snapshot on disk: a consistent copy of an index, made beside its readers and writer (`mvindex snapshot`)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import xxhash

from mvindex.durable import DIRECTORY_MODE, audit_step, file_checksum, flush_to_disk
from mvindex.errors import ConfigError, DamagedIndex, StaleReader
from mvindex.maintenance.read import CatalogRow, each_row
from mvindex.records import CountCallback, no_progress
from mvindex.retries import Retries
from mvindex.store import id_ranges, schema
from mvindex.store.columns import check_columns
from mvindex.store.connections import FILE_NAME, map_sqlite_errors
from mvindex.store.copies_file import copies_faults, copies_path
from mvindex.store.create import atomic_directory
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import Current, check_regular, size_of, write_acknowledged, write_current
from mvindex.store.generation import generation_name
from mvindex.store.lexical.reader import check_lexical
from mvindex.store.rows import FORMAT_VERSION
from mvindex.store.snapshot import Snapshot, snapshot_in
from mvindex.store.views import BLOCK_BYTES, MappedSegment

_PAGES = 4096
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """The outcome of a snapshot: the path of the copy, its documents and bytes, and the version that was copied."""

    path: str
    documents: int
    version: int
    size_bytes: int


def snapshot_store(store: EmbeddedStore, target: Path, on_progress: CountCallback = no_progress) -> SnapshotReport:
    """Copy the latest committed state of the store to target, complete or not there at all.

    Neither readers nor a writer wait. All bytes of the copy are checked.

    Args:
        store: The store to copy.
        target: A new directory.
        on_progress: Called with the number of bytes copied since the last call.

    Raises:
        ConfigError: The target exists, or lies inside the index.
        DamagedIndex: A file or row does not match its checksum.
    """
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; a snapshot is written to a new directory")
    if store.directory == target.absolute() or store.directory in target.absolute().parents:
        raise ConfigError(f"{target} lies inside the index; write the snapshot elsewhere")
    # Where the engine is built again while it is copied, the newer state is taken.
    return Retries(StaleReader, tries=_TRIES).run(lambda: _copy(store, target, on_progress))


def _copy(store: EmbeddedStore, target: Path, on_progress: CountCallback) -> SnapshotReport:
    store.refresh()
    source = store.snapshot.source
    with source.catalog.reading() as connection:
        state = snapshot_in(connection, source, store.snapshot)
        index_id, version = str(state.settings["index_id"]), int(state.settings["version"])
        with atomic_directory(target) as building:
            directory = building / generation_name(source.number)
            directory.mkdir(DIRECTORY_MODE)
            _copy_engine(state, directory, on_progress)
            for segment in state.segments:
                _copy_segment(segment, directory, on_progress)
            _copy_copies(state, directory, on_progress)
            _copy_catalog(connection, directory, on_progress)
            _check_catalog(connection, state)
            write_acknowledged(directory, version)
            for entry in (*sorted(directory.iterdir()), directory):
                flush_to_disk(entry)
            current = Current(format_version=FORMAT_VERSION, generation=source.number, index_id=index_id)
            write_current(building, current, state.settings)
    return SnapshotReport(path=str(target), documents=state.num_documents, version=version, size_bytes=size_of(target))


def _copy_engine(state: Snapshot, directory: Path, on_progress: CountCallback) -> None:
    record = state.settings["engine"]
    if record is None:
        return
    copied = directory / record["directory"]
    copied.mkdir(DIRECTORY_MODE)
    for name, checksum in record["checksums"].items():
        origin = state.directory / record["directory"] / name
        check_regular(origin)
        try:
            with audit_step("write", copied / name):
                shutil.copyfile(origin, copied / name)
        except FileNotFoundError as err:
            raise StaleReader(f"{origin} is gone: the engine was built again meanwhile") from err
        if file_checksum(copied / name) != checksum:
            raise DamagedIndex(f"{origin} does not match its checksum; `mvindex build` makes it again")
        flush_to_disk(copied / name)
        on_progress((copied / name).stat().st_size)
    flush_to_disk(copied)


def _copy_segment(segment: MappedSegment, directory: Path, on_progress: CountCallback) -> None:
    """Copy the committed bytes to the directory; each block is checked."""
    size_bytes = segment.committed.size_bytes
    if size_bytes == 0:
        return
    copied = directory / segment.committed.name
    with audit_step("write", copied), open(copied, "xb") as file:
        for begin in range(0, size_bytes, BLOCK_BYTES):
            block = segment.bytes[begin : begin + BLOCK_BYTES].tobytes()
            if xxhash.xxh3_64_intdigest(block) != int(segment.committed.checksums[begin // BLOCK_BYTES]):
                raise DamagedIndex(f"{segment.path}: the MiB from byte {begin} on does not match its checksum")
            on_progress(file.write(block))


def _copy_copies(state: Snapshot, directory: Path, on_progress: CountCallback) -> None:
    """Copy the file of copies where there is one; it may have blocks of documents that the state has not yet."""
    origin = copies_path(state.directory, state.generation)
    copied = directory / origin.name
    check_regular(origin)
    try:
        file = open(origin, "rb")
    except FileNotFoundError:
        return
    with file, audit_step("write", copied), open(copied, "xb") as copy:
        shutil.copyfileobj(file, copy, BLOCK_BYTES)
    for fault in copies_faults(copied, state.views):
        raise DamagedIndex(f"{origin}: {fault}; `mvindex build` makes it again, or removes it")
    on_progress(copied.stat().st_size)


def _copy_catalog(connection: sqlite3.Connection, directory: Path, on_progress: CountCallback) -> None:
    """Copy the catalog as the connection's transaction sees it, which later commits do not change."""
    path = directory / FILE_NAME
    page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
    left = int(connection.execute("PRAGMA page_count").fetchone()[0])

    def report(status: int, remaining: int, total: int) -> None:
        nonlocal left
        on_progress((left - remaining) * page_bytes)
        left = remaining

    with audit_step("write", path), map_sqlite_errors(path):
        with closing(sqlite3.connect(path)) as copy:
            connection.backup(copy, pages=_PAGES, progress=report)
            (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        source = connection.execute("PRAGMA database_list").fetchone()[2]
        what = " ".join(found.split())
        raise DamagedIndex(f"{source}, or its copy: {what}; `mvindex verify` shows which")


def _check_catalog(connection: sqlite3.Connection, state: Snapshot) -> None:
    """Check all rows of the state that was copied; raise DamagedIndex when one does not match its checksum."""
    source = state.source
    for chunk in each_row(connection, range(state.num_rows)):
        for row in chunk:
            if not isinstance(row, CatalogRow):
                raise DamagedIndex(f"{source.catalog.path}: document row {row} cannot be read")
            if faults := row.faults():
                raise DamagedIndex(f"{source.catalog.path}: document {row.document[1]!r} is damaged: {faults[0]}")
    source.check_ids(connection)
    if state.settings.get(id_ranges.ID_RANGES_KEY):
        id_ranges.check_all(connection, state.settings["ids"]["live"])
    check_columns(connection, state.settings.get(schema.FILTER_FIELDS_KEY) or {}, state.num_rows)
    if state.settings.get(schema.LEXICAL_KEY) is not None:
        check_lexical(connection, state.num_rows)
