"""Responses are limited in bytes: each of them, and all large ones in flight."""

import asyncio
import gc
import http.client
import json
from pathlib import Path

import grpc
import pytest
from serving_tools import NoObserver, served, vectors

import mvindex
from mvindex import Document, Hit
from mvindex.errors import LimitExceeded
from mvindex.search.request import parse_request
from mvindex.v1 import documents_pb2, search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import IndexClient
from mvindex_connectors.server.batching import Batcher
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter, TooLarge

KB = 100
NUM = 60


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Serve 60 documents of 100 KB, at most 4 MiB of them in a response."""
    path = tmp_path_factory.mktemp("bytes") / "long.mvx"
    with mvindex.create(path, dim=8, lexical="unicode") as index:
        documents = [Document(f"d{n}", f"word{n} " * (KB * 146), f"title {n}", {"n": n}) for n in range(NUM)]
        index.add_views(documents, vectors(NUM, 8)[:, None])
    with served(f"--index=long={path}", "--max-response-mb", "4", "--max-query-chars", "1000", "--http", "0") as server:
        yield server


@pytest.fixture(scope="module")
def client(serving):
    with IndexClient(serving.url("long")) as client:
        yield client


def post(serving, path, body):
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    try:
        connection.request("POST", f"/v1/indexes/long/{path}", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def peak_mb(serving):
    lines = Path(f"/proc/{serving.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


QUERIES = vectors(512, 8, seed=5)


def test_a_search_of_too_many_bytes_is_refused_before_it_fills_the_memory(serving, client):
    client.search(QUERIES[0], top_k=10)
    before = peak_mb(serving)
    for _ in range(3):
        with pytest.raises(LimitExceeded, match=r"--max-response-mb.*Lower top_k.*fields"):
            client.search(QUERIES, top_k=40)
        status, body = post(serving, "search", {"vectors": QUERIES.tolist(), "top_k": 40})
        assert (status, body["error"]["class"]) == (413, "LimitExceeded")
    # 512 x 40 documents of 100 KB are 2 GB.
    assert peak_mb(serving) - before < 100


def test_the_code_is_resource_exhausted(serving):
    vectors = documents_pb2.Vectors(dim=8, values=QUERIES.tobytes())
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as failed:
        MvindexServiceStub(channel).Search(search_pb2.SearchRequest(index="long", vectors=vectors, top_k=40))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_without_texts_the_same_search_succeeds(serving, client):
    few = QUERIES[:128]
    found = client.search(few, top_k=40, fields=["title"])
    assert len(found) == 128 and all(len(result.hits) == 40 for result in found)
    status, body = post(serving, "search", {"vectors": few.tolist(), "top_k": 40, "fields": ["metadata"]})
    assert status == 200 and len(body["results"]) == 128
    assert [hit["id"] for hit in body["results"][7]["hits"]] == [hit.id for hit in found[7].hits]


def test_one_query_of_many_documents_is_refused_too(serving, client):
    with pytest.raises(LimitExceeded, match="max-response-mb"):
        client.search(QUERIES[0], top_k=NUM)
    with pytest.raises(LimitExceeded, match="max-response-mb"):
        client.search(" ".join(f"word{n}" for n in range(NUM)), mode="lexical", top_k=NUM)


def test_get_is_limited_and_pages_are_not(serving, client):
    ids = [f"d{n}" for n in range(NUM)]
    with pytest.raises(LimitExceeded, match="max-response-mb"):
        client.get(ids)
    assert post(serving, "get", {"ids": ids})[0] == 413
    assert [document.id for document in client.get(ids[:20])] == ids[:20]
    assert [document.id for document in client.scan()] == ids


def test_a_long_query_is_refused_and_a_shorter_one_is_not(serving, client):
    with pytest.raises(LimitExceeded, match="max-query-chars"):
        client.search("word1 " * 200, mode="lexical", top_k=1)
    assert post(serving, "search", {"query": "w " * 501, "mode": "lexical"})[0] == 413
    assert client.search("word1 " * 160, mode="lexical", top_k=1).hits[0].id == "d1"


def test_large_responses_share_room_and_small_ones_need_none():
    budget = ResponseBudget(10 << 20)
    large = [ResponseMeter(budget) for _ in range(4)]
    for meter in large:
        meter.gather(10 << 20)
    small, another = ResponseMeter(budget), ResponseMeter(budget)
    small.gather(1 << 20)
    with pytest.raises(LimitExceeded, match="Try again") as refused:
        another.gather(2 << 20)
    assert not isinstance(refused.value, TooLarge)
    large[0].close()
    another.gather(1 << 20)
    with pytest.raises(TooLarge):
        another.gather(10 << 20)
    for meter in (*large, small, another):
        meter.close()
    ResponseMeter(budget).gather(10 << 20)


def test_room_is_given_back_when_responses_are_sent(serving, client):
    # 30 of 3.5 MiB: more than four largest ones together.
    for _ in range(15):
        assert len(client.search(QUERIES[0], top_k=36).hits) == 36
        assert post(serving, "search", {"vector": QUERIES[0].tolist(), "top_k": 36})[0] == 200


@pytest.mark.parametrize("num_documents", [1, 40], ids=["in the search", "behind the searches"])
def test_citations_with_what_stands_around_them_count(tmp_path, num_documents):
    text = " ".join(f"Sentence {n} has word{n} in it." for n in range(100))
    with mvindex.create(tmp_path / "a.mvx", dim=8, lexical="unicode") as index:
        index.add_views([Document(f"d{n}", text) for n in range(num_documents)], vectors(num_documents, 8)[:, None])

        async def search(**options):
            batcher = Batcher(index, NoObserver(), Limits(), batch=64, state=lambda: None)
            request = parse_request(vectors(1, 8), num_documents, text=["sentence"], mode="dense", **options)
            try:
                [found] = await batcher.search(request, ResponseMeter(ResponseBudget(num_documents * 30_000)))
                return found.hits
            finally:
                batcher.close()

        assert len(asyncio.run(search(citations=2, context=1))) == num_documents
        # 50 citations of a hit with 41 sentences each are 60 KB.
        with pytest.raises(TooLarge):
            asyncio.run(search(citations=50, context=20))


def hits_alive():
    # Not isinstance(): it asks objects of other libraries for their class, and some warn that they are deprecated.
    return [each for each in gc.get_objects() if type(each) is Hit]


def test_the_hits_of_a_refused_search_are_freed_at_once(tmp_path):
    """Hits in a circle with their error would wait for the collector of garbage, for which all threads wait."""
    with mvindex.create(tmp_path / "a.mvx", dim=8) as index:
        index.add_views([Document(f"d{n}", "word " * 20_000) for n in range(20)], vectors(20, 8)[:, None])

        async def search():
            batcher = Batcher(index, NoObserver(), Limits(), batch=64, state=lambda: None)
            try:
                with pytest.raises(TooLarge):
                    await batcher.search(parse_request(vectors(8, 8), 20), ResponseMeter(ResponseBudget(4 << 20)))
            finally:
                batcher.close()

        before = set(map(id, hits_alive()))
        gc.disable()
        try:
            asyncio.run(search())
            kept = [hit for hit in hits_alive() if id(hit) not in before]
        finally:
            gc.enable()
        assert not kept
