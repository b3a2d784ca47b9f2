"""Which searches the event loop runs itself, and which have a thread."""

import asyncio
import threading

import numpy as np
import pytest
from serving_tools import NoObserver

import mvindex
from mvindex import Document
from mvindex.errors import StoreError
from mvindex.index import Index
from mvindex.ingest import GivenViews
from mvindex.records import SearchResult
from mvindex.search.request import parse_options, parse_request
from mvindex_connectors.server.batching import Batcher
from mvindex_connectors.server.config import Limits, ServerConfig
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter

VECTOR = np.ones((1, 4), dtype=np.float32)


class Clock:
    """A clock that searches move on."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic


class Searched:
    """Stands where an index is asked: a search takes so long by the clock, and its thread is kept."""

    def __init__(self, clock):
        self.clock, self.takes, self.threads, self.error = clock, 0.0001, [], None

    def run(self, request):
        self.threads.append(threading.current_thread())
        self.clock.now += self.takes
        if self.error:
            raise self.error
        return [SearchResult((), False, 0, 1)] * len(request.queries[0])

    def encode_queries(self, texts):
        return np.ones((len(texts), 4), dtype=np.float32)


class Searcher:
    """A batcher, and whether its last search was run by the event loop."""

    def __init__(self, clock):
        self.index, self.state = Searched(clock), 1
        self.batcher = Batcher(self.index, NoObserver(), Limits(), batch=64, state=lambda: self.state)

    async def search(self, queries=VECTOR, texts=None, **options):
        meter = ResponseMeter(ResponseBudget(1 << 20))
        found = await self.batcher.search(parse_options(**options).of(queries, texts), meter)
        await asyncio.sleep(0)  # what is noted after a response
        return found

    async def is_here(self, *given, **options):
        await self.search(*given, **options)
        return self.index.threads[-1] is threading.current_thread()

    async def many(self, count):
        await asyncio.gather(*(self.search() for _ in range(count)))


@pytest.fixture
def run(monkeypatch):
    """Runs a coroutine function with a Searcher and its clock."""
    clock = Clock()
    for module in ("lanes", "batching"):
        monkeypatch.setattr(f"mvindex_connectors.server.{module}.time", clock)

    def running(function):
        async def main():
            searcher = Searcher(clock)
            try:
                await function(searcher, clock)
            finally:
                searcher.batcher.close()

        asyncio.run(main())

    return running


def test_a_quick_search_of_the_same_kind_needs_no_thread(run):
    async def check(searcher, clock):
        assert [await searcher.is_here() for _ in range(3)] == [False, True, True]
        assert not await searcher.is_here(top_k=7)
        assert await searcher.is_here(top_k=7)
        searcher.state = 2  # a commit
        assert [await searcher.is_here(top_k=7) for _ in range(2)] == [False, True]

    run(check)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ((["a text"], ["a text"]), {}),
        ((VECTOR, ["a text"]), {}),
        ((np.ones((2, 4), dtype=np.float32),), {}),
        ((VECTOR,), {"filter": {"year": 1973}}),
    ],
)
def test_what_is_not_one_plain_vector_has_a_thread(run, given, options):
    async def check(searcher, clock):
        assert [await searcher.is_here(*given, **options) for _ in range(3)] == [False] * 3

    run(check)


def test_an_index_elsewhere_has_a_thread(run):
    async def check(searcher, clock):
        searcher.state = None
        assert [await searcher.is_here() for _ in range(3)] == [False] * 3

    run(check)


def test_a_slow_search_is_forgotten_by_halves(run):
    async def check(searcher, clock):
        searcher.index.takes = 0.0035
        assert [await searcher.is_here() for _ in range(3)] == [False] * 3
        searcher.index.takes = 0.0001
        assert [await searcher.is_here() for _ in range(4)] == [False, False, True, True]
        searcher.index.takes = 0.0035
        assert [await searcher.is_here() for _ in range(2)] == [True, False]  # nobody could know before

    run(check)


def test_while_many_search_all_have_threads(run):
    async def check(searcher, clock):
        await searcher.many(8)
        assert len(searcher.index.threads) < 8  # most of them together
        assert [await searcher.is_here() for _ in range(2)] == [False] * 2
        clock.now += 1.1
        assert await searcher.is_here()

    run(check)


def test_now_and_then_one_has_a_thread_to_see_whether_others_come(run):
    async def check(searcher, clock):
        assert [await searcher.is_here() for _ in range(68)] == ([False] + [True] * 32) * 2 + [False, True]

    run(check)


def test_an_error_is_that_of_the_call(run):
    async def check(searcher, clock):
        await searcher.search()
        searcher.index.error = StoreError("the index was closed")
        with pytest.raises(StoreError, match="was closed"):
            await searcher.search()
        assert searcher.index.threads[-1] is threading.current_thread()
        searcher.index.error = None
        assert await searcher.search()

    run(check)


def test_what_was_searched_ahead_needs_no_thread(run):
    async def check(searcher, clock):
        assert [await searcher.is_here() for _ in range(2)] == [False, True]
        assert searcher.batcher.has_searched(1) and not searcher.batcher.has_searched(2)
        searcher.state = 2  # a commit
        searcher.batcher.moved(1, 2)
        assert await searcher.is_here()
        searcher.state = 4
        searcher.batcher.moved(3, 4)
        assert not await searcher.is_here()

    run(check)


def ones(count):
    return np.ones((count, 1, 4), dtype=np.float32)


def by_another(index):
    """Another process commits, and this one follows."""
    with mvindex.open(index.where) as other:
        other.add_views([Document("of another", "text")], ones(1))
    assert index.refresh()


CHANGES = {
    "add": lambda index: index.add_views([Document("new", "text")], ones(1)),
    "replace": lambda index: index.add_views([Document("d0", "other text")], ones(1)),
    "update": lambda index: index.update("d1", metadata={"year": 1973}),
    "delete": lambda index: index.delete(ids=["d2"]),
    "build": lambda index: index.admin.build("flat"),
    "compact": lambda index: index.admin.compact(),
    "follow": by_another,
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_first_search_after_any_commit_has_a_thread(tmp_path, monkeypatch, change):
    ask, threads = Index.run, []

    def watched(*given, **more):
        threads.append(threading.current_thread())
        return ask(*given, **more)

    monkeypatch.setattr(Index, "run", watched)
    monkeypatch.setattr("mvindex_connectors.server.lanes._QUICK_S", 60)  # on a busy machine, too

    async def main(index, service):
        async def is_here():
            found = await service.search(parse_request(VECTOR), ResponseMeter(ResponseBudget(1 << 20)))
            await asyncio.sleep(0)
            was_here = threads[-1] is threading.current_thread()
            assert found == index.search(VECTOR)
            return was_here

        assert [await is_here() for _ in range(2)] == [False, True]
        CHANGES[change](index)
        assert [await is_here() for _ in range(2)] == [False, True]

    with mvindex.create(tmp_path / "a.mvx", dim=4) as index:
        index.add_views([Document(f"d{n}", "text") for n in range(5)], ones(5))
        index.delete(ids="d4")  # which leaves something to compact
        service = IndexService("a", index, ServerConfig(indexes=[("a", index.where)]), NoObserver())
        try:
            asyncio.run(main(index, service))
        finally:
            service.close()


def test_a_write_to_a_searched_index_searches_what_it_made(tmp_path, monkeypatch):
    ask, threads = Index.run, []

    def watched(*given, **more):
        threads.append(threading.current_thread().name)
        return ask(*given, **more)

    monkeypatch.setattr(Index, "run", watched)

    async def main(service):
        async def write(name):
            await service.add("", 1, [Document(name, "text")], GivenViews(ones(1)), None)
            await service.write(lambda: None)  # behind what the write has asked for

        await write("nobody has searched")
        assert not threads
        await service.search(parse_request(VECTOR), ResponseMeter(ResponseBudget(1 << 20)))
        await write("new")
        assert [name.rstrip("_0123456789") for name in threads] == ["search-small", "write"]
        await write("nobody has searched since")
        assert len(threads) == 2

    with mvindex.create(tmp_path / "a.mvx", dim=4) as index:
        service = IndexService("a", index, ServerConfig(indexes=[("a", index.where)]), NoObserver())
        try:
            asyncio.run(main(service))
        finally:
            service.close()
