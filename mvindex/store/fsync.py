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
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

EVENT = "mvindex.durable"
UNFINISHED = ".unfinished"


@contextmanager
def audit_step(step: str, path: Path) -> Iterator[None]:
    """Announce a step on the path, before and after the block that takes it."""
    sys.audit(EVENT, "before", step, str(path))
    yield
    sys.audit(EVENT, "after", step, str(path))


def flush_to_disk(path: Path) -> None:
    """Flush a file's content, or a directory's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with audit_step("fsync", path):
            os.fsync(handle)
    finally:
        os.close(handle)


def make_directories(path: Path) -> None:
    """Make the directory and those above it, durably."""
    missing = [entry for entry in (path, *path.parents) if not entry.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
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


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder; it becomes `path`, which must not exist, when the block ends without an error."""
    temporary = path.with_name(path.name + UNFINISHED)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    yield temporary
    for entry in sorted(temporary.rglob("*"), reverse=True):
        flush_to_disk(entry)
    flush_to_disk(temporary)
    temporary.rename(path)
    flush_to_disk(path.parent)
