"""Files of an index that are read and written whole: current.json, the acknowledged version; and what may be opened.

Both are tiny, checksummed, and derived from the catalog: `mvindex build` makes them again.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from mvindex.errors import DamagedIndex, MvindexError, StoreError
from mvindex.store.fsync import announced, flush_to_disk, rename

CURRENT = "current.json"
ACKNOWLEDGED = "acknowledged"
# What a new index needs of an old one, beside its documents: kept in current.json as well, for when the catalog is
# damaged there. The dimensions of a first generation may be missing.
KEPT_SETTINGS = ("dtype", "dim", "encoder", "temperature", "prune_views")
_MAX_BYTES = 1 << 16
_INDEX_ID = re.compile(r"[0-9a-f]{32}")
_MOST_DIGITS = 20
# A reader may meet the one write of a few bytes half done.
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What counts of an index: its format, the number of its generation, and the id it was made with."""

    format_version: int
    generation: int
    index_id: str


def check_regular(path: Path) -> None:
    """Nothing, for a regular file, or none at all; StoreError for a link, a directory, a pipe or a device."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
    if stat.S_ISLNK(mode):
        raise StoreError(f"{path} is a symbolic link; an index holds none: it could lead anywhere")
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path} is no regular file; wanted one of the index's own files")


def check_directory(path: Path) -> None:
    """Nothing, for a directory, or nothing at all; StoreError for a link to one, or anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        raise StoreError(f"{path} is a link, or no directory; wanted one of the index's own directories")


def read_current(directory: Path) -> Current | None:
    """What current.json says; None when there is none. DamagedIndex when it is not what was written."""
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
    """The settings that stand in current.json; None where there are none, or they do not match their checksum."""
    try:
        record = json.loads(_read_small(directory / CURRENT) or b"null")
        kept = record["settings"]
        is_sound = isinstance(kept, dict) and record["settings_checksum"] == _settings_checksum(kept)
    except (MvindexError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return kept if is_sound else None


def write_current(directory: Path, current: Current, settings: Mapping[str, Any]) -> None:
    """Nothing; current.json says this, durably, or what it said before. settings: those of the catalog."""
    record: dict[str, Any] = {"mvindex": "index", **{name: getattr(current, name) for name in Current.__slots__}}
    record["checksum"] = _record_checksum(current)
    record["settings"] = {name: settings.get(name) for name in KEPT_SETTINGS}
    record["settings_checksum"] = _settings_checksum(record["settings"])
    fresh = directory / f"{CURRENT}.new"
    check_regular(fresh)
    try:
        with announced("write", fresh):
            fresh.write_text(json.dumps(record) + "\n")
        flush_to_disk(fresh)
        rename(fresh, directory / CURRENT)
    except OSError:
        with suppress(OSError):  # the error that is raised says why
            fresh.unlink(missing_ok=True)
        raise


def read_acknowledged(directory: Path) -> int:
    """The newest version that was acknowledged, when this was last written; DamagedIndex when that cannot be told."""
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
    """Nothing; the version is named as acknowledged.

    Called after the commit and not fsynced: after a power cut it may name an older version than the catalog holds,
    never a newer one.
    """
    path = directory / ACKNOWLEDGED
    check_regular(path)
    with announced("write", path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            content = _acknowledgement(f"{version:020d}".encode())
            os.pwrite(handle, content, 0)
            if os.fstat(handle).st_size != len(content):
                os.ftruncate(handle, len(content))
        finally:
            os.close(handle)


def _acknowledgement(number: bytes) -> bytes:
    return b"%s %s\n" % (number, xxhash.xxh3_64_hexdigest(number).encode())


def _read_small(path: Path) -> bytes | None:
    """The content, up to a size that no sound file has; None when there is no file."""
    check_regular(path)
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err


def _record_checksum(current: Current) -> str:
    text = json.dumps([getattr(current, name) for name in Current.__slots__])
    return str(xxhash.xxh3_64_hexdigest(text.encode()))


def _settings_checksum(settings: object) -> str | None:
    """Of the settings as JSON; None for none."""
    if settings is None:
        return None
    return str(xxhash.xxh3_64_hexdigest(json.dumps(settings, sort_keys=True).encode()))


def _is_valid(found: Current) -> bool:
    numbers = (found.format_version, found.generation)
    are_numbers = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return are_numbers and 0 < found.generation < 10**6 and bool(_INDEX_ID.fullmatch(str(found.index_id)))


def _damaged_current(path: Path, what: str) -> DamagedIndex:
    return DamagedIndex(f"{path}: {what}; `mvindex build` makes it again from the catalog")
