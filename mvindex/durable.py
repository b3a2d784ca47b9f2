"""Durable writes: fsync, rename and removal, each announced to Python's audit hooks (PEP 578) before and after.

Event "mvindex.durable", arguments (moment, step, path): moment "before" or "after"; step "write", "fsync", "commit",
"rename" or "remove". Without a hook an announcement costs next to nothing; with one, a test can stop the process at
any step, or record their order.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from mvindex.errors import StoreError

logger = logging.getLogger(__name__)

EVENT = "mvindex.durable"
UNFINISHED = ".unfinished"
_READ_BYTES = 1 << 20
# Of new directories and files, less what the umask takes away: others cannot write to them, whatever the umask is.
DIRECTORY_MODE, _FILE_MODE = 0o775, 0o664


@contextmanager
def audit_step(step: str, path: Path) -> Iterator[None]:
    """Announce a step on the path, before and after the block that takes it."""
    sys.audit(EVENT, "before", step, str(path))
    yield
    sys.audit(EVENT, "after", step, str(path))


def flush_to_disk(path: Path) -> None:
    """Flush a file's content, or a directory's entries, to disk; others cannot write to an own file from then on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH and found.st_uid == os.geteuid():
            os.fchmod(handle, stat.S_IMODE(found.st_mode) & ~stat.S_IWOTH)
        with audit_step("fsync", path):
            os.fsync(handle)
    finally:
        os.close(handle)


def open_unshared(path: str, flags: int) -> int:
    """Open a file, as an opener of open() does; others cannot write to a new one."""
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)


def make_directories(path: Path) -> None:
    """Make the directory and those above it, durably."""
    missing = [entry for entry in (path, *path.parents) if not entry.exists()]
    for directory in reversed(missing):
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        flush_to_disk(directory.parent)


def remove_entry(path: Path) -> None:
    """Remove an entry as far as possible: a directory with its content; of a link only the link."""
    try:
        is_directory = stat.S_ISDIR(path.lstat().st_mode)
        if is_directory:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except OSError as err:
        logger.info("%s cannot be removed: %s", path, err)


def rename(path: Path, target: Path) -> None:
    """Rename the entry, and flush the directory of its new name to disk."""
    with audit_step("rename", target):
        os.rename(path, target)
    flush_to_disk(target.parent)


def replace_text(path: Path, text: str, fresh: Path) -> None:
    """Make the text the content of the file in one step, durably: it is written under the name `fresh` first."""
    with audit_step("write", fresh):
        fresh.write_text(text, encoding="utf-8")
    flush_to_disk(fresh)
    rename(fresh, path)


def replace_cached(path: Path, text: str) -> None:
    """Make the text the content of a file that can be made again, in one step; it is not flushed to disk."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):  # the error that is raised says why
            fresh.unlink()
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file replaces `path`, durably, when the block ends without an error."""
    temporary = path.with_name(path.name + UNFINISHED)
    yield temporary
    flush_to_disk(temporary)
    os.replace(temporary, path)
    flush_to_disk(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Delete what interrupted writes have left in the folder."""
    for entry in folder.glob("*" + UNFINISHED):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextmanager
def map_write_errors(path: Path) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into a StoreError with the path."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{path}: cannot be written: {err.strerror or err}") from err


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder; it becomes `path`, which must not exist, when the block ends without an error."""
    temporary = path.with_name(path.name + UNFINISHED)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(DIRECTORY_MODE, parents=True)
    yield temporary
    for entry in sorted(temporary.rglob("*"), reverse=True):
        flush_to_disk(entry)
    flush_to_disk(temporary)
    temporary.rename(path)
    flush_to_disk(path.parent)


def file_checksum(path: Path) -> str:
    """Return the xxh3-128 of a whole file, as hex."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
