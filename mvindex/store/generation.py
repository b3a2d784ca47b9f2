"""Generations: current.json names the active one of an index; `compact` and `reembed` write a new one.

A generation is a directory with a catalog, views, document rows and engines. Readers hold a shared lock on it, so
that a superseded generation stays whole until its last reader has gone; then the next writer removes it. This process
remembers which rows it has verified, and the documents that hits have shown lately.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import sqlite3
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from mvindex.durable import DIRECTORY_MODE, audit_step, flush_to_disk, remove_entry, rename
from mvindex.errors import DamagedIndex, StoreError
from mvindex.store import id_ranges, schema
from mvindex.store.connections import FILE_NAME, Catalog
from mvindex.store.files import Current, write_current
from mvindex.store.lexical.reader import PostingsCache
from mvindex.store.reader import RecentDocuments, VerifiedRows
from mvindex.store.rows import FORMAT_VERSION, ids_in_order
from mvindex.store.schema import read_settings
from mvindex.store.shard_switch import active_current

logger = logging.getLogger(__name__)

_NAME = re.compile(r"generation-([0-9]{6})")
# Prefixes of directories that are being written, and removed.
_UNFINISHED, _GONE = "unfinished-", "gone-"
_TRIES = 1000
_FETCH_ROWS = 65_536


def generation_name(number: int) -> str:
    """Return the name of a generation's directory inside an index."""
    return f"generation-{number:06d}"


class Generation:
    """One open generation: its files in `directory` stay while this object exists and is not closed."""

    def __init__(self, number: int, directory: Path, lock: int) -> None:
        """Take over `lock`, the descriptor of the shared lock: it is closed with this object, or when this fails."""
        self._release = weakref.finalize(self, os.close, lock)
        self.number = number
        # The index id in current.json; None where that file cannot be read.
        self.index_id: str | None = None
        self.directory = directory
        self.catalog = Catalog(directory)
        # The states, live or deleted, whose ids were all checked, once one was not found; ranges of live ids (`first`).
        self._checked_ids: set[str] = set()
        self._checked_ranges: set[str] = set()
        self.verified = VerifiedRows()
        self.recent = RecentDocuments()
        self.postings = PostingsCache()

    def postings_of(self, kind: str) -> PostingsCache:
        """Return the cache of postings of texts that are split into terms in this way, an empty one after another."""
        postings = self.postings
        if postings.kind != kind:
            postings = self.postings = PostingsCache(kind)
        return postings

    def check_not_live(self, connection: sqlite3.Connection, ids: Collection[str], settings: Mapping[str, Any]) -> None:
        """Check the SQL index of live ids around ids that were not found in it; raise DamagedIndex where it is wrong.

        In a damaged one they might only be in the wrong place. Each part of it is checked once per process.
        """
        if "live" in self._checked_ids:
            return
        if settings.get(id_ranges.ID_RANGES_KEY):
            try:
                if not self._checked_ranges:
                    id_ranges.check_totals(connection, settings["ids"]["live"])
                id_ranges.check(connection, ids, self._checked_ranges)
                return
            except (DamagedIndex, sqlite3.Error, UnicodeDecodeError) as err:
                # Of the ranges, or of the ids: all ids tell.
                logger.warning("%s: all ids are checked: %s", self.directory, err)
        self.check_ids(connection, ["live"])

    def check_ids(self, connection: sqlite3.Connection, states: Collection[str] = ("live", "deleted")) -> None:
        """Check that all ids stand in their SQL indexes, in order; raise DamagedIndex otherwise. Runs once per process.

        An index in order, whose entries have the right checksum, leads to each of them.
        """
        settings = read_settings(connection)
        for state in states:
            if state in self._checked_ids:
                continue
            condition = "alive" if state == "live" else "NOT alive"
            # Both columns are in the SQL index.
            query = f"SELECT doc_row, id FROM documents INDEXED BY documents_{state} WHERE {condition} ORDER BY id"  # noqa: S608
            if [*_all_in_order(connection.execute(query))] != settings["ids"][state]:
                raise DamagedIndex(f"{self.catalog.path}: the ids of its documents do not match their checksum")
            self._checked_ids.add(state)

    def close(self) -> None:
        """Close all connections and release the lock: superseded files may then be removed."""
        self.catalog.close()
        self._release()


def open_generation(index: Path) -> Generation:
    """Return the active generation, locked against removal.

    StoreError when there is no index, or one of another format; DamagedIndex when current.json names none.
    """
    for _ in range(_TRIES):
        current = active_current(index)
        if current is None:
            raise _no_index(index)
        found = _try_open(index, current)
        if found is not None:
            return found
    raise StoreError(f"{index}: its generations are replaced faster than one can be opened")


def check_format(index: Path, current: Current) -> None:
    """Raise StoreError where current.json is of another format version; it names both versions and the way out."""
    if current.format_version != FORMAT_VERSION:
        raise _other_format(index, current.format_version)


