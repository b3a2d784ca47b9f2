"""Threads: how many an operation takes, and running compiled loops in them, without the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, local
from typing import TYPE_CHECKING, TypeVar

from mvindex.errors import ConfigError
from mvindex.kernels.cores import Machine, ThreadChoice

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
ItemT = TypeVar("ItemT")

_machine = Machine()
_given: int | None = None


def set_threads(count: int | None) -> None:
    """Set how many threads every operation of this process takes: encoding, scans, engines, training.

    Args:
        count: The number, from 1 on; None for the default again: OMP_NUM_THREADS where it is set, else as many as the
            machine leaves (docs/how-to/threads.md).

    Raises:
        ConfigError: For another value.

    """
    global _given
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ConfigError(f"threads: expected a whole number from 1 on, got {count!r:.40}")
    _given = count


def default_threads() -> int:
    """Return how many threads an operation takes that begins now; see choose_threads()."""
    return choose_threads().threads


def choose_threads() -> ThreadChoice:
    """Return how many threads an operation takes that begins now, and why.

    The number of set_threads(), else OMP_NUM_THREADS, as Faiss and torch read it, else what the machine leaves.
    """
    if _given is not None:
        return ThreadChoice(_given, "given by --threads or set_threads()")
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named) > 0:
        return ThreadChoice(int(named), "OMP_NUM_THREADS")
    return _machine.choose()


class LibraryThreads:
    """The threads of a library that has a number of its own for them, such as torch. Thread-safe."""

    def __init__(self, read: Callable[[], int], write: Callable[[int], None]) -> None:
        """Take the library's functions that return and set the number."""
        self._read, self._write = read, write
        self._lock, self._here = Lock(), local()
        self._num_inside = 0
        self._before = 0

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Make the library take as many threads as choose_threads() says; afterwards as many as before.

        A program that has set fewer itself keeps them, unless it has called set_threads(). An operation inside
        another keeps the threads of the outer one.
        """
        if getattr(self._here, "is_inside", False):
            yield
            return
        with self._lock:
            # A thread that begins now may inherit a lowered number: that of before any operation counts.
            if not self._num_inside:
                self._before = self._read()
            self._num_inside += 1
        count = default_threads()
        self._write(count if _given is not None else min(self._before, count))
        self._here.is_inside = True
        try:
            yield
        finally:
            self._here.is_inside = False
            self._write(self._before)
            with self._lock:
                self._num_inside -= 1


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


def map_in_threads(call: Callable[[ItemT], T], items: Iterable[ItemT], num_threads: int) -> Iterator[T]:
    """Yield the result of each item, in their order, computed in so many threads; at most two wait for each thread."""
    if num_threads <= 1:
        yield from map(call, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 2 * num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def taken_from(items: deque[T]) -> Iterator[T]:
    """Yield the items, each to one of the threads that iterate over the same deque."""
    while True:
        try:
            yield items.popleft()
        except IndexError:
            return
