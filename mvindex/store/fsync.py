"""The calls that make bytes last, each announced to Python's audit hooks (PEP 578) before and after it is made.

Event "mvindex.durable", arguments (moment, step, path): moment "before" or "after"; step "write", "fsync", "commit",
"rename" or "remove". Without a hook an announcement costs next to nothing; with one, a test stops the process at any
of them, or records their order.
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
def announced(step: str, path: Path) -> Iterator[None]:
    """Inside it, the step is taken on the path."""
    sys.audit(EVENT, "before", step, str(path))
    yield
    sys.audit(EVENT, "after", step, str(path))


def flush_to_disk(path: Path) -> None:
    """Nothing; what the file holds, or the directory's entries, are on disk afterwards."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with announced("fsync", path):
            os.fsync(handle)
    finally:
        os.close(handle)


def make_directories(path: Path) -> None:
    """Nothing; the directory and those above it are there, durably."""
    missing = [entry for entry in (path, *path.parents) if not entry.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        flush_to_disk(directory.parent)


def remove_entry(path: Path) -> None:
    """Nothing; the entry is gone as far as it can be removed: a directory with all in it, but of a link the link."""
    try:
        is_directory = stat.S_ISDIR(path.lstat().st_mode)
        if is_directory:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except OSError as err:
        logger.info("%s cannot be removed: %s", path, err)


def rename(path: Path, target: Path) -> None:
    """Nothing; the entry has the other name, whose directory is on disk."""
    with announced("rename", target):
        os.rename(path, target)
    flush_to_disk(target.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder to write into; it becomes `path`, which must not exist, when the block ends without an error."""
    temporary = path.with_name(path.name + UNFINISHED)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    yield temporary
    for entry in sorted(temporary.rglob("*"), reverse=True):
        flush_to_disk(entry)
    flush_to_disk(temporary)
    temporary.rename(path)
    flush_to_disk(path.parent)
