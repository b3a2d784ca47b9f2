"""Small files that are read and written whole: current.json and the acknowledged version; and checks of file types.

Both are tiny, checksummed, and derived from the catalog: `mvindex build` makes them again.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from mvindex.durable import audit_step, flush_to_disk, rename
from mvindex.errors import DamagedIndex, MvindexError, StoreError

CURRENT = "current.json"
ACKNOWLEDGED = "acknowledged"
# Settings that a salvage needs besides the documents: kept in current.json as well, for a catalog whose settings are
# damaged. The dimensions of a first generation may be missing.
KEPT_SETTINGS = ("dtype", "dim", "encoder", "temperature", "prune_views")
_MAX_BYTES = 1 << 16
_INDEX_ID = re.compile(r"[0-9a-f]{32}")
_MOST_DIGITS = 20
# A reader may see the one write of a few bytes half done.
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The active state of an index: its format version, the number of its generation, and its id."""

    format_version: int
    generation: int
    index_id: str


class MappedFile(NamedTuple):
    """A file of which the first size_bytes are mapped."""

    path: Path
    memory: mmap.mmap
    size_bytes: int


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Check that no file was cut since it was mapped; raise DamagedIndex, where reading would end the process.

    A mapping knows its file, also where that was removed or replaced.
    """
    for path, memory, size_bytes in files:
        if (found_bytes := memory.size()) < size_bytes:
            check_length(path, found_bytes, size_bytes)


def check_length(path: Path, found_bytes: int, expected_bytes: int) -> None:
    """Check that a file has no fewer bytes than expected; raise DamagedIndex if it does."""
    if found_bytes < expected_bytes:
        raise DamagedIndex(f"{path}: expected {expected_bytes} committed bytes, got {found_bytes} on disk")


def check_regular(path: Path) -> None:
    """Check that a path is a regular file or does not exist; raise StoreError for a link, directory, pipe or device."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
    if stat.S_ISLNK(mode):
        raise StoreError(
            f"{path}: expected one of the index's own files, got a symbolic link, which could lead anywhere. "
            "Move it away"
        )
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path}: expected one of the index's own files, got no regular file. Move it away")


def check_single_name(path: Path) -> None:
    """Check that a path is a regular file under one name, or does not exist; raise StoreError if not.

    What is written to a file of several names (hard links) is written to all of them, wherever they lie.
    """
    check_regular(path)
    with suppress(FileNotFoundError):
        if (links := os.lstat(path).st_nlink) > 1:
            raise StoreError(
                f"{path}: expected one of the index's own files, got one under {links} names (hard links). Move it away"
            )


def check_directory(path: Path) -> None:
    """Check that a path is a directory or does not exist; raise StoreError for a link, or anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        raise StoreError(f"{path}: expected one of the index's own directories, got a link or another kind of file")


def read_current(directory: Path) -> Current | None:
    """Return the content of current.json; None when there is none. DamagedIndex when it is not as it was written."""
    path = directory / CURRENT
    content = _read_small(path)
    if content is None:
        return None
    try:
        record = json.loads(content)
        found = Current(**{name: record[name] for name in Current.__slots__})
        is_sound = record["mvindex"] == "index" and record["checksum"] == _record_checksum(found)
        is_sound &= record.get("settings_checksum") == _settings_checksum(record.get("settings"))
    except (ValueError, TypeError, KeyError, RecursionError) as err:
        raise _damaged_current(path, f"it does not hold what mvindex writes ({type(err).__name__}: {err})") from err
    if not is_sound or not _is_valid(found):
        raise _damaged_current(path, "its values do not match its checksum")
    return found


def read_kept_settings(directory: Path) -> dict[str, Any] | None:
    """Return the settings kept in current.json; None where there are none, or they do not match their checksum."""
    try:
        record = json.loads(_read_small(directory / CURRENT) or b"null")
        kept = record["settings"]
        is_sound = isinstance(kept, dict) and record["settings_checksum"] == _settings_checksum(kept)
    except (MvindexError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return kept if is_sound else None


def write_current(directory: Path, current: Current, settings: Mapping[str, Any]) -> None:
    """Write current.json, durably, or leave it as it was. settings: those of the catalog."""
    record: dict[str, Any] = {"mvindex": "index", **{name: getattr(current, name) for name in Current.__slots__}}
    record["checksum"] = _record_checksum(current)
    record["settings"] = {name: settings.get(name) for name in KEPT_SETTINGS}
    record["settings_checksum"] = _settings_checksum(record["settings"])
    fresh = directory / f"{CURRENT}.new"
    check_regular(fresh)
    try:
        with audit_step("write", fresh):
            fresh.write_text(json.dumps(record) + "\n")
        flush_to_disk(fresh)
        rename(fresh, directory / CURRENT)
    except OSError:
        with suppress(OSError):  # the error that is raised says why
            fresh.unlink(missing_ok=True)
        raise


def read_acknowledged(directory: Path) -> int:
    """Return the last version noted as acknowledged; DamagedIndex when the note is gone or damaged."""
    path = directory / ACKNOWLEDGED
    for _ in range(_TRIES):
        content = _read_small(path)
        if content is None:
            raise DamagedIndex(f"{path} is gone; `mvindex build` makes it again")
        number, _, checksum = content.rstrip(b"\n").partition(b" ")
        if content == _acknowledgement(number) and checksum and number.isdigit() and len(number) <= _MOST_DIGITS:
            return int(number)
    raise DamagedIndex(f"{path} does not match its checksum; `mvindex build` makes it again")


def write_acknowledged(directory: Path, version: int) -> None:
    """Note the version as acknowledged.

    Called after the commit and not fsynced: after a power cut it may name an older version than the catalog holds,
    never a newer one.
    """
    path = directory / ACKNOWLEDGED
    check_single_name(path)
    content = _acknowledgement(f"{version:020d}".encode())
    with audit_step("write", path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(handle, content, 0)
            if os.fstat(handle).st_size != len(content):
                os.ftruncate(handle, len(content))
        finally:
            os.close(handle)


def _acknowledgement(number: bytes) -> bytes:
    return b"%s %s\n" % (number, xxhash.xxh3_64_hexdigest(number).encode())


def _read_small(path: Path) -> bytes | None:
    """Return the content, up to a size that no sound file has; None when there is no file."""
    check_regular(path)
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err


def _record_checksum(current: Current) -> str:
    text = json.dumps([getattr(current, name) for name in Current.__slots__])
    return str(xxhash.xxh3_64_hexdigest(text.encode()))


def _settings_checksum(settings: object) -> str | None:
    """Return the checksum of the settings as JSON; None for none."""
    if settings is None:
        return None
    return str(xxhash.xxh3_64_hexdigest(json.dumps(settings, sort_keys=True).encode()))


def _is_valid(found: Current) -> bool:
    numbers = (found.format_version, found.generation)
    are_numbers = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return are_numbers and 0 < found.generation < 10**6 and bool(_INDEX_ID.fullmatch(str(found.index_id)))


def _damaged_current(path: Path, what: str) -> DamagedIndex:
    return DamagedIndex(f"{path}: {what}; `mvindex build` makes it again from the catalog")
