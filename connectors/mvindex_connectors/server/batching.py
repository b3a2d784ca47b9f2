"""Micro-batching: queries that arrive during a search are encoded and searched together in the next one.

There is no waiting window: a query that arrives while the searcher is idle is searched at once, by itself, in the event
loop where it is expected to be quick. Texts are encoded while those before them are searched. Large requests are split
and have a lane of their own, so that they do not delay small ones; that lane also serves small requests that have
waited too long, and pauses while small ones are served. In each lane callers take turns by what their requests cost.
Queries whose caller is gone (disconnected, deadline passed) are dropped.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from mvindex.errors import LimitExceeded, MvindexError
from mvindex.index import IndexProtocol
from mvindex.records import Floats, SearchResult
from mvindex.search.parts import watched_stages
from mvindex.search.request import Queries, SearchRequest
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.fairness import ENCODING_S, LONG_WORK_S, FairQueue, query_costs, switch_interval
from mvindex_connectors.server.lanes import Lane, QueuedSearch, QuickSearches, new_future
from mvindex_connectors.server.limits import ResponseMeter, too_large_beyond, without_frames
from mvindex_connectors.server.long_texts import LongCitations, Uncited, citing_in_workers, uncited

# A request that costs more than so many plain queries is large; it is searched in parts that cost up to _PART, since
# small requests wait for a part to end. Its first part costs more: one that makes too large a response is found out
# before anything is converted. While nobody sends small requests, parts are searched together.
_MAX_SMALL = 32
_PART, _FIRST_PART, _PARTS_AT_ONCE = 8, 64, 64
# How long a small request waits for its lane before the lane of large ones may take it.
_MAX_WAIT_S = 0.1


class BatchObserver(Protocol):
    """Receives the figures of each batch."""

    def observe_batch(self, size: int, waited_s: Sequence[float], stages: dict[str, float]) -> None:
        """Record a batch: its queries, the seconds each request waited, the seconds of each stage."""


@dataclass(slots=True, eq=False)
class _SearchBatch:
    """Requests that are searched together.

    Attributes:
        searches: The requests.
        kind: See QuickSearches.
        begun: When the batch was taken.
        stages: Seconds of each stage so far.

    """

    searches: list[QueuedSearch]
    kind: Hashable
    begun: float
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def age_s(self) -> float:
        """Seconds since it was taken."""
        return time.monotonic() - self.begun


class Batcher:
    """Batches the searches of one index; all calls come from one event loop."""

    def __init__(
        self,
        index: IndexProtocol,
        observer: BatchObserver,
        limits: Limits,
        *,
        batch: int,
        state: Callable[[], Hashable],
    ) -> None:
        """Batch the searches of an index.

        Args:
            index: The index.
            observer: Receives the figures of each batch.
            limits: Of queries that wait, and of the bytes of documents in a response.
            batch: The most queries searched together.
            state: See QuickSearches.

        """
        self._index, self._observer, self._quick, self._state = index, observer, QuickSearches(state), state
        self._searched: Hashable = None
        self._batch, self._queued, self._response_bytes = batch, limits.queued, limits.response_bytes
        # The encoder takes all cores without the interpreter, the rest of a search takes the interpreter: two batches.
        self._small, self._large = Lane("small", 2), Lane("large", 1)
        self._has_helped = False  # whether the lane of large requests took small ones at its last turn
        self._citations = LongCitations(_cited, _resolve)

    @property
    def waiting(self) -> int:
        """Queries waiting to be searched."""
        return self._small.num_waiting + self._large.num_waiting

    def has_searched(self, state: Hashable) -> bool:
        """Return whether the latest search was in this state of the index."""
        return state is not None and state == self._searched

    def moved(self, before: Hashable, now: Hashable) -> None:
        """Take that a search has read the files of a new state; see QuickSearches.moved()."""
        self._quick.moved(before, now)

    def close(self) -> None:
        """Finish searches in progress, then stop the threads."""
        self._small.close()
        self._large.close()
        self._citations.close()

    async def search(
        self,
        request: SearchRequest,
        meter: ResponseMeter,
        convert: Callable[[list[SearchResult]], list[Any]] | None = None,
    ) -> list[Any]:
        """Return a result for each query; LimitExceeded if too many are waiting.

        Args:
            request: One kind of queries, or one group, checked; searches of equal options are run together.
            meter: Counts the hits; TooLarge when they take more than it allows.
            convert: What is returned of each part instead of its results, called where the part was searched.

        """
        self._searched = self._state()
        [queries] = request.queries
        costs = query_costs(queries, request.depth)
        cost = sum(costs)
        lane = self._large if cost > _MAX_SMALL else self._small
        self._check_queue(lane.waiting, meter.caller, cost)
        whole = QueuedSearch(request, new_future(), meter, cost, convert)
        if lane is self._small:
            with meter.turns.small():
                if self._small.is_idle and self._large.is_idle:
                    kind = self._quick.kind([whole])
                    if self._quick.expects(kind):
                        return self._search_here(whole, kind)
                try:
                    return await self._submit(lane, whole)
                except asyncio.CancelledError:
                    lane.drop_cancelled()
                    raise
        # A query group has one result.
        searches = (
            [whole] if queries.combine is not None else [whole.part(part, sum(costs[part])) for part in _parts(costs)]
        )
        futures = [self._submit(lane, queued) for queued in searches]
        try:
            return [result for part in await asyncio.gather(*futures) for result in part]
        finally:
            for future in futures:
                future.cancel()
            lane.drop_cancelled()

    def _search_here(self, queued: QueuedSearch, kind: Hashable) -> list[Any]:
        """Return what a search is answered, searched in the event loop."""
        batch = _SearchBatch([queued], kind, time.monotonic())
        answer: list[Any] | Exception
        (answer,) = self._search_jobs(batch, _nothing, is_large=False)
        # After the response is on its way.
        asyncio.get_running_loop().call_soon(partial(self._note, batch, batch.age_s, has_thread=False))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _check_queue(self, waiting: FairQueue[QueuedSearch], caller: str, cost: int) -> None:
        """Raise LimitExceeded where the caller has more than its share of a lane waiting."""
        own = waiting.cost_of(caller)
        share = self._queued // max(1, waiting.num_callers + (not own))
        if own and own + cost > share:
            raise LimitExceeded(
                f"requests of this caller that cost {own} queries are waiting, and this one costs {cost}; its share is "
                f"{share}. Try again in a second"
            )

    def _submit(self, lane: Lane, queued: QueuedSearch) -> asyncio.Future[list[SearchResult]]:
        lane.waiting.append(queued)
        self._pump()
        if lane is self._small and not queued.future.done() and queued in lane.waiting:
            asyncio.get_running_loop().call_later(_MAX_WAIT_S, self._pump)
        return queued.future

    def _pump(self) -> None:
        """Let lanes with room take waiting searches."""
        small, large = self._small.waiting, self._large.waiting
        if self._small.has_room:
            self._start(self._small, self._take(small, self._batch))
        if self._large.has_room:
            is_overdue = bool(small) and time.monotonic() - min(queued.since for queued in small) >= _MAX_WAIT_S
            # By turns if both are waiting.
            self._has_helped = is_overdue and not (self._has_helped and large)
            self._start(self._large, self._take(small, self._batch) if self._has_helped else self._take_large())

    def _take_large(self) -> list[QueuedSearch]:
        """Return the searches of the next batch of large requests: one part while small requests come."""
        waiting = self._large.waiting
        if not waiting:
            return []
        has_small = waiting.peek().meter.turns.had_small_lately
        return self._take(waiting, min(self._batch, _PARTS_AT_ONCE), 1 if has_small else _PARTS_AT_ONCE)

    def _take(
        self, waiting: FairQueue[QueuedSearch], max_queries: int, max_cost: float = math.inf
    ) -> list[QueuedSearch]:
        """Remove and return the searches of the next batch, in order, at least one, without cancelled ones."""
        searches: list[QueuedSearch] = []
        size = cost = 0
        while waiting and (
            not searches or (size + waiting.peek().size <= max_queries and cost + waiting.peek().cost <= max_cost)
        ):
            queued = waiting.popleft()
            if not queued.future.done():
                searches.append(queued)
                size += queued.size
                cost += queued.cost
        return searches

    def _start(self, lane: Lane, searches: list[QueuedSearch]) -> None:
        if not searches:
            return
        loop, thread = asyncio.get_running_loop(), lane.begin(searches)
        batch = _SearchBatch(searches, self._quick.kind(searches), time.monotonic())

        def encoded() -> None:
            loop.call_soon_threadsafe(self._let_next, lane, searches)

        def ended(done: Future[list[Any]]) -> None:
            # Called directly from the thread: an asyncio future in between would take another turn of the loop.
            note = partial(self._note, batch, batch.age_s, has_thread=True)
            loop.call_soon_threadsafe(self._finish, lane, searches, thread, done, note)

        is_large = lane is self._large and not self._has_helped
        thread.submit(self._search_jobs, batch, encoded, is_large).add_done_callback(ended)

    def _let_next(self, lane: Lane, searches: list[QueuedSearch]) -> None:
        lane.let_next(searches)
        self._pump()

    def _note(self, batch: _SearchBatch, took_s: float, *, has_thread: bool) -> None:
        """Record a batch that has ended."""
        size = sum(queued.size for queued in batch.searches)
        self._quick.ended(batch.kind, took_s, size, has_thread=has_thread)
        self._observer.observe_batch(size, [batch.begun - queued.since for queued in batch.searches], batch.stages)

    def _finish(
        self,
        lane: Lane,
        searches: list[QueuedSearch],
        thread: ThreadPoolExecutor,
        done: Future[list[Any]],
        note: Callable[[], None],
    ) -> None:
        """Resolve the searches, start the lane's next batch, then record this one."""
        lane.end(searches, thread)
        failed = done.exception()
        answers = [failed] * len(searches) if failed is not None else done.result()
        for queued, answer in zip(searches, answers, strict=True):
            if isinstance(answer, Uncited):
                self._citations.add(answer)
            else:
                _resolve(queued, answer)
        self._pump()
        asyncio.get_running_loop().call_soon(note)

    def _search_jobs(self, batch: _SearchBatch, encoded: Callable[[], None], is_large: bool) -> list[Any]:
        """Return the results of each search of a batch, or its error. Runs in a thread, unless it is quick.

        Args:
            batch: The batch; takes the seconds of each stage.
            encoded: Called when the texts are encoded, if there are any.
            is_large: Whether to pause for small requests.

        """
        searches, stages = batch.searches, batch.stages
        if is_large:
            for queued in searches:
                queued.meter.is_in_thread = True
            searches[0].meter.give_way()
        with _switching(searches, is_large), watched_stages(stages):
            queries = self._encode(searches, stages)
            if "encode" in stages:
                encoded()
            begun = time.perf_counter()
            answers = [_metered(*each) for each in zip(searches, self._search(searches, queries), strict=True)]
            stages["search"] = time.perf_counter() - begun - stages.get("rescore", 0.0)
            return [
                _completed(queued, answer, can_wait=not is_large)
                for queued, answer in zip(searches, answers, strict=True)
            ]

    def _encode(self, searches: list[QueuedSearch], stages: dict[str, float]) -> list[Queries | Exception]:
        """Return the queries of each search, all texts that need it encoded at once; or the error of that."""
        texts = [text for queued in searches if queued.needs_encoding for text in queued.queries.unencoded]
        begun = time.perf_counter()
        encoded: Floats | Exception = np.empty((0, 0), dtype=np.float32)
        if texts:
            try:
                encoded = self._index.encode_queries(texts)
            except MvindexError as err:
                encoded = without_frames(err)
            stages["encode"] = time.perf_counter() - begun
        queries: list[Queries | Exception] = []
        at = 0
        for queued in searches:
            if not queued.needs_encoding:
                queries.append(queued.queries)
            elif isinstance(encoded, Exception):
                queries.append(encoded)
            else:
                queries.append(queued.queries.encoded(encoded[at : at + queued.size]))
                at += queued.size
        return queries

    def _search(
        self, searches: list[QueuedSearch], queries: list[Queries | Exception]
    ) -> list[list[SearchResult] | Exception]:
        """Return the results of each search, or its error; searches with equal options are searched together."""
        answers: list[list[SearchResult] | Exception] = [
            each if isinstance(each, Exception) else [] for each in queries
        ]
        alike: dict[Hashable, list[int]] = {}
        for number, (queued, each) in enumerate(zip(searches, queries, strict=True)):
            if isinstance(each, Queries):
                # A group is searched by itself.
                key = number if each.combine is not None else (queued.request.key, each.kind)
                alike.setdefault(key, []).append(number)
        for members in alike.values():
            self._search_together(searches, queries, members, answers)
        return answers

    def _search_together(
        self, searches: list[QueuedSearch], queries: list[Any], members: list[int], answers: list[Any]
    ) -> None:
        """Set the answers of searches of equal options. If they fail together, each is searched by itself."""
        try:
            joined = Queries.joined([queries[number] for number in members])
            with too_large_beyond(self._response_bytes):
                found = self._index.run(searches[members[0]].request.with_queries(joined))
        except (MvindexError, ValueError) as err:
            if len(members) == 1:
                answers[members[0]] = without_frames(err)
                return
            for number in members:
                self._search_together(searches, queries, [number], answers)
            return
        at = 0
        for number in members:
            answers[number] = found[at : at + len(queries[number])]
            at += len(queries[number])


