"""Threads for compiled loops, which run without the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def default_threads() -> int:
    """Return OMP_NUM_THREADS where it is set, as Faiss and torch do; else the cores this process may run on."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_threads(call: Callable[[], T], num_threads: int) -> list[T]:
    """Call in so many threads at once, and return the results; raise the first error when all have ended.

    The threads end with the call: a forked child has none of a pool's, and starting them takes some microseconds.
    """
    if num_threads <= 1:
        return [call() for _ in range(num_threads)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads - 1) as pool:
        others = [pool.submit(call) for _ in range(num_threads - 1)]
        mine = call()
    return [mine, *(other.result() for other in others)]


def taken_from(items: deque[T]) -> Iterator[T]:
    """Yield the items, each to one of the threads that iterate over the same deque."""
    while True:
        try:
            yield items.popleft()
        except IndexError:
            return
