"""Memory for copies of views: how much they may take, when they are given back, and where they begin."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import NamedTuple, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from mvindex.kernels.threads import available_bytes, memory_bytes, private_bytes

ALIGNMENT = 64


def aligned_bytes(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return an array of so many bytes, 64-byte aligned."""
    buffer = np.empty(size_bytes + ALIGNMENT, dtype=np.uint8)
    shift = -buffer.ctypes.data % ALIGNMENT
    return buffer[shift : shift + size_bytes]


# Copies are made while this part of the memory stays available, and given back when less than that part is.
_RESERVE, _SHORT = 1 / 8, 1 / 16
# They do not bring the process above this part: a large engine beside them leaves them less. What a search takes for a
# while comes on top, .8 GB of 25 in bench/full_count.py, and the whole should stay below half.
_OWN = 7 / 16
# The memory is looked at again after so long, in seconds: during searches, and between them.
_LOOK_EVERY_S, _WATCH_EVERY_S = 1.0, 5.0
# Up to this part of the memory may be taken by what was seen at the last look, which reads a dozen files: after each
# commit a search copies the few views that are new.
_LITTLE = 1 / 4096


class HoldsCopies(Protocol):
    """Holds copies that can be made again."""

    def copy_bytes(self) -> int:
        """Return the bytes of the copies in memory."""
        ...

    def give_back(self) -> None:
        """Drop the copies; searches that use them finish with them."""
        ...


class _Seen(NamedTuple):
    """Bytes that are available, that there are, and that this process has; available: None where nobody tells."""

    available: int | None
    total: int
    own: int


class Memory:
    """The memory that copies may take. Thread-safe."""

    def __init__(
        self,
        total: Callable[[], int] = memory_bytes,
        available: Callable[[], int | None] = available_bytes,
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], int] = private_bytes,
    ) -> None:
        """Take functions that return the memory there is, what is available, seconds, and what this process has."""
        self._total, self._available, self._clock, self._own = total, available, clock, own
        self._looked_s = float("-inf")
        self._seen = _Seen(0, 0, 0)

    def is_short(self) -> bool:
        """Return whether copies should be given back: looked at once a second."""
        seen = self._look()
        return seen.available is not None and seen.available < _SHORT * seen.total

    def room_bytes(self, held_bytes: int, most_bytes: int, needed_bytes: float = math.inf) -> int:
        """Return how many bytes all copies may take.

        Args:
            held_bytes: What they take now.
            most_bytes: What they may take at most.
            needed_bytes: What is missing; for a little of it the memory is not looked at more than once a second.

        """
        seen = self._look()
        if needed_bytes > _LITTLE * seen.total:
            seen = self._look(again=True)
        if seen.available is None:
            return most_bytes
        left_to_others = held_bytes + seen.available - int(_RESERVE * seen.total)
        left_to_itself = held_bytes + int(_OWN * seen.total) - seen.own
        return min(most_bytes, left_to_others, left_to_itself)

    def _look(self, *, again: bool = False) -> _Seen:
        """Return what was seen less than a second ago, or is seen now."""
        now = self._clock()
        if again or now - self._looked_s >= _LOOK_EVERY_S:
            self._seen, self._looked_s = _Seen(self._available(), self._total(), self._own()), now
        return self._seen


MEMORY = Memory()
_watched: WeakSet[HoldsCopies] = WeakSet()
_lock = Lock()
_thread: Thread | None = None


def watch(holder: HoldsCopies) -> None:
    """Give back the holder's copies when memory falls short, whether or not it is searched."""
    global _thread
    with _lock:
        _watched.add(holder)
        # A forked child has no thread.
        if _thread is None or not _thread.is_alive():
            _thread = Thread(target=_watch, name="mvindex-memory", daemon=True)
            _thread.start()


def _watch() -> None:
    """Look at the memory every few seconds, until no copies are left."""
    global _thread
    while True:
        time.sleep(_WATCH_EVERY_S)
        with _lock:
            holders = [holder for holder in _watched if holder.copy_bytes()]
            if not holders:
                _watched.clear()
                _thread = None
                return
        if MEMORY.is_short():
            _give_back(holders)
        del holders  # a scan that nobody uses any more should not wait for the next look


def _give_back(holders: list[HoldsCopies]) -> None:
    # Not in the loop above, whose last holder would live until the next look.
    for holder in holders:
        holder.give_back()
