"""Large requests: bounded before they are parsed, and parsed beside other calls."""

import asyncio
import gc
import http.client
import json
import socket
import weakref

import grpc
import numpy as np
import pytest
from serving_tools import fill, served, vectors

from mvindex.errors import ConfigError
from mvindex.v1 import documents_pb2, search_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import IndexClient
from mvindex_connectors.server.config import Limits, ServerConfig, parse_index
from mvindex_connectors.server.grpc_middleware import LargeMessage
from mvindex_connectors.server.lifecycle import Server
from mvindex_connectors.server.limits import TooLarge, check_fields, check_json_values


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "a.mvx"
    fill(path)
    with served(f"--index=a={path}", "--http", "0") as server:
        yield server


def post(serving, path, body):
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    try:
        connection.request("POST", f"/v1/indexes/a/{path}", body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("item", [b"{}", b"[]", b'{"a":[]}'])
def test_json_of_many_objects_is_too_large(item):
    check_json_values(b"[" + b",".join([item] * 200_000) + b"]")
    with pytest.raises(TooLarge, match="objects and lists"):
        check_json_values(b"[" + b",".join([item] * 600_000) + b"]")


def test_json_of_many_values_is_too_large_unless_they_are_in_a_string():
    many = b",".join([b"1"] * 2_000_001)
    with pytest.raises(TooLarge, match="values"):
        check_json_values(b"[" + many + b"]")
    check_json_values(b'{"text":"' + many + b'"}')
    check_json_values(b'{"text":"\\"' + b"{[" * 400_000 + b'\\\\"}')
    with pytest.raises(TooLarge, match="objects"):
        check_json_values(b'{"a":"{","b":"\\"' + b'","c":' + b"[" * 600_000)


def test_a_message_of_many_fields_is_too_large():
    descriptor = search_pb2.SearchRequest.DESCRIPTOR
    texts = search_pb2.SearchRequest(texts=search_pb2.Texts(values=[""] * 900_000)).SerializeToString()
    check_fields(texts, descriptor)
    with pytest.raises(TooLarge, match="fields"):
        check_fields(texts + texts, descriptor)
    with pytest.raises(TooLarge, match="fields"):
        check_fields(b"\x22\x00" * 1_000_001, documents_pb2.AddRequest.DESCRIPTOR)
    # A text is no message, whatever its characters are.
    text = search_pb2.SearchRequest(index="\n" * 3_000_000).SerializeToString()
    check_fields(text, descriptor)
    with pytest.raises(TooLarge, match="fields"):  # whatever the end is
        check_fields(texts + texts + b"\x08\xff", descriptor)
    # Left to the parser.
    check_fields(b"\x0a\xff\xff\xff\xff\x0f" * 20_000, descriptor)
    check_fields(b"\xff" * 4_000_000, descriptor)


def test_large_requests_are_answered_as_small_ones(serving):
    """By HTTP and gRPC: 2,000 queries of 16 dimensions, one search, and one by one."""
    queries = vectors(2000, seed=9)
    with IndexClient(serving.url()) as client:
        found = client.search(queries, top_k=3)
        alone = [client.search(queries[place], top_k=3) for place in range(0, 2000, 401)]
    status, body = post(serving, "search", json.dumps({"vectors": queries.tolist(), "top_k": 3}))
    assert status == 200 and len(found) == len(body["results"]) == 2000
    for place, one in zip(range(0, 2000, 401), alone, strict=True):
        assert [hit.id for hit in found[place].hits] == [hit.id for hit in one.hits]
        assert [hit["id"] for hit in body["results"][place]["hits"]] == [hit.id for hit in one.hits]


def test_wrong_large_requests_have_the_errors_of_small_ones(serving):
    rows = vectors(3000).tolist()
    status, body = post(serving, "search", json.dumps({"vectors": [*rows, [1.0]], "top_k": 3}))
    assert (status, body["error"]["class"]) == (400, "QueryError") and "of one dimension" in body["error"]["message"]
    status, body = post(
        serving, "documents", b'{"documents":[{"id":"x","metadata":{"a":[' + b"{}," * 600_000 + b"{}]}}]}"
    )
    assert (status, body["error"]["class"]) == (413, "LimitExceeded")
    broken = search_pb2.SearchRequest(index="a").SerializeToString() + b"\x12\xff" + b"\xff" * 100_000
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary("/mvindex.v1.MvindexService/Search")(broken)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    many = documents_pb2.AddRequest(index="a", chunk=1, documents=[documents_pb2.Document(id="x")] * 30_000)
    with grpc.insecure_channel(serving.target) as channel, pytest.raises(grpc.RpcError) as failed:
        list(MvindexServiceStub(channel).Add(iter([many])))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("text", ['{"or":[' + "{}," * 600_000 + "{}]}", '{"n":{"in":[' + "1," * 2_000_001 + "1]}}"])
def test_json_in_messages_is_counted_before_it_is_parsed(serving, text):
    requests = {
        "Search": search_pb2.SearchRequest(
            index="a", vectors=documents_pb2.Vectors(dim=16, values=np.ones(16, "<f4").tobytes()), filter_json=text
        ),
        "Delete": documents_pb2.DeleteRequest(index="a", filter_json=text),
        "Update": documents_pb2.UpdateRequest(index="a", id="d0", metadata_json=text),
    }
    with grpc.insecure_channel(serving.target) as channel:
        for name, request in requests.items():
            with pytest.raises(grpc.RpcError) as failed:
                getattr(MvindexServiceStub(channel), name)(request)
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, name
            assert "objects and lists" in failed.value.details()


def sent(serving, *parts):
    """Return the beginning of what the server answers to parts of a request."""
    host, port = serving.http.partition("://")[2].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        try:
            for part in parts:
                client.sendall(part)
            return client.recv(1000)
        except OSError as err:
            return type(err).__name__.encode()


HEAD = b"POST /v1/indexes/a/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def test_a_body_in_chunks_is_read_and_one_of_too_small_chunks_is_refused(serving):
    body = json.dumps({"vector": vectors(1)[0].tolist(), "top_k": 1}).encode()
    chunks = [b"%x\r\n%s\r\n" % (1, body[at : at + 1]) for at in range(len(body))]
    assert sent(serving, CHUNKED, *chunks, b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for chunk in (b"1\r\n \r\n", b"0001\r\n \r\n", b"01;a=b\r\n \r\n"):
        assert sent(serving, CHUNKED, chunk * 40_000).partition(b"\r\n")[0] in (
            b"HTTP/1.1 400 Bad Request", b"ConnectionResetError", b"BrokenPipeError",
        ), chunk  # fmt: skip


def test_a_client_that_waits_before_too_large_a_body_is_not_told_to_go_on(serving):
    head = HEAD + b"expect: 100-continue\r\ncontent-length: 200000000\r\n\r\n"
    assert sent(serving, head).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_end_is_cut(serving):
    host, port = serving.http.partition("://")[2].rsplit(":", 1)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(CHUNKED)
        # 256 MiB.
        with pytest.raises(OSError):
            for _ in range(4_096):
                client.sendall(chunk)


@pytest.mark.parametrize(
    ("options", "flag"),
    [({"drain_s": float("nan")}, "--drain"), ({"drain_s": -1.0}, "--drain"),
     ({"limits": {"message_bytes": 1 << 31}}, "--max-message-mb"),
     ({"limits": {"response_bytes": 1 << 40}}, "--max-response-mb")],
)  # fmt: skip
def test_what_no_server_can_do_is_refused_before_it_starts(options, flag):
    with pytest.raises(ConfigError, match=flag):
        limits = Limits(**options.get("limits", {}))
        ServerConfig(indexes=[("a", "a.mvx")], limits=limits, drain_s=options.get("drain_s", 1.0))


class Messages:
    """The large messages of a server in this process that are not freed."""

    def __init__(self, monkeypatch):
        self._alive = weakref.WeakSet()
        made = LargeMessage.__init__

        def keep(message, *args):
            made(message, *args)
            self._alive.add(message)

        monkeypatch.setattr(LargeMessage, "__init__", keep)

    def __len__(self):
        return len(self._alive)


def test_a_refused_large_request_is_freed_at_once(tmp_path, monkeypatch):
    """A request in a circle with its error would fill the memory until the collector of garbage runs."""
    fill(tmp_path / "a.mvx")
    messages = Messages(monkeypatch)
    request = search_pb2.SearchRequest(index="a", texts=search_pb2.Texts(values=["word " * 50_000]))

    async def refuse():
        server = Server(ServerConfig(indexes=[parse_index(f"a={tmp_path / 'a.mvx'}")], port=0, drain_s=1))
        addresses = await server.start()
        gc.collect()
        gc.disable()
        try:
            async with grpc.aio.insecure_channel(addresses.grpc.partition("://")[2]) as channel:
                for _ in range(5):
                    with pytest.raises(grpc.RpcError) as failed:
                        await MvindexServiceStub(channel).Search(request)
                    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return len(messages)
        finally:
            gc.enable()
            await server.stop()

    assert asyncio.run(refuse()) <= 1


def test_compressed_messages_are_refused(serving):
    rows = documents_pb2.Vectors(dim=16, values=np.ones(16, dtype="<f4").tobytes())
    request = search_pb2.SearchRequest(index="a", vectors=rows)
    with grpc.insecure_channel(serving.target) as channel:
        assert MvindexServiceStub(channel).Search(request).results
        with pytest.raises(grpc.RpcError) as failed:
            MvindexServiceStub(channel).Search(request, compression=grpc.Compression.Gzip)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_probes_need_no_token_and_answer(serving, path):
    connection = http.client.HTTPConnection(serving.http.partition("://")[2], timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == 200
    assert json.loads(response.read()) == {"status": "alive" if path == "/livez" else "serving"}
    connection.close()
