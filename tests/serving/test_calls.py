"""Calls to a real server: limits, deadlines, batches, idempotency, drains, kills, and the lock of local writers."""

import signal
import threading
import time

import grpc
import numpy as np
import pytest
from serving_tools import fill, served, start, vectors

import mvindex
from mvindex import Document, QueryGroup
from mvindex.errors import (
    ConfigError,
    IndexLocked,
    LimitExceeded,
    NoSuchIndex,
    QueryError,
    ServerUnavailable,
    TimedOut,
    Unsupported,
)
from mvindex.index.factory import open_local
from mvindex.ingest import IngestHooks
from mvindex.store.protocol import Operation
from mvindex.v1 import documents_pb2, search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import CallSettings, IndexClient
from mvindex_connectors.remote.convert import document_message, vectors_message, views_message

BIG = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    fill(folder / "a.mvx")
    fill(folder / "big.mvx", BIG, views=8, dim=64)
    return folder


@pytest.fixture(scope="module")
def serving(folder):
    limits = ["--max-top-k", "4000", "--max-queries", "3000", "--max-message-mb", "4", "--idle", "5"]
    with served(f"--index=a={folder / 'a.mvx'}", f"--index=big={folder / 'big.mvx'}", *limits) as serving:
        yield serving


@pytest.fixture
def client(serving):
    with IndexClient(serving.url()) as client:
        yield client


def test_exceeded_limits_raise_one_class_with_a_hint(client, serving):
    with pytest.raises(LimitExceeded, match="at most 4000"):
        client.search(vectors(1)[0], top_k=4001)
    with pytest.raises(LimitExceeded, match="takes 3000"):
        client.search(vectors(3001))
    rows = vectors(20_000, dim=64)
    with pytest.raises(LimitExceeded, match="larger than max"):
        client.search(QueryGroup(rows))
    documents = [Document(f"x{n}", "t") for n in range(1025)]
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as refused:
        message = documents_pb2.AddRequest(
            index="a",
            chunk=1,
            documents=[document_message(each) for each in documents],
            views=views_message([vectors(1)] * len(documents)),
        )
        list(MvindexServiceStub(channel).Add(iter([message])))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "1024" in refused.value.details()
    assert "x0" not in client


def test_an_unknown_index_is_named_with_the_existing_ones(serving):
    with pytest.raises(NoSuchIndex, match="a, big, got 'b'"):
        mvindex.open(serving.url("b"))


def test_errors_name_the_index_and_not_the_servers_disk(client, folder):
    with pytest.raises(QueryError) as missing:
        client.explain(vectors(1)[0], "nope")
    assert str(missing.value) == "a: there is no document 'nope'"
    assert str(folder) not in str(client.info())


def test_more_documents_are_explained_than_fit_one_call(client):
    row = vectors(1)[0]
    ids = [f"d{number}" for number in range(49, -1, -1)]
    asked = [*(f"none {number}" for number in range(1000)), *ids]
    found = client.explain_all(row, asked)
    assert list(found) == [doc_id for doc_id in ids if doc_id in client] and len(found) > 40
    assert found["d3"] == client.explain(row, "d3")


def test_administration_is_known_to_be_unsupported_before_it_is_called(client):
    capabilities = client.capabilities
    assert set(capabilities.unsupported) == set(Operation)
    for operation in set(Operation) - {Operation.LEXICAL}:
        with pytest.raises(Unsupported, match=rf"{client.where}: {operation.value} .*a server has the index"):
            capabilities.check(operation, client.where)


def test_an_index_behind_a_server_is_not_opened_to_be_worked_on_here():
    """No server is asked: there is none at this address."""
    for refused in (
        lambda: open_local("grpc://127.0.0.1:1/a"),
        lambda: mvindex.open("grpc://127.0.0.1:1/a", encoder=len),
    ):
        with pytest.raises(Unsupported, match="grpc://127.0.0.1:1/a: .*do it where the server is"):
            refused()
    with pytest.raises(Unsupported, match="mvindex admin create"):
        mvindex.create("grpc://127.0.0.1:1/a", dim=2)