def try_lock_generation(number: int, directory: Path) -> Generation | None:
    """Return the generation in this directory, locked against removal; None when it is gone or being removed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(directory, flags)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StoreError(f"{directory}: cannot be opened: {err.strerror or err}") from err
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as err:
        logger.warning("%s: cannot be locked: %s; a compaction may remove it while it is read", directory, err)
    return Generation(number, directory, handle)


def lock_generation(number: int, directory: Path) -> Generation:
    """Return the generation in this directory, locked against removal; StoreError when it is gone."""
    found = try_lock_generation(number, directory)
    if found is None:
        raise StoreError(f"{directory} was removed by another process")
    return found


def unfinished(index: Path, number: int) -> Path:
    """Make a new directory in which a generation may be written; nobody reads it before publish()."""
    directory = index / f"{_UNFINISHED}{generation_name(number)}-{secrets.token_hex(4)}"
    directory.mkdir(DIRECTORY_MODE)
    return directory


def publish(index: Path, directory: Path, current: Current, settings: Mapping[str, Any]) -> None:
    """Make the generation in the directory the active one, durably, or change nothing. settings: of its catalog."""
    place(index, directory, current.generation)
    write_current(index, current, settings)


def place(index: Path, directory: Path, number: int) -> None:
    """Give the generation in the directory its name, durably; nothing names it yet."""
    flush_to_disk(directory)
    rename(directory, index / generation_name(number))


def remove_superseded(index: Path, current: Generation) -> list[Path]:
    """Remove superseded and unfinished generations; return those that a reader still has locked.

    Call as the one writer.
    """
    kept = []
    for directory in _superseded(index, current):
        if not _remove_unless_locked(directory):
            kept.append(directory)
    return kept


def retire(directory: Path) -> None:
    """Take a directory of an index out of use; the writer removes it with superseded generations."""
    rename(directory, directory.with_name(f"{_GONE}generation-{secrets.token_hex(4)}"))


def _superseded(index: Path, current: Generation) -> Iterator[Path]:
    for entry in sorted(index.iterdir()):
        is_other = bool(_NAME.fullmatch(entry.name)) and entry != current.directory
        if (is_other or entry.name.startswith((_UNFINISHED, f"{_GONE}generation-"))) and entry.is_dir():
            yield entry


def _try_open(index: Path, current: Current) -> Generation | None:
    """Return the generation that current.json names; None when another one took its place meanwhile."""
    check_format(index, current)
    directory = index / generation_name(current.generation)
    found = try_lock_generation(current.generation, directory)
    is_still_current = active_current(index) == current
    if found is not None and is_still_current:
        found.index_id = current.index_id
        return found
    if is_still_current and not directory.exists():
        raise DamagedIndex(f"{index}: current.json names {directory.name}, which is not there")
    return None


def _no_index(index: Path) -> StoreError:
    """Return the error for a place without current.json: a directory, a file, or nothing."""
    if index.is_file():
        return StoreError(
            f"{index}: expected the directory of an index, got a file. `mvindex ingest {index} --index NAME.mvx` makes "
            "an index of documents; a Faiss file is read as it is: faiss:FILE"
        )
    if any(_NAME.fullmatch(entry.name) for entry in _entries(index)):
        return DamagedIndex(f"{index}: current.json is gone; `mvindex build` makes it again from the catalog")
    if _is_catalog(index / FILE_NAME):
        return _other_format(index, 1)  # the only one with its catalog there
    return StoreError(f"{index}: there is no mvindex index here (no current.json in it); mvindex ingest makes one")


def _is_catalog(path: Path) -> bool:
    """Return whether the file's header has the application id of a catalog, at byte 68 of every SQLite database."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return int.from_bytes(file.read(72)[68:], "big") == schema.APPLICATION_ID


def _other_format(index: Path, version: int) -> StoreError:
    return StoreError(
        f"{index}: expected format version {FORMAT_VERSION}, got format version {version}. "
        "Make the index again with this version of mvindex, or open it with the one that wrote it"
    )


def _entries(index: Path) -> list[Path]:
    try:
        return list(index.iterdir())
    except OSError:
        return []


def _remove_unless_locked(directory: Path) -> bool:
    """Remove the directory unless a reader has it locked; return whether it is gone."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not directory.name.startswith(_GONE):
            # Renamed first, so that a reader finds it whole or not at all.
            gone = directory.with_name(f"{_GONE}generation-{secrets.token_hex(4)}")
            with audit_step("rename", directory):
                directory = directory.rename(gone)
        with audit_step("remove", directory):
            remove_entry(directory)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def generations_in(index: Path) -> list[tuple[int, Path]]:
    """Return the numbers and directories of all generations in the index, active or not."""
    matches = ((_NAME.fullmatch(entry.name), entry) for entry in _entries(index))
    return sorted((int(match[1]), entry) for match, entry in matches if match is not None)


def _all_in_order(cursor: sqlite3.Cursor) -> tuple[int, int]:
    """Return the number of rows, and the checksum of their ids, or -1 for it when they are not in order."""
    count, total, last = 0, 0, ""
    while rows := cursor.fetchmany(_FETCH_ROWS):
        found, checksum = ids_in_order(rows, last)
        if checksum == -1:
            return count, -1
        count, total, last = count + found, (total + checksum) % (1 << 64), str(rows[-1][1])
    return count, total
