"""Accepts HTTP connections, up to a cap; above it the one that was idle longest gives way.

Uvicorn's own listener counts a connection only once it speaks HTTP: one that never begins its TLS handshake stays for a
minute, and takes a descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mvindex_connectors.server.connections import ConnectionCaps
from mvindex_connectors.server.http.timeouts import HeaderTimeoutProtocol

logger = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S = 5.0
# Accepted before other events have their turn, and the pause when there is no descriptor left.
_AT_ONCE = 32
_PAUSE_S = 0.1


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection; without a protocol while it is in its TLS handshake."""

    sock: socket.socket
    address: str
    since: float = field(default_factory=time.monotonic)
    protocol: HeaderTimeoutProtocol | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.protocol is not None and self.protocol.is_busy

    @property
    def last_active(self) -> float:
        return self.since if self.protocol is None else max(self.since, self.protocol.last_active)

    def close(self) -> None:
        """End the connection at once."""
        if self.protocol is not None and self.protocol.transport is not None:
            self.protocol.transport.abort()
        elif self.task is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self.sock.shutdown(socket.SHUT_RDWR)
            self.task.cancel()


class Acceptor:
    """Accepts the connections of a listening socket for protocols that it makes."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], HeaderTimeoutProtocol],
        context: ssl.SSLContext | None,
        caps: ConnectionCaps,
    ) -> None:
        """context: for TLS, or None."""
        self._listener, self._make, self._context, self._caps = listener, make, context, caps
        self._loop = asyncio.get_running_loop()
        self._open: set[_Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._is_closed = False
        self._listen()

    def close(self) -> None:
        """Accept no further connections."""
        self._is_closed = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

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
        has_room = self._per_address[address] < self._caps.of_address or self._close_idlest(address)
        if not has_room or (len(self._open) >= self._caps.of_port and not self._close_idlest(None)):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sock, address)
        self._open.add(connection)
        self._per_address[address] += 1
        connection.task = self._loop.create_task(self._connect(connection))

    async def _connect(self, connection: _Connection) -> None:
        def made() -> HeaderTimeoutProtocol:
            protocol = self._make()
            protocol.on_lost = lambda: self._forget(connection)
            return protocol

        timeout = None if self._context is None else _HANDSHAKE_TIMEOUT_S
        try:
            _, protocol = await self._loop.connect_accepted_socket(
                made, connection.sock, ssl=self._context, ssl_handshake_timeout=timeout
            )
        except (OSError, asyncio.CancelledError):
            # A handshake that failed, or took too long, or gave way to another connection.
            connection.sock.close()
            self._forget(connection)
            return
        connection.protocol = protocol

    def _close_idlest(self, address: str | None) -> bool:
        """Close the connection, of an address or of any, that was idle longest; return whether there was one."""
        idle = [each for each in self._open if not each.is_busy and address in (None, each.address)]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each.last_active)
        self._forget(oldest)
        oldest.close()
        return True

    def _forget(self, connection: _Connection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]
