"""Failures of a server and its clients between two of their steps."""

import asyncio
import contextlib
import threading
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from serving_tools import fill, served, start, vectors

import mvindex
from mvindex import Document
from mvindex.errors import (
    AccessDenied,
    ConfigError,
    DocumentError,
    IndexLocked,
    LimitExceeded,
    QueryError,
    ServerUnavailable,
    Unsupported,
)
from mvindex.index import embedded_store_of
from mvindex.ingest import GivenViews
from mvindex.search.request import parse_request
from mvindex.store.files import writer_lock
from mvindex.v1 import documents_pb2, search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import Access, AsyncIndexClient, CallSettings, IndexClient
from mvindex_connectors.remote.address import parse_address
from mvindex_connectors.remote.retry import RetryBudget
from mvindex_connectors.server import lifecycle
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.index_set import IndexSet
from mvindex_connectors.server.lifecycle import Server
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter
from mvindex_connectors.server.maintenance import Maintenance
from mvindex_connectors.server.telemetry import Metrics
from mvindex_connectors.server.tokens import Tokens

ALL = {"n": {"gte": 0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("review")
    fill(folder / "a.mvx")
    return folder


@pytest.fixture(scope="module")
def serving(folder):
    with served("--index", f"a={folder / 'a.mvx'}") as serving:
        yield serving


@pytest.fixture
def client(serving):
    with IndexClient(serving.url(), settings=CallSettings(retry_s=2)) as client:
        yield client


def config_of(path, **options):
    return ServerConfig(indexes=[("a", str(path))], port=0, **options)


@contextlib.contextmanager
def held(path, kind=IndexService, index=None):
    """The service of an index, without a server."""
    one = kind("a", mvindex.open(path) if index is None else index, config_of(path), Metrics().batch_metrics("a"))
    try:
        yield one
    finally:
        one.close()


async def cancelled_in_progress(call, is_done):
    """Carry out a call, and cancel it before its response arrives."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    end = time.monotonic() + 20
    while not is_done():
        assert time.monotonic() < end
        # Not awaited, so that the loop cannot receive the response.
        time.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_repeated_deletion_deletes_nothing_more_though_its_first_caller_is_gone(tmp_path):
    fill(tmp_path / "a.mvx")

    async def ask(one):
        await cancelled_in_progress(one.delete(None, ALL, "key"), lambda: len(one.index) == 0)
        await one.add("", 1, [Document("new", "x", "", {"n": 1})], GivenViews([vectors(1)]))
        return await one.delete(None, ALL, "key")

    with held(tmp_path / "a.mvx") as one:
        assert asyncio.run(ask(one)) == 50
        assert one.index.get("new") is not None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_repeated_chunk_of_metadata_does_not_undo_later_updates(tmp_path, is_restarted):
    fill(tmp_path / "a.mvx", count=0)

    def chunk(value):
        return [Document("d", "x", "", {"v": value})], GivenViews([vectors(1)])

    async def ask(one):
        await one.add("before", 1, *chunk(1))
        changed = one.add("run", 1, *chunk(2))
        await cancelled_in_progress(changed, lambda: one.index.get("d").metadata == {"v": 2})
        await one.update("d", {"v": 3}, key="")

    with held(tmp_path / "a.mvx") as one:
        asyncio.run(ask(one))
        if not is_restarted:
            assert asyncio.run(one.add("run", 1, *chunk(2))).updated == 1
            assert one.index.get("d").metadata == {"v": 3}
    with held(tmp_path / "a.mvx") as one:
        assert asyncio.run(one.add("run", 1, *chunk(2))).unchanged == 1
        assert one.index.get("d").metadata == {"v": 3}


def test_the_writer_lock_is_held_until_the_last_write_of_a_draining_server(tmp_path):
    path = tmp_path / "a.mvx"
    fill(path)
    is_writing, may_end = threading.Event(), threading.Event()

    def write(index):
        with embedded_store_of(index).writing():
            is_writing.set()
            assert may_end.wait(60)

    async def serve():
        server = Server(config_of(path, drain_s=0.1))
        await server.start()
        one = server._services["a"]
        writing = one._writer.submit(lambda: write(one.index), "a")
        await asyncio.to_thread(is_writing.wait, 60)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        with pytest.raises(IndexLocked), writer_lock(path):
            pass
        may_end.set()
        await stopping
        await writing

    asyncio.run(serve())
    with writer_lock(path):
        pass


def test_writes_during_the_start_of_a_server_are_visible(tmp_path, monkeypatch):
    path = tmp_path / "a.mvx"
    fill(path)

    class Late(IndexSet):
        def lock(self, address):
            with mvindex.open(path) as other:
                other.add_views([Document("late", "x")], vectors(1))
            super().lock(address)

    async def serve():
        monkeypatch.setattr(lifecycle, "IndexSet", Late)
        server = Server(config_of(path))
        await server.start()
        found = await server._services["a"].get(["late"], server._admission.new_meter())
        await server.stop()
        return found

    assert [document.id for document in asyncio.run(serve())] == ["late"]


def test_a_chunk_being_encoded_is_abandoned_when_its_index_is_closed(tmp_path):
    begun = threading.Event()

    def encode(texts):
        begun.set()
        time.sleep(0.05)
        return np.ones((len(texts), 4), dtype=np.float32)

    path = tmp_path / "a.mvx"
    index = mvindex.create(path, encoder=encode)
    begun.clear()

    async def ask(one):
        adding = asyncio.ensure_future(one.add("run", 1, [Document(f"d{n}", f"text {n}") for n in range(1000)], None))
        await asyncio.to_thread(begun.wait, 20)
        await asyncio.to_thread(one.close)
        with pytest.raises(ServerUnavailable):
            await adding

    with held(path, index=index) as one:
        asyncio.run(ask(one))
    with mvindex.open(path, encoder=encode) as index:
        assert len(index) == 0


def new_meter():
    return ResponseMeter(ResponseBudget(1 << 20))


def test_a_cancelled_search_leaves_the_queue(tmp_path):
    may_end = threading.Event()

    def encode(texts):
        if texts[0].startswith("slow"):
            assert may_end.wait(60)
        return np.ones((len(texts), 4), dtype=np.float32)

    index = mvindex.create(tmp_path / "a.mvx", encoder=encode)
    index.add([Document("d", "text")])

    async def ask(one):
        slow = [asyncio.ensure_future(one.search(parse_request([f"slow {n}"]), new_meter())) for n in range(2)]
        await asyncio.sleep(0.5)
        waiting = [asyncio.ensure_future(one.search(parse_request(vectors(size, 4)), new_meter())) for size in (1, 64)]
        await asyncio.sleep(0.1)
        assert (len(one._batcher._small.waiting), len(one._batcher._large.waiting)) == (1, 1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (len(one._batcher._small.waiting), len(one._batcher._large.waiting)) == (0, 0)
        may_end.set()
        return await asyncio.gather(*slow)

    with held(None, index=index) as one:
        assert [[result.hits[0].id for result in results] for results in asyncio.run(ask(one))] == [["d"], ["d"]]


def test_maintenance_survives_unexpected_errors(tmp_path, caplog):
    fill(tmp_path / "a.mvx")
    asked = []

    class Odd(IndexService):
        async def info(self):
            asked.append(1)
            if len(asked) == 1:
                raise FileNotFoundError("a file that another process has just removed")
            return await super().info()

    async def look(one, metrics):
        maintenance = Maintenance(config_of(tmp_path / "a.mvx"), [one], metrics, lambda: None)
        maintenance.start()
        await asyncio.sleep(0.3)
        maintenance._gauges_set_at = -1e9
        await asyncio.sleep(1.5)
        maintenance.stop()

    metrics = Metrics()
    with held(tmp_path / "a.mvx", Odd) as one:
        asyncio.run(look(one, metrics))
    assert "unexpected error" in caplog.text
    assert b'mvindex_index_documents{index="a"} 50.0' in metrics.render()


@pytest.mark.parametrize("letter", ["語", "\U0001f600", "%", "\n"])
def test_an_error_with_a_long_text_keeps_its_class(client, letter):
    with pytest.raises(QueryError, match="^filter "):
        client.search(vectors(1)[0], filter={letter * 5000: {"near": 1}})


@pytest.mark.parametrize("service", ["health", "reflection"])
def test_watching_streams_do_not_delay_shutdown(folder, service, tmp_path):
    fill(tmp_path / "a.mvx")
    serving = start("--index", f"a={tmp_path / 'a.mvx'}", "--drain", "30")
    may_end = threading.Event()
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    def asking():
        yield request
        may_end.wait(60)

    with grpc.insecure_channel(serving.target) as channel:
        if service == "health":
            stream = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="a"))
            assert next(stream).status == health_pb2.HealthCheckResponse.SERVING
        else:
            stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asking())
            assert next(stream).HasField("list_services_response")
        begun = time.monotonic()
        assert serving.stop() == 0
        assert time.monotonic() - begun < 15
        if service == "health":
            assert next(stream).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        may_end.set()


def test_the_retry_budget_starts_at_the_first_failure():
    class Broken(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return "Socket closed"

    budget = RetryBudget(CallSettings(retry_s=0.2))
    time.sleep(0.3)
    assert budget.wait_after(Broken()) is not None
    time.sleep(0.3)
    assert budget.wait_after(Broken()) is None


def test_a_refused_upload_is_sent_once(folder):
    with served("--index", f"a={folder / 'a.mvx'}", "--read-only") as serving, IndexClient(serving.url()) as client:
        with pytest.raises(Unsupported):
            client.add_views([Document(f"x{n}", "t") for n in range(6000)], vectors(6000))
        time.sleep(0.5)
        assert len(serving.calls("Add")) == 1


def test_documents_with_long_metadata_are_sent_in_smaller_chunks(client):
    documents = [Document(f"m{n}", "t", "", {"x": "y" * 30_000}) for n in range(600)]
    assert client.add_views(documents, vectors(600)).added == 600
    assert client.delete(ids=[document.id for document in documents]) == 600


def test_long_documents_are_listed_a_few_at_a_time(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=16) as index:
        index.add_views([Document(f"d{n}", "word " * 50_000) for n in range(9)], vectors(9))
    with served("--index", f"a={tmp_path / 'a.mvx'}") as serving, grpc.insecure_channel(serving.target) as channel:
        responses = MvindexServiceStub(channel).List(documents_pb2.ListRequest(index="a"))
        # 250,000 characters each, and a message ends with the one that brings it to 500,000.
        assert [len(response.documents) for response in responses] == [2, 2, 2, 2, 1]


def test_a_result_of_too_many_documents_exceeds_a_limit(client, serving):
    with pytest.raises(LimitExceeded, match=r"100 queries with top_k 5001 .*--max-hits"):
        client.search(vectors(100), 5001)
    assert [len(result.hits) for result in client.search(vectors(100), 5000, filter=ALL)] == [50] * 100
    request = search_pb2.SearchRequest(index="a", top_k=5001)
    request.vectors.dim, request.vectors.values = 16, vectors(100).tobytes()
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as refused:
        MvindexServiceStub(channel).Search(request)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_closing_a_client_during_a_call_raises(serving):
    client, has_begun = IndexClient(serving.url()), threading.Event()
    errors = []

    def documents():
        for number in range(4000):
            yield Document(f"s{number}", "t")
            if number > 1500:
                has_begun.set()
                time.sleep(0.005)

    def ingest():
        with pytest.raises(ServerUnavailable, match="this client was closed") as closed:
            client.add_views(documents(), list(vectors(4000)))
        errors.append(closed)

    thread = threading.Thread(target=ingest)
    thread.start()
    assert has_begun.wait(60)
    client.close()
    thread.join(60)
    assert errors
    for call in (lambda: next(iter(client)), lambda: client.add_views([Document("s", "t")], vectors(1))):
        with pytest.raises(ServerUnavailable, match="this client was closed"):
            call()


def test_closing_an_async_client_during_a_call_raises(serving):
    async def ask():
        client = AsyncIndexClient(serving.url())
        await client.info()
        asking = [asyncio.ensure_future(client.search(vectors(2000), 50, scoring="drpq")) for _ in range(2)]
        await asyncio.sleep(0.2)
        await client.close()
        for task in asking:
            with pytest.raises(ServerUnavailable, match="this client was closed"):
                await task
        for call in (client.info(), client.add_views([Document("s", "t")], vectors(1)), anext(aiter(client))):
            with pytest.raises(ServerUnavailable, match="this client was closed"):
                await call

    asyncio.run(ask())


def test_a_bad_document_leaves_the_chunks_before_it_stored_by_the_async_client_too(serving):
    async def ask():
        documents = [Document(f"q{n}", "t") for n in range(2500)]
        documents[2400] = Document("q0", "t")
        async with AsyncIndexClient(serving.url()) as client:
            with pytest.raises(DocumentError, match="document 2401"):
                await client.add_views(documents, vectors(2500))
            return [await client.get(f"q{n}") is not None for n in (0, 1023, 1024, 2047, 2048, 2399)]

    assert asyncio.run(ask()) == [True] * 4 + [False] * 2


def test_an_unknown_url_option_is_not_repeated_in_the_message():
    with pytest.raises(ConfigError, match="there is no option 'token'") as refused:
        parse_address("grpc://127.0.0.1:7700/a?token=abcdefgh")
    assert "abcdefgh" not in str(refused.value)


def test_a_stream_ends_when_its_token_is_withdrawn(tmp_path):
    fill(tmp_path / "a.mvx")
    tokens = tmp_path / "tokens"
    old, new = "read-write old-0123456789abcdef\n", "read-write new-0123456789abcdef\n"
    tokens.write_text(old + new)
    tokens.chmod(0o600)
    known = Tokens(tokens)
    before, kept = (known.authenticate(f"Bearer {line.split()[1]}") for line in (old, new))
    tokens.write_text("# one fewer\n" + new.strip() + " named\n")
    known.reload()
    with pytest.raises(AccessDenied, match="withdrawn"):
        known.check_known(before)
    with served("--index", f"a={tmp_path / 'a.mvx'}", "--token-file", tokens) as serving:
        access = Access(token=new.split()[1])
        with IndexClient(serving.url(), access=access) as client:

            def documents():
                for number in range(9000):
                    if number == 5000:
                        tokens.write_text(old)
                        serving.process.send_signal(1)
                        time.sleep(1)
                    yield Document(f"s{number}", "t")

            with pytest.raises(AccessDenied, match="withdrawn"):
                client.add_views(documents(), list(vectors(9000)))
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert 50 + 1024 <= len(index) < 50 + 9000
    assert kept.digest != before.digest
