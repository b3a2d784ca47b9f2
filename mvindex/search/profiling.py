"""Where a search spends its time, for whoever watches: the seconds of each stage, added up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WATCHED: ContextVar[dict[str, float] | None] = ContextVar("stages", default=None)


@contextmanager
def watched_stages(seconds: dict[str, float]) -> Iterator[None]:
    """Inside it, on this thread, the seconds of the stages of searches are added to these."""
    before = _WATCHED.set(seconds)
    try:
        yield
    finally:
        _WATCHED.reset(before)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Inside it, time belongs to this stage, if anyone watches."""
    seconds = _WATCHED.get()
    if seconds is None:
        yield
        return
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun
