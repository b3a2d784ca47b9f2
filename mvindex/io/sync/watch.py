"""Waits for changes in a folder, and tells when there are any that a sync would see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

from mvindex.plugins import require

_DEBOUNCE_MS = 1_600


def changes(folder: str, should_stop: Callable[[], bool]) -> Iterator[int]:
    """Yield the number of changes, once none came for a moment; end when should_stop() is true.

    The first time it may yield 0, soon after watching began, for changes that came before. Hidden files and indexes in
    the folder are not watched, as they are not read.

    Raises:
        ExtraMissing: watchfiles is not installed.

    """
    watchfiles = require("watchfiles", "files", "--watch")

    def is_watched(change: Any, path: str) -> bool:
        return all(_is_read(part) for part in PurePath(path).relative_to(folder).parts)

    is_first = True
    for found in watchfiles.watch(
        folder,
        watch_filter=is_watched,
        debounce=_DEBOUNCE_MS,
        stop_event=SimpleNamespace(is_set=should_stop),
        yield_on_timeout=True,
    ):
        if found or is_first:
            yield len(found)
        is_first = False


def _is_read(part: str) -> bool:
    """Return whether a file or folder of this name may be read; a change of .gitignore decides what is."""
    if part == ".gitignore":
        return True
    return not (part.startswith(".") or part.endswith(".mvx") or ".rejects." in part)
