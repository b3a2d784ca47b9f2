"""Writes whose answer is lost: the server is killed between commit and answer, and the client sends them again."""

import asyncio
import contextlib
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import pytest
from serving_tools import start, vectors, wait_for

import mvindex
from mvindex import Document
from mvindex.errors import ServerUnavailable
from mvindex.ingest import Entry, IngestHooks
from mvindex.v1 import documents_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceServicer, add_MvindexServiceServicer_to_server
from mvindex_connectors.coroutines import run_to_end
from mvindex_connectors.remote import Access, AsyncIndexClient, CallSettings, IndexClient
from mvindex_connectors.remote.address import parse_address
from mvindex_connectors.remote.retry import AsyncRetryingChannel, RetryingChannel
from mvindex_connectors.remote.upload import Upload

OTHER = {"plain": "shards", "shards": "plain"}
PATIENT = CallSettings(retry_s=60, timeout_s=100)


class Road:
    """A port that forwards to one server after the other, and loses the answers while it is told to."""

    def __init__(self, target):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.target, self.loses_answers = target, False
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.target is None:
                    near.close()
                    continue
                host, _, port = self.target.rpartition(":")
                far = socket.create_connection((host, int(port)))
                self._sockets += [near, far]
                threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, sink, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not (is_answer and self.loses_answers):
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            each.close()


def make(path, shards=None):
    with mvindex.create(path, dim=16, shards=shards) as index:
        documents = [Document(f"d{n}", "text", metadata={"n": n % 4, "by": "nobody"}) for n in range(24)]
        index.add_views(documents, vectors(24))


def is_written(path):
    found = state(path)
    return len(found) == 18 and found["d0"] == {"by": "first"}


def state(path):
    with mvindex.open(path) as index:
        return {document.id: document.metadata for document in index}


class Calls:
    """Two updates and two deletions by a filter, each once by a blocking and once by an awaited client."""

    def __init__(self, road):
        self._road, self.deleted, self._connected = road, {}, threading.Barrier(5)
        calls = [(self._blocking, "plain"), (self._awaited, "shards")]
        works = [(call, *work) for call, first in calls for work in ((first, "update"), (OTHER[first], "delete"))]
        self._threads = [threading.Thread(target=call, args=work) for call, *work in works]

    def connect(self):
        """Connect all clients, so that only answers to the writes can be lost."""
        for thread in self._threads:
            thread.start()
        wait_for(lambda: self._connected.n_waiting == 4, 60)

    def begin(self):
        self._connected.wait(30)

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _blocking(self, name, work):
        with IndexClient(f"grpc://127.0.0.1:{self._road.port}/{name}", settings=PATIENT) as client:
            self._connected.wait(60)
            if work == "update":
                client.update("d0", metadata={"by": "first"})
            else:
                self.deleted[name] = client.delete(filter={"n": 1})

    def _awaited(self, name, work):
        async def run():
            async with AsyncIndexClient(f"grpc://127.0.0.1:{self._road.port}/{name}", settings=PATIENT) as client:
                await client.info()
                await asyncio.to_thread(self._connected.wait, 60)
                if work == "update":
                    await client.update("d0", metadata={"by": "first"})
                else:
                    self.deleted[name] = await client.delete(filter={"n": 1})

        asyncio.run(run())


def test_writes_are_carried_out_once_where_the_server_is_killed_between_commit_and_answer(tmp_path):
    for name, shards in (("plain", None), ("shards", 3)):
        make(tmp_path / name, shards)
    indexes = [f"--index={name}={tmp_path / name}" for name in OTHER]
    servers = [start(*indexes)]
    with closing(Road(servers[0].target)) as road:
        calls = Calls(road)
        calls.connect()
        road.loses_answers = True
        calls.begin()
        wait_for(lambda: all(is_written(tmp_path / name) for name in OTHER))
        road.target = None
        servers[0].stop(signal.SIGKILL)
        road.loses_answers = False
        servers.append(start(*indexes))
        for name in OTHER:
            with IndexClient(servers[1].url(name)) as other:
                other.update("d0", metadata={"by": "other"})
                other.add_views([Document("new", "text", metadata={"n": 1})], vectors(1))
        road.target = servers[1].target
        calls.join()
    servers[1].stop()
    assert calls.deleted == {"plain": 6, "shards": 6}
    for name in OTHER:
        found = state(tmp_path / name)
        assert len(found) == 19 and found["d0"] == {"by": "other"} and found["new"] == {"n": 1}


class Confused(MvindexServiceServicer):
    """Acknowledges another chunk than the one that was sent."""

    def Add(self, request_iterator, context):
        for request in request_iterator:
            if request.documents:
                yield documents_pb2.AddResponse(chunk=request.chunk + 1)


@pytest.mark.parametrize("is_awaited", [False, True], ids=["blocking", "awaited"])
def test_an_acknowledgement_of_another_chunk_is_an_error(is_awaited):
    server = grpc.server(ThreadPoolExecutor(2))
    add_MvindexServiceServicer_to_server(Confused(), server)
    address = parse_address(f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}/a")
    entries = [Entry("here", Document("d", "text"))]

    async def awaited():
        channel = AsyncRetryingChannel(address, Access(), CallSettings())
        try:
            await Upload(channel, IngestHooks()).run(entries)
        finally:
            await channel.close()

    def blocking():
        with closing(RetryingChannel(address, Access(), CallSettings())) as channel:
            run_to_end(Upload(channel, IngestHooks()).run(entries))

    server.start()
    try:
        with pytest.raises(ServerUnavailable, match="acknowledgement of chunk 1, got that of 2"):
            asyncio.run(awaited()) if is_awaited else blocking()
    finally:
        server.stop(None).wait(10)
