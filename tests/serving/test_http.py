"""JSON over HTTP: the same results, tokens, limits and errors as over gRPC."""

import http.client
import json
import re
import socket
import threading
import time
from urllib.parse import urlencode

import numpy as np
import pytest
from serving_tools import fill, served, vectors

import mvindex
from mvindex import Document

READER, WRITER = "reader-0123456789", "writer-0123456789"
SEARCH = "/v1/indexes/a/search"
DOCUMENTS = "/v1/indexes/a/documents"
QUERY = vectors(1, seed=9)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    fill(folder / "a.mvx")
    fill(folder / "open.mvx")
    (folder / "tokens").write_text(f"read-only {READER}\nread-write {WRITER}\n")
    return folder


@pytest.fixture(scope="module")
def serving(folder):
    """A server with tokens and limits of 64 queries, 100 documents and 2 MB."""
    arguments = ["--http", "0", "--token-file", folder / "tokens", "--max-queries", "64", "--max-top-k", "100"]
    with served(f"--index=a={folder / 'a.mvx'}", *arguments, "--max-message-mb", "2") as serving:
        yield serving


@pytest.fixture(scope="module")
def without_tokens(folder):
    with served(f"--index=a={folder / 'open.mvx'}", "--http", "0") as serving:
        yield serving


@pytest.fixture(scope="module", autouse=True)
def slow_client(without_tokens):
    """A client that never completes its request head while other tests run; returns the response and the seconds."""
    waited = []

    def wait():
        with socket.create_connection(place_of(without_tokens), timeout=40) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
            begun = time.monotonic()
            waited.append((slow.recv(100), time.monotonic() - begun))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield lambda: (thread.join(40), waited[0])[1]


def place_of(serving):
    host, port = serving.http.partition("://")[2].split(":")
    return host, int(port)


def ask(serving, method, path, body=None, token=WRITER, headers=()):
    """Return status, headers and the JSON of the response."""
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    sent = dict(headers)
    if token:
        sent["authorization"] = f"Bearer {token}"
    if body is not None and "content-type" not in sent:
        sent["content-type"] = "application/json"
    content = json.dumps(body) if isinstance(body, dict | list) else body
    try:
        connection.request(method, path, content, sent)
        response = connection.getresponse()
        text = response.read()
        answer = json.loads(text) if response.headers.get("content-type") == "application/json" else text.decode()
        return response.status, response.headers, answer
    finally:
        connection.close()


def search(serving, **body):
    status, _, answer = ask(serving, "POST", SEARCH, {"vector": QUERY.tolist()} | body)
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 7},
        {"top_k": 3, "fields": ["title"]},
        {"fields": []},
        {"scoring": "drpq", "temperature": 0.3, "filter": {"n": {"lt": 20}}},
    ],
)
def test_search_returns_what_the_index_returns(serving, folder, options):
    answer = search(serving, **options)
    with mvindex.open(folder / "a.mvx") as index:
        [expected] = index.search(QUERY[None], **options)
    assert [(hit["id"], np.float32(hit["score"]), hit["slot"]) for hit in answer["hits"]] == [
        (hit.id, np.float32(hit.score), hit.slot) for hit in expected.hits
    ]
    assert [(hit["text"], hit["title"], hit["snippet"], hit["metadata"]) for hit in answer["hits"]] == [
        (hit.text, hit.title, hit.snippet, hit.metadata) for hit in expected.hits
    ]
    assert (answer["exact"], answer["short_by"]) == (True, 0)


def test_hits_cite_for_a_text_beside_the_vector(serving, folder):
    found = search(serving, text="text 3", top_k=3)
    with mvindex.open(folder / "a.mvx") as index:
        expected = index.search(QUERY, text="text 3", top_k=3).hits
    assert [hit["citation"] for hit in found["hits"]] == [hit.citation.as_json() for hit in expected]
    assert all(hit["citation"] is None for hit in search(serving, top_k=3)["hits"])
    assert all(hit["citation"] is None for hit in search(serving, text="text 3", fields=["title"])["hits"])


