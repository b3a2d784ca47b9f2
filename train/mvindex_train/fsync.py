"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mvindex.errors import StoreError
from mvindex.store.fsync import UNFINISHED, flush_to_disk


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new file's name to write to; the file becomes `path`, in place of any there, when the block ends well."""
    temporary = path.with_name(path.name + UNFINISHED)
    yield temporary
    flush_to_disk(temporary)
    os.replace(temporary, path)
    flush_to_disk(path.parent)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Inside it a failure to write, such as a full disk, becomes a StoreError that names the path."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{path}: cannot be written: {err.strerror or err}") from err


def remove_unfinished(folder: Path) -> None:
    """Nothing; what writes that were cut short have left in the folder is gone."""
    for entry in folder.glob("*" + UNFINISHED):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
