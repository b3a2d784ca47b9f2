"""Hostile requests and texts: heads that proxies read differently, documents that are too long, callers that leave."""

import asyncio
import http.client
import json
import os
import re
import socket
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from serving_tools import NoObserver, fill, served, vectors

import mvindex
from mvindex import Document
from mvindex.corpus.text import citation
from mvindex.corpus.text.citation import Citer, Quoting, ScoredViews, quotes
from mvindex.errors import DocumentError
from mvindex.search.request import parse_request
from mvindex.store.lexical import tokenizer
from mvindex.store.lexical.tokenizer import Lexical, tokenize, tokenizing_long_texts_by
from mvindex_connectors.files import parsing
from mvindex_connectors.remote import IndexClient
from mvindex_connectors.server import long_texts
from mvindex_connectors.server.batching import Batcher
from mvindex_connectors.server.config import Limits, ServerConfig
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter
from mvindex_connectors.server.long_texts import citing_in_workers, tokenize_in_worker
from mvindex_connectors.server.tenants import TenantIndex

HOST = b"Host: localhost\r\n"
BODY = b'{"vector":[1],"top_k":1}'
POST = b"POST /v1/indexes/a/search HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
GET = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
CHARS = 5000


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "a.mvx"
    fill(path)
    with served(f"--index=a={path}", "--http", "0", "--max-document-chars", str(CHARS)) as serving:
        yield serving


def exchange(serving, *pieces):
    """Return the status of each response to these bytes, and whether the server ended the connection."""
    host, _, port = serving.http.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(0.02)
        received, is_closed = b"", False
        sock.settimeout(1)
        try:
            while not is_closed:
                part = sock.recv(1 << 16)
                received, is_closed = received + part, not part
        except TimeoutError:
            pass
    return list(map(int, re.findall(rb"HTTP/1\.1 (\d+)", received))), is_closed


@pytest.mark.parametrize(
    "head",
    [
        POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
        POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
        POST + b"content-length: 4\r\ntransfer-encoding: Chunked\r\n\r\n" + CHUNKS,
        b"GET /livez HTTP/1.1\nHost: localhost\n\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\tb\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\n",
    ],
)
def test_a_head_that_others_may_read_differently_is_refused_and_the_connection_ended(serving, head):
    assert exchange(serving, head) == ([400], True)
    assert exchange(serving, GET + head) == ([200, 400], True)


@pytest.mark.parametrize(
    "pieces",
    [
        [GET],
        [GET[:15], GET[15:21], GET[21:-3], GET[-3:-1], GET[-1:]],
        [GET[: GET.index(b"\r") + 1], GET[GET.index(b"\r") + 1 :]],
    ],
)
def test_a_plain_head_is_read_however_it_comes(serving, pieces):
    assert exchange(serving, *pieces) == ([200], False)


@pytest.mark.parametrize("body", [LENGTH + b"\r\n" + BODY, CHUNKED + b"\r\n" + CHUNKS])
def test_a_body_has_either_a_length_or_chunks_and_another_request_may_follow(serving, body):
    # The vector has another dimension than the index.
    assert exchange(serving, POST + body + GET) == ([400, 200], False)


def add_by_http(serving, text):
    host = serving.http.partition("://")[2]
    connection = http.client.HTTPConnection(host, timeout=30)
    documents = {"documents": [{"id": "long", "text": text, "title": "t"}], "views": [vectors(1).tolist()]}
    connection.request("POST", "/v1/indexes/a/documents", json.dumps(documents), {"content-type": "application/json"})
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_document_is_refused_by_its_length_at_every_door_of_a_server(serving):
    message = f"document 'long': expected at most {CHARS:,} characters, got {CHARS + 1:,}"
    status, answer = add_by_http(serving, "x" * CHARS)
    refused = answer["error"]["message"]
    assert status == 400 and message in refused and "--max-document-chars" in refused
    with IndexClient(serving.url()) as client:
        with pytest.raises(DocumentError, match=message):
            client.add_views([Document("long", "x" * CHARS, "t")], vectors(1)[:, None])
        assert "long" not in client
    assert add_by_http(serving, "x" * (CHARS - 1))[0] == 200


def test_the_text_of_anothers_document_is_not_read_for_a_tenant(tmp_path, monkeypatch):
    read = []
    with mvindex.create(tmp_path / "a.mvx", dim=16) as index:
        both = [Document("own", "x", "", {"tenant": "a"}), Document("other", "y" * 100_000, "", {"tenant": "b"})]
        index.add_views(both, vectors(2)[:, None])
        service = IndexService("a", index, ServerConfig(indexes=[("a", str(tmp_path / "a.mvx"))]), NoObserver())
        found = index.get
        monkeypatch.setattr(index, "get", lambda ids: read.extend(ids) or found(ids))
        tenant = TenantIndex(service, {"tenant": "a"})
        assert tenant._own(["other", "own", "nobody"]) == ["own"]
        assert read == []
        service.close()


class LongTexts:
    """An index whose documents are long where a query is above 0; its citations wait until they may be chosen."""

    def __init__(self, may_cite):
        self._may_cite = may_cite

    def run(self, request):
        return [self._result(row[0] > 0) for row in request.queries[0].vectors]

    def _result(self, is_long):
        may_cite = self._may_cite

        class Found:
            id, title, text = "d", "", "x" * (200_000 if is_long else 10)
            citations, confidence = (), None

            @property
            def citation(self):
                assert not is_long or may_cite.wait(20)

        class Result:
            hits = (Found(),)

        return Result()


