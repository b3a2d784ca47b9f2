"""Search by words, and by both, behind a real server: what it gives is what the embedded index gives, bit for bit."""

import asyncio
import http.client
import json
import os
import threading

import grpc
import numpy as np
import pytest
from serving_tools import fill, served, vectors

import mvindex
from mvindex import Document
from mvindex.errors import LimitExceeded, QueryError, Unsupported
from mvindex.v1 import search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import AsyncIndexClient, IndexClient
from mvindex_connectors.remote.convert import vectors_message

WORDS = "oil crisis price embargo war peace river delta mountain".split()
COUNT, DIM = 400, 16
TEXTS = ["oil price of war", "the river delta", "nothing of that", "peace peace oil"]
VECTORS = vectors(len(TEXTS), DIM, seed=5)
WAYS = [
    {"mode": "lexical"},
    {"mode": "lexical", "top_k": 3, "filter": {"n": {"lt": 100}}},
    {"mode": "hybrid"},
    {"mode": "hybrid", "top_k": 150, "fusion": "minmax", "weights": (2, 0.1)},
    {"mode": "hybrid", "fusion": "rrf", "weights": (0.3, 1), "filter": {"n": {"gte": 250}}},
    {"mode": "hybrid", "scoring": "drpq", "temperature": 0.3, "exact": True},
]


def fill_with_words(path, **settings):
    """An index of given vectors, whose texts tie by words more often than not."""
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, size=int(rng.integers(1, 9)))) for _ in range(COUNT)]
    with mvindex.create(path, dim=DIM, lexical="english", **settings) as index:
        documents = [Document(f"d{n}", text, metadata={"n": n}) for n, text in enumerate(texts)]
        index.add_views(documents, vectors(2 * COUNT, DIM, seed=2).reshape(COUNT, 2, DIM))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    fill_with_words(folder / "a.mvx")
    fill_with_words(folder / "shards.mvx", shards=3)
    fill(folder / "silent.mvx")
    return folder


def test_a_server_fuses_as_the_index_was_tuned(tmp_path):
    fill_with_words(tmp_path / "a.mvx")
    with mvindex.open(tmp_path / "a.mvx") as index:
        usual = index.search(VECTORS, mode="hybrid", text=TEXTS)
        index.set_fusion("rrf", (0.2, 1.0))
        tuned = index.search(VECTORS, mode="hybrid", text=TEXTS)
        assert tuned == index.search(VECTORS, mode="hybrid", text=TEXTS, fusion="rrf", weights=(0.2, 1))
    with served(f"--index=a={tmp_path / 'a.mvx'}") as serving, IndexClient(serving.url("a")) as client:
        assert client.info().fusion == {"method": "rrf", "weights": [0.2, 1.0]}
        assert client.search(VECTORS, mode="hybrid", text=TEXTS) == tuned
        assert client.search(VECTORS, mode="hybrid", text=TEXTS, fusion="zscore") == usual
        with pytest.raises(Unsupported, match="set_fusion"):
            client.set_fusion("rrf")


@pytest.fixture(scope="module")
def serving(folder):
    names = ("a", "shards", "silent")
    indexes = [f"--index={name}={folder / f'{name}.mvx'}" for name in names]
    with served(*indexes, "--http", "0", "--max-queries", "200") as serving:
        yield serving


@pytest.fixture(scope="module", params=["a", "shards"])
def both(request, folder, serving):
    """An index, and the same behind the server."""
    with (
        mvindex.open(folder / f"{request.param}.mvx") as index,
        IndexClient(serving.url(request.param)) as client,
    ):
        yield index, client


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_client_gives_what_the_index_gives(both, way):
    index, client = both
    query = TEXTS if way["mode"] == "lexical" else VECTORS
    wanted = index.search(query, text=TEXTS, **way)
    assert client.search(query, text=TEXTS, **way) == wanted
    assert client.search(query[0], text=TEXTS[0], **way) == wanted[0]
    assert any(hit.components for hit in wanted[0].hits)

    async def asked():
        async with AsyncIndexClient(client.url) as later:
            alone = await later.search(query[1], text=TEXTS[1], **way)
            return alone, await later.search(query, text=TEXTS, **way)

    assert asyncio.run(asked()) == (wanted[1], wanted)