def test_several_queries_and_explanations(serving):
    status, _, answer = ask(serving, "POST", SEARCH, {"vectors": vectors(3).tolist(), "top_k": 2, "explain": True})
    assert status == 200 and len(answer["results"]) == 3
    for hit in answer["results"][0]["hits"]:
        assert hit["views"][0]["slot"] == hit["slot"] and len(hit["views"]) == 2
        assert np.float32(hit["views"][0]["score"]) == np.float32(hit["score"])


def test_given_spans_are_stored_cited_and_checked(serving):
    rows = [{"id": "spans", "text": "One. Two."}, {"id": "none", "text": "Three."}]
    body = {"documents": rows, "views": [vectors(2, seed=5).tolist(), vectors(1, seed=6).tolist()]}
    place = "/v1/indexes/a/documents"
    for spans, message in (
        ([[[0, 4], [5, 10]], None], "'spans'.*view 1: expected 0 <= begin < end <= 9"),
        ([[[0, 4]], None], "'spans'.*expected 2 spans"),
        ([[[0, 4], None]], "each of 2 documents"),
    ):
        status, _, answer = ask(serving, "POST", place, {**body, "spans": spans})
        assert status == 400 and re.search(message, answer["error"]["message"]), answer
    assert ask(serving, "POST", place, {"documents": rows, "spans": [None, None]})[0] == 400
    assert [ask(serving, "GET", f"{place}/{one['id']}")[0] for one in rows] == [404, 404]
    assert ask(serving, "POST", place, {**body, "spans": [[[0, 4], [5, 9]], None]})[2]["added"] == 2
    for slot, snippet in enumerate(["One.", "Two."]):
        [hit] = search(serving, vector=body["views"][0][slot], top_k=1)["hits"]
        assert (hit["id"], hit["slot"], hit["snippet"]) == ("spans", slot, snippet)
    assert search(serving, vector=body["views"][1][0], top_k=1)["hits"][0]["span"] is None
    assert ask(serving, "POST", "/v1/indexes/a/delete", {"ids": ["spans", "none"]})[2] == {"deleted": 2}


def test_documents_are_stored_returned_updated_and_deleted(serving):
    row = {"id": "new/one ü", "text": "t", "title": "T", "metadata": {"k": [1, None]}}
    place = "/v1/indexes/a/documents/new%2Fone%20%C3%BC"
    body = {"documents": [row], "views": [vectors(2).tolist()]}
    assert ask(serving, "POST", "/v1/indexes/a/documents", body)[2]["added"] == 1
    assert ask(serving, "POST", "/v1/indexes/a/documents", body)[2]["unchanged"] == 1
    assert ask(serving, "GET", place)[2] == row
    assert ask(serving, "PATCH", place, {"metadata": {"k": 2}})[0] == 200
    assert ask(serving, "GET", place)[2]["metadata"] == {"k": 2}
    assert ask(serving, "DELETE", place)[2] == {"deleted": 1}
    assert ask(serving, "GET", place)[0] == 404
    assert ask(serving, "POST", "/v1/indexes/a/delete", {"filter": {"k": 2}})[2] == {"deleted": 0}


def test_several_documents_are_returned_in_the_order_of_their_ids(serving):
    status, _, answer = ask(serving, "POST", "/v1/indexes/a/get", {"ids": ["d7", "nope", "d2", "d7"]})
    assert (status, [row["id"] for row in answer["documents"]]) == (200, ["d7", "d2"])
    assert answer["documents"][1] == {"id": "d2", "text": "text 2", "title": "title 2", "metadata": {"n": 2}}
    status, _, answer = ask(serving, "POST", "/v1/indexes/a/get", {"ids": ["x"] * 4097})
    assert (status, answer["error"]["class"]) == (429, "LimitExceeded")


def pages(serving, **parameters):
    """Return the ids of each page of a listing."""
    found = []
    while True:
        status, _, answer = ask(serving, "GET", f"{DOCUMENTS}?{urlencode(parameters)}")
        assert status == 200, answer
        found.append([row["id"] for row in answer["documents"]])
        if answer["next"] is None:
            return found
        assert answer["next"] == found[-1][-1]
        parameters["after"] = answer["next"]


