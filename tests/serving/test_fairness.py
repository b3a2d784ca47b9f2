"""Fairness: callers take turns by what they cost, large work gives way to small, and no caller takes all calls."""

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_tools import NoObserver, fill, served, vectors

import mvindex
from mvindex import Document, ViewText
from mvindex.encoder.function import CallableEncoder
from mvindex.errors import LimitExceeded, ServerUnavailable
from mvindex.records import SearchResult
from mvindex.search.request import Queries, parse_request
from mvindex_connectors.remote import Access, CallSettings, IndexClient
from mvindex_connectors.server.admission import Admission, CallContext
from mvindex_connectors.server.batching import Batcher
from mvindex_connectors.server.config import Limits, ServerConfig
from mvindex_connectors.server.fairness import (
    ENCODING_S,
    LONG_WORK_S,
    FairQueue,
    FairThread,
    SmallFirst,
    has_room,
    query_costs,
    switch_interval,
)
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter
from mvindex_connectors.server.telemetry import Metrics
from mvindex_connectors.server.tokens import Tokens


@dataclass(eq=False)
class Work:
    caller: str
    cost: int = 1


def order(queue):
    return [queue.popleft() for _ in range(len(queue))]


def test_callers_take_turns_by_cost_and_each_keeps_its_order():
    queue = FairQueue()
    hog = [Work("hog", 64) for _ in range(50)]
    others = [Work("b"), Work("c", 64), Work("b")]
    for work in (*hog, *others):
        queue.append(work)
    found = order(queue)
    # One turn of the hog at most before each of the others.
    assert [work.caller for work in found[:5]] in (["hog", "b", "c", "b", "hog"], ["hog", "b", "c", "hog", "b"],
                                                   ["hog", "b", "b", "c", "hog"])  # fmt: skip
    assert [work for work in found if work.caller == "hog"] == hog
    assert [work for work in found if work.caller == "b"] == [others[0], others[2]]


def test_a_caller_that_comes_late_has_saved_nothing_up():
    queue = FairQueue()
    for _ in range(10):
        queue.append(Work("a", 10))
    for _ in range(5):
        queue.popleft()
    for _ in range(5):
        queue.append(Work("late", 10))
    found = [work.caller for work in order(queue)]
    assert 2 <= found[:5].count("a") <= 3


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=60))
def test_while_all_wait_no_caller_is_ahead_by_more_than_its_largest_request(given):
    queue = FairQueue()
    for caller, cost in given:
        queue.append(Work(caller, cost))
    callers = {caller for caller, _ in given}
    served = dict.fromkeys(callers, 0)
    while len({work.caller for work in queue}) == len(callers):
        assert max(served.values()) - min(served.values()) <= 9
        work = queue.popleft()
        served[work.caller] += work.cost
    left = list(queue)
    queue.keep(left[::2])
    assert set(map(id, order(queue))) == set(map(id, left[::2]))
    with pytest.raises(IndexError):
        queue.peek()


def test_what_a_query_costs():
    rows = np.zeros((2, 4), dtype=np.float32)
    assert query_costs(Queries(rows), 10) == [1, 1]
    assert query_costs(Queries(rows), 10_000) == [101, 101]
    assert query_costs(Queries(rows, ["x", "y" * 2560]), 10) == [1, 11]
    assert query_costs(Queries(rows, ["x", "y" * 2560]), 100) == [2, 12]


def test_small_requests_are_expected_for_a_second_after_the_last(monkeypatch):
    turns, now = SmallFirst(), [100.0]
    monkeypatch.setattr("mvindex_connectors.server.fairness.time.monotonic", lambda: now[0])
    assert not turns.had_small_lately
    with turns.small():
        now[0] += 10
        assert turns.had_small_lately
    now[0] += 0.9
    assert turns.had_small_lately
    now[0] += 0.2
    assert not turns.had_small_lately


def batcher_of(index, batch=256):
    return Batcher(index, NoObserver(), Limits(queued=1000, response_bytes=1 << 20), batch=batch, state=lambda: None)


