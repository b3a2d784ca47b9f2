"""A search may ask for more than its best documents, at every door: each answers what Python does."""

import asyncio
import contextlib
import http.client
import json
import re

import grpc
import jsonschema
import numpy as np
import pytest
from serving_tools import ServedHere, served

import mvindex
from mvindex.errors import CursorExpired, LimitExceeded, NotCalibrated, QueryError
from mvindex.search import diversity, like
from mvindex.search.request import parse_options
from mvindex.testing import unit
from mvindex.v1 import search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.frameworks.filter_pushdown import PushedFilter
from mvindex_connectors.frameworks.query import FilterPlan, Query, search_filtered
from mvindex_connectors.remote import ShardedClient
from mvindex_connectors.remote.async_client import AsyncIndexClient
from mvindex_connectors.remote.convert import request_from
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.limits import QueryChecks
from tests.helpers.cli import lines, ok, schema
from tests.helpers.cli import mvindex as command

pytestmark = pytest.mark.needs("minilm")
QUERY = "the oil crisis of 1973"
TEXTS = [
    f"In {1970 + number} the price of {what} rose. {who} said so. Nothing else happened that year."
    for number, (what, who) in enumerate(
        (what, who) for what in ("oil", "grain", "gold", "steel") for who in ("Nixon", "Brandt", "Heath")
    )
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("asking") / "a.mvx"
    with mvindex.create(place, encoder="minilm-views", lexical="english") as index:
        documents = [
            mvindex.Document(f"d{number}", text, f"Year {number}", {"n": number}) for number, text in enumerate(TEXTS)
        ]
        index.add(documents)
    return place


@pytest.fixture(scope="module")
def server(place):
    with served(f"--index=a={place}", "--http", "0", "--max-top-k", "500") as server:
        yield server


@pytest.fixture(scope="module")
def index(place):
    with mvindex.open(place) as index:
        yield index


def by_python(index, server, query, top_k=10, **options):
    return index.search(query, top_k, **options)


def by_grpc(index, server, query, top_k=10, **options):
    with mvindex.open(server.url()) as client:
        return client.search(query, top_k, **options)


def by_awaited_grpc(index, server, query, top_k=10, **options):
    async def search():
        async with AsyncIndexClient(server.url()) as client:
            return await client.search(query, top_k, **options)

    return asyncio.run(search())


CLIENTS = [by_python, by_grpc, by_awaited_grpc]


def post(server, body, status=200):
    connection = http.client.HTTPConnection(server.http.partition("://")[2])
    connection.request("POST", "/v1/indexes/a/search", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == status, answer
    connection.close()
    return answer


def by_mcp(index, name, **arguments):
    mcp_server = pytest.importorskip("mvindex_connectors.mcp.server", reason="NOT RUN: needs mcp (the extra mcp)")
    made = mcp_server.make_server(index, max_chars=arguments.pop("room", 100_000))
    return asyncio.run(made.call_tool(name, arguments)).structured_content


def ids(hits):
    return [hit["id"] if isinstance(hit, dict) else hit.id for hit in hits]


@pytest.mark.parametrize("search", CLIENTS)
def test_pages_are_those_of_one_list(search, index, server):
    whole = index.search(QUERY, 12)
    assert [hit for at in (0, 5, 10) for hit in search(index, server, QUERY, 5, offset=at)] == list(whole)
    assert search(index, server, QUERY, 5, offset=50).hits == ()
    cursor, shown = "", []
    while cursor is not None:
        page = search(index, server, QUERY, 5, cursor=cursor)
        shown, cursor = shown + list(page), page.next
    assert shown == list(whole)
    with pytest.raises(CursorExpired, match="another query"):
        search(index, server, "another question", cursor=search(index, server, QUERY, 5, cursor="").next)


def test_http_gives_pages_and_names_what_is_wrong(index, server):
    whole = index.search(QUERY, 12)
    assert ids(post(server, {"query": QUERY, "top_k": 4, "offset": 6})["hits"]) == ids(whole[6:10])
    first = post(server, {"query": QUERY, "top_k": 7, "cursor": ""})
    explained = post(server, {"query": QUERY, "top_k": 7, "cursor": "", "explain": True})
    assert explained["next"] == first["next"]
    second = post(server, {"query": QUERY, "top_k": 7, "cursor": first["next"]})
    assert ids(first["hits"] + second["hits"]) == ids(whole) and "next" not in second
    assert "next" not in post(server, {"query": QUERY})
    batch = post(server, {"queries": [QUERY, "gold"], "top_k": 3, "cursor": ""})["results"]
    assert all("next" in result for result in batch)
    error = post(server, {"query": "gold", "cursor": first["next"]}, status=400)["error"]
    assert error["class"] == "CursorExpired"
    for wrong in ({"offset": -1}, {"offset": 1.5}, {"cursor": "?"}, {"offset": 2, "cursor": ""}):
        assert post(server, {"query": QUERY, **wrong}, status=400)["error"]["class"] == "QueryError"
    too_deep = post(server, {"query": QUERY, "top_k": 10, "offset": 495}, status=429)["error"]
    assert "first 500 documents" in too_deep["message"] and too_deep["class"] == LimitExceeded.__name__


def test_the_command_line_gives_pages(index, place):
    whole = index.search(QUERY, 12)
    [page] = lines(ok(command("query", QUERY, "-k", 4, "--offset", 6, "--json", "--index", place, cwd=place.parent)))
    assert ids(page["hits"]) == ids(whole[6:10]) and page["offset"] == 6
    [first] = lines(ok(command("query", QUERY, "-k", 7, "--cursor", "", "--json", "--index", place, cwd=place.parent)))
    args = ("query", QUERY, "-k", 7, "--cursor", first["next"], "--index", place)
    [second] = lines(ok(command(*args, "--json", cwd=place.parent)))
    assert ids(first["hits"] + second["hits"]) == ids(whole) and "next" not in second
    shown = ok(command("query", QUERY, "-k", 2, "--offset", 3, "--index", place, cwd=place.parent)).stdout
    assert "  4. " in shown and "offset 3" in shown
    shown = ok(command("query", QUERY, "-k", 2, "--cursor", "", "--index", place, cwd=place.parent)).stdout
    assert "next page: --cursor " in shown
    wrong = command("query", QUERY, "--cursor", "nonsense", "--index", place, cwd=place.parent)
    assert wrong.returncode == 2 and "cursor: expected" in wrong.stderr


def test_an_agent_gets_pages_without_gaps_where_there_is_little_room(index):
    whole = ids(index.search(QUERY, 12))
    assert ids(by_mcp(index, "search", query=QUERY, top_k=3, offset=4)["passages"]) == whole[4:7]
    cursor, shown = "", []
    while cursor is not None:
        page = by_mcp(index, "search", query=QUERY, top_k=6, cursor=cursor, room=2500)
        assert 0 < len(page["passages"]) < 6 or page["next"] is None
        shown, cursor = shown + ids(page["passages"]), page["next"]
    assert shown == whole


def test_frameworks_give_pages(index):
    whole = ids(index.search(QUERY, 12))
    lang = pytest.importorskip("mvindex_connectors.frameworks.langchain", reason="NOT RUN: needs langchain-core")
    store = lang.MVIndexVectorStore(index)
    assert [one.id for one in store.similarity_search(QUERY, 4, offset=6)] == whole[6:10]
    assert [one.id for one in lang.MVIndexRetriever(store=store, k=4).invoke(QUERY, offset=6)] == whole[6:10]


def test_llamaindex_gives_pages(index):
    llama = pytest.importorskip("mvindex_connectors.frameworks.llamaindex", reason="NOT RUN: needs llama-index-core")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    query = VectorStoreQuery(query_str=QUERY, similarity_top_k=4)
    whole = ids(index.search(index.encode_queries([QUERY])[0], 12, text=QUERY))
    assert llama.MVIndexVectorStore(index).query(query, offset=6).ids == whole[6:10]


def test_haystack_gives_pages(index):
    hay = pytest.importorskip("mvindex_connectors.frameworks.haystack", reason="NOT RUN: needs haystack-ai")
    retriever = hay.MVIndexTextRetriever(hay.MVIndexDocumentStore(index))
    whole = ids(index.search(QUERY, 12))
    assert ids(retriever.run(QUERY, top_k=4, options={"offset": 6})["documents"]) == whole[6:10]
    assert ids(asyncio.run(retriever.run_async(QUERY, top_k=4, options={"offset": 6}))["documents"]) == whole[6:10]


def test_vectors_have_pages_too(index, server):
    vector = unit(np.ones(index.dim))
    with mvindex.open(server.url()) as client:
        assert client.search(vector, 4, offset=3) == index.search(vector, 4, offset=3)
        assert client.search(vector, 4, cursor="") == index.search(vector, 4, cursor="")


NEAR = {"positives": ["d0", "d1"], "negatives": ["d6"]}


@pytest.mark.parametrize("search", CLIENTS)
def test_documents_stand_for_a_query(search, index, server):
    for options in ({"like": "d0"}, NEAR, {"like": "d0", "filter": {"n": {"gt": 5}}}):
        found = index.search(top_k=5, **options)
        assert search(index, server, None, 5, **options) == found
        named = {"d0"} if "like" in options else {"d0", "d1", "d6"}
        assert found.mode == "dense" and len(found) == 5 and not named & set(ids(found))
    assert ids(index.search(top_k=3, like="d0"))[0] in {"d1", "d2", "d3"}
    with pytest.raises(QueryError, match="there is no document 'gone'"):
        search(index, server, None, like="gone")


def test_documents_stand_for_a_query_at_the_other_doors(index, server, place):
    like, near = ids(index.search(top_k=5, like="d0")), ids(index.search(top_k=5, **NEAR))
    assert ids(post(server, {"like": "d0", "top_k": 5})["hits"]) == like
    assert ids(post(server, {**NEAR, "top_k": 5})["hits"]) == near
    for wrong in (
        {"query": "x", "like": "d0"},
        {"like": "gone"},
        {"like": "d0", "explain": True},
        {"negatives": ["d0"]},
    ):
        assert post(server, wrong, status=400)["error"]["class"] == "QueryError"
    args = ("query", "--positives", "d0", "--positives", "d1", "--negatives", "d6", "-k", 5, "--index", place)
    [shown] = lines(ok(command(*args, "--json", cwd=place.parent)))
    assert ids(shown["hits"]) == near and shown["positives"] == ["d0", "d1"] and "query" not in shown
    jsonschema.validate(shown, schema("query_result"))
    shown = ok(command("query", "--like", "d0", "-k", 5, "--index", place, cwd=place.parent)).stdout
    assert re.findall(r"^ +\d+\. \S+ +(d\d+)", shown, re.M) == like
    assert command("query", "x", "--like", "d0", "--index", place, cwd=place.parent).returncode == 2
    assert command("query", "--like", "gone", "--index", place, cwd=place.parent).returncode == 1
    assert ids(by_mcp(index, "search", like="d0", top_k=5)["passages"]) == like
    assert ids(by_mcp(index, "search", like="d0", unlike=["d6"])["passages"]) == ids(
        index.search(top_k=5, like="d0", negatives=["d6"])
    )


def test_documents_stand_for_a_query_in_frameworks(index):
    near = ids(index.search(top_k=5, **NEAR))
    lang = pytest.importorskip("mvindex_connectors.frameworks.langchain", reason="NOT RUN: needs langchain-core")
    store = lang.MVIndexVectorStore(index)
    assert [one.id for one in store.similarity_search("", 5, **NEAR)] == near
    with pytest.raises(QueryError, match="stand for the query"):
        store.similarity_search("a question", 5, **NEAR)
    llama = pytest.importorskip("mvindex_connectors.frameworks.llamaindex", reason="NOT RUN: needs llama-index-core")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    assert llama.MVIndexVectorStore(index).query(VectorStoreQuery(similarity_top_k=5), **NEAR).ids == near
    hay = pytest.importorskip("mvindex_connectors.frameworks.haystack", reason="NOT RUN: needs haystack-ai")
    retriever = hay.MVIndexTextRetriever(hay.MVIndexDocumentStore(index))
    assert ids(retriever.run("", top_k=5, options=NEAR)["documents"]) == near


def quoted(hits):
    """The citations of hits, without the parts of their scores."""
    return [
        [(each["text"], each.get("before", ""), each.get("after", ""), each["start"]) for each in hit["citations"]]
        if isinstance(hit, dict)
        else [(each.text, each.before, each.after, each.start) for each in hit.citations]
        for hit in hits
    ]


SEVERAL = {"citations": 2, "context": 1, "max_chars": 90, "max_tokens": 30}


def test_every_door_gives_several_citations(index, server, place):
    found = index.search(QUERY, 3, **SEVERAL)
    expected = quoted(found)
    assert all(len(each) == 2 for each in expected) and expected[0][0][0].startswith("In 197")
    for hit in found:
        assert all(hit.text[each.start : each.end] == each.text for each in hit.citations)
    for search in CLIENTS:
        assert quoted(search(index, server, QUERY, 3, **SEVERAL)) == expected
        assert [hit.citations for hit in search(index, server, QUERY, 3, **SEVERAL)] == [hit.citations for hit in found]
    assert quoted(post(server, {"query": QUERY, "top_k": 3, **SEVERAL})["hits"]) == expected
    assert "citations" not in post(server, {"query": QUERY})["hits"][0]
    assert "context" in post(server, {"query": QUERY, "context": -1}, status=400)["error"]["message"]
    args = (
        "query",
        QUERY,
        "-k",
        3,
        "--citations",
        2,
        "--context",
        1,
        "--max-chars",
        90,
        "--max-tokens",
        30,
        "--index",
        place,
    )
    for form in ("tsv", "trec"):
        refused = command(*args, "--output", form, cwd=place.parent)
        assert refused.returncode == 2 and f"got {form}" in refused.stderr
    [shown] = lines(ok(command(*args, "--json", cwd=place.parent)))
    assert quoted(shown["hits"]) == expected
    jsonschema.validate(shown, schema("query_result"))
    assert found[0].citations[1].text in " ".join(ok(command(*args, cwd=place.parent)).stdout.split())
    assert quoted(by_mcp(index, "search", query=QUERY, top_k=3, **SEVERAL)["passages"]) == expected


def test_frameworks_give_several_citations(index):
    expected = quoted(index.search(QUERY, 3, **SEVERAL))
    lang = pytest.importorskip("mvindex_connectors.frameworks.langchain", reason="NOT RUN: needs langchain-core")
    documents = lang.MVIndexVectorStore(index).similarity_search(QUERY, 3, **SEVERAL)
    assert quoted([one.metadata["mvindex"] for one in documents]) == expected
    hay = pytest.importorskip("mvindex_connectors.frameworks.haystack", reason="NOT RUN: needs haystack-ai")
    retriever = hay.MVIndexTextRetriever(hay.MVIndexDocumentStore(index))
    documents = retriever.run(QUERY, top_k=3, options=SEVERAL)["documents"]
    assert quoted([one.meta["mvindex"] for one in documents]) == expected
    llama = pytest.importorskip("mvindex_connectors.frameworks.llamaindex", reason="NOT RUN: needs llama-index-core")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    nodes = (
        llama.MVIndexVectorStore(index).query(VectorStoreQuery(query_str=QUERY, similarity_top_k=3), **SEVERAL).nodes
    )
    assert quoted([one.metadata["mvindex"] for one in nodes]) == expected


def test_a_server_quotes_long_texts_as_python_does(tmp_path):
    text = " ".join(f"In {1900 + number} the price of oil number {number} rose." for number in range(400))
    with mvindex.create(tmp_path / "long.mvx", encoder="minilm-views") as index:
        index.add([mvindex.Document("long", text)])
        expected = index.search(QUERY, 1, citations=5, context=1)[0].citations
    assert len(text) > 8000 and len(expected) == 5 and "1973" in expected[0].text
    with served(f"--index=a={tmp_path / 'long.mvx'}") as server, mvindex.open(server.url()) as client:
        assert client.search(QUERY, 1, citations=5, context=1)[0].citations == expected


def test_every_door_gives_diverse_documents(index, server, place):
    found = index.search(QUERY, 5, diversity=0.6)
    expected = ids(found)
    assert expected != ids(index.search(QUERY, 5)) and expected[0] == ids(index.search(QUERY, 1))[0]
    assert all(search(index, server, QUERY, 5, diversity=0.6) == found for search in CLIENTS)
    shown = post(server, {"query": QUERY, "top_k": 5, "diversity": 0.6})
    assert ids(shown["hits"]) == expected
    assert "diversity" in post(server, {"query": QUERY, "diversity": 2}, status=400)["error"]["message"]
    args = ("query", QUERY, "-k", 5, "--diversity", 0.6, "--index", place)
    [shown] = lines(ok(command(*args, "--json", cwd=place.parent)))
    assert ids(shown["hits"]) == expected and shown["diversity"] == 0.6
    jsonschema.validate(shown, schema("query_result"))
    assert "diversity 0.6" in ok(command(*args, cwd=place.parent)).stdout
    assert ids(by_mcp(index, "search", query=QUERY, diversity=0.6)["passages"]) == expected
    lang = pytest.importorskip("mvindex_connectors.frameworks.langchain", reason="NOT RUN: needs langchain-core")
    documents = lang.MVIndexVectorStore(index).similarity_search(QUERY, 5, diversity=0.6)
    assert [one.id for one in documents] == expected
    hay = pytest.importorskip("mvindex_connectors.frameworks.haystack", reason="NOT RUN: needs haystack-ai")
    retriever = hay.MVIndexTextRetriever(hay.MVIndexDocumentStore(index))
    assert ids(retriever.run(QUERY, top_k=5, options={"diversity": 0.6})["documents"]) == expected
    llama = pytest.importorskip("mvindex_connectors.frameworks.llamaindex", reason="NOT RUN: needs llama-index-core")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    query = VectorStoreQuery(query_str=QUERY, similarity_top_k=5)
    assert llama.MVIndexVectorStore(index).query(query, diversity=0.6).ids == expected


def test_every_door_gives_the_same_confidence(index, server, place):
    whole = index.search(QUERY, 5)
    expected = [hit.confidence for hit in whole]
    least = sorted(expected)[2]
    kept = [hit.id for hit in whole if hit.confidence >= least]
    assert len(set(expected)) == 5 and all(0 < each < 1 for each in expected) and len(kept) == 3
    for search in CLIENTS:
        assert [hit.confidence for hit in search(index, server, QUERY, 5)] == expected
        found = search(index, server, QUERY, 5, min_confidence=least)
        assert (ids(found), found.below_confidence, found.short_by) == (kept, 2, 0)
        for wrong, error in (({"min_confidence": 2}, QueryError), ({"scoring": "drpq"}, NotCalibrated)):
            with pytest.raises(error, match="min_confidence"):
                search(index, server, QUERY, **{"min_confidence": 0.5, **wrong})
    shown = post(server, {"query": QUERY, "top_k": 5, "min_confidence": least})
    assert [hit["confidence"] for hit in shown["hits"]] == [each for each in expected if each >= least]
    assert shown["below_confidence"] == 2 and "below_confidence" not in post(server, {"query": QUERY})
    refused = post(server, {"query": QUERY, "scoring": "drpq", "min_confidence": 0.5}, status=400)["error"]
    assert refused["class"] == "NotCalibrated"
    args = ("query", QUERY, "-k", 5, "--min-confidence", least, "--index", place)
    [shown] = lines(ok(command(*args, "--json", cwd=place.parent)))
    assert [hit["confidence"] for hit in shown["hits"]] == [each for each in expected if each >= least]
    assert shown["below_confidence"] == 2
    jsonschema.validate(shown, schema("query_result"))
    printed = ok(command(*args, "--explain", cwd=place.parent)).stdout
    assert f"confidence {whole[0].confidence:.4f}" in printed and "2 below the confidence" in printed
    by_tool = by_mcp(index, "search", query=QUERY, min_confidence=least)
    assert ids(by_tool["passages"]) == kept and by_tool["below_confidence"] == 2
    assert by_tool["passages"][0]["confidence"] == round(expected[0], 4)
    none = by_mcp(index, "search", query="which battery fits the camera?", min_confidence=0.9)
    assert none["passages"] == [] and none["below_confidence"] == 5


def test_frameworks_give_the_same_confidence(index):
    whole = index.search(QUERY, 5)
    least = sorted(hit.confidence for hit in whole)[2]
    expected = [(hit.id, hit.confidence) for hit in whole if hit.confidence >= least]
    lang = pytest.importorskip("mvindex_connectors.frameworks.langchain", reason="NOT RUN: needs langchain-core")
    documents = lang.MVIndexVectorStore(index).similarity_search(QUERY, 5, min_confidence=least)
    assert [(one.id, one.metadata["mvindex"]["confidence"]) for one in documents] == expected
    hay = pytest.importorskip("mvindex_connectors.frameworks.haystack", reason="NOT RUN: needs haystack-ai")
    retriever = hay.MVIndexTextRetriever(hay.MVIndexDocumentStore(index))
    documents = retriever.run(QUERY, top_k=5, options={"min_confidence": least})["documents"]
    assert [(one.id, one.meta["mvindex"]["confidence"]) for one in documents] == expected
    llama = pytest.importorskip("mvindex_connectors.frameworks.llamaindex", reason="NOT RUN: needs llama-index-core")
    from llama_index.core.vector_stores.types import VectorStoreQuery

    query = VectorStoreQuery(query_str=QUERY, similarity_top_k=5)
    nodes = llama.MVIndexVectorStore(index).query(query, min_confidence=least).nodes
    assert [(one.node_id, one.metadata["mvindex"]["confidence"]) for one in nodes] == expected


def test_of_a_filter_that_the_index_cannot_evaluate_hits_are_left_out_that_pass(index, place):
    passing = [hit for hit in index.search(QUERY, 12, mode="dense") if hit.metadata["n"] % 2][:5]
    least = sorted(hit.confidence for hit in passing)[2]
    plan = FilterPlan(PushedFilter(None, is_exact=False), lambda hit: hit.metadata["n"] % 2 == 1)

    async def search():
        async with await mvindex.open_async(place) as api:
            options = {"mode": "dense", "min_confidence": least}
            return await search_filtered(api, Query(source=QUERY), plan, 5, options)

    found = asyncio.run(search())
    assert ids(found) == [hit.id for hit in passing if hit.confidence >= least] and found.below_confidence == 2


@pytest.mark.parametrize("name", ["terms", "combine", "shard"])
def test_grpc_takes_nothing_of_queries_beside_documents(name):
    values = {
        "terms": search_pb2.Texts(values=["oil"]),
        "combine": search_pb2.COMBINE_MAX,
        "shard": search_pb2.ShardSearch(),
    }
    assert request_from(search_pb2.SearchRequest(positives=["d1"])).like.ids == ("d1",)
    with pytest.raises(QueryError, match=f"{name}: belongs to queries, got documents"):
        request_from(search_pb2.SearchRequest(positives=["d1"], **{name: values[name]}))


def test_negatives_are_compared_with_so_many_documents_and_texts_are_read_of_the_page(tmp_path, monkeypatch):
    angles = {"near": 0, "far": 5} | {f"d{angle}": angle for angle in (10, 20, 30, 40, 50, -60, -65)}
    views = [[[np.cos(angle), np.sin(angle)]] for angle in np.radians(list(angles.values()))]
    with mvindex.create(tmp_path / "circle.mvx", dim=2) as circle:
        circle.add_views([mvindex.Document(name, name) for name in angles], np.array(views, dtype=np.float32))
        requests, run = [], type(circle).run

        def noted(index, request):
            requests.append(request)
            return run(index, request)

        monkeypatch.setattr(type(circle), "run", noted)
        found = circle.search(top_k=2, like="near", negatives=["far"])
        assert [(hit.id, hit.text) for hit in found] == [("d-60", "d-60"), ("d-65", "d-65")]
        # After the request itself texts are read of the page only.
        assert [request.top_k for request in requests[1:] if request.fields] == [2]
        monkeypatch.setattr(like, "_MOST_COMPARED", 4)
        with pytest.raises(QueryError, match="expected 2 documents nearer to positives among the 4 nearest, got 0"):
            circle.search(top_k=2, like="near", negatives=["far"])


def test_diversity_compares_so_many_views_and_costs_what_it_searches_for(tmp_path, monkeypatch):
    covered, compared = diversity._covered, []
    monkeypatch.setattr(diversity, "_covered", lambda own: compared.append(max(map(len, own))) or covered(own))
    views = unit(np.random.default_rng(1).standard_normal((300, 8)))
    with mvindex.create(tmp_path / "many.mvx", dim=8) as many:
        others = unit(np.random.default_rng(2).standard_normal((300, 8)))
        many.add_views([mvindex.Document(name, name) for name in "abc"], [views, views, others])
        found = many.search(views[7], diversity=0.5)
    assert compared == [64]
    assert dict(found.duplicates_of) == {"b": "a"}
    assert parse_options(top_k=5, diversity=0.5).depth == 100
    assert parse_options(top_k=5).depth == 5
    with pytest.raises(LimitExceeded, match=r"diversity: expected a server that searches for 100 .*--max-top-k"):
        QueryChecks(Limits(top_k=50), None).hits(1, parse_options(top_k=5, diversity=0.5))


def test_near_duplicates_are_named_at_every_door(tmp_path):
    with mvindex.create(tmp_path / "twins.mvx", encoder="minilm-views", lexical="english") as index:
        texts = {"a": TEXTS[0], "b": f"{TEXTS[0]} ", "c": TEXTS[5], "d": TEXTS[9]}
        index.add([mvindex.Document(name, text) for name, text in texts.items()])
        found = index.search(QUERY, 4, diversity=0)
        assert dict(found.duplicates_of) == {"b": "a"} and found[3].id == "b"
        assert by_mcp(index, "search", query=QUERY, diversity=0)["duplicates_of"] == {"b": "a"}
    with served(f"--index=a={tmp_path / 'twins.mvx'}", "--http", "0") as server:
        with mvindex.open(server.url()) as client:
            assert client.search(QUERY, 4, diversity=0).duplicates_of == {"b": "a"}
        assert post(server, {"query": QUERY, "diversity": 0})["duplicates_of"] == {"b": "a"}
    args = ("query", QUERY, "--diversity", 0, "--index", tmp_path / "twins.mvx")
    assert lines(ok(command(*args, "--json", cwd=tmp_path)))[0]["duplicates_of"] == {"b": "a"}
    assert "near-duplicate of a" in " ".join(ok(command(*args, cwd=tmp_path)).stdout.split())


def scored(hits):
    return [(hit.id, hit.score) for hit in hits]


def test_served_shards_give_the_pages_and_citations_of_one_index(tmp_path):
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice([f"w{number}" for number in range(40)], 9)) for _ in range(260)]
    with mvindex.create(tmp_path / "s.mvx", dim=8, lexical="unicode", shards=3) as index:
        documents = [mvindex.Document(f"d{number}", f"{text}. So it is.") for number, text in enumerate(texts)]
        index.add_views(documents, unit(rng.standard_normal((260, 2, 8))))
        asked = unit(rng.standard_normal((30, 8)))
        nearest = [hit for [hit] in index.search(asked, 1)]
        judged = [hit.text for hit in nearest], [{hit.id: 1.0} for hit in nearest]
        index.admin.tune_confidence(*judged, vectors=asked)
        shards = [[("s", str(tmp_path / "s.mvx" / f"shard-{number:05d}-of-00003"))] for number in range(3)]
        with contextlib.closing(ServedHere(*shards)) as servers:
            client = ShardedClient([f"{address}/s" for address in servers.addresses])
            with client:
                for options in ({"mode": "dense"}, {"mode": "lexical"}, {"fusion": "zscore"}, {"fusion": "rrf"}):
                    vector, options = unit(rng.standard_normal(8)), {"text": "w1 w2", "citations": 2, **options}
                    whole = index.search(vector, 230, **options)
                    for offset in (0, 60, 120, 180):
                        page = client.search(vector, 50, offset=offset, **options)
                        # A longer list also knows the ranks of documents that are far down in one of both lists.
                        assert scored(page) == scored(whole)[offset : offset + 50]
                        assert (page.exact, page.short_by) == (True, 0)
                        confidences = [hit.confidence for hit in whole[offset : offset + 50]]
                        assert [hit.confidence for hit in page] == confidences and None not in confidences
                        assert [hit.citations for hit in page] == [hit.citations for hit in whole[offset : offset + 50]]
                    first = client.search(vector, 70, cursor="", **options)
                    second = client.search(vector, 70, cursor=first.next, **options) if first.next else ()
                    assert scored([*first, *second]) == scored(whole)[:140]
                same = [{"query": vector, "diversity": 0.5, **more} for more in ({}, {"text": "w1 w2"}, {"offset": 9})]
                same += [
                    {"like": "d1", "offset": 5, "top_k": 20},
                    {"like": "d1", "filter": {"id": {"in": ["d2", "d3"]}}},
                ]
                same += [{"positives": ["d1", "d2", "d9"], "negatives": ["d3", "d4"], "top_k": 40}]
                for options in same:
                    whole, shards = index.search(**options), client.search(**options)
                    assert scored(shards) == scored(whole) and len(shards) and shards.exact
                    assert (shards.short_by, shards.duplicates_of) == (whole.short_by, whole.duplicates_of)
                with pytest.raises(QueryError, match="there is no document 'gone'"):
                    client.search(like="gone")
                first = client.search(top_k=3, like="d1", cursor="")
                second = client.search(top_k=3, like="d1", cursor=first.next)
                assert scored([*first, *second]) == scored(index.search(top_k=6, like="d1"))
            host, _, port = servers.addresses[0].removeprefix("grpc://").rpartition(":")
            with grpc.insecure_channel(f"{host}:{port}") as channel:
                encode = MvindexServiceStub(channel).Encode
                found = encode(search_pb2.EncodeRequest(index="s", ids=["gone"]))
                assert list(found.counts) == [0] and not found.HasField("vectors")
                texts = search_pb2.Texts(values=["x"])
                many = [f"d{number}" for number in range(101)]
                for wrong, status in (
                    ({"ids": ["d1"], "texts": texts}, grpc.StatusCode.INVALID_ARGUMENT),
                    ({"ids": many}, grpc.StatusCode.RESOURCE_EXHAUSTED),
                ):
                    with pytest.raises(grpc.RpcError) as refused:
                        encode(search_pb2.EncodeRequest(index="s", **wrong))
                    assert refused.value.code() is status, refused.value
