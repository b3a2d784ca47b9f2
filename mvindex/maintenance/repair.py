"""Repair of derived files from the catalog: current.json, the acknowledged version, the file of document rows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.durable import audit_step, flush_to_disk, remove_entry, rename
from mvindex.errors import DamagedIndex, MvindexError, StoreError
from mvindex.maintenance.read import CatalogRow, StoredViews, each_row, find_generation
from mvindex.maintenance.verify import BlockCheck, agrees
from mvindex.store import catalog, schema
from mvindex.store.copies_file import copies_faults, copies_path
from mvindex.store.files import (
    ACKNOWLEDGED,
    CURRENT,
    Current,
    check_regular,
    read_acknowledged,
    read_current,
    read_kept_settings,
    refuse_network,
    write_acknowledged,
    write_current,
    writer_lock,
)
from mvindex.store.generation import Generation
from mvindex.store.rows import FORMAT_VERSION
from mvindex.store.snapshot import read_checked, segment_names
from mvindex.store.views import ROW_DTYPE, CommittedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The outcome of a repair.

    Attributes:
        made_again: The files that were made again; none where all were sound.
        removed: Damaged files that are only for speed; a build makes them again.
    """

    made_again: tuple[str, ...]
    removed: tuple[str, ...] = ()


def repair(path: str | Path) -> RepairReport:
    """Make damaged derived files again from the catalog; engines are left to a build.

    Takes the writer lock. DamagedIndex when the catalog itself is damaged: `mvindex verify --salvage` saves what is
    sound.
    """
    index = Path(path).absolute()
    refuse_network(index)
    with closing(find_generation(index)) as source:
        try:
            with writer_lock(index), source.catalog.reading() as connection:
                made = _repair(index, source, connection)
                return RepairReport(made_again=tuple(made), removed=tuple(_remove_copies(source)))
        except OSError as err:
            raise StoreError(f"{index}: cannot be repaired: {err}") from err


def _repair(index: Path, source: Generation, connection: sqlite3.Connection) -> list[str]:
    """Make damaged files again; return their paths."""
    index_id = str(schema.read_settings(connection).get("index_id"))
    if source.index_id not in (None, index_id):
        _check_files_belong(source, connection)
        source.index_id = index_id
    settings = read_checked(source, connection)
    made = _repair_acknowledged(source, int(settings["version"]))
    made += _repair_rows(source, connection)
    return made + _repair_current(index, source, settings)


def _check_files_belong(source: Generation, connection: sqlite3.Connection) -> None:
    """Check that views and rows belong to this catalog: then current.json is another index's."""
    names = segment_names(schema.read_settings(connection))
    segments = [catalog.read_committed(connection, name) for name in names]
    are_sound = [_is_sound(StoredViews(source.directory / each.name, 1).bytes, each) for each in segments]
    if not all(are_sound) or not all(each.size_bytes for each in segments):
        raise DamagedIndex(
            f"{source.catalog.path} and current.json are of two indexes; which of them belongs here is unknown"
        )


def _repair_current(index: Path, source: Generation, settings: Mapping[str, Any]) -> list[str]:
    index_id = str(settings["index_id"])
    with suppress(MvindexError):
        found = read_current(index)
        names_it = found is not None and (found.generation, found.index_id) == (source.number, index_id)
        if names_it and agrees(read_kept_settings(index), settings):
            return []
    path = index / CURRENT
    _remove_foreign(path)
    write_current(index, Current(format_version=FORMAT_VERSION, generation=source.number, index_id=index_id), settings)
    return [str(path)]


def _repair_acknowledged(source: Generation, version: int) -> list[str]:
    path = source.directory / ACKNOWLEDGED
    try:
        acknowledged = read_acknowledged(source.directory)
    except MvindexError:
        _remove_foreign(path)
        write_acknowledged(source.directory, version)
        flush_to_disk(path)
        return [str(path)]
    if version < acknowledged:
        raise DamagedIndex(
            f"{source.catalog.path}: holds version {version}, but version {acknowledged} was acknowledged: commits are "
            "lost. `mvindex verify --salvage DIR` saves the older state"
        )
    return []


def _repair_rows(source: Generation, connection: sqlite3.Connection) -> list[str]:
    """Make the file of document rows again from the catalog's documents; its checksums there verify it."""
    settings = read_checked(source, connection)
    committed = catalog.read_committed(connection, segment_names(settings)[1])
    path = source.directory / committed.name
    if not path.is_symlink() and _is_sound(StoredViews(path, ROW_DTYPE.itemsize).bytes, committed):
        return []
    _remove_foreign(path)
    records = _records(source, connection, committed.size_bytes // ROW_DTYPE.itemsize)
    if not _is_sound(records.view(np.uint8).reshape(-1), committed):
        raise DamagedIndex(
            f"{source.catalog.path}: its rows of documents do not match {path.name}'s checksums; it is damaged"
        )
    fresh = path.with_name(f"{path.name}.new")
    check_regular(fresh)
    with audit_step("write", fresh):
        fresh.write_bytes(records.tobytes())
    flush_to_disk(fresh)
    rename(fresh, path)
    return [str(path)]


def _remove_copies(source: Generation) -> list[str]:
    """Remove the file of copies where it is damaged."""
    path = copies_path(source.directory, source.number)
    if not any(copies_faults(path)):
        return []
    with audit_step("remove", path):
        remove_entry(path)
    return [str(path)]


def _is_sound(data: npt.NDArray[np.uint8], committed: CommittedSegment) -> bool:
    blocks = BlockCheck(data, committed)
    blocks.check_until(committed.size_bytes)
    return not (blocks.is_short or blocks.damaged)


def _records(source: Generation, connection: sqlite3.Connection, num_rows: int) -> npt.NDArray[np.void]:
    """Return the records of all document rows, (num_rows,) ROW_DTYPE; DamagedIndex when a row is damaged."""
    records = np.zeros(num_rows, dtype=ROW_DTYPE)
    for chunk in each_row(connection, range(num_rows)):
        for row in chunk:
            if not isinstance(row, CatalogRow) or row.faults():
                number = row.document[0] if isinstance(row, CatalogRow) else row
                raise DamagedIndex(f"{source.catalog.path}: row {number} is damaged; nothing can be made again from it")
        documents = [row.document for row in chunk if isinstance(row, CatalogRow)]
        part = slice(documents[0][0], documents[0][0] + len(documents))
        records["ordinal"][part] = [document[2] for document in documents]
        records["view_start"][part] = [document[3] for document in documents]
        records["checksum"][part] = np.array([document[5] for document in documents], dtype=np.int64).view(np.uint64)
    return records


def _remove_foreign(path: Path) -> None:
    """Remove a link, pipe, socket or device from a file's place; StoreError for a directory."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        os.unlink(path)
    elif path.is_dir():
        raise StoreError(f"{path}: expected one of the index's own files, got a directory. Move it away")
