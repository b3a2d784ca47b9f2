"""Lanes of a batcher: the requests that wait in each, and the threads that search their batches.

Searches that are so quick that the event loop runs them itself have none: to hand one to a thread and back takes .2 ms.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from mvindex.records import SearchResult
from mvindex.search.fusion import Mode
from mvindex.search.request import Queries, SearchRequest
from mvindex_connectors.server.fairness import FairQueue
from mvindex_connectors.server.limits import ResponseMeter

# The longest search that other calls are kept waiting for.
_QUICK_S = 0.001
# After so many in the event loop one has a thread, during which others may come.
_MOST_AT_ONCE = 32
# A batch of so many queries costs less than each by itself; after one, more are expected for so long.
_CROWD, _CROWDED_S = 3, 1.0


@dataclass(slots=True, eq=False)
class QueuedSearch:
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

    def part(self, part: slice, cost: int) -> QueuedSearch:
        """Return a search of some of the queries."""
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
        self.waiting: FairQueue[QueuedSearch] = FairQueue()
        self.in_encoding: list[QueuedSearch] | None = None
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
        return sum(queued.size for queued in self.waiting if not queued.future.done())

    def begin(self, searches: list[QueuedSearch]) -> ThreadPoolExecutor:
        """Return the thread of a batch; the same one while there is no other batch, since scans keep what they need."""
        self.in_encoding = searches
        return self._idle.pop(0)

    def let_next(self, searches: list[QueuedSearch]) -> None:
        """Let the batch after this one begin."""
        if self.in_encoding is searches:
            self.in_encoding = None

    def end(self, searches: list[QueuedSearch], thread: ThreadPoolExecutor) -> None:
        """End a batch."""
        self.let_next(searches)
        self._idle.insert(0, thread)

    def drop_cancelled(self) -> None:
        """Forget cancelled requests, all of this turn of the loop at once: they would hold their queries for long."""
        if not self._will_drop:
            self._will_drop = True
            asyncio.get_running_loop().call_soon(self._drop)

    def _drop(self) -> None:
        self._will_drop = False
        self.waiting.keep([queued for queued in self.waiting if not queued.future.done()])

    def close(self) -> None:
        """Finish the batches in progress, then stop the threads."""
        for thread in self._threads:
            thread.shutdown(wait=True)


def new_future() -> asyncio.Future[list[SearchResult]]:
    """Return a future of the running event loop."""
    return asyncio.get_running_loop().create_future()


class QuickSearches:
    """Expects of a search the time of the last one of its kind: of equal options, in the same state of the index.

    So the first search after a commit, which may read new files, has a thread, unless one was made meanwhile; and so
    have those after a slow one.
    While many clients search, all have: queries that come meanwhile make a batch.
    """

    def __init__(self, state: Callable[[], Hashable]) -> None:
        """state: returns what every commit changes; None for an index that is not in this process."""
        self._state = state
        self._kind: Hashable = None
        self._seconds, self._crowded_at, self._left = 0.0, -math.inf, _MOST_AT_ONCE

    def kind(self, searches: Sequence[QueuedSearch]) -> Hashable:
        """Return the kind of a search that begins now; None for one that is not of a single vector."""
        queued = searches[0]
        is_vector = (
            len(searches) == 1 and queued.size == 1 and queued.queries.are_encoded and queued.queries.texts is None
        )
        if not is_vector or queued.request.filter is not None:
            return None
        state = self._state()
        return None if state is None else (state, queued.request.key)

    def expects(self, kind: Hashable) -> bool:
        """Return whether a search of this kind will probably be quick, and gains nothing by waiting for others."""
        is_quick = kind is not None and kind == self._kind and self._seconds <= _QUICK_S
        return is_quick and self._left > 0 and time.monotonic() - self._crowded_at > _CROWDED_S

    def ended(self, kind: Hashable, seconds: float, num_queries: int, *, has_thread: bool) -> None:
        """Note how long a batch took, with its kind when it began. A slow one is forgotten by halves."""
        self._seconds = max(seconds, self._seconds / 2) if kind == self._kind else seconds
        self._kind = kind
        self._left = _MOST_AT_ONCE if has_thread else self._left - 1
        if num_queries >= _CROWD:
            self._crowded_at = time.monotonic()

    def moved(self, before: Hashable, now: Hashable) -> None:
        """Expect of searches in one state what was expected in the one before: a search has read its new files."""
        if isinstance(self._kind, tuple) and self._kind[0] == before:
            self._kind = (now, *self._kind[1:])