def test_more_documents_than_fit_one_call_are_got(client):
    ids = [*(f"none {number}" for number in range(5000)), "d2", "d1"]
    assert [document.id for document in client.get(ids)] == ["d2", "d1"]
    assert client.get([]) == []


def test_a_served_index_may_be_behind_another_server(serving, client):
    """It is searched, written to and listed; its administration and its locks are the other server's."""
    with served(f"--index=b={serving.url()}", "--http", "0") as second, IndexClient(second.url("b")) as further:
        rows = vectors(3)
        assert further.search(rows, 5) == client.search(rows, 5)
        assert further.search(rows[0], scoring="drpq") == client.search(rows[0], scoring="drpq")
        assert further.get(["d3", "nope", "d1"]) == client.get(["d3", "d1"])
        assert list(further.scan({"n": {"lt": 9}}, 3, "d2")) == list(client.scan({"n": {"lt": 9}}, 3, "d2"))
        assert further.explain(rows[0], "d3") == client.explain(rows[0], "d3")
        assert further.add_views([Document("further", "x", "", {"n": 99})], vectors(1)).added == 1
        assert "further" in client and further.delete(ids="further") == 1
        with pytest.raises(QueryError, match="no document 'nope'"):
            further.update("nope", metadata={})


def test_queued_searches_are_dropped_after_their_deadline(serving):
    """Large requests fill their lane; abandoned ones in the queue are never searched."""
    with grpc.insecure_channel(serving.target) as channel:
        search = MvindexServiceStub(channel).Search
        request = search_pb2.SearchRequest(
            index="big", vectors=vectors_message(vectors(1000, dim=64)), top_k=99, scoring=search_pb2.SCORING_DRPQ
        )
        begun = time.monotonic()
        # Four of them cost no more than a caller may have waiting.
        calls = [search.future(request, timeout=1.0) for _ in range(4)]
        for call in calls:
            assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        given_up = time.monotonic() - begun
    with IndexClient(serving.url("big"), settings=CallSettings(timeout_s=120)) as client:
        begun = time.monotonic()
        client.search(vectors(40, dim=64), top_k=100, scoring="drpq")
        after = time.monotonic() - begun
        begun = time.monotonic()
        client.search(vectors(600, dim=64), top_k=100, scoring="drpq")
        whole = time.monotonic() - begun
    assert given_up < 10 and after < whole, (given_up, after, whole)
    assert [row["code"] for row in serving.calls("Search") if row["code"] == "CANCELLED"]


def test_a_large_request_does_not_delay_small_ones(serving):
    with IndexClient(serving.url("big"), settings=CallSettings(timeout_s=300)) as large:
        rows = vectors(1000, dim=64)
        done = threading.Event()

        def work():
            large.search(rows, top_k=50, scoring="drpq")
            done.set()

        thread = threading.Thread(target=work)
        begun = time.monotonic()
        thread.start()
        time.sleep(0.2)
        waits = []
        with IndexClient(serving.url("big")) as small:
            while not done.is_set():
                asked = time.monotonic()
                small.search(rows[0])
                waits.append(time.monotonic() - asked)
        thread.join()
        assert len(waits) >= 3 and np.median(waits) < (time.monotonic() - begun) / 3


def test_large_requests_that_fill_their_queue_leave_that_of_small_ones_free(serving):
    rows = vectors(3000, dim=64)
    with grpc.insecure_channel(serving.target) as channel:
        search = MvindexServiceStub(channel).Search
        large = search_pb2.SearchRequest(index="big", vectors=vectors_message(rows), scoring=search_pb2.SCORING_DRPQ)
        calls = [search.future(large, timeout=60) for _ in range(6)]
        with IndexClient(serving.url("big")) as client:
            assert len(client.search(rows[0]).hits) == 10
        codes = {call.code() for call in calls}
    # Whether some were answered before others arrived depends on the machine.
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
    assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK}