def _nothing() -> None:
    """Do nothing once no texts were encoded."""


def _switching(searches: list[QueuedSearch], is_large: bool) -> AbstractContextManager[None]:
    """Return a context in which this thread gives the interpreter to others sooner, where the searches take long."""
    if is_large:
        return switch_interval.at_most(LONG_WORK_S)
    # Whoever searches others holds the interpreter: the next batch of texts must not wait for that.
    return switch_interval.at_most(ENCODING_S) if any(queued.needs_encoding for queued in searches) else nullcontext()


def _metered(queued: QueuedSearch, answer: list[SearchResult] | Exception) -> list[SearchResult] | Exception:
    """Return a search's answer, or the error of one that makes too large a response."""
    if isinstance(answer, Exception):
        return answer
    try:
        for result in answer:
            queued.meter.give_way()
            # At least: span, snippet and one citation are parts of the text, and are counted when they are written.
            queued.meter.gather(sum(len(hit.text) + len(hit.title) + len(hit.id) for hit in result.hits))
    except LimitExceeded as err:
        return without_frames(err)
    return answer


def _completed(
    queued: QueuedSearch, answer: list[SearchResult] | Exception, *, can_wait: bool
) -> list[Any] | Exception | Uncited:
    """Return a search's answer with its citations, converted; or what waits for them, where they take long."""
    if isinstance(answer, Exception):
        return answer
    waiting = uncited(queued, answer) if can_wait else None
    return waiting or _cited(Uncited(queued, answer, 1))


