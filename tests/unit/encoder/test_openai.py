"""The client of embeddings endpoints: addresses, keys, batches, and what servers get wrong."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from mvindex.encoder.embedding import openai
from mvindex.encoder.embedding.openai import OpenAIEmbedder, Sending, _retry_after
from mvindex.errors import ConfigError, EncoderError, EncoderUnavailable

KEY = "sk-secret-0123456789"
FAST = Sending(attempts=3, timeout_s=5, first_wait_s=0.001, longest_wait_s=0.01)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "MVINDEX_OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def serving(answer):
    """Yield the URL of a server that answers a request as `answer(body, headers)` says: status, headers, content."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = answer(body, self)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def data(rows, order=None):
    items = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return json.dumps({"data": items if order is None else [items[place] for place in order]}).encode()


def lengths(texts):
    return [[float(len(text)), 1.0] for text in texts]


def test_vectors_are_in_the_order_of_the_texts_whatever_the_order_of_the_answer():
    seen = []

    def answer(body, request):
        seen.append((request.path, body["model"], body["encoding_format"]))
        return 200, {}, data(lengths(body["input"]), range(len(body["input"]))[::-1])

    with serving(answer) as url:
        found = OpenAIEmbedder(f"openai:{url}/#m").embed_documents(["a", "bbb", "cc"])
    assert found.tolist() == [[1, 1], [3, 1], [2, 1]]
    assert seen == [("/v1/embeddings", "m", "float")]


def test_batches_are_bounded_by_texts_and_by_characters(monkeypatch):
    monkeypatch.setattr(openai, "BATCH_TEXTS", 3)
    monkeypatch.setattr(openai, "BATCH_CHARS", 10)
    seen = []

    def answer(body, request):
        seen.append(body["input"])
        return 200, {}, data(lengths(body["input"]))

    texts = ["a", "b", "c", "d", "eeeeeeeee", "ff", "g" * 50, "h"]
    with serving(answer) as url:
        found = OpenAIEmbedder(f"openai:{url}#m").embed_documents(texts)
    assert found.tolist() == lengths(texts)
    assert sorted(seen) == [["a", "b", "c"], ["d", "e" * 9], ["ff"], ["g" * 50], ["h"]]


def test_a_busy_server_is_asked_again_and_its_retry_after_is_honoured(monkeypatch):
    waits, answers = [], [(429, {"Retry-After": "7"}), (503, {}), (200, {})]
    monkeypatch.setattr("mvindex.encoder.embedding.openai.time.sleep", waits.append)

    def answer(body, request):
        status, headers = answers.pop(0)
        return status, headers, data(lengths(body["input"])) if status == 200 else b"{}"

    with serving(answer) as url:
        found = OpenAIEmbedder(f"openai:{url}#m").embed_queries(["ab"])
    assert found.tolist() == [[2, 1]]
    assert waits[0] == 7.0 and 0.5 <= waits[1] <= 1.0


@pytest.mark.parametrize(
    ("status", "headers", "kind", "message"),
    [
        (429, {}, EncoderUnavailable, "status 429: slow down; gave up after 3 attempts"),
        (500, {}, EncoderUnavailable, "status 500: slow down; gave up after 3 attempts"),
        (429, {"Retry-After": "3600"}, EncoderUnavailable, "gave up after 1 attempts"),
        (400, {}, EncoderError, "status 400: slow down"),
        (401, {}, EncoderUnavailable, "status 401: slow down; check the key: MVINDEX_OPENAI_API_KEY"),
        (404, {}, EncoderUnavailable, "status 404"),
        (307, {"Location": "http://127.0.0.1:1/"}, EncoderUnavailable, "status 307.*redirect is not followed"),
    ],
)
def test_a_refusal_names_url_and_status_and_hides_the_key(monkeypatch, status, headers, kind, message):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    content = json.dumps({"error": {"message": "slow down"}}).encode()
    with serving(lambda body, request: (status, headers, content)) as url, pytest.raises(kind, match=message) as caught:
        OpenAIEmbedder(f"openai:{url}#m", FAST).embed_queries(["a"])
    assert str(caught.value).startswith(f"{url}/embeddings: ")
    assert KEY not in str(caught.value)


