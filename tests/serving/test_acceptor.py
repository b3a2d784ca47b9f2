"""The order in which connections that come together are begun, and which of them give way."""

import asyncio
import socket
import sys

import pytest

from mvindex_connectors.server.grpc_middleware import ConnectionCaps
from mvindex_connectors.server.http.acceptor import Acceptor

GET = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n"


class Recorded(asyncio.Protocol):
    """Keeps what each connection sent first, in the order in which they were begun."""

    is_busy, transport = False, None

    def __init__(self, begun):
        self._begun = begun
        self.on_active = self.on_lost = lambda: None

    def connection_made(self, transport):
        self.transport, self.received = transport, b""
        self._begun.append(self)

    def data_received(self, data):
        self.received += data

    def connection_lost(self, error):
        self.on_lost()


def begun_of(first_bytes, caps, leaving=0):
    """Return what was read of connections that had sent these bytes before any was accepted, as they were begun.

    leaving: how many clients, the last ones, are gone by then.
    """
    begun = []

    async def serve(listener):
        acceptor = Acceptor(listener, lambda: Recorded(begun), None, caps)
        await asyncio.sleep(0.3)
        acceptor.close()
        for each in begun:
            each.transport.abort()
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0), backlog=len(first_bytes)) as listener:
        listener.setblocking(False)
        clients = [socket.create_connection(listener.getsockname()) for _ in first_bytes]
        try:
            for client, content in zip(clients, first_bytes, strict=True):
                client.sendall(content)
            for client in clients[len(clients) - leaving :]:
                client.close()
            asyncio.run(serve(listener))
        finally:
            for client in clients:
                client.close()
    return [each.received for each in begun]


@pytest.mark.parametrize("request_", [GET, POST + b"{} \n", b"x" * 5000])
def test_a_connection_that_has_sent_its_request_is_begun_before_newer_ones_that_have_not(request_):
    slow = [b"", b"GET / HT", POST, POST + b"{}"]
    begun = begun_of([request_, *slow], ConnectionCaps(of_port=100, of_address=100))
    assert begun[0] == request_ and sorted(begun) == sorted([request_, *slow])


def test_above_the_cap_the_oldest_give_way_unread_and_those_with_a_request_are_served():
    begun = begun_of([b"slow"] * 40 + [GET], ConnectionCaps(of_port=8, of_address=8))
    assert GET in begun and len(begun) < 41


def test_all_are_begun_where_there_is_room():
    assert begun_of([GET] * 30, ConnectionCaps(of_port=30, of_address=30)) == [GET] * 30


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: needs Linux, which tells who is gone")
def test_a_client_that_is_gone_waits_for_all_others():
    kept = GET.replace(b"livez", b"kept")
    begun = begun_of([kept, GET, GET, GET], ConnectionCaps(10, 10), leaving=3)
    assert begun[0] == kept and begun.count(GET) == 3