def test_words_are_the_query_itself_unless_they_are_given(both):
    index, client = both
    for one in (index, client):
        assert one.search(TEXTS[0], mode="lexical") == one.search(VECTORS[0], mode="lexical", text=TEXTS[0])
        assert one.search([], mode="lexical") == []
    assert client.info().lexical == index.info().lexical == "english"


def test_searches_of_all_kinds_at_once_each_get_their_own_answer(both):
    """Whatever is searched together, and in parts: more threads than searchers, small requests and large ones."""
    if both[0].info().shards is None and os.environ.get("MVINDEX_LONG") != "1":
        pytest.skip("NOT RUN: long; MVINDEX_LONG=1 runs it without shards too")
    index, client = both
    many = np.tile(VECTORS, (25, 1)), TEXTS * 25
    asked = [(VECTORS, TEXTS, way) for way in WAYS] + [(*many, way) for way in WAYS[2:]] + [(VECTORS, None, {})]
    wanted = [index.search(query, text=text, **way) for query, text, way in asked]
    found = {}

    def ask(number):
        query, text, way = asked[number % len(asked)]
        found[number] = client.search(query, text=text, **way)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3 * len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(threads))] == wanted * 3


def test_a_client_reranks_on_its_side(both):
    def rerank(query, hits):
        return [hit.metadata["n"] % 7 + len(query) for hit in hits]

    index, client = both
    ways = [
        (VECTORS, {"text": TEXTS}),
        (TEXTS, {"mode": "lexical"}),
        (VECTORS[0], {"text": TEXTS[0], "mode": "hybrid", "rerank_depth": 20}),
    ]

    async def asked(query, options):
        async with AsyncIndexClient(client.url) as later:
            return await later.search(query, 5, rerank=rerank, **options)

    for query, options in ways:
        wanted = index.search(query, 5, rerank=rerank, **options)
        assert client.search(query, 5, rerank=rerank, **options) == wanted
        assert asyncio.run(asked(query, options)) == wanted
    for one in both:
        with pytest.raises(QueryError, match="belongs to rerank="):
            one.search(VECTORS[0], rerank_depth=60)


WRONG = [
    ({"mode": "fuzzy"}, "mode is 'fuzzy'"),
    ({"mode": "hybrid"}, "give the text"),
    ({"mode": "hybrid", "text": ["oil", "war"]}, "a text for each"),
    ({"mode": "hybrid", "text": "oil", "fusion": "sum"}, "fusion is 'sum'"),
    ({"mode": "hybrid", "text": "oil", "weights": (0, 0)}, "weights are"),
    ({"mode": "lexical", "text": "oil", "weights": (1, 1)}, "weights= does not belong"),
    ({"mode": "lexical", "text": "oil", "scoring": "drpq"}, "looks at none"),
    ({"mode": "hybrid", "text": " "}, "empty"),
    ({"text": "oil"}, "text= does not belong"),
]


@pytest.mark.parametrize(("way", "message"), WRONG, ids=str)
def test_what_does_not_go_together_is_refused_alike(both, way, message):
    for one in both:
        with pytest.raises(QueryError, match=message):
            one.search(VECTORS[0], **way)


def test_an_index_without_words_says_so_in_the_same_class(folder, serving):
    with mvindex.open(folder / "silent.mvx") as index, IndexClient(serving.url("silent")) as client:
        for one in (index, client):
            for mode in ("lexical", "hybrid"):
                with pytest.raises(Unsupported, match="lexical"):
                    one.search(VECTORS[0], mode=mode, text="oil")
        assert client.info().lexical is None
        assert client.search(VECTORS[0]) == index.search(VECTORS[0])


