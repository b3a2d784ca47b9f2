"""Sizes of files and folders while other threads and processes remove some of them."""

from __future__ import annotations

import os
from pathlib import Path


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