def test_a_search_does_not_wait_for_the_citations_of_long_texts():
    may_cite = threading.Event()

    async def run():
        batcher = Batcher(LongTexts(may_cite), NoObserver(), Limits(), batch=64, state=lambda: None)

        def search(value, caller):
            meter = ResponseMeter(ResponseBudget(1 << 30))
            meter.caller = caller
            request = parse_request(np.full((1, 4), value, "f4"), 1, text=["when"])
            return asyncio.ensure_future(batcher.search(request, meter))

        long = [search(1, "hostile") for _ in range(3)]
        await asyncio.sleep(0.05)
        (short,) = await asyncio.wait_for(search(-1, "other"), 20)
        assert short.hits[0].id == "d" and not any(each.done() for each in long)
        assert len(batcher._citations) == 2
        long[1].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # At once: its results are large, and the one before it may take long.
        assert len(batcher._citations) == 1
        may_cite.set()
        answers = await asyncio.wait_for(asyncio.gather(*long, return_exceptions=True), 20)
        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [False, True, False]
        batcher.close()

    asyncio.run(run())


def test_a_long_text_is_cited_by_a_worker_process_as_in_a_thread(monkeypatch):
    text = "Nobody asked for it. " * 500 + "The embargo began in 1973. " + "It rains. " * 500
    views = ScoredViews(np.array([[0, 9_000], [9_000, len(text)]]), np.array([0.1, 0.7], dtype=np.float32))
    citer, quoting = Citer("when did the embargo begin?"), Quoting(2, 0, None)
    expected = citer.cite(text, "Oil", views)
    assert expected.text == "The embargo began in 1973."
    several = quotes(citer, text, "Oil", views, quoting)
    monkeypatch.setattr(citation, "parted_text", None)
    with citing_in_workers("d"):
        assert citer.cite(text, "Oil", views) == expected
        assert quotes(citer, text, "Oil", views, quoting) == several
        assert citer.cite("... " * 5_000, "", None) is None


def _too_few_files(niceness):
    raise OSError("too many open files")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch: patch.setattr(parsing._WORKERS, "take", _too_few_files), "too many open files"),
        (lambda patch: patch.setattr(long_texts, "_CPU_S", -1), "took over -1 CPU seconds"),
    ],
)
def test_a_long_text_that_no_worker_cites_is_not_cited_in_the_server(monkeypatch, caplog, change, reason):
    change(monkeypatch)
    text = "It rains. " * 20_000 + "The embargo began in 1973."
    # The server would part the text.
    monkeypatch.setattr(citation, "parted_text", None)
    citer = Citer("when did the embargo begin?")
    with citing_in_workers("d7"):
        assert citer.cite(text, "", None) is None
        assert quotes(citer, text, "", None, Quoting(2, 0, None)) == []
    assert len(caplog.messages) == 2
    for message in caplog.messages:
        assert message.startswith("document 'd7' of 200") and reason in message


@pytest.mark.parametrize(
    ("lexical", "policy"), [(Lexical.UNICODE, os.SCHED_IDLE), (Lexical.BIGRAMS, os.SCHED_OTHER)], ids=["idle", "busy"]
)
def test_a_long_text_has_the_terms_of_a_worker_process_which_gives_way(monkeypatch, lexical, policy):
    # As where others leave no time, or enough.
    monkeypatch.setattr(parsing, "_PATIENCE_S", 0 if policy == os.SCHED_OTHER else 60)
    monkeypatch.setattr(long_texts, "_parsed", long_texts._Parsing())
    texts = ["It rains. " + "石油の禁輸 word%d " * 4_000 % tuple(range(4_000)), "The embargo began in 1973.", ""]
    expected = tokenize(texts, lexical)
    for name in ("tokenize_compiled", "tokenize_plainly"):
        monkeypatch.setattr(tokenizer, name, None)
    with tokenizing_long_texts_by(tokenize_in_worker):
        tokens = tokenize(texts, lexical)
    for array, other in zip(tokens, expected, strict=True):
        assert array.dtype == other.dtype and np.array_equal(array, other)
    worker = parsing._WORKERS.take(long_texts.NICENESS if policy == os.SCHED_OTHER else parsing.LEFTOVERS)
    try:
        assert os.getpriority(os.PRIO_PROCESS, worker._process.pid) >= long_texts.NICENESS
        assert os.sched_getscheduler(worker._process.pid) == policy
    finally:
        parsing._WORKERS.give(worker)


def test_the_terms_that_no_worker_finds_are_found_in_the_server(monkeypatch, caplog):
    texts = ["Его нет. " * 4_000]
    monkeypatch.setattr(parsing._WORKERS, "take", _too_few_files)
    with tokenizing_long_texts_by(tokenize_in_worker):
        tokens = tokenize(texts, Lexical.UNICODE)
    assert tokens.counts.tolist() == [4_000, 4_000] and tokens.lengths.tolist() == [8_000]
    assert len(caplog.messages) == 1 and "found in the server itself: too many open files" in caplog.messages[0]
