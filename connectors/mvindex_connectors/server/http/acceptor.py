"""Accepts HTTP connections, up to a cap; above it the one that was idle longest gives way.

Uvicorn's own listener counts a connection only once it speaks HTTP: one that never begins its TLS handshake stays for a
minute, and takes a descriptor.
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

from mvindex_connectors.server.connections import ConnectionCaps
from mvindex_connectors.server.http.protocol import LimitedProtocol

logger = logging.getLogger(__name__)

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
