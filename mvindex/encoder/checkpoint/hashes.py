"""SHA-256 of the files of checkpoints; of large ones remembered while the file system says that they are unchanged."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from mvindex.cache import cache_folder
from mvindex.durable import replace_cached
from mvindex.encoder.checkpoint.settings import open_file

logger = logging.getLogger(__name__)

_NAME = "sha256.json"
# Smaller files are read as fast as they are looked up.
_LARGE_BYTES = 1 << 20
# A file that was changed so recently may change again without another time of change.
_SETTLED_NS = 2_000_000_000
_MOST_FILES = 256


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file's content.

    A large file is read once: it is known by device, inode, size and both of its times, of which programs cannot set
    that of the last change.

    Raises:
        CheckpointError: When the file cannot be read.

    """
    with open_file(path) as file:
        before = os.fstat(file.fileno())
        known = _read_known() if before.st_size >= _LARGE_BYTES else {}
        key, state = f"{before.st_dev}-{before.st_ino}", _state(before)
        if key in known and known[key][:-1] == state:
            return str(known[key][-1])
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        is_settled = time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > _SETTLED_NS
        if before.st_size >= _LARGE_BYTES and is_settled and _state(os.fstat(file.fileno())) == state:
            _remember(key, [*state, digest.hexdigest()])
    return digest.hexdigest()


def _state(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _read_known() -> dict[str, list[Any]]:
    """Return size, times and hash of each file by device and inode; empty where nothing sound is remembered."""
    try:
        content = json.loads((cache_folder() / _NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {key: entry for key, entry in entries if isinstance(entry, list) and len(entry) == 4}


def _remember(key: str, entry: list[Any]) -> None:
    """Add the entry; of two processes at once the last one's stays. What cannot be written is read again next time."""
    known = {name: kept for name, kept in _read_known().items() if name != key} | {key: entry}
    latest = dict(list(known.items())[-_MOST_FILES:])
    try:
        replace_cached(cache_folder() / _NAME, json.dumps(latest, indent=1))
    except OSError as err:
        logger.info("the hash of a checkpoint's file is not remembered: %s", err)
