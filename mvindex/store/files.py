"""The files of an index: their names, sizes and checksums, its lock, temporary databases, and the file systems.

The record of the current generation and the acknowledgement are tiny, checksummed, and derived from the catalog:
`mvindex build` makes them again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import socket
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import xxhash

from mvindex.durable import audit_step, replace_text
from mvindex.errors import DamagedIndex, IndexLocked, MvindexError, StoreError

logger = logging.getLogger(__name__)


def file_bytes(path: Path) -> int:
    """Return the size of a file; 0 where there is none."""
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def size_of(directory: Path) -> int:
    """Return the bytes of all files under a directory, without those that are removed meanwhile."""
    # Not rglob(): that raises where a folder is removed between two looks.
    return sum(file_bytes(Path(folder, name)) for folder, _, names in os.walk(directory) for name in names)


def temporary_database(*, is_shared: bool = False) -> sqlite3.Connection:
    """Open a new temporary database; the caller closes it. is_shared: by threads, one at a time."""
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=not is_shared)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    return connection


@contextmanager
def temporary_errors() -> Iterator[None]:
    """Turn errors of a temporary database into a StoreError that names its folder."""
    try:
        yield
    except sqlite3.Error as err:
        # Where SQLite looks, in this order.
        folder = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108
        raise StoreError(
            f"a temporary database in {folder}: {err}; make room there, or name another folder in SQLITE_TMPDIR"
        ) from err


_MOUNTS = Path("/proc/self/mountinfo")
_NETWORKS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs"})
_ESCAPE = re.compile(r"\\([0-7]{3})")


def refuse_network(directory: Path) -> None:
    """Raise StoreError for a directory on a network file system, where two hosts could write."""
    found = network_of(directory, _read_mounts())
    if found is not None:
        raise StoreError(
            f"{directory} is on {found}: locks of several hosts do not exclude each other there, so nothing is "
            "written; keep the index on a local disk, and copy it with `mvindex snapshot` (reading works)"
        )


def network_of(directory: Path, mounts: str) -> str | None:
    """Return the type of the network file system that holds the directory, such as "nfs4"; None for a local one.

    mounts: lines as of /proc/self/mountinfo (proc(5)): the mount point is field 5, the type follows the hyphen.
    """
    if not any(f" - {kind} " in mounts for kind in _NETWORKS):
        return None
    found = ""
    path = os.path.realpath(directory)
    for line in mounts.splitlines():
        left, hyphen, right = line.partition(" - ")
        fields = left.split()
        if not hyphen or len(fields) < 5:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # A mount stands behind the one that it is mounted in; a later one above hides those below it.
        if f"{path}/".startswith(f"{point.rstrip('/')}/"):
            found = right.split()[0]
    return found if found in _NETWORKS else None


def _read_mounts() -> str:
    """Return the mounts that this process sees; an empty text where the system does not list them."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


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


def check_length(path: Path, found_bytes: int, expected_bytes: int) -> None:
    """Check that a file has no fewer bytes than expected; raise DamagedIndex if it does."""
    if found_bytes < expected_bytes:
        raise DamagedIndex(f"{path}: expected {expected_bytes} committed bytes, got {found_bytes} on disk")


def check_regular(path: Path) -> os.stat_result | None:
    """Return the state of a regular file, None where there is nothing; StoreError for a link, directory or device."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise StoreError(f"{path}: cannot be read: {err.strerror or err}") from err
    if stat.S_ISLNK(found.st_mode):
        raise StoreError(
            f"{path}: expected one of the index's own files, got a symbolic link, which could lead anywhere. "
            "Move it away"
        )
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path}: expected one of the index's own files, got no regular file. Move it away")
    return found


def check_single_name(path: Path) -> None:
    """Check that a path is a regular file under one name, or does not exist; raise StoreError if not.

    What is written to a file of several names (hard links) is written to all of them, wherever they lie.
    """
    found = check_regular(path)
    if found is not None and found.st_nlink > 1:
        raise StoreError(
            f"{path}: expected one of the index's own files, got one under {found.st_nlink} names (hard links). "
            "Move it away"
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
    content = read_small(path)
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
        record = json.loads(read_small(directory / CURRENT) or b"null")
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
        replace_text(directory / CURRENT, json.dumps(record) + "\n", fresh)
    except OSError:
        with suppress(OSError):  # the error that is raised says why
            fresh.unlink(missing_ok=True)
        raise


def read_acknowledged(directory: Path) -> int:
    """Return the last version noted as acknowledged; DamagedIndex when the note is gone or damaged."""
    path = directory / ACKNOWLEDGED
    for _ in range(_TRIES):
        content = read_small(path)
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


def read_small(path: Path, most_bytes: int = _MAX_BYTES) -> bytes | None:
    """Return the content, up to a size that no sound file has; None when there is no file."""
    check_regular(path)
    try:
        with open(path, "rb") as file:
            return file.read(most_bytes)
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


FILE_NAME = "writer.lock"
_SERVES = " serves this index at "


# Indexes that this process serves, each locked for as long; a lock each for the process's own writers.
_SERVED: dict[Path, Lock] = {}


@contextmanager
def served_lock(directory: Path, address: str) -> Iterator[None]:
    """Lock the index for this process inside the block; errors of other writers name the address to use."""
    place = directory.resolve()
    with _locked(directory, f"{_holder()}{_SERVES}{address}"):
        _SERVED[place] = Lock()
        try:
            yield
        finally:
            del _SERVED[place]


@contextmanager
def writer_lock(directory: Path) -> Iterator[None]:
    """Make the caller the only writer inside the block; IndexLocked names the process that has the lock.

    flock, not lockf: it belongs to the open file, so that two indexes open in one process exclude each other too.
    """
    turn = _SERVED.get(directory.resolve())
    if turn is None:
        with _locked(directory, _holder()):
            yield
        return
    if not turn.acquire(blocking=False):
        raise _own_writer(directory)
    try:
        yield
    finally:
        turn.release()


@contextmanager
def _locked(directory: Path, holder: str) -> Iterator[None]:
    """Lock the index inside the block, with the owner's name in the lock file."""
    path = directory / FILE_NAME
    check_single_name(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as err:
        is_forbidden = err.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        why = "; the index is read-only here" if is_forbidden else ""
        raise StoreError(f"{path}: cannot write: {err.strerror or err}{why}") from err
    try:
        _acquire(handle, path)
        _sign(handle, holder)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _own_writer(directory: Path) -> IndexLocked:
    return IndexLocked(
        f"{directory}: this process is writing to this index, in another thread or as another open index; let them "
        "write in turns"
    )


def _holder() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(handle: int, holder: str) -> None:
    """Write the owner's name into the lock file, if the disk has room: it is for messages only."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{holder}\n".encode(), 0)
    except OSError as err:
        logger.info("cannot write the holder into the lock file: %s", err)


def _acquire(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        holder = os.pread(handle, 400, 0).decode(errors="replace").strip() or "another process"
        if _SERVES in holder:
            address = holder.rpartition(_SERVES)[2]
            raise IndexLocked(f"{path.parent}: {holder}; write through it: --index {address}") from err
        if holder == _holder():
            raise _own_writer(path.parent) from err
        raise IndexLocked(f"{path.parent}: {holder} is writing to this index; try again when it is done") from err
    except OSError as err:
        raise StoreError(f"{path}: cannot lock: {err.strerror or err}; the file system must support flock") from err