def search_text(batcher, text):
    """Begin the search of a text by the caller who is its first word."""
    meter = ResponseMeter(ResponseBudget(1 << 20))
    meter.caller = text.split()[0]
    return asyncio.ensure_future(batcher.search(parse_request([text]), meter))


class SearchedParts:
    """Stands where an index is asked, and keeps how many queries come together."""

    def __init__(self):
        self.sizes, self.intervals = [], set()

    def run(self, request):
        self.sizes.append(len(request.queries[0]))
        self.intervals.add(round(sys.getswitchinterval(), 6))
        return [SearchResult((), False, 0, 1)] * len(request.queries[0])


@pytest.mark.parametrize(("has_small", "sizes"), [(False, [64, 64, 64, 8]), (True, [64, *[8] * 17])])
def test_a_large_request_is_searched_in_finer_parts_while_small_ones_come(has_small, sizes):
    async def search():
        index, turns = SearchedParts(), SmallFirst()
        batcher = batcher_of(index)
        if has_small:
            with turns.small():
                pass
        try:
            meter = ResponseMeter(ResponseBudget(1 << 20), turns)
            found = await batcher.search(parse_request(np.zeros((200, 4), dtype=np.float32)), meter)
        finally:
            batcher.close()
        assert index.intervals == {LONG_WORK_S}
        return len(found), index.sizes

    assert asyncio.run(search()) == (200, sizes)


class OverlappingIndex:
    """Stands where an index is asked; no search ends before a second batch of texts is encoded."""

    def __init__(self):
        self.encoded, self.searched = [], []
        self._is_second = threading.Event()

    def encode_queries(self, texts):
        self.encoded.append(list(texts))
        if len(self.encoded) == 2:
            self._is_second.set()
        return np.zeros((len(texts), 4), dtype=np.float32)

    def run(self, request):
        assert self._is_second.wait(60), "no text was encoded during the search"
        self.searched.append(request.queries[0].texts)
        return [SearchResult((), False, 0, 1)] * len(request.queries[0])


def test_texts_are_encoded_while_others_are_searched():
    async def ask():
        index = OverlappingIndex()
        batcher = batcher_of(index)
        try:
            first = search_text(batcher, "a")
            while not index.encoded:
                await asyncio.sleep(0.001)
            others = [search_text(batcher, text) for text in "bc"]
            await asyncio.gather(first, *others)
        finally:
            batcher.close()
        return index.encoded, index.searched

    encoded, searched = asyncio.run(ask())
    assert encoded in ([["a"], ["b"], ["c"]], [["a"], ["b", "c"]])
    assert sorted(text for texts in searched for text in texts) == ["a", "b", "c"]


def test_what_cannot_be_converted_fails_its_own_request_only():
    async def ask():
        index = SearchedParts()
        batcher = batcher_of(index)

        def refuse(results):
            raise RuntimeError("no")

        async def search(convert):
            meter, queries = ResponseMeter(ResponseBudget(1 << 20)), np.zeros((1, 4), dtype=np.float32)
            return await batcher.search(parse_request(queries), meter, convert)

        try:
            return await asyncio.gather(*map(search, (len, refuse, list)), return_exceptions=True), index.sizes
        finally:
            batcher.close()

    (first, second, third), sizes = asyncio.run(ask())
    # The last two waited for the first, and were searched together.
    assert sizes == [1, 2]
    assert first == 1 and isinstance(second, RuntimeError) and len(third) == 1
    # The log shows where it happened.
    assert traceback.extract_tb(second.__traceback__)[-1].name == "refuse"


class SlowIndex:
    """Stands where an index is asked; each of its searches ends when it is told to."""

    def __init__(self):
        self.encoded, self.ends = [], threading.Semaphore(0)

    def encode_queries(self, texts):
        self.encoded += texts
        return np.zeros((len(texts), 4), dtype=np.float32)

    def run(self, request):
        assert self.ends.acquire(timeout=60)
        return [SearchResult((), False, 0, 1)] * len(request.queries[0])


