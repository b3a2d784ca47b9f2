"""Broken and hostile clients: each gets a defined error, and the server survives."""

import socket
import struct
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_tools import fill, served, vectors

from mvindex.v1 import documents_pb2, search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import IndexClient

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
DEFINED = {INVALID, NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED}
METHODS = ["Search", "Explain", "Encode", "Delete", "Update", "Get", "Info", "Indexes"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "a.mvx"
    fill(path)
    with served(f"--index=a={path}", "--max-message-mb", "2") as serving:
        yield serving
        with IndexClient(serving.url()) as client:
            # No document was stored or lost.
            assert {document.id for document in client} == {f"d{n}" for n in range(50)}


@pytest.fixture(scope="module")
def channel(serving):
    with grpc.insecure_channel(serving.target) as channel:
        yield channel


@pytest.fixture(autouse=True)
def alive(serving):
    yield
    assert serving.process.poll() is None
    with IndexClient(serving.url()) as client:
        assert len(client.search(vectors(1)[0], top_k=3).hits) == 3


def grpc_code(call):
    """Return the code of a failed call, and the name of its error class."""
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return failed.value.code(), dict(failed.value.trailing_metadata() or ()).get("mvindex-error")


def raw(rows, dim=16):
    return documents_pb2.Vectors(dim=dim, values=np.asarray(rows, dtype="<f4").tobytes())


GOOD = [1.0] * 16
DEEP = '{"not":' * 5000 + "{}" + "}" * 5000
BAD_SEARCHES = {
    "no query": search_pb2.SearchRequest(index="a"),
    "an empty text": search_pb2.SearchRequest(index="a", texts=search_pb2.Texts(values=[" "])),
    "a text for vectors": search_pb2.SearchRequest(index="a", texts=search_pb2.Texts(values=["x"])),
    "NaN": search_pb2.SearchRequest(index="a", vectors=raw([np.nan] + GOOD[1:])),
    "infinity": search_pb2.SearchRequest(index="a", vectors=raw([-np.inf] + GOOD[1:])),
    "a huge norm": search_pb2.SearchRequest(index="a", vectors=raw([3e38] * 16)),
    "too few dims": search_pb2.SearchRequest(index="a", vectors=raw([1.0] * 15, 15)),
    "too many dims": search_pb2.SearchRequest(index="a", vectors=raw([1.0] * 17, 17)),
    "no dims": search_pb2.SearchRequest(index="a", vectors=documents_pb2.Vectors(values=b"1234")),
    "half a vector": search_pb2.SearchRequest(index="a", vectors=documents_pb2.Vectors(dim=16, values=b"x" * 63)),
    "odd bytes": search_pb2.SearchRequest(index="a", vectors=documents_pb2.Vectors(dim=2**31, values=b"x" * 8)),
    "a filter that is no JSON": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), filter_json="{"),
    "a filter that is no object": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), filter_json="[1]"),
    "a deep filter": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), filter_json=DEEP),
    "an unknown scoring": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), scoring=77),
    "temperature without drpq": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), temperature=1.0),
    "a wrong temperature": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), scoring=2, temperature=-1.0),
    "no temperature": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), scoring=2, temperature=float("nan")),
    "candidates without drpq": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), candidates=5),
    "no candidates": search_pb2.SearchRequest(index="a", vectors=raw(GOOD), scoring=2, candidates=0),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_SEARCHES)
def test_a_malformed_search_is_a_query_error(channel, name):
    search = MvindexServiceStub(channel).Search
    assert grpc_code(lambda: search(BAD_SEARCHES[name])) == (INVALID, "QueryError")


BAD_EXPLANATIONS = {
    "no query": search_pb2.ExplainRequest(index="a", id="d1"),
    "two vectors": search_pb2.ExplainRequest(index="a", vector=raw(GOOD * 2), id="d1"),
    "no document": search_pb2.ExplainRequest(index="a", vector=raw(GOOD)),
    "one and several": search_pb2.ExplainRequest(index="a", vector=raw(GOOD), id="d1", ids=["d2"]),
    "an id with a NUL": search_pb2.ExplainRequest(index="a", vector=raw(GOOD), ids=["d1", "d\0"]),
    "an unknown scoring": search_pb2.ExplainRequest(index="a", vector=raw(GOOD), ids=["d1"], scoring=77),
}


@pytest.mark.parametrize("name", BAD_EXPLANATIONS)
def test_a_malformed_explanation_is_a_query_error(channel, name):
    explain = MvindexServiceStub(channel).Explain
    assert grpc_code(lambda: explain(BAD_EXPLANATIONS[name]))[1] == "QueryError"


