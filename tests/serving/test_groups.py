"""Query groups behind a server: the results of the index, to the last bit."""

import asyncio
import contextlib
import http.client
import json

import grpc
import numpy as np
import pytest
from serving_tools import served

import mvindex
from mvindex.errors import LimitExceeded, QueryError
from mvindex.records import QueryGroup
from mvindex.v1 import search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.async_client import AsyncIndexClient
from mvindex_connectors.remote.client import IndexClient

DIM = 8
WORDS = "oil crisis price embargo war peace river delta".split()
RNG = np.random.default_rng(7)
VECTORS = RNG.standard_normal((3, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("groups") / "a.mvx"
    with mvindex.create(place, dim=DIM, lexical="unicode") as index:
        texts = [" ".join(RNG.choice(WORDS, 4)) for _ in range(200)]
        documents = [mvindex.Document(f"d{n}", text, metadata={"n": n}) for n, text in enumerate(texts)]
        index.add_views(documents, RNG.standard_normal((200, 3, DIM)).astype(np.float32))
    return place


@pytest.fixture(scope="module")
def server(place):
    with served(f"--index=a={place}", "--http", "0", "--max-queries", "200", "--max-hits", "500") as server:
        yield server


@pytest.mark.parametrize("combine", ["max", "sum", "mean"])
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 7},
        {"top_k": 5, "filter": {"n": {"lt": 50}}, "exact": True},
        {"text": "oil price", "mode": "dense"},
        {"text": "oil price", "mode": "hybrid", "fusion": "rrf"},
        {"text": "oil price"},
    ],
    ids=str,
)
def test_a_client_returns_what_the_index_returns(place, server, combine, options):
    group = QueryGroup(VECTORS, combine)
    with mvindex.open(place) as index, IndexClient(server.url("a")) as client:
        expected = index.search(group, **options)
        assert client.search(group, **options) == expected
        texts = {"text": ["oil", "war"]} if "text" in options else {}
        several = [group, QueryGroup(VECTORS[:1], "sum")]
        assert client.search(several, **(options | texts)) == index.search(several, **(options | texts))

        async def later():
            async with AsyncIndexClient(server.url("a")) as one:
                return await one.search(group, **options), await one.search(several, **(options | texts))

        assert asyncio.run(later()) == (expected, index.search(several, **(options | texts)))


def test_a_group_of_many_vectors_stays_one_group(place, server):
    many = RNG.standard_normal((150, DIM)).astype(np.float32)
    with mvindex.open(place) as index, IndexClient(server.url("a")) as client:
        assert client.search(QueryGroup(many, "sum"), 200) == index.search(QueryGroup(many, "sum"), 200)
        with pytest.raises(LimitExceeded, match="200"):
            client.search(QueryGroup(np.concatenate([many, many])), 1)


def post(server, body):
    connection = http.client.HTTPConnection(server.http.partition("://")[2], timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/indexes/a/search", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.load(response)


def test_http_takes_groups(place, server):
    with mvindex.open(place) as index:
        for text in (None, "oil price"):
            expected = index.search(QueryGroup(VECTORS, "mean"), text=text)
            beside = {} if text is None else {"text": text}
            status, found = post(server, {"vectors": VECTORS.tolist(), "combine": "mean", **beside})
            assert status == 200, found
            assert [(hit["id"], hit["score"]) for hit in found["hits"]] == [
                (hit.id, hit.score) for hit in expected.hits
            ]
            assert found["mode"] == expected.mode


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"vectors": [[1.0] * DIM], "combine": "min"}, "combine"),
        ({"vector": [1.0] * DIM, "combine": "max"}, "members of a group"),
        ({"vectors": [[1.0] * DIM], "combine": "max", "explain": True}, "explain"),
        ({"vectors": [[1.0] * DIM], "combine": "max", "text": ["a", "b"]}, "one text"),
        ({"queries": ["oil"], "combine": "max", "mode": "lexical"}, "lexical"),
        ({"queries": ["oil"], "combine": "max", "mode": "hybrid", "operators": True}, "operators"),
    ],
)
def test_http_names_what_is_wrong(server, members, message):
    status, found = post(server, members)
    assert status == 400 and message in json.dumps(found)


def test_grpc_takes_no_operators_of_a_group(server):
    given = {"texts": search_pb2.Texts(values=["oil", "war"]), "combine": search_pb2.COMBINE_MAX}
    message = search_pb2.SearchRequest(index="a", operators=True, mode=search_pb2.MODE_HYBRID, **given)
    with (
        grpc.insecure_channel(server.target) as channel,
        pytest.raises(grpc.RpcError, match="a query group has several"),
    ):
        MvindexServiceStub(channel).Search(message)


def test_clients_name_what_is_wrong(server):
    with IndexClient(server.url("a")) as client:
        with pytest.raises(QueryError, match="lexical"):
            client.search(QueryGroup(["oil"]), mode="lexical")
        with pytest.raises(QueryError, match="several"):
            client.search(QueryGroup(VECTORS), text="oil", operators=True)
        with pytest.raises(QueryError, match="give one beside"):
            client.search(QueryGroup(VECTORS), mode="hybrid")
        with pytest.raises(QueryError, match="for each of 2"):
            client.search([QueryGroup(VECTORS)] * 2, text="oil")
        with pytest.raises(QueryError, match="groups only"):
            client.search([QueryGroup(VECTORS), "oil"])
        with pytest.raises(QueryError, match="dim|shape"):
            client.search(QueryGroup(VECTORS[:, :-1]))


def test_citations_have_their_place_behind_a_server_too(tmp_path):
    text = "Pumps.\nThe pump starts at eight bar.\nIt stops\nat ten."
    metadata = [{"file": "a.md", "line": 10}, {"page": 3}, {"page": "iv", "line": 2.5, "file": 7}, {}]
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        documents = [mvindex.Document(str(n), text, metadata=each) for n, each in enumerate(metadata)]
        index.add_views(documents, np.ones((4, 1, 2), dtype=np.float32))
        options = {"text": "when does the pump start at eight bar", "mode": "hybrid"}
        expected = index.search(np.ones(2), **options)
        cites = [hit.citation for hit in expected.hits]
        assert [(one.file, one.page, one.line, one.end_line) for one in cites] == [
            ("a.md", None, 11, 11),
            (None, 3, None, None),
            (None, None, None, None),
            (None, None, None, None),
        ]
        assert all(one.text == "The pump starts at eight bar." for one in cites)
        with served(f"--index=a={tmp_path / 'a.mvx'}", "--http", "0", "--read-only") as server:
            with IndexClient(server.url("a")) as client:
                assert client.search(np.ones(2), **options) == expected
            status, found = post(server, {"vector": [1, 1], **options})
            assert status == 200
            first, second, *others = [hit["citation"] for hit in found["hits"]]
            assert (first["file"], first["line"], first["end_line"], "page" in first) == ("a.md", 11, 11, False)
            assert second["page"] == 3 and not any("page" in one or "line" in one for one in others)
