"""Retries: after which errors, how often, and after which waits; of reads, and of writes with an idempotency key."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Again(Exception):
    """A failure after which the other side allows another try, after wait_s where it says so."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Retries:
    """The tries of one call."""

    def __init__(
        self,
        again: type[Exception] | Callable[[Exception], bool],
        *,
        tries: float = math.inf,
        first_s: float = 0.0,
        longest_s: float = 2.0,
        for_s: float = math.inf,
    ) -> None:
        """Begin.

        Args:
            again: The error after which there is another try, or a function of the error, which may prepare the try.
            tries: The most, the first one included.
            first_s: The first wait. Each is twice as long as the one before, and shortened by up to a half at random.
            longest_s: The longest wait; where the other side asks for more, there is no further try.
            for_s: Seconds from now on, after which no try begins.

        """
        self._again, self._tries, self._wait_s, self._longest_s = again, tries, first_s, longest_s
        self.tried, self.ends = 0, time.monotonic() + for_s

    def wait_after(self, err: Exception) -> float | None:
        """Return the seconds to wait before the next try; None where there is none."""
        self.tried += 1
        wait_s = self._wait_s * random.uniform(0.5, 1.0)  # noqa: NPY002 - no result depends on it
        self._wait_s = min(2 * self._wait_s, self._longest_s)
        if isinstance(err, Again) and err.wait_s is not None:
            wait_s = err.wait_s
        if self.tried >= self._tries or wait_s > self._longest_s or time.monotonic() + wait_s >= self.ends:
            return None
        if not (isinstance(err, self._again) if isinstance(self._again, type) else self._again(err)):
            return None
        logger.info("%s; again in %.2f s", err or type(err).__name__, wait_s)
        return wait_s

    def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns at its first try without an error; raise the error of the last one."""
        while True:
            try:
                return function()
            except Exception as err:
                if (wait_s := self.wait_after(err)) is None:
                    raise
            time.sleep(wait_s)

    async def run_async(self, function: Callable[[], Awaitable[T]]) -> T:
        """Return what the awaited function returns; otherwise as run()."""
        while True:
            try:
                return await function()
            except Exception as err:
                if (wait_s := self.wait_after(err)) is None:
                    raise
            await asyncio.sleep(wait_s)
