"""Profiling of searches: the seconds of each stage, added up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WATCHED: ContextVar[dict[str, float] | None] = ContextVar("stages", default=None)


@contextmanager
def watched_stages(seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of each stage of this thread's searches to `seconds` inside the context."""
    before = _WATCHED.set(seconds)
    try:
        yield
    finally:
        _WATCHED.reset(before)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time inside the context for this stage, if it is watched."""
    seconds = _WATCHED.get()
    if seconds is None:
        yield
        return
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun
