"""Micro-batches: queries that arrive while others are searched are encoded and searched together, next.

There is no waiting window: a query that finds the searcher idle is searched at once, alone. Queries of large requests
go in parts, in a lane of their own, so that they hold nobody up; that lane also takes what has waited too long for the
other. What nobody waits for any more (a client gone, a deadline passed) is dropped before its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from mvindex.errors import LimitExceeded, MvindexError
from mvindex.index import Index
from mvindex.records import Floats, SearchResult
from mvindex.scoring.fusion import Mode
from mvindex.search.profiling import watched_stages

# Queries of one request from which on it is large, and what is searched of it at a time.
_MANY = 32
_PART = 64
# How long a query waits for its lane before the other may take it.
_PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a search asks for beside its queries, as search() takes it. key: equal for what can be searched together.

    mode: the one of the options.
    """

    key: tuple[tuple[str, Any], ...]
    options: dict[str, Any]
    mode: Mode = Mode.DENSE


class Watch(Protocol):
    """What wants to know how a batch went."""

    def saw_batch(self, size: int, waited_s: Sequence[float], stages: dict[str, float]) -> None:
        """Nothing; a batch of so many queries is done."""


@dataclass(slots=True, eq=False)
class _Job:
    queries: list[str] | Floats
    wanted: Wanted
    future: asyncio.Future[list[SearchResult]]
    words: list[str] | None = None  # one for each query, where words are searched
    since: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return len(self.queries)

    @property
    def is_encoded_here(self) -> bool:
        """True for texts that are searched by views."""
        return isinstance(self.queries, list) and self.wanted.mode is not Mode.LEXICAL


class Batcher:
    """Searches of one index, to be asked from one event loop."""

    def __init__(self, index: Index, watch: Watch, *, batch: int, queued: int) -> None:
        """batch: queries searched together at most; queued: that may wait."""
        self._index, self._watch = index, watch
        self._batch, self._queued = batch, queued
        self._few: deque[_Job] = deque()
        self._many: deque[_Job] = deque()
        self._is_busy = {"few": False, "many": False}
        self._helps = False  # whether the lane of large requests took from the other at its last turn
        # A thread for each lane: the encoder's and the scans' own threads stay those of the thread that asks them.
        self._threads = {lane: ThreadPoolExecutor(1, thread_name_prefix=f"search-{lane}") for lane in self._is_busy}

    @property
    def waiting(self) -> int:
        """Queries that wait for their turn."""
        return _waiting(self._few) + _waiting(self._many)

    def close(self) -> None:
        """Nothing; what is being searched is finished first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)

    async def search(
        self, queries: list[str] | Floats, wanted: Wanted, words: list[str] | None = None
    ) -> list[SearchResult]:
        """A result for each query, (q, d) or texts, checked; LimitExceeded when too many wait.

        words: texts, one for each query, where words are searched.
        """
        is_large = len(queries) > _MANY
        waiting = _waiting(self._many if is_large else self._few)
        if waiting and waiting + len(queries) > self._queued:
            raise LimitExceeded(f"{waiting} queries wait already, of {self._queued} that may; try again in a second")
        if not is_large:
            answer = self._submitted(self._few, queries, wanted, words)
            try:
                return await answer
            except asyncio.CancelledError:
                _forget(self._few)
                raise
        parts = [slice(begin, begin + _PART) for begin in range(0, len(queries), _PART)]
        jobs = [
            self._submitted(self._many, queries[part], wanted, None if words is None else words[part]) for part in parts
        ]
        try:
            return [result for part in await asyncio.gather(*jobs) for result in part]
        finally:
            for job in jobs:
                job.cancel()
            _forget(self._many)

    def _submitted(
        self, lane: deque[_Job], queries: list[str] | Floats, wanted: Wanted, words: list[str] | None
    ) -> asyncio.Future[list[SearchResult]]:
        loop = asyncio.get_running_loop()
        job = _Job(queries, wanted, loop.create_future(), words)
        lane.append(job)
        self._pump()
        if lane is self._few and not job.future.done() and job in self._few:
            loop.call_later(_PATIENCE_S, self._pump)
        return job.future

    def _pump(self) -> None:
        """Nothing; lanes that are free take what waits."""
        if not self._is_busy["few"]:
            self._start("few", self._taken(self._few, self._batch))
        if not self._is_busy["many"]:
            is_late = bool(self._few) and time.monotonic() - self._few[0].since >= _PATIENCE_S
            # By turns where both wait.
            self._helps = is_late and not (self._helps and self._many)
            source, most = (self._few, self._batch) if self._helps else (self._many, min(self._batch, _PART))
            self._start("many", self._taken(source, most))

    def _taken(self, lane: deque[_Job], most: int) -> list[_Job]:
        """The jobs of the next batch, in order; what nobody waits for is left out."""
        jobs: list[_Job] = []
        count = 0
        while lane and (not jobs or count + lane[0].size <= most):
            job = lane.popleft()
            if not job.future.done():
                jobs.append(job)
                count += job.size
        return jobs

    def _start(self, lane: str, jobs: list[_Job]) -> None:
        if not jobs:
            return
        self._is_busy[lane] = True
        loop, begun = asyncio.get_running_loop(), time.monotonic()
        stages: dict[str, float] = {}
        tell = partial(self._tell, jobs, begun, stages)
        # Told straight from the thread: a future of asyncio's between would take another turn of the loop.
        self._threads[lane].submit(self._answers, jobs, stages).add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._finished, lane, jobs, done, tell)
        )

    def _tell(self, jobs: list[_Job], begun: float, stages: dict[str, float]) -> None:
        self._watch.saw_batch(sum(job.size for job in jobs), [begun - job.since for job in jobs], stages)

    def _finished(self, lane: str, jobs: list[_Job], done: Future[list[Any]], tell: Callable[[], None]) -> None:
        """Nothing; each job has its answer, the lane takes the next, and then the watch is told."""
        self._is_busy[lane] = False
        failed = done.exception()
        answers = [failed] * len(jobs) if failed is not None else done.result()
        for job, answer in zip(jobs, answers, strict=True):
            if job.future.done():
                continue
            if isinstance(answer, BaseException):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
        self._pump()
        asyncio.get_running_loop().call_soon(tell)

    def _answers(self, jobs: list[_Job], stages: dict[str, float]) -> list[list[SearchResult] | Exception]:
        """The results of each job, or its error. Runs in a thread."""
        with watched_stages(stages):
            vectors = self._encoded(jobs, stages)
            begun = time.perf_counter()
            answers = self._searched(jobs, vectors)
            stages["search"] = time.perf_counter() - begun - stages.get("rescore", 0.0)
        return answers

    def _encoded(self, jobs: list[_Job], stages: dict[str, float]) -> list[Any]:
        """The vectors of each job's queries; all texts are encoded at once. Of words alone, the texts."""
        texts = [text for job in jobs if job.is_encoded_here for text in job.queries]
        begun = time.perf_counter()
        encoded: Floats | Exception = np.empty((0, 0), dtype=np.float32)
        if texts:
            try:
                encoded = self._index.encode_queries(texts)
            except MvindexError as err:
                encoded = err
            stages["encode"] = time.perf_counter() - begun
        vectors: list[Any] = []
        at = 0
        for job in jobs:
            if not job.is_encoded_here:
                vectors.append(job.queries)
            elif isinstance(encoded, Exception):
                vectors.append(encoded)
            else:
                vectors.append(encoded[at : at + job.size])
                at += job.size
        return vectors

    def _searched(self, jobs: list[_Job], vectors: list[Any]) -> list[list[SearchResult] | Exception]:
        """The answers of each job; those that want the same are searched together."""
        answers: list[list[SearchResult] | Exception] = [
            each if isinstance(each, Exception) else [] for each in vectors
        ]
        groups: dict[Any, list[int]] = {}
        for number, (job, each) in enumerate(zip(jobs, vectors, strict=True)):
            if not isinstance(each, Exception):
                groups.setdefault(job.wanted.key, []).append(number)
        for members in groups.values():
            self._search_group(jobs, vectors, members, answers)
        return answers

    def _search_group(self, jobs: list[_Job], vectors: list[Any], members: list[int], answers: list[Any]) -> None:
        """Nothing; the members of a group have their answers. What fails them together is tried for each alone."""
        wanted = jobs[members[0]].wanted
        try:
            if wanted.mode is Mode.DENSE:
                found = self._index.search(np.concatenate([vectors[number] for number in members]), **wanted.options)
            else:
                words = [text for number in members for text in jobs[number].words or []]
                is_lexical = wanted.mode is Mode.LEXICAL
                queries: Any = words if is_lexical else np.concatenate([vectors[number] for number in members])
                found = self._index.search(queries, text=words, **wanted.options)
        except (MvindexError, ValueError) as err:
            if len(members) == 1:
                answers[members[0]] = err
                return
            for number in members:
                self._search_group(jobs, vectors, [number], answers)
            return
        at = 0
        for number in members:
            answers[number] = found[at : at + jobs[number].size]
            at += jobs[number].size


def _forget(lane: deque[_Job]) -> None:
    """Nothing; what nobody waits for is not in the lane: it would hold its queries until a long search is done."""
    kept = [job for job in lane if not job.future.done()]
    if len(kept) < len(lane):
        lane.clear()
        lane.extend(kept)


def _waiting(lane: deque[_Job]) -> int:
    """Queries that wait in a lane, those that nobody waits for left out."""
    return sum(job.size for job in lane if not job.future.done())