def test_callers_take_turns_while_two_batches_are_in_progress():
    async def ask():
        index = SlowIndex()
        batcher = batcher_of(index, batch=1)
        try:
            asked = [search_text(batcher, f"hog {number}") for number in range(20)]
            while len(index.encoded) < 2:
                await asyncio.sleep(0.001)
            asked += [search_text(batcher, f"one {number}") for number in range(3)]
            await asyncio.sleep(0)
            index.ends.release(len(asked))
            await asyncio.gather(*asked)
        finally:
            batcher.close()
        return index.encoded

    encoded = asyncio.run(ask())
    # Both of the first searches were the hog's; from then on the other has every second turn until it has no more.
    assert [text.split()[0] for text in encoded[:2]] == ["hog", "hog"]
    assert sorted(text.split()[0] for text in encoded[2:8]) == ["hog"] * 3 + ["one"] * 3
    for name, count in (("hog", 20), ("one", 3)):
        assert [text for text in encoded if text.startswith(name)] == [f"{name} {number}" for number in range(count)]


def test_what_is_converted_in_the_event_loop_does_not_pause_there(tmp_path):
    """Its results may come from the lane of large requests, where it would: nobody could end the small ones then."""
    fill(tmp_path / "a.mvx")

    async def convert():
        with mvindex.open(tmp_path / "a.mvx") as index:
            service = IndexService("a", index, ServerConfig(indexes=[("a", index.where)]), NoObserver())
            meter = ResponseMeter(ResponseBudget(1 << 20))
            meter.is_in_thread = True
            found = [await service.convert(lambda: meter.is_in_thread, count, meter) for count in (1, 1000, 1)]
            service.close()
        return found

    assert asyncio.run(convert()) == [False, True, False]


LONG = "It rains. " * 4_000


class SlowEncoder:
    """A function for views; a batch with a long text waits for `may_encode`."""

    def __init__(self):
        self.long, self.is_waiting, self.may_encode = 0, threading.Event(), threading.Event()

    def __call__(self, texts):
        if any(len(text) >= len(LONG) for text in texts):
            self.long += 1
            self.is_waiting.set()
            assert self.may_encode.wait(60)
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@contextlib.asynccontextmanager
async def slowly_encoding(path):
    encode = SlowEncoder()
    encoder = CallableEncoder(encode, name="slow", dim=2)
    with mvindex.create(path, encoder=encoder) as index:
        service = IndexService("a", index, ServerConfig(indexes=[("a", index.where)]), NoObserver())
        try:
            yield service, encode
        finally:
            await asyncio.to_thread(service.close)


def test_a_writer_does_not_wait_for_the_encoding_of_anothers_long_text(tmp_path):
    long = Document("long", LONG, "rain", view_texts=("It pours.", ViewText(LONG[:20], (0, 20))))

    async def write():
        async with slowly_encoding(tmp_path / "a.mvx") as (service, encode):
            first = asyncio.ensure_future(service.add("k", 1, [long, Document("b", "It snows.")], None))
            await asyncio.to_thread(encode.is_waiting.wait, 60)
            assert (await asyncio.wait_for(service.add("", 1, [Document("short", "Sun.")], None), 30)).added == 1
            assert not first.done()
            # Gone, and sent again before it is stored: it is stored once.
            first.cancel()
            again = asyncio.ensure_future(service.add("k", 1, [long, Document("b", "It snows.")], None))
            encode.may_encode.set()
            assert (await asyncio.wait_for(again, 30)).added == 2
            assert (await service.add("", 1, [long], None)).unchanged == 1
            assert encode.long == 1
            return {
                each.id: (each.vectors.tolist(), each.spans)
                for each in service.index.views(["long", "b", "short"]).values()
            }

    found = asyncio.run(write())
    encode = SlowEncoder()
    encode.may_encode.set()
    with mvindex.create(tmp_path / "b.mvx", encoder=CallableEncoder(encode, name="slow", dim=2)) as index:
        index.add([long, Document("b", "It snows."), Document("short", "Sun.")])
        assert found == {
            each.id: (each.vectors.tolist(), each.spans) for each in index.views(["long", "b", "short"]).values()
        }