def test_concurrent_queries_are_batched_and_get_the_right_results(serving):
    rows = vectors(64, dim=64, seed=5)
    with IndexClient(serving.url("big")) as client:
        alone = [client.search(row, top_k=5) for row in rows]
        found = [None] * len(rows)

        def ask(number):
            found[number] = client.search(rows[number], top_k=5)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(rows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == alone


def test_a_write_does_not_block_reads(serving, client):
    stop = threading.Event()
    counts = []

    def write():
        with IndexClient(serving.url()) as writer:
            for turn in range(20):
                documents = [Document(f"w{turn}-{n}", "t" * 200) for n in range(200)]
                writer.add_views(documents, vectors(200, seed=turn))
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not stop.is_set():
        result = client.search(vectors(1)[0], top_k=3)
        counts.append(len(result.hits))
    thread.join()
    assert len(counts) > 5 and set(counts) == {3}
    assert client.delete(ids=[f"w{turn}-{n}" for turn in range(20) for n in range(200)]) == 4000


def test_a_repeated_chunk_is_acknowledged_but_not_stored_again(serving, client):
    chunk = documents_pb2.AddRequest(
        index="a", idempotency_key="run-1", chunk=1, documents=[document_message(Document("twice", "one"))],
        views=views_message([vectors(1)]),
    )  # fmt: skip
    with grpc.insecure_channel(serving.target) as channel:
        add = MvindexServiceStub(channel).Add
        [first] = add(iter([chunk]))
        assert (first.chunk, first.added) == (1, 1)
        client.add_views([Document("twice", "two")], vectors(1))
        [again] = add(iter([chunk]))
        assert again == first and client.get("twice").text == "two"
        # The key counts for what it came with: other content is another write.
        other = documents_pb2.AddRequest()
        other.CopyFrom(chunk)
        other.documents[0].text = "three"
        [stored] = add(iter([other]))
        assert stored.replaced == 1 and client.get("twice").text == "three"
        late = documents_pb2.AddRequest(chunk=1, documents=chunk.documents, views=chunk.views)
        with pytest.raises(grpc.RpcError) as refused:
            list(add(iter([chunk, late])))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "rising" in refused.value.details()
    assert client.delete(ids="twice") == 1


def test_a_bad_document_leaves_the_chunks_before_it_stored(client):
    documents = [Document(f"g{n}", "t") for n in range(1500)]
    with pytest.raises(mvindex.MvindexError, match="document 1501.*'g3'.*document 4"):
        client.add_views(iter([*documents, Document("g3", "again")]), iter(vectors(1501)))
    assert len([1 for n in range(1500) if f"g{n}" in client][:3]) == 3
    assert client.delete(ids=[f"g{n}" for n in range(1500)]) >= 1024


def test_progress_and_an_early_stop(client):
    done = []
    hooks = IngestHooks(on_progress=done.append, should_stop=lambda: sum(done) > 0)
    documents = (Document(f"p{n}", "t") for n in range(20_000))
    report = client.add_views(documents, iter(vectors(20_000)), hooks=hooks)
    assert report.stopped and 0 < report.added == sum(done) < 20_000
    assert client.delete(ids=[f"p{n}" for n in range(20_000)]) == report.added


def test_documents_are_not_encoded_again_behind_a_server(client):
    with pytest.raises(mvindex.errors.Unsupported, match="encode_again: expected an index in this process"):
        client.add_views([Document("e", "t")], vectors(1), hooks=IngestHooks(encode_again=True))


def test_an_idle_stream_is_ended(serving):
    with grpc.insecure_channel(serving.target) as channel:
        done = threading.Event()

        def slowly():
            yield documents_pb2.AddRequest(index="a")
            done.wait(60)

        begun = time.monotonic()
        with pytest.raises(grpc.RpcError) as ended:
            list(MvindexServiceStub(channel).Add(slowly()))
        done.set()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert 4 < time.monotonic() - begun < 40


def test_a_closed_client_raises(serving):
    client = IndexClient(serving.url())
    client.close()
    with pytest.raises(ServerUnavailable, match="closed"):
        client.search(vectors(1)[0])


def test_a_server_that_does_not_respond_in_time_is_named(serving):
    with IndexClient(serving.url("big"), settings=CallSettings(timeout_s=0.5)) as client, pytest.raises(TimedOut):
        client.search(vectors(3000, dim=64), top_k=160, scoring="drpq")


def test_a_local_write_is_refused_with_the_address_of_the_server(serving, folder):
    with mvindex.open(folder / "a.mvx") as index:
        assert len(index.search(vectors(1)[0]).hits) == 10
        for write in (lambda: index.delete(ids="d1"), lambda: index.admin.build(kind="hnsw"), index.admin.compact):
            with pytest.raises(IndexLocked, match=f"--index {serving.url()}"):
                write()


def test_a_second_server_must_be_read_only_and_sees_the_writes_of_the_first(serving, folder, client):
    with pytest.raises(RuntimeError, match="--read-only"):
        start(f"--index=a={folder / 'a.mvx'}")
    with served(f"--index=a={folder / 'a.mvx'}", "--read-only") as reading, IndexClient(reading.url()) as second:
        with pytest.raises(Unsupported, match="--read-only"):
            second.delete(ids="d1")
        client.add_views([Document("seen", "x")], vectors(1))
        deadline = time.monotonic() + 30
        while "seen" not in second:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert client.delete(ids="seen") == 1


def test_a_port_in_use_is_named(serving, folder):
    port = serving.target.rpartition(":")[2]
    with pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{port}"):
        start(f"--index=b={folder / 'b.mvx'}" if (folder / "b.mvx").exists() else _new(folder), "--port", port)


def _new(folder):
    fill(folder / "b.mvx", 2)
    return f"--index=b={folder / 'b.mvx'}"


def test_malformed_urls_are_refused_with_the_expected_form():
    for url in ("grpc://h/a", "grpc://h:1", "grpc://h:1/a/b", "grpc://h:1/a?x=1", "grpc://:1/a", "grpc://h:99999/a"):
        with pytest.raises(ConfigError, match="grpc://HOST:PORT/NAME"):
            mvindex.open(url)
    with pytest.raises(Unsupported, match="ftp"):
        mvindex.open("ftp://h/a")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_an_ingest_continues_when_its_server_comes_back(tmp_path, number):
    """No acknowledged chunk is lost and none is stored twice, whether the server drains or is killed."""
    path = tmp_path / "k.mvx"
    mvindex.create(path, dim=16).close()
    first = start(f"--index=k={path}")
    port = first.target.rpartition(":")[2]
    acknowledged = []
    count = 12_000
    back = {}

    def restart():
        if number == signal.SIGKILL:
            first.stop(signal.SIGKILL)
        else:
            assert first.stop() == 0, "".join(first.log)
        back["server"] = start(f"--index=k={path}", "--port", port)

    restarting = threading.Thread(target=restart)

    def noticed(more):
        acknowledged.append(more)
        if sum(acknowledged) > 2000 and not restarting.is_alive() and "server" not in back:
            restarting.start()
            time.sleep(0.3)

    from mvindex.ingest import IngestHooks

    settings = CallSettings(retry_s=90, timeout_s=100)
    try:
        with IndexClient(first.url("k"), settings=settings) as client:
            rows = vectors(count)
            documents = (Document(f"k{n}", "text " * 20) for n in range(count))
            report = client.add_views(documents, iter(rows), hooks=IngestHooks(on_progress=noticed))
            restarting.join()
            assert report.documents == sum(acknowledged) == count
            assert len(client) == count
            assert client.search(rows[777], top_k=1).hits[0].id == "k777"
        assert back["server"].stop() == 0
        log = "".join(first.log)
        assert number == signal.SIGKILL or "draining" in log
    finally:
        for server in (first, back.get("server")):
            if server is not None:
                server.close()
    with mvindex.open(path) as index:
        assert len(index) == count and {document.id for document in index} == {f"k{n}" for n in range(count)}


def test_the_index_remembers_an_idempotency_key_through_a_kill(tmp_path):
    path = tmp_path / "k.mvx"
    mvindex.create(path, dim=16).close()
    chunk = documents_pb2.AddRequest(
        index="k", idempotency_key="r", chunk=1, documents=[document_message(Document("d", "one"))],
        views=views_message([vectors(1)]),
    )  # fmt: skip
    for turn in range(2):
        server = start(f"--index=k={path}")
        try:
            with grpc.insecure_channel(server.target) as channel:
                [answer] = MvindexServiceStub(channel).Add(iter([chunk]))
            with IndexClient(server.url("k")) as client:
                if turn == 0:
                    assert answer.added == 1
                    client.update("d", metadata={"later": True})
                    client.add_views([Document("d", "two")], vectors(1))
                else:
                    assert answer.unchanged == 1 and client.get("d").text == "two"
        finally:
            server.stop(signal.SIGKILL)


def test_calls_in_progress_end_before_the_server(folder, tmp_path):
    fill(tmp_path / "slow.mvx", 3000, views=8, dim=64)
    server = start(f"--index=s={tmp_path / 'slow.mvx'}")
    found = {}
    with IndexClient(server.url("s"), settings=CallSettings(timeout_s=120, retry_s=0)) as client:
        rows = vectors(1000, dim=64)
        asking = threading.Thread(target=lambda: found.update(results=client.search(rows, top_k=50, scoring="drpq")))
        asking.start()
        time.sleep(0.5)
        assert server.stop(timeout=100) == 0
        asking.join()
        assert len(found["results"]) == 1000
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            client.search(rows[0])


def test_an_idle_stream_ends_with_the_server_and_continues_with_the_next(tmp_path):
    """A slow producer neither delays the draining server nor loses documents."""
    path = tmp_path / "w.mvx"
    mvindex.create(path, dim=16).close()
    servers = [start(f"--index=w={path}", "--drain", "60")]
    port = servers[0].target.rpartition(":")[2]
    rows, took = vectors(2048), []

    def slowly():
        for number in range(2048):
            if number == 1500:
                time.sleep(1)
                begun = time.monotonic()
                assert servers[0].stop() == 0
                took.append(time.monotonic() - begun)
                servers.append(start(f"--index=w={path}", "--port", port))
            yield Document(f"w{number}", "text")

    try:
        with IndexClient(servers[0].url("w"), settings=CallSettings(retry_s=60)) as client:
            report = client.add_views(slowly(), iter(rows))
            assert report.added == 2048 == len(client)
        assert took[0] < 40
        assert servers[1].stop() == 0
    finally:
        for server in servers:
            server.close()


def test_an_index_with_many_deleted_rows_is_compacted_while_it_is_searched(tmp_path):
    rows = fill(tmp_path / "a.mvx", 3000)
    with (
        served(f"--index=a={tmp_path / 'a.mvx'}", "--compact-at", "0.4") as serving,
        IndexClient(serving.url()) as index,
    ):
        assert index.delete(ids=[f"d{n}" for n in range(0, 3000, 2)]) == 1500
        ends = time.monotonic() + 60
        while (info := index.info()).num_deleted and time.monotonic() < ends:
            assert index.search(rows[1, 0], 1).hits[0].id == "d1"
            time.sleep(0.02)
        assert (info.num_deleted, info.documents, info.views) == (0, 1500, 3000)
        assert [result.hits[0].id for result in index.search(rows[1::2, 0], 1)] == [f"d{n}" for n in range(1, 3000, 2)]
        index.add_views([Document("later", "text")], rows[:1, :1])
        assert index.get("later") is not None and index.get("d0") is None
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert index.admin.verify().is_sound and len(index) == 1501
