"""A server from its start to its end: indexes are opened and held, ports bound, signals obeyed, calls drained."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION

from mvindex.errors import ConfigError, IndexLocked, MvindexError, Unsupported
from mvindex.index import Index
from mvindex.index.factory import open_index
from mvindex.store.locks import served_lock
from mvindex.v1 import service_pb2 as service
from mvindex.v1.service_pb2_grpc import add_MvindexServiceServicer_to_server
from mvindex_connectors.remote.address import is_loopback, read_file
from mvindex_connectors.server.admission import Guard
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.grpc_middleware import GuardedServer
from mvindex_connectors.server.index_service import ServedIndex
from mvindex_connectors.server.maintenance import Upkeep
from mvindex_connectors.server.servicer import Servicer
from mvindex_connectors.server.telemetry import Metrics
from mvindex_connectors.server.tokens import Tokens

logger = logging.getLogger(__name__)

_SERVICE = service.DESCRIPTOR.services_by_name["MvindexService"].full_name


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a server listens."""

    grpc: str
    http: str | None


class Server:
    """A server of indexes. Use run(); start() and stop() are its halves, for tests."""

    def __init__(self, config: ServerConfig) -> None:
        """ConfigError, StoreError: as for what it would open; nothing is held yet."""
        self._config = config
        self._tokens = Tokens(config.token_file)
        self.metrics = Metrics()
        self._guard = Guard(self._tokens, config.limits, self.metrics, frozenset(name for name, _ in config.indexes))
        self._served: dict[str, ServedIndex] = {}
        self._health = HealthServicer()
        self._stack = AsyncExitStack()

    async def run(self, told: Callable[[Addresses], None]) -> None:
        """Nothing; returns after SIGTERM or SIGINT, when calls under way have ended. told: called once it listens."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, self._tokens.reload)
        told(await self.start())
        try:
            await ended.wait()
        finally:
            await self.stop()

    async def start(self) -> Addresses:
        """Where it listens; it answers from now on."""
        try:
            return await self._started()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _started(self) -> Addresses:
        # Last in, first out: locks are held until the last write of an index that is closed has ended.
        held = self._stack.enter_context(ExitStack())
        for name, target in self._config.indexes:
            self._served[name] = self._opened(name, target)
        server = self._grpc_server()
        port = self._bound(server)
        address = f"{'grpcs' if self._config.tls else 'grpc'}://{_reached_at(self._config.host)}:{port}"
        if not self._config.is_read_only:
            self._hold(address, held)
        await server.start()
        # And calls end before indexes are closed.
        self._stack.push_async_callback(server.stop, self._config.drain_s)
        http = await self._start_http(server)
        for name in ("", *self._served):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        upkeep = Upkeep(self._config, self._served.values(), self.metrics)
        upkeep.start()
        self._stack.callback(upkeep.stop)
        return Addresses(address, http)

    async def stop(self) -> None:
        """Nothing; no new calls are taken, those under way have ended, what was acknowledged is durable."""
        if self._guard.is_draining:
            return
        self._guard.draining.set()
        logger.info("draining", extra={"fields": {"in_flight": self._guard.in_flight}})
        await self._health.enter_graceful_shutdown()
        await self._stack.aclose()
        logger.info("stopped")

    def _opened(self, name: str, target: str) -> ServedIndex:
        index = open_index(target, device=self._config.device)
        try:
            has_encoder = index.settings["encoder"] is not None
        except Unsupported:
            has_encoder = False
        if has_encoder:
            # Loaded now: the first query should not wait for it, and a missing model should stop the start.
            _ = index.encoder
        served = ServedIndex(name, index, self._config, self.metrics.watch(name))
        self._stack.push_async_callback(asyncio.to_thread, served.close)
        _warm_up(index)
        return served

    def _hold(self, address: str, held: ExitStack) -> None:
        """Nothing; the writer locks of the indexes are held until the end, and tell others where to write."""
        for name, served in self._served.items():
            try:
                paths = served.index.store_paths
            except Unsupported:
                continue
            for path in paths:
                try:
                    held.enter_context(served_lock(path, f"{address}/{name}"))
                except IndexLocked as err:
                    raise IndexLocked(f"{err}; or serve it with --read-only") from err
            # Others may have written since it was opened: loading what it needs takes seconds.
            served.index.refresh()

    def _grpc_server(self) -> grpc.aio.Server:
        limits = self._config.limits
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", limits.calls),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ),
            # The guard refuses earlier and says why; this bounds what it is asked.
            maximum_concurrent_rpcs=4 * limits.calls,
        )
        guarded = GuardedServer(server, self._guard)
        add_MvindexServiceServicer_to_server(Servicer(self._served, self._guard), guarded)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (_SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, REFLECTION)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), guarded)
        return server

    def _bound(self, server: grpc.aio.Server) -> int:
        config = self._config
        host = f"[{config.host}]" if ":" in config.host else config.host
        try:
            if config.tls is None:
                return int(server.add_insecure_port(f"{host}:{config.port}"))
            ca = None if config.tls.client_ca is None else read_file(config.tls.client_ca)
            pair = (read_file(config.tls.key), read_file(config.tls.cert))
            credentials = grpc.ssl_server_credentials([pair], ca, ca is not None)
            return int(server.add_secure_port(f"{host}:{config.port}", credentials))
        except RuntimeError as err:
            raise ConfigError(
                f"cannot listen on {config.host}:{config.port}: is another server running there?"
            ) from err

    async def _start_http(self, server: grpc.aio.Server) -> str | None:
        if self._config.http_port is None:
            return None
        from mvindex_connectors.server.http.lifecycle import started_http

        http = await started_http(self._config, self._served, self._guard)
        # Both at once: the time that calls are given to end is one.
        self._stack.push_async_callback(lambda: asyncio.gather(http.stop(), server.stop(self._config.drain_s)))
        return http.address


def _warm_up(index: Index) -> None:
    """Nothing; what a first search loads or compiles is there, so that no client waits for it."""
    dim = index.dim
    if dim is None:
        return
    try:
        for scoring in ("max", "drpq"):
            index.search(np.ones((1, dim), dtype=np.float32), 1, scoring=scoring)
    except MvindexError as err:
        logger.error("the first search failed; it is served all the same: %s", err)


def _reached_at(host: str) -> str:
    """How others call this host."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def serves_openly(config: ServerConfig) -> bool:
    """True when anyone who reaches the server may write."""
    return config.token_file is None and not is_loopback(config.host)