def test_a_long_chunk_is_encoded_again_where_another_write_came_between(tmp_path):
    async def write():
        async with slowly_encoding(tmp_path / "a.mvx") as (service, encode):
            encode.may_encode.set()
            stored = [Document("a", LONG), Document("b", "It snows.")]
            await service.add("", 1, stored, None)
            encode.may_encode.clear()
            encode.is_waiting.clear()
            added = asyncio.ensure_future(service.add("", 1, [*stored, Document("c", LONG + "more")], None))
            await asyncio.to_thread(encode.is_waiting.wait, 60)
            await service.delete(["b"], None, "")
            encode.may_encode.set()
            report = await asyncio.wait_for(added, 30)
            return report.added, report.unchanged, len(service.index)

    assert asyncio.run(write()) == (2, 1, 3)


def test_a_thread_takes_callers_by_turns_and_leaves_out_what_was_cancelled():
    may_go, called = threading.Event(), []

    async def submit():
        thread = FairThread("test")
        first = thread.submit(lambda: may_go.wait(60), "hog")
        tasks = [
            thread.submit(partial(called.append, f"{caller} {n}"), caller) for caller in ("hog", "b") for n in (1, 2)
        ]
        failing = thread.submit(lambda: 1 // 0, "c")
        tasks[1].cancel()
        may_go.set()
        await asyncio.gather(first, tasks[0], *tasks[2:])
        with pytest.raises(ZeroDivisionError):
            await failing
        await asyncio.to_thread(thread.close)
        with pytest.raises(ServerUnavailable, match="shut down"):
            await thread.submit(list, "b")

    asyncio.run(submit())
    assert called in (["b 1", "hog 1", "b 2"], ["b 1", "b 2", "hog 1"])


def test_large_work_waits_for_small_but_keeps_a_share():
    turns = SmallFirst()
    turns.pause()
    begun = time.perf_counter()
    time.sleep(0.02)
    turns.pause()
    assert time.perf_counter() - begun < 0.03 + 0.2, "nothing is served, nothing waits"
    with turns.small():
        begun, worked = time.perf_counter(), 0.0
        for _ in range(20):
            time.sleep(0.002)
            worked += 0.002
            turns.pause()
        assert worked * 1.5 < time.perf_counter() - begun < 20 * (0.02 + 0.2)
        waited = threading.Thread(target=lambda: (turns.pause(), time.sleep(0.01), turns.pause()))
        waited.start()
        waited.join(10)
        assert not waited.is_alive()


def test_the_switch_interval_is_short_while_a_thread_does_long_work(tmp_path):
    fill(tmp_path / "a.mvx")
    usual = sys.getswitchinterval()

    async def intervals():
        with mvindex.open(tmp_path / "a.mvx") as index:
            service = IndexService("a", index, ServerConfig(indexes=[("a", index.where)]), NoObserver())

            def nested():
                with switch_interval.at_most(ENCODING_S):
                    return sys.getswitchinterval()

            try:
                return [await run(nested) for run in (service.read, service.write, service.in_background)]
            finally:
                service.close()

    found = asyncio.run(intervals())
    with switch_interval.at_most(ENCODING_S):
        with switch_interval.at_most(LONG_WORK_S):
            assert sys.getswitchinterval() == pytest.approx(LONG_WORK_S)
        assert sys.getswitchinterval() == pytest.approx(ENCODING_S)
    assert found == pytest.approx([LONG_WORK_S] * 3) and LONG_WORK_S < ENCODING_S < usual == sys.getswitchinterval()


@pytest.mark.parametrize(
    ("own", "total", "num_callers", "has"),
    [(0, 0, 1, True), (99, 99, 1, True), (74, 74, 2, True), (75, 75, 2, False), (0, 75, 2, True), (20, 90, 4, True),
     (25, 90, 4, False), (0, 100, 4, False), (0, 99, 1000, True)],
)  # fmt: skip
def test_the_last_quarter_of_calls_is_for_those_below_an_equal_share(own, total, num_callers, has):
    assert has_room(own, total, 100, num_callers) == (has or num_callers == 1)


def context_of(admission):
    return CallContext(method="Search", request_id="x", peer="p", protocol="http", meter=admission.new_meter())


def test_a_caller_of_many_calls_leaves_room_for_others(tmp_path):
    (tmp_path / "tokens").write_text("read-only hog-0123456789abcdef hog\nread-only one-0123456789abcdef one\n")

    async def run():
        admission = Admission(Tokens(tmp_path / "tokens"), Limits(calls=8), Metrics(), ())
        stop = asyncio.Event()
        codes = []

        async def call(name):
            context = CallContext(
                method="Search", request_id="x", peer="p", protocol="http", meter=admission.new_meter()
            )
            try:
                with admission.admit(context, f"Bearer {name}-0123456789abcdef"):
                    await stop.wait()
            except LimitExceeded as err:
                codes.append((name, str(err)))

        first = asyncio.ensure_future(call("one"))
        await asyncio.sleep(0)
        hog = [asyncio.ensure_future(call("hog")) for _ in range(20)]
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(call("one")) for _ in range(2)]
        await asyncio.sleep(0)
        stop.set()
        await asyncio.gather(first, *hog, *others)
        with admission.admit(context_of(admission), "Bearer hog-0123456789abcdef"):
            pass
        return codes

    refused = asyncio.run(run())
    assert {name for name, _ in refused} == {"hog"} and 14 <= len(refused) <= 16
    assert "share of 8" in refused[0][1]


