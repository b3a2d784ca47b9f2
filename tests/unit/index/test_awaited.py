"""AsyncIndex: what the blocking index returns, a bounded number of calls at once, and cancellation without traces."""

import asyncio
import threading
import time

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.errors import ConfigError, IndexLocked, QueryError, StoreError
from mvindex.ingest import CHUNK_DOCUMENTS

DIM = 4
COUNT = 40


# Set by a test: what encoding waits for.
GATES = []


def rows_of(texts):
    for gate in GATES:
        gate.wait()
    return np.array([[len(text), text.count("a") + 1, 1, 2] for text in texts], dtype=np.float32)


class Gate:
    """Lets encoding go on when it is told to, and counts how many calls wait for that at once."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.lock = threading.Lock()
        self.waiting = self.most = self.calls = 0

    def hold(self):
        GATES.append(self)

    def wait(self):
        with self.lock:
            self.waiting += 1
            self.calls += 1
            self.most = max(self.most, self.waiting)
        assert self.may_go_on.wait(20)
        with self.lock:
            self.waiting -= 1


@pytest.fixture
def place(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder=rows_of, lexical="unicode") as index:
        index.add([Document(f"d{n}", f"{'a' * n} text number {n}", metadata={"n": n}) for n in range(COUNT)])
    return tmp_path / "a.mvx"


@pytest.fixture
def slow(place):
    """Return a gate, which holds up every encoding from its hold() on."""
    gate = Gate()
    yield gate
    gate.may_go_on.set()
    GATES.clear()


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def until(happened):
    while not happened():
        await asyncio.sleep(0.005)


def test_every_method_returns_what_the_blocking_one_does(place):
    async def work():
        async with await mvindex.open_async(place, encoder=rows_of) as index:
            blocking = index.index
            assert await index.search("a text", 5) == blocking.search("a text", 5)
            assert await index.search(["a", "aa"], 3, {"n": {"lt": 20}}) == blocking.search(
                ["a", "aa"], 3, {"n": {"lt": 20}}
            )
            assert await index.search(top_k=3, like="d4") == blocking.search(top_k=3, like="d4")
            assert await index.get("d3") == blocking.get("d3") and await index.get("none") is None
            assert await index.get(["d5", "d1"]) == blocking.get(["d5", "d1"])
            assert [one.id async for one in index.scan({"n": {"gte": 3}}, 4, "d5")] == ["d6", "d7", "d8", "d9"]
            assert [one.id async for one in index] == [one.id for one in blocking]
            assert (await index.info()).documents == await index.count() == COUNT
            assert await index.contains("d1") and not await index.contains("none")
            report = await index.add([Document("new", "a new text")])
            assert report.added == 1 and await index.count() == COUNT + 1
            await index.update("new", metadata={"n": 99})
            assert (await index.get("new")).metadata == {"n": 99}
            assert await index.delete(ids=["new", "d1"]) == 2
            assert not await index.refresh()
            with pytest.raises(QueryError, match="top_k"):
                await index.search("a", 0)
            with pytest.raises(QueryError, match="there is no document"):
                await index.update("none", metadata={})

    run(work())


def test_views_are_added_and_a_missing_index_is_named(tmp_path):
    async def work():
        with pytest.raises(StoreError, match="none.mvx"):
            await mvindex.open_async(tmp_path / "none.mvx")
        mvindex.create(tmp_path / "b.mvx", dim=DIM).close()
        for wrong in (0, True, 1.5):
            with pytest.raises(ConfigError, match="max_calls"):
                await mvindex.open_async(tmp_path / "b.mvx", max_calls=wrong)
        async with await mvindex.open_async(tmp_path / "b.mvx") as index:
            await index.add_views([Document("v", "abc")], np.ones((1, 2, DIM)), spans=[[(0, 1), (1, 3)]])
            assert (await index.search(np.ones(DIM), 1))[0].span == (0, 1)

    run(work())


def test_no_more_reads_than_allowed_are_carried_out_at_once_and_the_loop_goes_on(place, slow):
    async def work():
        async with await mvindex.open_async(place, encoder=rows_of, max_calls=3) as index:
            slow.hold()
            searches = [asyncio.create_task(index.search("a", 2)) for _ in range(8)]
            await until(lambda: slow.waiting == 3)
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0.001)
                ticks += 1
            assert ticks == 20 and slow.calls == 3
            slow.may_go_on.set()
            results = await asyncio.gather(*searches)
            assert slow.most == 3 and slow.calls == 8 and all(result == results[0] for result in results)

    run(work())


def test_a_search_that_is_cancelled_while_it_waits_is_never_carried_out(place, slow):
    async def work():
        async with await mvindex.open_async(place, encoder=rows_of, max_calls=1) as index:
            slow.hold()
            first, second, third = (asyncio.create_task(index.search("a", 2)) for _ in range(3))
            await until(lambda: slow.waiting == 1)
            first.cancel()
            second.cancel()
            for task in (first, second):
                with pytest.raises(asyncio.CancelledError):
                    await task
            # The one that is carried out keeps its place: the limit holds.
            await asyncio.sleep(0.05)
            assert slow.calls == 1
            slow.may_go_on.set()
            assert len(await third) == 2 and slow.calls == 2

    run(work())


def test_an_add_that_is_cancelled_ends_and_leaves_no_lock(place, slow):
    """It stores whole chunks, and another object can write as soon as its last one is stored."""
    given = [Document(f"more{n}", f"text {n}") for n in range(3 * CHUNK_DOCUMENTS)]

    async def work():
        async with await mvindex.open_async(place, encoder=rows_of) as index:
            slow.hold()
            adding = asyncio.create_task(index.add(given))
            waiting = asyncio.create_task(index.add([Document("after", "text")]))
            await until(lambda: slow.waiting == 1)
            with mvindex.open(place) as other, pytest.raises(IndexLocked):
                other.delete(ids="d0")
            adding.cancel()
            waiting.cancel()
            for task in (adding, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await task
            slow.may_go_on.set()
            with mvindex.open(place, encoder=rows_of) as other:
                deadline = time.monotonic() + 30
                while True:
                    try:
                        other.add([Document("other", "text")])
                        break
                    except IndexLocked:
                        assert time.monotonic() < deadline
                        await asyncio.sleep(0.01)
            await index.refresh()
            num_stored = await index.count() - COUNT - 1
            assert num_stored % CHUNK_DOCUMENTS == 0 and num_stored < len(given)
            assert await index.contains("other") and not await index.contains("after")
            assert (await index.add([Document("last", "text")])).added == 1

    run(work())


def test_closing_waits_for_what_is_carried_out_and_cancels_what_waits(place, slow):
    async def work():
        index = await mvindex.open_async(place, encoder=rows_of, max_calls=1)
        slow.hold()
        first, second = (asyncio.create_task(index.search("a", 2)) for _ in range(2))
        await until(lambda: slow.waiting == 1)
        closing = asyncio.create_task(index.close())
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not closing.done()
        slow.may_go_on.set()
        assert len(await first) == 2
        await closing

    run(work())


def test_a_scan_that_is_left_leaves_the_index_usable(place):
    async def work():
        async with await mvindex.open_async(place, encoder=rows_of) as index:
            async for document in index.scan():
                assert document.id == "d0"
                break
            assert await index.delete(ids="d0") == 1 and await index.count() == COUNT - 1

    run(work())


def test_a_closed_index_refuses_every_call_by_name(place):
    async def work():
        index = await mvindex.open_async(place, encoder=rows_of)
        await index.close()
        calls = (lambda: index.search("a"), index.count, lambda: index.add([]), lambda: index.delete(all=True))
        for call in calls:
            with pytest.raises(StoreError, match="this index was closed; open it again"):
                await call()
        await index.close()

    run(work())


def test_a_keyword_that_search_does_not_have_is_named_with_search(place):
    async def work():
        async with await mvindex.open_async(place, encoder=rows_of) as index:
            for search in (index.search, index.index.search):
                with pytest.raises(TypeError, match=r"^search\(\) got an unexpected keyword argument 'topk'$"):
                    found = search("a", topk=3)
                    await found

    run(work())
