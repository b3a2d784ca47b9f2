"""A thread that works for one caller after the other, and which caller a call of the server is of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mvindex.errors import ServerUnavailable
from mvindex_connectors.server.fairness import LONG_WORK_S, FairQueue, switch_interval

# The caller of the call in progress; Admission sets it.
CALLER: ContextVar[str] = ContextVar("caller", default="")


@dataclass(slots=True, eq=False)
class _Task:
    """A function that waits for its turn."""

    caller: str
    cost: int
    function: Callable[[], Any]
    future: asyncio.Future[Any]


class FairThread:
    """A thread that calls functions one at a time, in turns of callers by cost; all calls come from one event loop."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: FairQueue[_Task] = FairQueue()
        self._is_busy = False

    def __len__(self) -> int:
        """Return how many functions wait."""
        return len(self._waiting)

    def submit(self, function: Callable[[], Any], caller: str, cost: int = 1) -> asyncio.Future[Any]:
        """Return the future result of the function; cancelled before its turn, it is not called, and later finished."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(_Task(caller, cost, function, future))
        self._begin()
        return future

    def drop_cancelled(self) -> None:
        """Forget cancelled functions, whose values may be large."""
        if self._waiting:
            self._waiting.keep([task for task in self._waiting if not task.future.done()])

    def close(self) -> None:
        """Finish the function in progress, then stop the thread; those that wait end with ServerUnavailable."""
        self._thread.shutdown(wait=True)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and not self._is_busy:
            task = self._waiting.popleft()
            if task.future.done():
                continue
            try:
                running = self._thread.submit(_as_long_work, task.function)
            except RuntimeError:
                task.future.set_exception(ServerUnavailable("the server shut down before this was done"))
                continue
            self._is_busy = True
            running.add_done_callback(lambda done, task=task: loop.call_soon_threadsafe(self._end, task, done))  # type: ignore[misc]  # a default

    def _end(self, task: _Task, done: Future[Any]) -> None:
        self._is_busy = False
        if not task.future.done():
            failure = done.exception()
            if failure is None:
                task.future.set_result(done.result())
            else:
                task.future.set_exception(failure)
        self._begin()


def _as_long_work(function: Callable[[], Any]) -> Any:
    with switch_interval.at_most(LONG_WORK_S):
        return function()