def test_documents_are_listed_page_by_page(serving):
    assert pages(serving) == [[f"d{n}" for n in range(50)]]
    assert pages(serving, limit=25) == [[f"d{n}" for n in range(begin, begin + 25)] for begin in (0, 25)]
    assert pages(serving, limit=4, filter='{"n": {"lt": 9}}') == [
        ["d0", "d1", "d2", "d3"],
        ["d4", "d5", "d6", "d7"],
        ["d8"],
    ]
    assert pages(serving, filter='{"n": -1}') == [[]]
    assert pages(serving, after="d49") == [[]]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("limit=0", 400, "limit: expected a whole number of at least 1"),
        ("limit=1001", 400, "limit: expected a whole number of at most 1000"),
        ("limit=x", 400, "limit: expected a whole number, got"),
        ("limit=1&limit=2", 400, "each parameter once"),
        ("colour=1", 400, "query string: expected known members only, got 'colour'"),
        ("filter=%5B", 400, "filter: expected JSON"),
        ("filter=%5B%5D", 400, "filter: expected object, got array"),
        ("filter=%7B%22n%22:%7B%22nearly%22:1%7D%7D", 400, "nearly"),
        ("after=nope", 404, "no document 'nope'"),
    ],
)
def test_a_malformed_listing_is_refused(serving, query, status, message):
    got, _, answer = ask(serving, "GET", f"{DOCUMENTS}?{query}")
    assert got == status and message in answer["error"]["message"]


def test_a_page_of_long_documents_ends_early(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=16) as index:
        index.add_views([Document(f"d{n}", "word " * 200_000) for n in range(9)], vectors(9))
    with served(f"--index=a={tmp_path / 'a.mvx'}", "--http", "0") as serving:
        # A page has at most 4,000,000 characters, those of metadata included.
        assert [len(page) for page in pages(serving)] == [3, 3, 3]


def test_a_page_has_no_more_bytes_than_a_response(tmp_path):
    """Signs that JSON writes with six characters: a document of which two fit, and one that does not by itself."""
    with mvindex.create(tmp_path / "a.mvx", dim=16) as index:
        texts = ["word " * 60_000] * 4 + ["\x01" * 400_000]
        index.add_views([Document(f"d{n}", text) for n, text in enumerate(texts)], vectors(5))
    with served(f"--index=a={tmp_path / 'a.mvx'}", "--http", "0", "--max-response-mb", "1") as serving:
        status, _, answer = ask(serving, "GET", f"{DOCUMENTS}?limit=4", token=None)
        assert status == 200 and [row["id"] for row in answer["documents"]] == ["d0", "d1"]
        status, _, answer = ask(serving, "GET", f"{DOCUMENTS}?limit=4&after=d3", token=None)
        assert status == 413 and "--max-response-mb" in answer["error"]["message"]


