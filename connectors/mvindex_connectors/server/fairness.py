"""Fairness between callers: what a query costs, queues in which callers take turns, and way for small requests."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from mvindex.errors import ServerUnavailable
from mvindex.search.request import Queries

# What costs as much as one more query: characters of text, whose terms are looked up one by one, and documents of a
# result, which are read and sent.
_COST_CHARS = 256
_COST_DOCUMENTS = 100
# While small requests are served, large work pauses up to so many times as long as it has worked, and never longer than
# this at once.
_PAUSE_SHARE = 3.0
_MAX_PAUSE_S = 0.02
# After the last small request more are expected for so long.
_LATELY_S = 1.0
# How soon a thread gives the interpreter to another that waits for it: during long work, and while texts are encoded.
# There the shorter one would answer fewer texts.
LONG_WORK_S, ENCODING_S = 0.0001, 0.0005
# The caller of the call in progress; Admission sets it.
CALLER: ContextVar[str] = ContextVar("caller", default="")


class Queued(Protocol):
    """An entry of a queue."""

    @property
    def caller(self) -> str:
        """The caller that sent it."""

    @property
    def cost(self) -> int:
        """Its cost, at least 1."""


T = TypeVar("T")
QueuedT = TypeVar("QueuedT", bound=Queued)


class FairQueue(Generic[QueuedT]):
    """A queue in which the next turn is that of the caller who has been served least; each caller's own in order.

    A caller that comes begins where those who wait are, so that time without requests earns nothing.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[QueuedT]] = {}
        self._served: dict[str, float] = {}
        self._clock = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[QueuedT]:
        """Yield what waits, caller by caller."""
        for jobs in self._waiting.values():
            yield from jobs

    @property
    def num_callers(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    def append(self, job: QueuedT) -> None:
        """Add to the end of the caller's own."""
        if job.caller not in self._waiting:
            self._waiting[job.caller] = deque()
            self._served[job.caller] = max(self._served.get(job.caller, 0.0), self._clock)
        self._waiting[job.caller].append(job)

    def peek(self) -> QueuedT:
        """Return what popleft() would; IndexError when nothing waits."""
        return self._waiting[self._next()][0]

    def popleft(self) -> QueuedT:
        """Remove and return the first of the caller whose turn it is; IndexError when nothing waits."""
        caller = self._next()
        job = self._waiting[caller].popleft()
        self._clock = self._served[caller]
        self._served[caller] += job.cost
        self._forget_empty()
        return job

    def keep(self, jobs: Sequence[QueuedT]) -> None:
        """Let only these wait."""
        kept = set(map(id, jobs))
        for caller, waiting in self._waiting.items():
            self._waiting[caller] = deque(job for job in waiting if id(job) in kept)
        self._forget_empty()

    def cost_of(self, caller: str) -> int:
        """Return what the caller's own cost together."""
        return sum(job.cost for job in self._waiting.get(caller, ()))

    def _next(self) -> str:
        if not self._waiting:
            raise IndexError("nothing waits")
        return min(self._waiting, key=self._served.__getitem__)

    def _forget_empty(self) -> None:
        self._waiting = {caller: jobs for caller, jobs in self._waiting.items() if jobs}
        # What was served counts while somebody waits, or until the caller's share of it has been made up.
        self._served = {
            caller: cost for caller, cost in self._served.items() if caller in self._waiting or cost > self._clock
        }


class SmallFirst:
    """Lets the threads of large requests pause while small ones are served. Thread-safe; one for a server."""

    def __init__(self) -> None:
        self._lock, self._num_small, self._small_at = threading.Lock(), 0, -math.inf
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._own = threading.local()

    @contextmanager
    def small(self) -> Iterator[None]:
        """Serve a small request inside the block."""
        with self._lock:
            self._num_small += 1
            self._is_idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._num_small -= 1
                self._small_at = time.monotonic()
                if not self._num_small:
                    self._is_idle.set()

    @property
    def had_small_lately(self) -> bool:
        """Whether a small request is served, or was a moment ago."""
        return not self._is_idle.is_set() or time.monotonic() - self._small_at < _LATELY_S

    def pause(self) -> None:
        """Wait until no small request is served, for a time that leaves the large one a share; call it between pieces.

        Not in the event loop, which small requests need.
        """
        now = time.perf_counter()
        worked = now - getattr(self._own, "since", now)
        if not self._is_idle.is_set():
            self._is_idle.wait(min(_PAUSE_SHARE * worked, _MAX_PAUSE_S))
        self._own.since = time.perf_counter()


class SwitchInterval:
    """The switch interval of the interpreter, short while threads do long work, so that the event loop gets its turn.

    Otherwise the interpreter's own 5 milliseconds hold, with which a server answers a fifth more small requests. The
    interval is of the process: one object for all threads.
    """

    def __init__(self) -> None:
        self._lock, self._wanted, self._usual_s = threading.Lock(), list[float](), 0.0

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Keep the interval as short as this, or shorter, inside the block."""
        with self._lock:
            if not self._wanted:
                self._usual_s = sys.getswitchinterval()
            self._wanted.append(seconds)
            sys.setswitchinterval(min(self._wanted))
        try:
            yield
        finally:
            with self._lock:
                self._wanted.remove(seconds)
                sys.setswitchinterval(min(self._wanted, default=self._usual_s))


switch_interval = SwitchInterval()


def query_costs(queries: Queries, top_k: int) -> list[int]:
    """Return what each row of the queries costs, 1 for one of few characters and documents."""
    least = 1 + top_k // _COST_DOCUMENTS
    if queries.texts is None:
        return [least] * len(queries.rows)
    return [least + len(text) // _COST_CHARS for text in queries.texts]


def has_room(own: int, total: int, limit: int, num_callers: int) -> bool:
    """Return whether a caller may have one more: the last quarter is for those who have less than an equal share.

    Args:
        own: What the caller has.
        total: What all callers have.
        limit: What all may have.
        num_callers: How many callers there are, this one included.

    """
    return total < limit and (total < 3 * limit // 4 or own < max(1, limit // num_callers))


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
                running = self._thread.submit(as_long_work, task.function)
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


def as_long_work(function: Callable[[], T]) -> T:
    """Return what the function returns, with a switch interval for long work."""
    with switch_interval.at_most(LONG_WORK_S):
        return function()
