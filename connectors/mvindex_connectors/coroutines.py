"""Coroutines that never wait, run without an event loop: what is written once serves blocking callers, too."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that never has to wait, without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    work.close()
    raise RuntimeError("run_to_end: expected a coroutine that never waits, got one that waited")
