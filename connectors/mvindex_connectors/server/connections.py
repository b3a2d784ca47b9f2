"""Connections: how many there may be, so that neither port nor the files of indexes run out of descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import stat
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mvindex_connectors.server.admission import Admission

# Descriptors kept for the files of indexes, for logs and for event loops.
_KEPT_FOR_FILES = 192
_MOST_CONNECTIONS = 10_000
_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionCaps:
    """The most connections of each port, and of each address there."""

    of_port: int
    of_address: int


def raise_open_files() -> None:
    """Raise the limit of open files of this process as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_caps() -> ConnectionCaps:
    """Return the caps for the limit of open files; half of the descriptors are for each port."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_CONNECTIONS * 4 if soft == resource.RLIM_INFINITY else soft
    of_port = max(8, min(_MOST_CONNECTIONS, (files - _KEPT_FOR_FILES) // 2))
    return ConnectionCaps(of_port, max(4, of_port // 2))


class GrpcConnections:
    """Closes the gRPC connections that were idle longest when there are many.

    gRPC accepts connections by itself, up to a cap of its own, beyond which it would refuse everyone until some end. A
    socket is closed for it by shutdown(), as a peer would.
    """

    def __init__(self, port: int, caps: ConnectionCaps, admission: Admission) -> None:
        self._port, self._admission = port, admission
        # There is room for new ones at each turn.
        self._soft, self._of_address = caps.of_port * 3 // 4, caps.of_address
        self._since: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start looking."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if len(os.listdir("/dev/fd")) > self._of_address:
                self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.ExitStack() as stack:
            connections = {}
            for sock in _connected(self._port):
                stack.enter_context(sock)
                connections[_peer_of(sock)] = sock
            now = time.monotonic()
            self._since = {peer: self._since.get(peer, now) for peer in connections}
            used = self._admission.peers
            for peer in [peer for peer in used if peer not in connections]:
                del used[peer]
            # First those that never called, then by their last call.
            idle = sorted(
                (peer for peer in connections if peer not in used or not used[peer].calls),
                key=lambda peer: max(self._since[peer], used[peer].last if peer in used else 0.0),
            )
            left, of_address = len(connections), Counter(_address_of(peer) for peer in connections)
            for peer in idle:
                if left > self._soft or of_address[_address_of(peer)] > self._of_address:
                    with contextlib.suppress(OSError):  # it has ended by itself
                        connections[peer].shutdown(socket.SHUT_RDWR)
                    left, of_address[_address_of(peer)] = left - 1, of_address[_address_of(peer)] - 1


def _connected(port: int) -> Iterator[socket.socket]:
    """Yield the connected sockets of this process whose local port this is, as descriptors of their own."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            try:
                is_ours = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == port
                if is_ours and copy.getpeername():
                    yield copy
                    continue
            except OSError:
                copy.close()
                raise
            copy.close()


def _peer_of(sock: socket.socket) -> str:
    """Return the peer of a socket as gRPC names it."""
    host, port = sock.getpeername()[:2]
    if host.startswith("::ffff:"):
        host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _address_of(peer: str) -> str:
    return peer.rpartition(":")[0]
