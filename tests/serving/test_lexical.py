"""Lexical and hybrid search behind a real server: the results are those of the embedded index, bit for bit."""

import asyncio
import http.client
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from serving_tools import fill, served, vectors

import mvindex
from mvindex import Document
from mvindex.errors import LimitExceeded, QueryError, Unsupported
from mvindex.store.protocol import Operation
from mvindex.v1 import search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import AsyncIndexClient, IndexClient
from mvindex_connectors.remote.convert import vectors_message

TERMS = "oil crisis price embargo war peace river delta mountain".split()
COUNT, DIM = 400, 16
TEXTS = ["oil price of war", "the river delta", "nothing of that", "peace peace oil"]
VECTORS = vectors(len(TEXTS), DIM, seed=5)
OPTIONS = [
    {"mode": "lexical"},
    {"mode": "lexical", "top_k": 3, "filter": {"n": {"lt": 100}}},
    {"mode": "hybrid"},
    {"mode": "hybrid", "top_k": 150, "fusion": "minmax", "weights": (2, 0.1)},
    {"mode": "hybrid", "fusion": "rrf", "weights": (0.3, 1), "filter": {"n": {"gte": 250}}},
    {"mode": "hybrid", "scoring": "drpq", "temperature": 0.3, "exact": True},
]


def fill_with_terms(path, **settings):
    """Create an index of given vectors whose lexical scores are mostly tied."""
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(TERMS, size=int(rng.integers(1, 9)))) for _ in range(COUNT)]
    with mvindex.create(path, dim=DIM, lexical="english", **settings) as index:
        documents = [Document(f"d{n}", text, metadata={"n": n}) for n, text in enumerate(texts)]
        index.add_views(documents, vectors(2 * COUNT, DIM, seed=2).reshape(COUNT, 2, DIM))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lexical")
    fill_with_terms(folder / "a.mvx")
    fill_with_terms(folder / "shards.mvx", shards=3)
    fill(folder / "silent.mvx")
    return folder


def test_a_server_uses_the_tuned_fusion_of_the_index(tmp_path):
    fill_with_terms(tmp_path / "a.mvx")
    with mvindex.open(tmp_path / "a.mvx") as index:
        default = index.search(VECTORS, mode="hybrid", text=TEXTS)
        index.admin.set_hybrid_weights("rrf", (0.2, 1.0))
        tuned = index.search(VECTORS, mode="hybrid", text=TEXTS)
        assert tuned == index.search(VECTORS, mode="hybrid", text=TEXTS, fusion="rrf", weights=(0.2, 1))
    with served(f"--index=a={tmp_path / 'a.mvx'}") as serving, IndexClient(serving.url("a")) as client:
        assert client.info().fusion == {"method": "rrf", "weights": [0.2, 1.0]}
        assert client.search(VECTORS, mode="hybrid", text=TEXTS) == tuned
        assert client.search(VECTORS, mode="hybrid", text=TEXTS, fusion="zscore") == default
        assert client.capabilities.supports(Operation.LEXICAL)


@pytest.fixture(scope="module")
def serving(folder):
    names = ("a", "shards", "silent")
    indexes = [f"--index={name}={folder / f'{name}.mvx'}" for name in names]
    with served(*indexes, "--http", "0", "--max-queries", "200") as serving:
        yield serving


@pytest.fixture(scope="module", params=["a", "shards"])
def both(request, folder, serving):
    """An index, and a client of the same index."""
    with (
        mvindex.open(folder / f"{request.param}.mvx") as index,
        IndexClient(serving.url(request.param)) as client,
    ):
        yield index, client


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_client_returns_what_the_index_returns(both, options):
    index, client = both
    query = TEXTS if options["mode"] == "lexical" else VECTORS
    expected = index.search(query, text=TEXTS, **options)
    assert client.search(query, text=TEXTS, **options) == expected
    assert client.search(query[0], text=TEXTS[0], **options) == expected[0]
    assert any(hit.components for hit in expected[0].hits)

    async def searches():
        async with AsyncIndexClient(client.where) as later:
            alone = await later.search(query[1], text=TEXTS[1], **options)
            return alone, await later.search(query, text=TEXTS, **options)

    assert asyncio.run(searches()) == (expected[1], expected)