def test_a_key_that_the_server_repeats_is_hidden(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def answer(body, request):
        return 400, {}, f"Incorrect key: {request.headers['Authorization']}".encode()

    with serving(answer) as url, pytest.raises(EncoderError, match=r"Incorrect key: Bearer \*\*\*"):
        OpenAIEmbedder(f"openai:{url}#m").embed_queries(["a"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", "expected JSON"),
        (b"[]", "expected 'data' with 2 embeddings"),
        (b'{"data": []}', "expected 'data' with 2 embeddings, got 0"),
        (data([[1.0]] * 3), "got 3"),
        (b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}', "one item for each index"),
        (b'{"data": [{"index": 2, "embedding": [1]}, {"index": 0, "embedding": [1]}]}', "one item for each index"),
        (b'{"data": [7, 8]}', "one item for each index"),
        (b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}', "of one length"),
        (b'{"data": [{"index": 0, "embedding": 1}, {"index": 1, "embedding": 2}]}', "lists of numbers"),
        (b'{"data": [{"index": 0}, {"index": 1}]}', "lists of numbers"),
    ],
)
def test_a_wrong_answer_is_named(content, message):
    with serving(lambda body, request: (200, {}, content)) as url, pytest.raises(EncoderError, match=message):
        OpenAIEmbedder(f"openai:{url}#m", FAST).embed_queries(["a", "b"])


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(EncoderUnavailable, match=r"http://127\.0\.0\.1:1/v1/embeddings: expected an answer, got none"):
        OpenAIEmbedder("openai:http://127.0.0.1:1/v1#m", FAST).embed_queries(["a"])


def test_a_server_that_does_not_answer_in_time_is_named():
    release = threading.Event()

    def answer(body, request):
        release.wait(10)
        return 200, {}, b"{}"

    quick = Sending(attempts=2, timeout_s=0.05, first_wait_s=0.001)
    with serving(answer) as url:
        try:
            with pytest.raises(EncoderUnavailable, match=r"within 0\.05 s, got none; gave up after 2 attempts"):
                OpenAIEmbedder(f"openai:{url}#m", quick).embed_queries(["a"])
        finally:
            release.set()


@pytest.mark.parametrize(
    ("variables", "url", "sent"),
    [
        ({}, "https://api.openai.com/v1", None),
        ({"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1", KEY),
        ({"OPENAI_API_KEY": KEY}, "http://localhost:8000/v1", KEY),
        ({"OPENAI_API_KEY": KEY}, "https://evil.example/v1", None),
        ({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://mine.example/v1"}, "https://mine.example/x", KEY),
        ({"MVINDEX_OPENAI_API_KEY": KEY, "OPENAI_API_KEY": "other"}, "https://mine.example/v1", KEY),
    ],
)
def test_a_key_goes_only_to_where_it_is_meant_for(monkeypatch, variables, url, sent):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    embedder = OpenAIEmbedder(f"openai:{url}#m")
    assert embedder._client._key == sent
    assert KEY not in embedder.source + embedder.identity


def test_a_key_never_goes_over_plain_http(monkeypatch):
    monkeypatch.setenv("MVINDEX_OPENAI_API_KEY", KEY)
    with pytest.raises(ConfigError, match=r"http://mine\.example/v1: expected https, since a key is sent") as caught:
        OpenAIEmbedder("openai:http://mine.example/v1#m")
    assert KEY not in str(caught.value)
    monkeypatch.setenv("MVINDEX_OPENAI_API_KEY", f"{KEY}\n")
    with pytest.raises(ConfigError, match="characters that no key has") as caught:
        OpenAIEmbedder("openai:https://mine.example/v1#m")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    ["openai:", "openai:m", "openai:#m", "openai:https://a.example/v1", "openai:https://a.example/v1#", "openai:ftp://a/#m",
     "openai:http:///v1#m", "openai:http://[::1/v1#m", "openai:http://a:99999/v1#m", "openai:http://user:pass@a/v1#m",
     "openai:http://a/v1?key=1#m"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(source):
    with pytest.raises(ConfigError, match="expected") as caught:
        OpenAIEmbedder(source)
    assert "pass@" not in str(caught.value)


def test_the_identity_is_host_and_model():
    embedder = OpenAIEmbedder("openai:https://a.example:8443/v1/#org/model")
    assert embedder.source == "openai:https://a.example:8443/v1#org/model"
    assert embedder.identity == "openai:a.example#org/model"


def test_retry_after_is_a_number_or_a_date():
    assert _retry_after("2.5") == 2.5
    assert _retry_after("-1") == _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert _retry_after(None) is _retry_after("soon") is None


def test_an_array_of_many_batches_is_in_order():
    with serving(lambda body, request: (200, {}, data(lengths(body["input"])))) as url:
        texts = ["x" * number for number in range(1, 200)]
        assert np.array_equal(OpenAIEmbedder(f"openai:{url}#m").embed_documents(texts), lengths(texts))
