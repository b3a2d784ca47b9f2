"""JSON over HTTP: the same answers, tokens, limits and errors as over gRPC."""

import http.client
import json
import socket
import time

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_tools import fill, served, vectors

import mvindex

READER, WRITER = "reader-0123456789", "writer-0123456789"
SEARCH = "/v1/indexes/a/search"
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
    """With tokens, and room for 64 queries, 100 documents and 2 MB."""
    arguments = ["--http", "0", "--token-file", folder / "tokens", "--max-queries", "64", "--max-top-k", "100"]
    with served(f"--index=a={folder / 'a.mvx'}", *arguments, "--max-message-mb", "2") as serving:
        yield serving


@pytest.fixture(scope="module")
def unguarded(folder):
    with served(f"--index=a={folder / 'open.mvx'}", "--http", "0") as serving:
        yield serving


def ask(serving, method, path, body=None, token=WRITER, headers=()):
    """Status, headers and the answer's JSON."""
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
    "options", [{"top_k": 7}, {"scoring": "drpq", "temperature": 0.3, "filter": {"n": {"lt": 20}}}]
)
def test_a_search_gives_what_the_index_gives(serving, folder, options):
    answer = search(serving, **options)
    with mvindex.open(folder / "a.mvx") as index:
        [expected] = index.search(QUERY[None], **options)
    assert [(hit["id"], np.float32(hit["score"]), hit["slot"]) for hit in answer["hits"]] == [
        (hit.id, np.float32(hit.score), hit.slot) for hit in expected.hits
    ]
    assert (answer["exact"], answer["short_by"]) == (True, 0)


def test_several_queries_and_explanations(serving):
    status, _, answer = ask(serving, "POST", SEARCH, {"vectors": vectors(3).tolist(), "top_k": 2, "explain": True})
    assert status == 200 and len(answer["results"]) == 3
    for hit in answer["results"][0]["hits"]:
        assert hit["views"][0]["slot"] == hit["slot"] and len(hit["views"]) == 2
        assert np.float32(hit["views"][0]["score"]) == np.float32(hit["score"])


def test_documents_are_stored_shown_changed_and_deleted(serving):
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


def test_a_key_makes_a_repeated_request_do_nothing(serving):
    row = {"documents": [{"id": "again", "text": "1"}], "views": [vectors(1).tolist()], "idempotency_key": "k1"}
    first = ask(serving, "POST", "/v1/indexes/a/documents", row)[2]
    assert ask(serving, "DELETE", "/v1/indexes/a/documents/again")[2] == {"deleted": 1}
    assert ask(serving, "POST", "/v1/indexes/a/documents", row)[2] == first == {
        "added": 1, "replaced": 0, "updated": 0, "unchanged": 0
    }  # fmt: skip
    assert ask(serving, "GET", "/v1/indexes/a/documents/again")[0] == 404


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
        ("POST", SEARCH, "x" * (3 << 20), 429, "LimitExceeded"),
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
        ("PATCH", "/v1/indexes/a/documents/nope", {"metadata": {}}, 400, "QueryError"),
    ],
)
def test_what_is_wrong_is_named_by_class_and_status(serving, method, path, body, status, kind):
    got, headers, answer = ask(serving, method, path, body)
    assert (got, answer["error"]["class"]) == (status, kind), answer
    assert "mvx" not in answer["error"]["message"] and "Traceback" not in answer["error"]["message"]
    assert headers["x-request-id"] == answer["error"]["request_id"] or path == "/nowhere" or method == "PUT"


def test_no_token_no_answer_and_a_reader_writes_nothing(serving):
    for path in ("/v1/indexes", "/v1/indexes/a", "/metrics"):
        status, headers, _ = ask(serving, "GET", path, token=None)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert ask(serving, "GET", path, token=READER)[0] == 200
    for method, path, body in (("DELETE", "/v1/indexes/a/documents/d1", None),
                               ("POST", "/v1/indexes/a/delete", {"ids": ["d1"]}),
                               ("PATCH", "/v1/indexes/a/documents/d1", {"metadata": {}}),
                               ("POST", "/v1/indexes/a/documents", {"documents": []})):  # fmt: skip
        assert ask(serving, method, path, body, token=READER)[0] == 401
    assert ask(serving, "GET", "/v1/indexes/a/documents/d1", token=READER)[0] == 200
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/openapi.json", "/healthz"):
        assert ask(serving, "GET", path, token=None)[0] == 200