def test_a_repeated_idempotency_key_changes_nothing(serving):
    row = {"documents": [{"id": "again", "text": "1"}], "views": [vectors(1).tolist()], "idempotency_key": "k1"}
    first = ask(serving, "POST", "/v1/indexes/a/documents", row)[2]
    assert ask(serving, "DELETE", "/v1/indexes/a/documents/again")[2] == {"deleted": 1}
    assert ask(serving, "POST", "/v1/indexes/a/documents", row)[2] == first == {
        "added": 1, "replaced": 0, "updated": 0, "unchanged": 0, "views_encoded": 0, "views_reused": 0
    }  # fmt: skip
    assert ask(serving, "GET", "/v1/indexes/a/documents/again")[0] == 404
    # The key counts for what it came with.
    for name, path, body in (
        ("POST", "/v1/indexes/a/documents", {**row, "documents": [{"id": "other", "text": "2"}]}),
        ("POST", "/v1/indexes/a/delete", {"ids": ["other"], "idempotency_key": "k1"}),
        ("POST", "/v1/indexes/a/delete", {"ids": ["none"], "idempotency_key": "k1"}),
    ):
        answer = ask(serving, name, path, body)[2]
        assert answer.get("added", answer.get("deleted")) == (0 if "none" in str(body) else 1), answer


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", SEARCH, {}, 400, "QueryError"),
        ("POST", SEARCH, {"query": "x"}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 15}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 15 + ["x"]}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 15 + [True]}, 400, "QueryError"),
        ("POST", SEARCH, '{"vector": [' + "1," * 15 + "NaN]}", 400, "QueryError"),
        ("POST", SEARCH, '{"vector": [' + "1," * 15 + "1e999]}", 400, "QueryError"),
        ("POST", SEARCH, '{"vector": [' + "1," * 15 + "1" * 400 + "]}", 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "top_k": 0}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "top_k": True}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "colour": 1}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "filter": {"n": {"nearly": 1}}}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "scoring": "mean"}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "top_k": 101}, 429, "LimitExceeded"),
        ("POST", SEARCH, {"vectors": [[1.0] * 16] * 65}, 429, "LimitExceeded"),
        ("POST", SEARCH, "x" * (3 << 20), 413, "LimitExceeded"),
        ("POST", "/v1/indexes/a/delete", {"filter": {}}, 400, "QueryError"),
        ("POST", "/v1/indexes/a/delete", {"filter": {"and": [{}]}}, 400, "QueryError"),
        ("POST", "/v1/indexes/a/delete", {"all": False}, 400, "QueryError"),
        ("POST", "/v1/indexes/a/delete", {"all": True, "ids": ["d1"]}, 400, "QueryError"),
        ("POST", SEARCH, "[" * 100_000, 400, "QueryError"),
        ("POST", SEARCH, "nonsense", 400, "QueryError"),
        ("POST", SEARCH, [1], 400, "QueryError"),
        ("POST", "/v1/indexes/nope/search", {"vector": [1.0] * 16}, 404, "NoSuchIndex"),
        ("GET", "/v1/indexes/nope", None, 404, "NoSuchIndex"),
        ("GET", "/nowhere", None, 404, "QueryError"),
        ("PUT", SEARCH, None, 405, "QueryError"),
        ("POST", "/v1/indexes/a/documents", {"documents": []}, 400, "QueryError"),
        ("POST", "/v1/indexes/a/documents", {"documents": [{"id": ""}], "views": [[[1.0] * 16]]}, 400, "DocumentError"),
        ("POST", "/v1/indexes/a/documents", {"documents": [{"id": "x", "text": 1}]}, 400, "DocumentError"),
        ("POST", "/v1/indexes/a/documents", {"documents": [{"id": "x"}], "views": [[[1.0] * 3]]}, 400, "EncoderError"),
        ("POST", "/v1/indexes/a/documents", {"documents": [{"id": "x", "text": "y"}]}, 400, "QueryError"),
        ("PATCH", "/v1/indexes/a/documents/nope", {"metadata": {}}, 404, "QueryError"),
        ("PATCH", "/v1/indexes/a/documents/d1", {}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "top_k": None}, 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "top_k": 2.5}, 400, "QueryError"),
        ("POST", SEARCH, '{"vector": [' + "1," * 15 + '1], "temperature": NaN}', 400, "QueryError"),
        ("POST", SEARCH, {"vector": [1.0] * 16, "scoring": "drpq", "temperature": 10**400}, 400, "QueryError"),
        ("GET", "/v1/indexes/a/", None, 404, "QueryError"),
    ],
)
def test_errors_have_class_and_status(serving, method, path, body, status, kind):
    got, headers, answer = ask(serving, method, path, body)
    assert (got, answer["error"]["class"]) == (status, kind), answer
    assert "mvx" not in answer["error"]["message"] and "Traceback" not in answer["error"]["message"]
    assert headers["x-request-id"] == answer["error"]["request_id"] != ""
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/v1/indexes/a/documents/d1", "DELETE GET HEAD PATCH"), (SEARCH, "POST"), ("/v1/indexes", "GET HEAD")],
)
def test_a_405_response_lists_the_allowed_methods(serving, path, methods):
    status, headers, _ = ask(serving, "PUT", path, {})
    assert (status, " ".join(sorted(headers["allow"].split(", ")))) == (405, methods)


def test_an_integral_float_is_accepted_as_a_whole_number(serving):
    assert len(search(serving, top_k=3.0)["hits"]) == 3


def test_cached_options_do_not_admit_equal_values_of_another_type(serving):
    assert len(search(serving, top_k=1)["hits"]) == 1
    status, _, answer = ask(serving, "POST", SEARCH, {"vector": [1.0] * 16, "top_k": True})
    assert (status, answer["error"]["class"]) == (400, "QueryError")