def test_views_are_asked_for_once_and_beside_no_texts(channel):
    encode = MvindexServiceStub(channel).Encode
    for request in (
        # A repeated id would make an answer of any size.
        search_pb2.EncodeRequest(index="a", ids=["d1"] * 100),
        search_pb2.EncodeRequest(index="a", ids=["d1"], texts=search_pb2.Texts(values=["x"])),
        search_pb2.EncodeRequest(index="a", ids=["d\0"]),
    ):
        assert grpc_code(lambda request=request: encode(request)) == (INVALID, "QueryError")
    found = encode(search_pb2.EncodeRequest(index="a", ids=["d1", "none"]))
    assert list(found.counts)[1:] == [0] and len(found.vectors.values) == found.counts[0] * 64


def test_too_large_requests_exceed_a_limit(channel):
    explain = MvindexServiceStub(channel).Explain
    many = search_pb2.ExplainRequest(index="a", vector=raw(GOOD), ids=map(str, range(1001)))
    assert grpc_code(lambda: explain(many)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LimitExceeded")
    search = MvindexServiceStub(channel).Search
    for request in (
        search_pb2.SearchRequest(index="a", vectors=raw(GOOD), top_k=10_001),
        search_pb2.SearchRequest(index="a", vectors=raw(GOOD), top_k=2**64 - 1),
        search_pb2.SearchRequest(index="a", vectors=raw(GOOD * 5000)),
    ):
        assert grpc_code(lambda request=request: search(request)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED, "LimitExceeded"
        )  # fmt: skip
    huge = search_pb2.SearchRequest(index="a", filter_json="x" * (3 << 20))
    assert grpc_code(lambda: search(huge))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def add(channel, *messages):
    return lambda: list(MvindexServiceStub(channel).Add(iter(messages)))


def chunk(views=None, **fields):
    document = documents_pb2.Document(**{"id": "x", "text": "t", **fields})
    views = views if views is not None else documents_pb2.Views(vectors=raw(GOOD), counts=[1])
    return documents_pb2.AddRequest(index="a", chunk=1, documents=[document], views=views)


def test_an_invalid_chunk_is_named_and_not_stored_in_part(channel):
    views = documents_pb2.Views
    for message, kind in (
        (chunk(id=""), "DocumentError"),
        (chunk(id="a\nb"), "DocumentError"),
        (chunk(id="x" * 2000), "DocumentError"),
        (chunk(metadata_json="["), "DocumentError"),
        (chunk(metadata_json="[]"), "DocumentError"),
        (chunk(metadata_json='{"n": NaN}'), "DocumentError"),
        (chunk(views=views(vectors=raw([np.nan] + GOOD[1:]), counts=[1])), "EncoderError"),
        (chunk(views=views(vectors=raw([1e6] + GOOD[1:]), counts=[1])), "EncoderError"),
        (chunk(views=views(vectors=raw([1.0] * 3, 3), counts=[1])), "EncoderError"),
        (chunk(views=views(vectors=raw(GOOD), counts=[2])), "EncoderError"),
        (chunk(views=views(vectors=raw(GOOD), counts=[])), "EncoderError"),
        (chunk(views=views(vectors=raw(GOOD), counts=[0])), "EncoderError"),
        (chunk(views=views(vectors=raw(GOOD), counts=[2**32 - 1])), "EncoderError"),
        (chunk(views=views()), "EncoderError"),
        (documents_pb2.AddRequest(index="a", idempotency_key="\u00fc", chunk=1), "QueryError"),
        (documents_pb2.AddRequest(index="a", idempotency_key="k" * 200, chunk=1), "QueryError"),
        (documents_pb2.AddRequest(index="a", chunk=0, documents=chunk().documents, views=chunk().views), "QueryError"),
        (documents_pb2.AddRequest(index="a", chunk=1, documents=chunk().documents), "QueryError"),
    ):
        code, name = grpc_code(add(channel, message))
        assert (code, name) == (INVALID, kind) or (name == "StoreError" and kind == "EncoderError"), (message, name)
    twice = chunk()
    twice.documents.append(twice.documents[0])
    twice.views.counts.append(1)
    twice.views.vectors.values += twice.views.vectors.values
    assert grpc_code(add(channel, twice)) == (INVALID, "DocumentError")


def test_empty_and_silent_streams_are_harmless(channel):
    assert add(channel)() == []
    assert add(channel, documents_pb2.AddRequest(index="a"))() == []
    assert grpc_code(add(channel, documents_pb2.AddRequest(index="nope"))) == (NOT_FOUND, "NoSuchIndex")
    assert grpc_code(add(channel, documents_pb2.AddRequest())) == (NOT_FOUND, "NoSuchIndex")


def test_a_client_that_disconnects_during_a_stream_leaves_no_trace(serving):
    for _ in range(5):
        with grpc.insecure_channel(serving.target) as channel:
            call = MvindexServiceStub(channel).List(documents_pb2.ListRequest(index="a"))
            next(call)
            call.cancel()


def test_unknown_methods_and_services(channel):
    for path in ("/mvindex.v1.MvindexService/Nope", "/mvindex.v2.MvindexService/Search", "/x", "/"):
        call = channel.unary_unary(path)
        assert grpc_code(lambda call=call: call(b""))[0] is grpc.StatusCode.UNIMPLEMENTED


GARBAGE = (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x80", b"\x0a\x02\xff\xfe")


@pytest.mark.parametrize("method", METHODS)
def test_malformed_messages_are_a_query_error(channel, method):
    call = channel.unary_unary(f"/mvindex.v1.MvindexService/{method}")
    for garbage in GARBAGE[:2] if method == "Indexes" else GARBAGE:
        assert grpc_code(lambda garbage=garbage: call(garbage)) == (INVALID, "QueryError")


def test_a_stream_of_malformed_messages_is_a_query_error(channel):
    for method in (channel.stream_stream, channel.unary_stream):
        name = "Add" if method == channel.stream_stream else "List"
        call = method(f"/mvindex.v1.MvindexService/{name}")
        for garbage in GARBAGE:
            given = iter([garbage]) if name == "Add" else garbage
            assert grpc_code(lambda call=call, given=given: list(call(given))) == (INVALID, "QueryError")


def test_connections_without_http2_are_closed(serving):
    host, port = serving.target.split(":")
    head = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    frames = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 1000,
        head + b"\xff" * 1000,
        head + struct.pack(">I", 0xFFFFFF)[1:] + b"\x01\x04\x00\x00\x00\x01" + b"\x00" * 100,
        head[:10],
    )
    for bytes_sent in frames:
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(bytes_sent)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass


def test_many_silent_connections_do_not_block_others(serving):
    host, port = serving.target.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=30) for _ in range(200)]
    try:
        begun = time.monotonic()
        with IndexClient(serving.url()) as client:
            assert len(client.search(vectors(1)[0]).hits) == 10
        assert time.monotonic() - begun < 20
    finally:
        for client in silent:
            client.close()


