"""Lanes of a batcher: the requests that wait in each, and the threads that search their batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from mvindex.records import SearchResult
from mvindex.search.fusion import Mode
from mvindex.search.request import Queries, SearchRequest
from mvindex_connectors.server.fairness import FairQueue
from mvindex_connectors.server.response_budget import ResponseMeter


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits for its search, or a part of a large one."""

    request: SearchRequest
    future: asyncio.Future[list[SearchResult]]
    meter: ResponseMeter
    cost: int
    # What makes an answer of the results, in the thread that has found them.
    convert: Callable[[list[SearchResult]], list[Any]] | None = None
    since: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """How many queries it has."""
        return len(self.queries.rows)

    @property
    def queries(self) -> Queries:
        """The queries, or the one group."""
        return self.request.queries[0]

    @property
    def caller(self) -> str:
        """The caller that sent it."""
        return self.meter.caller

    def part(self, part: slice, cost: int) -> Job:
        """Return a job of some of the queries."""
        return replace(self, request=self.request.with_queries(self.queries[part]), future=new_future(), cost=cost)

    @property
    def needs_encoding(self) -> bool:
        """Whether these are texts that are searched by views, one by one and as they are.

        The index reads operators first, and encodes a query group itself.
        """
        request, queries = self.request, self.queries
        reads_texts = request.mode is Mode.LEXICAL or request.operators or queries.combine is not None
        return not queries.are_encoded and not reads_texts


class Lane:
    """Requests that wait, and the threads that search them: one for each batch in progress.

    Attributes:
        waiting: The requests that no batch has taken yet.
        in_encoding: The newest batch until its texts are encoded, or until its end if it has none; then the next may
            begin.

    """

    def __init__(self, name: str, num_batches: int) -> None:
        """num_batches: the most in progress."""
        self.waiting: FairQueue[Job] = FairQueue()
        self.in_encoding: list[Job] | None = None
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"search-{name}") for _ in range(num_batches)]
        self._idle = list(self._threads)
        self._will_drop = False

    @property
    def has_room(self) -> bool:
        """Whether a batch may begin."""
        return self.in_encoding is None and bool(self._idle)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in progress."""
        return not self.waiting and len(self._idle) == len(self._threads)

    @property
    def num_waiting(self) -> int:
        """Queries that wait, without cancelled ones."""
        return sum(job.size for job in self.waiting if not job.future.done())

    def begin(self, jobs: list[Job]) -> ThreadPoolExecutor:
        """Return the thread of a batch; the same one while there is no other batch, since scans keep what they need."""
        self.in_encoding = jobs
        return self._idle.pop(0)

    def let_next(self, jobs: list[Job]) -> None:
        """Let the batch after this one begin."""
        if self.in_encoding is jobs:
            self.in_encoding = None

    def end(self, jobs: list[Job], thread: ThreadPoolExecutor) -> None:
        """End a batch."""
        self.let_next(jobs)
        self._idle.insert(0, thread)

    def drop_cancelled(self) -> None:
        """Forget cancelled requests, all of this turn of the loop at once: they would hold their queries for long."""
        if not self._will_drop:
            self._will_drop = True
            asyncio.get_running_loop().call_soon(self._drop)

    def _drop(self) -> None:
        self._will_drop = False
        self.waiting.keep([job for job in self.waiting if not job.future.done()])

    def close(self) -> None:
        """Finish the batches in progress, then stop the threads."""
        for thread in self._threads:
            thread.shutdown(wait=True)


def new_future() -> asyncio.Future[list[SearchResult]]:
    """Return a future of the running event loop."""
    return asyncio.get_running_loop().create_future()