def test_responses_on_a_persistent_connection_are_not_delayed(serving):
    """A body that waits for the acknowledgement of the head would take 40 ms."""
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    spent = []
    for _ in range(40):
        begun = time.perf_counter()
        connection.request("GET", "/v1/indexes", headers={"authorization": f"Bearer {READER}"})
        assert connection.getresponse().read()
        spent.append(time.perf_counter() - begun)
    connection.close()
    # The first few are acknowledged at once; later ones only if nothing waits.
    assert min(spent[20:]) < 0.035


def test_calls_need_a_token_and_a_read_only_token_cannot_write(serving):
    for path in ("/v1/indexes", "/v1/indexes/a", "/metrics"):
        status, headers, _ = ask(serving, "GET", path, token=None)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert ask(serving, "GET", path, token=READER)[0] == 200
    for method, path, body in (("DELETE", "/v1/indexes/a/documents/d1", None),
                               ("POST", "/v1/indexes/a/delete", {"ids": ["d1"]}),
                               ("PATCH", "/v1/indexes/a/documents/d1", {"metadata": {}}),
                               ("POST", "/v1/indexes/a/documents", {"documents": []})):  # fmt: skip
        assert ask(serving, method, path, body, token=READER)[0] == 403
    assert ask(serving, "GET", "/v1/indexes/a/documents/d1", token=READER)[0] == 200
    for path in ("/", "/page.js", "/card.js", "/page.css", "/icon.svg", "/openapi.json", "/healthz"):
        assert ask(serving, "GET", path, token=None)[0] == 200


def test_pages_of_other_sites_are_refused(without_tokens):
    """Without tokens, forms of other sites and host names that are made to point here (DNS rebinding) are refused."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, _, answer = ask(
            without_tokens, "POST", "/v1/indexes/a/delete", '{"ids": ["d1"]}', headers={"content-type": kind}
        )
        assert (status, "application/json" in answer["error"]["message"]) == (400, True)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert ask(without_tokens, "GET", "/v1/indexes", headers={"host": host})[0] == 400
        assert ask(without_tokens, "GET", "/", headers={"host": host})[0] == 400
    status, headers, _ = ask(without_tokens, "GET", "/")
    assert status == 200 and "access-control-allow-origin" not in headers
    assert (
        "default-src 'none'" in headers["content-security-policy"]
        and "unsafe" not in headers["content-security-policy"]
    )


def test_metrics_cover_stages_batches_results_and_sizes(serving):
    search(serving)
    _, _, page = ask(serving, "GET", "/metrics")
    rows = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page.splitlines() if line[0] != "#"}
    for stage in ("search", "rescore", "queue"):
        assert rows[f'mvindex_stage_seconds_count{{index="a",stage="{stage}"}}'] >= 1
    assert rows['mvindex_index_documents{index="a"}'] >= 50 and rows['mvindex_index_bytes{index="a"}'] > 1000
    assert rows['mvindex_exact_results_total{index="a"}'] == rows['mvindex_queries_total{index="a"}'] >= 1
    assert rows['mvindex_short_results_total{index="a"}'] == 0
    assert rows['mvindex_batch_queries_count{index="a"}'] >= 1 and rows['mvindex_fetch_rounds_count{index="a"}'] >= 1
    assert not any("nope" in name for name in rows)


def test_the_log_names_each_call_by_its_request_id(serving):
    ask(serving, "GET", "/v1/indexes/a", headers={"x-request-id": "me-17"})
    ask(serving, "GET", "/v1/indexes/a", headers={"x-request-id": 'bad id "}'})
    deadline = time.monotonic() + 10
    while not any(row["request_id"] == "me-17" for row in serving.calls("Info")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not any("bad id" in row["request_id"] for row in serving.calls())
    assert READER not in "".join(serving.log) and WRITER not in "".join(serving.log)


def test_garbage_is_refused_and_the_server_survives(without_tokens):
    for garbage in (
        b"\x00\xff" * 500,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000,
        b"\x16\x03\x01\x02\x00",
    ):
        with socket.create_connection(place_of(without_tokens), timeout=20) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(1000)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert ask(without_tokens, "GET", "/healthz")[0] == 200


def test_a_client_that_never_completes_its_request_head_is_disconnected(without_tokens, slow_client):
    answer, seconds = slow_client()
    assert answer == b"" and 5 < seconds < 30
    assert ask(without_tokens, "GET", "/healthz")[0] == 200