REQUESTS = [
    ({"mode": 9}, "mode is 9"),
    ({"mode": search_pb2.MODE_HYBRID, "fusion": 9}, "fusion is 9"),
    ({"mode": search_pb2.MODE_HYBRID}, "give the text"),
    ({"mode": search_pb2.MODE_HYBRID, "words": search_pb2.Texts(values=["a", "b"])}, "a text for each"),
    ({"mode": search_pb2.MODE_LEXICAL, "fusion": search_pb2.FUSION_RRF}, "fusion= does not belong"),
    ({"fusion": search_pb2.FUSION_RRF}, "fusion= does not belong"),
    ({"words": search_pb2.Texts(values=["a"])}, "text= does not belong"),
]


@pytest.mark.parametrize(("fields", "message"), REQUESTS, ids=str)
def test_the_server_itself_refuses_what_other_clients_may_send(serving, fields, message):
    request = search_pb2.SearchRequest(index="a", vectors=vectors_message(VECTORS[:1]), **fields)
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as refused:
        MvindexServiceStub(channel).Search(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT and message in refused.value.details()


def test_words_count_against_the_limits(serving):
    with IndexClient(serving.url()) as client, pytest.raises(LimitExceeded, match="takes 200"):
        client.search(["oil"] * 201, mode="lexical")


def post(serving, body, name="a"):
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", f"/v1/indexes/{name}/search", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def shown(result):
    keys = ("name", "rank", "score", "contribution")
    return [
        (hit.id, hit.score, [{key: getattr(part, key) for key in keys} for part in hit.components])
        for hit in result.hits
    ]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_http_gives_the_same(folder, serving, way):
    with mvindex.open(folder / "a.mvx") as index:
        wanted = index.search(VECTORS, text=TEXTS, **way)
    status, found = post(serving, {"vectors": VECTORS.tolist(), "text": TEXTS, **way})
    assert status == 200, found
    for row, result in zip(found["results"], wanted, strict=True):
        assert [(hit["id"], hit["score"], hit["components"]) for hit in row["hits"]] == shown(result)
    status, found = post(serving, {"vector": VECTORS[0].tolist(), "text": TEXTS[0], "explain": True, **way})
    assert status == 200, found
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in wanted[0].hits]
    assert all(len(hit["views"]) == 2 for hit in found["hits"])


def test_http_takes_words_as_the_query_and_names_none_by_views_alone(serving):
    status, found = post(serving, {"query": TEXTS[0], "mode": "lexical"})
    assert status == 200 and [part["name"] for part in found["hits"][0]["components"]] == ["lexical"]
    status, found = post(serving, {"vector": VECTORS[0].tolist()})
    assert status == 200 and not any("components" in hit for hit in found["hits"])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"mode": "hybrid"}, "give the text"),
        ({"mode": "hybrid", "text": ["oil"]}, '"text" is a text'),
        ({"mode": "hybrid", "text": "oil", "weights": [1, "x"]}, "no number"),
        ({"mode": "hybrid", "text": "oil", "weights": [1, 2, 3]}, "weights are"),
        ({"mode": "fuzzy"}, "mode is 'fuzzy'"),
        ({"mode": None}, '"mode" is null'),
        ({"text": "oil"}, "text= does not belong"),
    ],
    ids=str,
)
def test_http_refuses_what_means_nothing(serving, members, message):
    status, found = post(serving, {"vector": VECTORS[0].tolist(), **members})
    assert status == 400 and message in found["error"]["message"]


def test_http_says_that_an_index_has_no_words(serving):
    status, found = post(serving, {"vector": VECTORS[0].tolist(), "text": "oil", "mode": "hybrid"}, "silent")
    assert (status, found["error"]["class"]) == (501, "Unsupported")