def test_a_caller_of_many_streams_leaves_room_for_others(tmp_path):
    (tmp_path / "tokens").write_text("read-only hog-0123456789abcdef hog\nread-only one-0123456789abcdef one\n")

    async def run():
        admission = Admission(Tokens(tmp_path / "tokens"), Limits(streams=8), Metrics(), ())
        with contextlib.ExitStack() as stack:
            stack.enter_context(admission.admit(context_of(admission), "Bearer hog-0123456789abcdef"))
            for _ in range(6):
                stack.enter_context(admission.streaming())
            with pytest.raises(
                LimitExceeded, match="6 ingests and lists of this caller are in progress, its share of 8"
            ):
                stack.enter_context(admission.streaming())
            stack.enter_context(admission.admit(context_of(admission), "Bearer one-0123456789abcdef"))
            stack.enter_context(admission.streaming())
        with admission.admit(context_of(admission), "Bearer hog-0123456789abcdef"), admission.streaming():
            pass

    asyncio.run(run())


def test_requests_that_fill_a_queue_are_those_of_one_caller(tmp_path):
    """Another caller's large request is answered while one fills the queue; the first is told of its share."""
    fill(tmp_path / "a.mvx", count=4000, dim=64)
    (tmp_path / "tokens").write_text("read-only hog-0123456789abcdef hog\nread-only one-0123456789abcdef one\n")
    rows = vectors(2000, dim=64)
    settings = CallSettings(timeout_s=120, retry_s=0)
    with served(f"--index=a={tmp_path / 'a.mvx'}", "--token-file", tmp_path / "tokens") as serving:
        access = {name: Access(token=f"{name}-0123456789abcdef") for name in ("hog", "one")}
        with (
            IndexClient(serving.url(), access=access["hog"], settings=settings) as hog,
            IndexClient(serving.url(), access=access["one"], settings=settings) as one,
        ):
            ended = []

            def flood():
                try:
                    hog.search(rows, top_k=10, scoring="drpq")
                    ended.append("answered")
                except LimitExceeded as err:
                    ended.append(str(err))

            threads = [threading.Thread(target=flood) for _ in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            assert len(one.search(rows[:200], top_k=10, scoring="drpq")) == 200
            num_ended = len([each for each in ended if each == "answered"])
            for thread in threads:
                thread.join()
    assert "answered" in ended and any("its share is" in each for each in ended)
    assert num_ended < 2, "the other caller waited for all of the first one's requests"
