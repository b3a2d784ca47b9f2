"""HTTP connections: accepted up to a cap, above which the one that was idle longest gives way, and limited each.

Uvicorn's own listener counts a connection only once it speaks HTTP: one that never begins its TLS handshake stays for a
minute, and takes a descriptor. It also lacks limits: a time for the head, the number of small chunks, unread bytes. And
a head that a proxy may read in another way is refused, which h11 leaves to its users (RFC 9112, 2.2, 5.2 and 6.1).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mvindex_connectors.server.grpc_middleware import ConnectionCaps

logger = logging.getLogger(__name__)

_HEAD_TIMEOUT_S = 10.0
_MAX_HEAD_BYTES = 32 << 10
# The line before a chunk of less than 4 KiB. To parse it takes the event loop longer than to receive a kilobyte.
_SMALL_CHUNK = re.compile(rb"\r\n0*[0-9A-Fa-f]{1,3}[ \t]*(?:;[^\r\n]*)?\r\n")
_SMALL_CHUNKS, _BYTES_A_CHUNK = 1_000, 64
# What a client may send of a body whose request was answered before its end, such as one that is too large.
_MAX_UNREAD_BYTES = 64 << 20
# An empty line, as h11 ends a head; and in a head a line that ends without CR, or goes on with the one before it.
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\n[ \t]")
_HANDSHAKE_TIMEOUT_S = 5.0
# Accepted before other events have their turn, and the pause when there is no descriptor left.
_AT_ONCE = 8
_PAUSE_S = 0.1
# Before each connection whose client sends no more: most of them have left, and hundreds at once would keep others.
_ENDED_PAUSE_S = 0.004
# Of what a connection has sent, before it is begun.
_LOOK_BYTES = 4096
# States of Linux: TCP_CLOSE, TCP_CLOSE_WAIT.
_ENDED_STATES = (7, 8)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,12})", re.IGNORECASE)


class StrictConnection(h11.Connection):
    """A connection that takes only heads which everyone reads in the same way."""

    def next_event(self) -> Any:
        """Return the next event; h11.RemoteProtocolError for an ambiguous head."""
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].lstrip(b"\r\n")
            end = _END_OF_HEAD.search(head)
            if _AMBIGUOUS.search(head, 0, end.end() if end else len(head)):
                raise h11.RemoteProtocolError("expected lines that end with CRLF, none of them folded")
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= dict(event.headers).keys():
            raise h11.RemoteProtocolError("expected Content-Length or Transfer-Encoding, got both")
        return event


class LimitedProtocol(H11Protocol):
    """Uvicorn's protocol; ends connections that are beyond these limits."""

    # Called when the connection begins a request, and when it has ended.
    on_active: Callable[[], None] = staticmethod(lambda: None)
    on_lost: Callable[[], None] = staticmethod(lambda: None)
    _timer: asyncio.TimerHandle | None = None
    _num_bytes = _num_chunks = _num_unread = 0

    @property
    def is_busy(self) -> bool:
        """Whether a request was received in full, and its response is not sent yet."""
        return not self._awaits_head() and not self.cycle.more_body

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self.conn = StrictConnection(h11.SERVER, _MAX_HEAD_BYTES)
        self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def data_received(self, data: bytes) -> None:
        """Stop the timer at the end of a head; restart it with the first part of the next."""
        if self._is_beyond(data):
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._num_bytes = self._num_chunks = self._num_unread = 0
            # Bytes of a head or of a body are no sign of life: a slow client sends them for ever.
            self.on_active()
        if not self._awaits_head():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def _is_beyond(self, data: bytes) -> bool:
        """Count what was received; end the connection and return True where it is more than a request may have."""
        self._num_bytes += len(data)
        self._num_chunks += len(_SMALL_CHUNK.findall(data))
        if self._num_chunks > _SMALL_CHUNKS + self._num_bytes // _BYTES_A_CHUNK:
            if not self.transport.is_closing():
                self.send_400_response("Too many small chunks in the body.")
            return True
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self._num_unread += len(data)
            if self._num_unread > _MAX_UNREAD_BYTES:
                self.transport.abort()
                return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)
        self.on_lost()

    def _awaits_head(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close(self) -> None:
        self._timer = None
        if self._awaits_head() and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection; without a task until its turn has come, without a protocol while it is in its TLS handshake."""

    sock: socket.socket
    address: str
    protocol: LimitedProtocol | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.protocol is not None and self.protocol.is_busy

    def close(self) -> None:
        """End the connection at once."""
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
            return
        if self.task is not None:
            self.task.cancel()
        if self.protocol is None:
            # A task that is cancelled before its first step closes nothing.
            self.sock.close()
        else:
            with contextlib.suppress(OSError):  # it has ended by itself
                self.sock.shutdown(socket.SHUT_RDWR)


def _is_ended(sock: socket.socket) -> bool:
    """Return whether the client sends no more, where the system says so: most often it is gone."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED_STATES
    except OSError:
        return True


class Acceptor:
    """Accepts the connections of a listening socket for protocols that it makes.

    To accept one costs little; to begin with it, and to read its request, costs the event loop a millisecond. So when
    a thousand come at once, all are accepted soon, and one is begun at each turn of the loop: the newest whose request
    has arrived, else the newest. The oldest give way unread.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], LimitedProtocol],
        context: ssl.SSLContext | None,
        caps: ConnectionCaps,
    ) -> None:
        """context: for TLS, or None."""
        self._listener, self._make, self._context, self._caps = listener, make, context, caps
        self._loop = asyncio.get_running_loop()
        # The one that was idle longest comes first.
        self._open: OrderedDict[_Connection, None] = OrderedDict()
        self._of_address: dict[str, OrderedDict[_Connection, None]] = {}
        # Those of them that are not begun yet; those whose client sends no more.
        self._accepted: dict[_Connection, None] = {}
        self._ended: dict[_Connection, None] = {}
        self._is_closed = False
        self._listen()

    def close(self) -> None:
        """Accept no further connections."""
        self._is_closed = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for connection in [*self._accepted, *self._ended]:
            self._forget(connection)
            connection.close()

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:
                logger.warning("no connection accepted: %s", err.strerror or err)
                self._close_idlest(None)
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_S, self._listen)
                return
            self._admit(sock, str(peer[0]))

    def _admit(self, sock: socket.socket, address: str) -> None:
        """Serve a connection if there is room, or if another gives way."""
        has_room = len(self._of_address.get(address, ())) < self._caps.of_address or self._close_idlest(address)
        if not has_room or (len(self._open) >= self._caps.of_port and not self._close_idlest(None)):
            sock.close()
            return
        sock.setblocking(False)
        connection = _Connection(sock, address)
        self._open[connection] = self._accepted[connection] = None
        self._of_address.setdefault(address, OrderedDict())[connection] = None
        if len(self._accepted) + len(self._ended) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin with one of the accepted connections, and call again for the others."""
        connection = self._next()
        if connection is None:
            return
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.task = self._loop.create_task(self._connect(connection))
        if self._accepted:
            self._loop.call_soon(self._begin)
        elif self._ended:
            self._loop.call_later(_ENDED_PAUSE_S, self._begin)

    def _next(self) -> _Connection | None:
        """Remove and return the one to begin with: one whose client is gone after all others."""
        while self._accepted:
            newest = next(reversed(self._accepted))
            connection = next((each for each in reversed(self._accepted) if self._has_request(each.sock)), newest)
            del self._accepted[connection]
            if not _is_ended(connection.sock):
                return connection
            self._ended[connection] = None
        return self._ended.popitem()[0] if self._ended else None

    def _has_request(self, sock: socket.socket) -> bool:
        """Return whether a request has arrived, as far as can be seen, or the beginning of a TLS handshake."""
        try:
            received = sock.recv(_LOOK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        if self._context is not None or not received or len(received) == _LOOK_BYTES:
            return True
        head, end, body = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        return bool(end) and (length is None or len(body) >= int(length[1]))

    async def _connect(self, connection: _Connection) -> None:
        def made() -> LimitedProtocol:
            protocol = connection.protocol = self._make()
            protocol.on_active = lambda: self._use(connection)
            protocol.on_lost = lambda: self._forget(connection)
            return protocol

        timeout = None if self._context is None else _HANDSHAKE_TIMEOUT_S
        try:
            await self._loop.connect_accepted_socket(
                made, connection.sock, ssl=self._context, ssl_handshake_timeout=timeout
            )
        except (OSError, asyncio.CancelledError):
            # A handshake that failed, or took too long, or gave way to another connection.
            connection.sock.close()
            self._forget(connection)

    def _close_idlest(self, address: str | None) -> bool:
        """Close the connection, of an address or of any, that was idle longest; return whether there was one."""
        connections = self._open if address is None else self._of_address.get(address, ())
        oldest = next((each for each in connections if not each.is_busy), None)
        if oldest is None:
            return False
        self._forget(oldest)
        oldest.close()
        return True

    def _use(self, connection: _Connection) -> None:
        """Move a connection that was used behind all others."""
        if connection in self._open:
            self._open.move_to_end(connection)
            self._of_address[connection.address].move_to_end(connection)

    def _forget(self, connection: _Connection) -> None:
        if connection in self._open:
            del self._open[connection], self._of_address[connection.address][connection]
            self._accepted.pop(connection, None)
            self._ended.pop(connection, None)
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]