def test_memory_stays_bounded_under_large_and_broken_requests(serving, channel):
    def resident_mb():
        lines = Path(f"/proc/{serving.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    search = MvindexServiceStub(channel).Search
    request = search_pb2.SearchRequest(index="a", vectors=raw([np.nan] * 16 * 4096))
    for _ in range(5):
        grpc_code(lambda: search(request))
    before = resident_mb()
    for _ in range(60):
        grpc_code(lambda: search(request))
    assert resident_mb() - before < 60


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(METHODS), st.binary(max_size=60), st.booleans())
def test_arbitrary_bytes_get_a_defined_response(serving, channel, method, noise, is_named):
    """Random bytes as messages, half of them after a field that names an existing index."""
    content = (b"\x0a\x01a" if is_named and method != "Indexes" else b"") + noise
    if method == "Delete":  # an empty filter would delete all documents
        content = content.replace(b"{", b"").replace(b"\x1a", b"")
    call = channel.unary_unary(f"/mvindex.v1.MvindexService/{method}")
    try:
        call(content, timeout=30)
    except grpc.RpcError as err:
        assert err.code() in DEFINED, err
    assert not any('"message": "unforeseen"' in line for line in serving.log[-20:])


REQUESTS = st.builds(
    search_pb2.SearchRequest,
    index=st.sampled_from(["a", "", "b"]),
    vectors=st.builds(
        documents_pb2.Vectors, dim=st.sampled_from([0, 1, 16, 2**32 - 1]), values=st.binary(max_size=130)
    ),
    top_k=st.integers(0, 2**64 - 1),
    filter_json=st.none() | st.text(max_size=20) | st.sampled_from(['{"n": 1}', '{"id": {"in": []}}', "null"]),
    scoring=st.integers(-(2**31), 2**31 - 1),
    temperature=st.none() | st.floats(),
    exact=st.booleans(),
    candidates=st.none() | st.integers(0, 2**64 - 1),
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(REQUESTS)
def test_arbitrary_searches_get_a_result_or_a_defined_error(serving, channel, request_):
    try:
        answer = MvindexServiceStub(channel).Search(request_, timeout=30)
        assert len(answer.results) == len(request_.vectors.values) // (4 * request_.vectors.dim)
    except grpc.RpcError as err:
        assert err.code() in DEFINED, err
