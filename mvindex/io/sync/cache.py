"""Remembers the digests of a folder's files, so that a file that did not change is not read again.

It is derived from the folder and no part of the index: where it is lost or damaged, all files are read once more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import xxhash

from mvindex.cache import cache_folder
from mvindex.corpus import FolderFile
from mvindex.corpus.passages.outline import SPLIT_VERSION
from mvindex.io.sync.report import Digest, SyncOptions

# A file may change again within the resolution of its times (2 s on FAT): only an older state is remembered.
SETTLED_NS = 2_000_000_000
_PARSERS = ("mvindex", "pypdfium2", "markitdown", "charset-normalizer")


class FileCache:
    """The digest of each file, valid while its size, times and inode are the same.

    The time of change (ctime) is among them: tools that restore the time of modification cannot restore that.
    """

    def __init__(self, folder: str, name: str, options: SyncOptions) -> None:
        # What decides how a file is read: another value of it is another cache.
        key = json.dumps(
            [
                folder,
                name,
                options.passage_words,
                options.max_file_bytes,
                options.max_document_chars,
                SPLIT_VERSION,
                reader_versions(),
            ]
        )
        self._path = _folder() / f"{xxhash.xxh3_128_hexdigest(key.encode())}.jsonl"
        self._known = {} if options.check else _load(self._path)
        self._kept: dict[str, tuple[list[int], Digest]] = {}

    def find(self, file: FolderFile) -> Digest | None:
        """Return the digest of a file; None where it is not known, or the file may have changed."""
        known = self._known.get(file.file)
        if known is None or known[0] != state_of(file):
            return None
        self._kept[file.file] = known
        return known[1]

    def remember(self, file: FolderFile, state: list[int], read_at_ns: int, digest: Digest) -> None:
        """Remember the digest of a file whose state was `state` before it was read, at read_at_ns."""
        if max(state[1:3]) + SETTLED_NS < read_at_ns and state == state_of(file):
            self._kept[file.file] = (state, digest)

    def state(self, file: FolderFile) -> tuple[list[int], int]:
        """Return the state of a file, to be taken before it is read, and the time now."""
        return state_of(file), time.time_ns()

    def save(self, on_warning: Callable[[str], None]) -> None:
        """Write what was found and remembered in this run; warn where it cannot be written, and the index is right."""
        unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("w", encoding="utf-8") as out:
                for file, (state, digest) in self._kept.items():
                    row = [file, state, digest.passages, f"{digest.whole:x}", f"{digest.content:x}"]
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
            unfinished.replace(self._path)
        except OSError as err:
            with suppress(OSError):
                unfinished.unlink()
            on_warning(
                f"{self._path.parent}: cannot be written: {err.strerror or err}; the next sync reads every file again"
            )


def _folder() -> Path:
    try:
        return cache_folder() / "sync"
    except OSError:  # a user without a home directory
        return Path(os.devnull) / "no-cache-directory"


def state_of(file: FolderFile) -> list[int]:
    """Return size, times and inode of a file; zeros where it is gone."""
    try:
        status = os.stat(file.path)
    except OSError:
        return [0, 0, 0, 0]
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _load(path: Path) -> dict[str, tuple[list[int], Digest]]:
    try:
        with path.open(encoding="utf-8") as rows:
            return {
                file: (state, Digest(passages, int(whole, 16), int(content, 16)))
                for file, state, passages, whole, content in map(json.loads, rows)
            }
    except (OSError, ValueError, TypeError):
        return {}


def reader_versions() -> list[str]:
    """Return the versions of the packages that read files; "" where one is missing."""
    found = []
    for package in _PARSERS:
        try:
            found.append(version(package))
        except PackageNotFoundError:
            found.append("")
    return found
