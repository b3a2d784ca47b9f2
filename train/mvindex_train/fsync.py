"""Atomic writes: a file is complete or absent, whatever interrupts the write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mvindex.durable import UNFINISHED, flush_to_disk
from mvindex.errors import StoreError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file replaces `path` when the block ends without an error."""
    temporary = path.with_name(path.name + UNFINISHED)
    yield temporary
    flush_to_disk(temporary)
    os.replace(temporary, path)
    flush_to_disk(path.parent)


@contextmanager
def map_write_errors(path: Path) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into a StoreError with the path."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{path}: cannot be written: {err.strerror or err}") from err


def remove_unfinished(folder: Path) -> None:
    """Delete what interrupted writes have left in the folder."""
    for entry in folder.glob("*" + UNFINISHED):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