@pytest.mark.parametrize("mode", ["auto", "hybrid", "lexical"])
def test_operators_are_obeyed_behind_a_server(both, mode):
    index, client = both
    asked = [f"+{TERMS[0]} -{TERMS[1]} {TERMS[2]}", f'"{TERMS[1]} {TERMS[2]}"']
    query = asked if mode == "lexical" else VECTORS[:2]
    expected = index.search(query, text=asked, mode=mode, operators=True)
    assert client.search(query, text=asked, mode=mode, operators=True) == expected
    assert client.search(query[1], text=asked[1], mode=mode, operators=True) == expected[1]
    words = [hit.text.split() for hit in expected[0].hits]
    assert words and all(TERMS[0] in own and TERMS[1] not in own for own in words)
    assert all(f"{TERMS[1]} {TERMS[2]}" in hit.text for hit in expected[1].hits)
    with pytest.raises(QueryError, match="beside the excluded"):
        client.search(VECTORS[0], text="-coal", operators=True)


def test_the_query_is_the_lexical_text_by_default(both):
    index, client = both
    for one in (index, client):
        assert one.search(TEXTS[0], mode="lexical") == one.search(VECTORS[0], mode="lexical", text=TEXTS[0])
        assert one.search([], mode="lexical") == []
    assert client.info().lexical == index.info().lexical == "english"


def test_concurrent_searches_of_all_kinds_get_their_own_results(both):
    """More threads than searchers, small requests and large ones, so that they are batched and split."""
    if both[0].info().shards is None and os.environ.get("MVINDEX_LONG") != "1":
        pytest.skip("NOT RUN: long; MVINDEX_LONG=1 runs it without shards too")
    index, client = both
    many = np.tile(VECTORS, (25, 1)), TEXTS * 25
    searches = (
        [(VECTORS, TEXTS, options) for options in OPTIONS]
        + [(*many, options) for options in OPTIONS[2:]]
        + [(VECTORS, None, {})]
    )
    expected = [index.search(query, text=text, **options) for query, text, options in searches]
    found = {}

    def ask(number):
        query, text, options = searches[number % len(searches)]
        found[number] = client.search(query, text=text, **options)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3 * len(searches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(threads))] == expected * 3


def test_a_client_reranks_on_its_side(both):
    def rerank(query, hits):
        return [hit.metadata["n"] % 7 + len(query) for hit in hits]

    index, client = both
    ways = [
        (VECTORS, {"text": TEXTS}),
        (TEXTS, {"mode": "lexical"}),
        (VECTORS[0], {"text": TEXTS[0], "mode": "hybrid", "rerank_depth": 20}),
    ]

    async def searches(query, options):
        async with AsyncIndexClient(client.where) as later:
            return await later.search(query, 5, rerank=rerank, **options)

    for query, options in ways:
        expected = index.search(query, 5, rerank=rerank, **options)
        assert client.search(query, 5, rerank=rerank, **options) == expected
        assert asyncio.run(searches(query, options)) == expected
    for one in both:
        with pytest.raises(QueryError, match="belongs to rerank="):
            one.search(VECTORS[0], rerank_depth=60)


