"""AsyncIndexClient returns what IndexClient returns."""

import asyncio
import signal

import pytest
from serving_tools import fill, served, start, vectors

import mvindex
from mvindex import Document
from mvindex.errors import DocumentError, EncoderError, NoSuchIndex, QueryError, ServerUnavailable
from mvindex.ingest import IngestHooks
from mvindex_connectors.remote import AsyncIndexClient, CallSettings


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    path = tmp_path_factory.mktemp("async") / "a.mvx"
    fill(path)
    with served(f"--index=a={path}") as serving:
        yield serving


def test_it_returns_what_the_blocking_client_returns(serving):
    row = vectors(1)[0]

    async def ask():
        async with AsyncIndexClient(serving.url()) as client:
            return {
                "single": await client.search(row, 5),
                "batch": await client.search(vectors(3), top_k=2, scoring="drpq", temperature=0.5),
                "none": await client.search(vectors(3)[:0]),
                "explain": await client.explain(row, "d3"),
                "explain a hit": await client.explain((await client.search(row, 5, scoring="drpq"))[2]),
                "explain all": await client.explain_all(row, ["d5", "nope", "d3"]),
                "get": (await client.get("d3"), await client.get("nope")),
                "info": await client.info(),
                "get several": await client.get(["d5", "nope", "d3", "d5"]),
                "page": [document async for document in client.scan({"n": {"gte": 7}}, 3, "d9")],
                "count": await client.count(),
                "contains": (await client.contains("d3"), await client.contains("nope")),
                "facts": (await client.dim(), await client.temperature(), await client.missing_shards()),
                "capabilities": await client.capabilities(),
                "all": [document async for document in client],
            }

    found = asyncio.run(ask())
    with mvindex.open(serving.url()) as client:
        assert found["single"] == client.search(row, 5)
        assert found["batch"] == client.search(vectors(3), top_k=2, scoring="drpq", temperature=0.5)
        assert found["explain"] == client.explain(row, "d3")
        hit = client.search(row, 5, scoring="drpq")[2]
        assert found["explain a hit"] == client.explain(hit) == client.explain(row, hit, "drpq")
        assert found["explain all"] == {doc_id: client.explain(row, doc_id) for doc_id in ("d5", "d3")}
        assert found["get"] == (client.get("d3"), None)
        assert found["get several"] == client.get(["d5", "d3"])
        assert found["page"] == client.get(["d10", "d11", "d12"])
        assert found["contains"] == (True, False)
        assert found["facts"] == (16, client.temperature, ())
        assert found["capabilities"] == client.capabilities
        assert (found["info"], found["count"], found["none"]) == (client.info(), len(client), [])
        assert found["all"] == list(client) and len(found["all"]) == 50


def test_it_writes_and_raises_the_same_classes(serving):
    async def ask():
        async with AsyncIndexClient(serving.url()) as client:
            done = []
            documents = [Document(f"n{n}", "t") for n in range(2500)]
            report = await client.add_views(documents, vectors(2500), hooks=IngestHooks(on_progress=done.append))
            assert (report.added, sum(done), len(done)) == (2500, 2500, 3)
            await client.update("n1", metadata={"x": 1})
            assert (await client.get("n1")).metadata == {"x": 1}
            with pytest.raises(QueryError, match="no document"):
                await client.update("nope", metadata={})
            with pytest.raises(QueryError, match="nope"):
                await anext(client.scan(after="nope"))
            with pytest.raises(QueryError, match="limit"):
                client.scan(limit=0)
            report = await client.add_views(
                (Document(f"n{n}", "t") for n in range(5000)),
                iter(vectors(5000)),
                hooks=IngestHooks(should_stop=lambda: len(done) >= 3),
            )
            assert report.stopped and report.documents == 0
            with pytest.raises(QueryError, match="given vectors"):
                await client.add([Document("x", "y")])
            with pytest.raises(DocumentError, match="document 2"):
                await client.add_views([Document("x", "y")] * 2, vectors(2))
            with pytest.raises(EncoderError, match="'x'.*expected 0 <= begin < end <= 1"):
                await client.add_views([Document("x", "y")], vectors(2)[None], spans=[[(0, 1), (0, 2)]])
            own = vectors(2, seed=9)[None]
            await client.add_views([Document("x", "yes no")], own, spans=[[(0, 3), (4, 6)]])
            hits = [(await client.search(own[0, slot], top_k=1)).hits[0] for slot in range(2)]
            assert [(hit.id, hit.snippet) for hit in hits] == [("x", "yes"), ("x", "no")]
            assert await client.delete(filter={"id": {"in": [f"n{n}" for n in range(2500)]}}) == 2500
        async with AsyncIndexClient(serving.url("nope")) as client:
            with pytest.raises(NoSuchIndex):
                await client.info()

    asyncio.run(ask())


def test_many_searches_at_once_on_one_client(serving):
    rows = vectors(200)

    async def ask():
        async with AsyncIndexClient(serving.url()) as client:
            return await asyncio.gather(*(client.search(row, 3) for row in rows))

    found = asyncio.run(ask())
    with mvindex.open(serving.url()) as client:
        assert found == client.search(rows, 3)


def test_a_cancelled_search_is_cancelled_on_the_server(serving):
    async def ask():
        async with AsyncIndexClient(serving.url()) as client:
            task = asyncio.create_task(client.search(vectors(4000), 50, scoring="drpq"))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.search(vectors(1)[0])

    asyncio.run(ask())


def test_an_ingest_continues_after_a_restart_of_the_server(tmp_path):
    path = tmp_path / "k.mvx"
    mvindex.create(path, dim=16).close()
    servers = [start(f"--index=k={path}")]
    port = servers[0].target.rpartition(":")[2]

    async def ask():
        settings = CallSettings(timeout_s=100, retry_s=90)
        restarted = []

        async with AsyncIndexClient(servers[0].url("k"), settings=settings) as client:

            def noticed(count):
                if not restarted:
                    restarted.append(servers[0].stop(signal.SIGKILL))
                    servers.append(start(f"--index=k={path}", "--port", port))

            report = await client.add_views([Document(f"k{n}", "t" * 100) for n in range(9000)], vectors(9000),
                                            hooks=IngestHooks(on_progress=noticed))  # fmt: skip
            assert report.documents == 9000 and await client.count() == 9000

    try:
        asyncio.run(ask())
        assert servers[1].stop() == 0
    finally:
        for server in servers:
            server.close()


def test_an_unreachable_server_is_named():
    async def ask():
        async with AsyncIndexClient("grpc://127.0.0.1:1/a", settings=CallSettings(retry_s=0.5)) as client:
            with pytest.raises(ServerUnavailable, match="127.0.0.1:1/a"):
                await client.info()

    asyncio.run(ask())
