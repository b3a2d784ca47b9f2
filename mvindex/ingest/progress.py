"""The number of documents that an ingest has taken, shown on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")
_EVERY_S = 0.2


def track(entries: Iterator[_T], total: int | None) -> Iterator[_T]:
    """Yield the entries, and show how many there were; total: how many there will be, if that is known."""
    display = find_display()
    if display is not None:
        yield from _track_in_notebook(entries, total, display)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(entries, total=total, description="documents")


def find_display() -> Callable[..., Any] | None:
    """Return the display function of the notebook that this process runs, None elsewhere; nothing is imported."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    found: Callable[..., Any] = ipython.display.display
    return found


class _Bar:
    """A state of the bar; `done` of `total` documents."""

    def __init__(self, done: int, total: int | None, is_over: bool = False) -> None:
        self._text = f"{done:,} documents" if total is None or is_over else f"{done:,} of {total:,} documents"
        self._bar = "" if is_over else "<progress></progress> "
        if total and not is_over:
            self._bar = f'<progress max="{total}" value="{done}"></progress> '

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"{self._bar}{self._text}"


def _track_in_notebook(entries: Iterator[_T], total: int | None, display: Callable[..., Any]) -> Iterator[_T]:
    handle, shown, done = display(_Bar(0, total), display_id=True), time.monotonic(), 0
    for entry in entries:
        yield entry
        done += 1
        if time.monotonic() - shown >= _EVERY_S:
            shown = time.monotonic()
            handle.update(_Bar(done, total))
    handle.update(_Bar(done, total, is_over=True))