def _cited(waiting: Uncited) -> list[Any] | Exception:
    """Return results with their citations, converted."""
    try:
        _choose_citations(waiting.results, waiting.queued.meter)
    except LimitExceeded as err:
        return without_frames(err)
    return _converted(waiting.queued, waiting.results)


def _resolve(queued: QueuedSearch, answer: Any) -> None:
    """Give a search its answer, unless its caller is gone."""
    if queued.future.done():
        return
    if isinstance(answer, BaseException):
        queued.future.set_exception(answer)
    else:
        queued.future.set_result(answer)


def _converted(queued: QueuedSearch, answer: list[SearchResult]) -> list[Any] | Exception:
    """Return what a search's answer is converted to, or its error.

    At once, so that the hits of a large request are never all in memory: the collector of garbage would stop everyone
    while it looks at them.
    """
    if queued.convert is None:
        return answer
    try:
        return queued.convert(answer)
    except MvindexError as err:
        return without_frames(err)
    except Exception as err:  # noqa: BLE001 - of this request alone, not of all that were searched with it
        # With its frames, for the log.
        return err


def _parts(costs: Sequence[int]) -> Iterator[slice]:
    """Yield the queries of each part, at least one: they cost up to _PART, those of the first part _FIRST_PART."""
    begin = total = 0
    for number, cost in enumerate(costs):
        if number > begin and total + cost > (_PART if begin else _FIRST_PART):
            yield slice(begin, number)
            begin, total = number, 0
        total += cost
    yield slice(begin, len(costs))


def _choose_citations(results: Sequence[SearchResult], meter: ResponseMeter) -> None:
    """Choose the citations of all hits here, in the searching thread: the event loop has no time for it."""
    for result in results:
        for hit in result.hits:
            meter.give_way()
            with citing_in_workers(hit.id):
                _ = hit.citation, hit.confidence
                # Several of them, with what stands around each, may be many times the text.
                meter.gather(sum(len(each.before) + len(each.text) + len(each.after) for each in hit.citations))