WRONG = [
    ({"mode": "fuzzy"}, "mode is 'fuzzy'"),
    ({"mode": "hybrid"}, "give the text"),
    ({"mode": "hybrid", "text": ["oil", "war"]}, "a text for each"),
    ({"text": ["oil", "war"]}, "a text for each"),
    ({"mode": "hybrid", "text": "oil", "fusion": "sum"}, "fusion is 'sum'"),
    ({"mode": "hybrid", "text": "oil", "weights": (0, 0)}, "weights are"),
    ({"mode": "lexical", "text": "oil", "weights": (1, 1)}, "weights= does not belong"),
    ({"mode": "lexical", "text": "oil", "scoring": "drpq"}, "reads none"),
    ({"mode": "hybrid", "text": " "}, "empty"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_contradictory_options_are_refused_alike(both, options, message):
    for one in both:
        with pytest.raises(QueryError, match=message):
            one.search(VECTORS[0], **options)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_citations_are_those_of_the_index(both, mode):
    index, client = both
    found = [one.search(VECTORS, mode=mode, text=TEXTS, top_k=20) for one in (index, client)]
    cited, received = ([[hit.citation for hit in result.hits] for result in results] for results in found)
    assert received == cited and cited[0][0] is not None


def test_queries_with_and_without_texts_are_searched_at_once(both):
    index, client = both
    with ThreadPoolExecutor(8) as pool:
        texts = [TEXTS[0] if number % 2 else None for number in range(16)]
        found = list(pool.map(lambda text: client.search(VECTORS[0], text=text, top_k=3), texts))
    expected = [hit.citation for hit in index.search(VECTORS[0], text=TEXTS[0], top_k=3).hits]
    for text, result in zip(texts, found, strict=True):
        assert [hit.citation for hit in result.hits] == (expected if text else [None] * 3)


def test_an_index_without_lexical_search_raises_the_same_class(folder, serving):
    with mvindex.open(folder / "silent.mvx") as index, IndexClient(serving.url("silent")) as client:
        for one in (index, client):
            for mode in ("lexical", "hybrid"):
                with pytest.raises(Unsupported, match="lexical"):
                    one.search(VECTORS[0], mode=mode, text="oil")
        assert client.info().lexical is None and not client.capabilities.supports(Operation.LEXICAL)
        assert client.search(VECTORS[0]) == index.search(VECTORS[0])


REQUESTS = [
    ({"mode": 9}, "mode: expected 1 (dense), 2 (lexical) or 3 (hybrid), got 9"),
    ({"mode": search_pb2.MODE_HYBRID, "fusion": 9}, "fusion: expected 1 (zscore), 2 (minmax) or 3 (rrf), got 9"),
    ({"mode": search_pb2.MODE_HYBRID}, "give the text"),
    ({"mode": search_pb2.MODE_HYBRID, "terms": search_pb2.Texts(values=["a", "b"])}, "a text for each"),
    ({"mode": search_pb2.MODE_LEXICAL, "fusion": search_pb2.FUSION_RRF}, "fusion= does not belong"),
    ({"mode": search_pb2.MODE_DENSE, "fusion": search_pb2.FUSION_RRF}, "fusion= does not belong"),
]


@pytest.mark.parametrize(("fields", "message"), REQUESTS, ids=str)
def test_the_server_itself_refuses_what_other_clients_may_send(serving, fields, message):
    request = search_pb2.SearchRequest(index="a", vectors=vectors_message(VECTORS[:1]), **fields)
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as refused:
        MvindexServiceStub(channel).Search(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT and message in refused.value.details()


def test_lexical_queries_count_against_the_limits(serving):
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
    return [
        (
            hit.id,
            hit.score,
            [
                {"name": each.name, "rank": each.rank, "score": each.score, "contribution": each.contribution}
                for each in hit.components
            ],
        )
        for hit in result.hits
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_http_returns_the_same(folder, serving, options):
    with mvindex.open(folder / "a.mvx") as index:
        expected = index.search(VECTORS, text=TEXTS, **options)
    status, found = post(serving, {"vectors": VECTORS.tolist(), "text": TEXTS, **options})
    assert status == 200, found
    for row, result in zip(found["results"], expected, strict=True):
        assert [(hit["id"], hit["score"], hit["components"]) for hit in row["hits"]] == shown(result)
    status, found = post(serving, {"vector": VECTORS[0].tolist(), "text": TEXTS[0], "explain": True, **options})
    assert status == 200, found
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected[0].hits]
    assert all(len(hit["views"]) == 2 for hit in found["hits"])


def test_http_takes_the_query_as_lexical_text_and_a_dense_search_has_no_components(serving):
    status, found = post(serving, {"query": TEXTS[0], "mode": "lexical"})
    assert status == 200 and [part["name"] for part in found["hits"][0]["components"]] == ["lexical"]
    status, found = post(serving, {"vector": VECTORS[0].tolist()})
    assert status == 200 and not any("components" in hit for hit in found["hits"])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"mode": "hybrid"}, "give the text"),
        ({"mode": "hybrid", "text": ["oil"]}, "text: expected one text"),
        ({"mode": "hybrid", "text": "oil", "weights": [1, "x"]}, "weights[1]: expected float, got str"),
        ({"mode": "hybrid", "text": "oil", "weights": [1, 2, 3]}, "weights: expected array of length 2"),
        ({"mode": "fuzzy"}, "mode is 'fuzzy'"),
        ({"mode": None}, "mode: expected str, got null"),
    ],
    ids=str,
)
def test_http_refuses_malformed_options(serving, members, message):
    status, found = post(serving, {"vector": VECTORS[0].tolist(), **members})
    assert status == 400 and message in found["error"]["message"]


def test_http_says_that_an_index_has_no_lexical_search(serving):
    status, found = post(serving, {"vector": VECTORS[0].tolist(), "text": "oil", "mode": "hybrid"}, "silent")
    assert (status, found["error"]["class"]) == (501, "Unsupported")