def test_other_sites_pages_get_nothing_done(unguarded):
    """Without tokens: no form of another site is taken, and no name that is made to point here (DNS rebinding)."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status, _, answer = ask(
            unguarded, "POST", "/v1/indexes/a/delete", '{"ids": ["d1"]}', headers={"content-type": kind}
        )
        assert (status, "application/json" in answer["error"]["message"]) == (400, True)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert ask(unguarded, "GET", "/v1/indexes", headers={"host": host})[0] == 400
        assert ask(unguarded, "GET", "/", headers={"host": host})[0] == 400
    status, headers, _ = ask(unguarded, "GET", "/")
    assert status == 200 and "access-control-allow-origin" not in headers
    assert (
        "default-src 'none'" in headers["content-security-policy"]
        and "unsafe" not in headers["content-security-policy"]
    )


def test_metrics_tell_of_stages_batches_results_and_sizes(serving):
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


def test_a_client_that_never_ends_its_head_is_let_go(unguarded):
    host, port = unguarded.http.partition("://")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=40) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        begun = time.monotonic()
        assert slow.recv(100) == b""
        assert time.monotonic() - begun < 30
    assert ask(unguarded, "GET", "/healthz")[0] == 200


def test_garbage_is_answered_or_hung_up_on_and_the_server_lives(unguarded):
    host, port = unguarded.http.partition("://")[2].split(":")
    for garbage in (
        b"\x00\xff" * 500,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000,
        b"\x16\x03\x01\x02\x00",
    ):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(1000)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert ask(unguarded, "GET", "/healthz")[0] == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["query", "queries", "vector", "vectors", "top_k", "filter", "scoring", "temperature", "exact", "candidates",
         "explain", "documents", "views", "ids", "idempotency_key", "metadata"]  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["search", "documents", "delete"]),
    st.dictionaries(st.sampled_from(NAMES), JSON | st.just([0.5] * 16) | st.just([[0.5] * 16]), max_size=4),
)
def test_whatever_is_sent_gets_a_defined_answer(unguarded, path, body):
    """Bounded fuzzing: every answer is of the description, and none is a fault of the server's own."""
    status, _, answer = ask(unguarded, "POST", f"/v1/indexes/a/{path}", json.dumps(body))
    assert status in (200, 400, 429), (status, answer)
    if status != 200:
        assert set(answer["error"]) == {"class", "message", "request_id"}


def test_the_description_is_openapi_and_answers_follow_it(serving):
    _, _, description = ask(serving, "GET", "/openapi.json", token=None)
    assert description["openapi"].startswith("3.1")
    schemas = {"$defs": description["components"]["schemas"]}

    def check(name, value):
        text = json.dumps({"$ref": f"#/$defs/{name}", **schemas}).replace("#/components/schemas/", "#/$defs/")
        jsonschema.Draft202012Validator(json.loads(text)).validate(value)

    for name in description["components"]["schemas"]:
        jsonschema.Draft202012Validator.check_schema(description["components"]["schemas"][name])
    check("Result", search(serving, explain=True))
    check("Info", ask(serving, "GET", "/v1/indexes/a")[2])
    check("Error", ask(serving, "GET", "/v1/indexes/x")[2])
    check("Document", ask(serving, "GET", "/v1/indexes/a/documents/d2")[2])
    for path, methods in description["paths"].items():
        for method in set(methods) - {"parameters"}:
            place = path.replace("{index}", "a").replace("{id}", "nobody")
            body = {} if "requestBody" in methods[method] else None
            status, _, answer = ask(serving, method.upper(), place, body)
            assert str(status) in methods[method]["responses"], (method, path, answer)
