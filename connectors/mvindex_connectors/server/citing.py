"""Citations that take long are chosen behind the searches, one request at a time, in turns of callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mvindex.records import SearchResult
from mvindex_connectors.server.fairness import LONG_WORK_S, FairQueue, switch_interval
from mvindex_connectors.server.lanes import Job

# Characters of all results of a request, and of one text of them, that others need not wait for: what is known of
# shorter texts is kept.
_LONG_CHARS, _LONG_TEXT_CHARS = 64 << 10, 8_000


@dataclass(slots=True, eq=False)
class Uncited:
    """The results of a request whose citations are not chosen yet."""

    job: Job
    results: list[SearchResult]
    cost: int

    @property
    def caller(self) -> str:
        """The caller that sent it."""
        return self.job.caller


def uncited(job: Job, results: list[SearchResult]) -> Uncited | None:
    """Return what waits for its citations; None where these are quickly chosen."""
    if job.texts is None and not isinstance(job.queries, list):
        return None
    sizes = [len(hit.text) for result in results for hit in result.hits]
    if sum(sizes) <= _LONG_CHARS and max(sizes, default=0) <= _LONG_TEXT_CHARS:
        return None
    return Uncited(job, results, 1 + sum(sizes) // _LONG_CHARS)


class LongCitations:
    """The requests that wait for their citations, and the thread that chooses them; all calls in one event loop."""

    def __init__(self, complete: Callable[[Uncited], Any], resolve: Callable[[Job, Any], None]) -> None:
        """complete: chooses the citations, in the thread, and returns the answer. resolve: gives it to the caller."""
        self._complete, self._resolve = complete, resolve
        self._waiting: FairQueue[Uncited] = FairQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cite")
        self._is_busy = False

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    def add(self, waiting: Uncited) -> None:
        """Choose the citations of a request when its turn has come."""
        self._waiting.append(waiting)
        self._begin()

    def drop_cancelled(self) -> None:
        """Forget cancelled requests, whose results are large."""
        if self._waiting:
            self._waiting.keep([each for each in self._waiting if not each.job.future.done()])

    def close(self) -> None:
        """Finish the request in progress, then stop the thread."""
        self._thread.shutdown(wait=True)

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        waiting, loop = self._waiting.popleft(), asyncio.get_running_loop()

        def ended(done: Future[Any]) -> None:
            loop.call_soon_threadsafe(self._end, waiting, done)

        self._thread.submit(self._chosen, waiting).add_done_callback(ended)

    def _chosen(self, waiting: Uncited) -> Any:
        waiting.job.meter.is_in_thread = True
        with switch_interval.at_most(LONG_WORK_S):
            return self._complete(waiting)

    def _end(self, waiting: Uncited, done: Future[Any]) -> None:
        self._is_busy = False
        self._resolve(waiting.job, done.exception() or done.result())
        self._begin()
