"""The lifecycle of a server: open and lock indexes, bind ports, handle signals, drain calls."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION

from mvindex.errors import ConfigError
from mvindex.v1 import service_pb2
from mvindex.v1.service_pb2_grpc import add_MvindexServiceServicer_to_server
from mvindex_connectors.server.admission import Admission
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.grpc_middleware import GrpcConnections, GrpcMiddleware, connection_caps
from mvindex_connectors.server.index_set import IndexSet
from mvindex_connectors.server.jobs import Jobs
from mvindex_connectors.server.maintenance import Follower, Maintenance
from mvindex_connectors.server.servicer import Servicer
from mvindex_connectors.server.telemetry import Metrics
from mvindex_connectors.server.tokens import Certificates, Tokens

logger = logging.getLogger(__name__)

# Collections of younger objects before one of all objects; Python's own number is 10.
_OLD_COLLECTIONS = 100
_SERVICE = service_pb2.DESCRIPTOR.services_by_name["MvindexService"].full_name


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses on which a server listens, and the indexes that it serves."""

    grpc: str
    http: str | None
    indexes: tuple[str, ...]


class Server:
    """A server of indexes. Use run(); tests use its halves, start() and stop()."""

    def __init__(self, config: ServerConfig) -> None:
        """Read the token file; no index is opened yet."""
        self._config = config
        self._tokens = Tokens(config.token_file)
        self._certificates = None if config.tls is None else Certificates(config.tls)
        self.metrics = Metrics()
        self._health = HealthServicer()
        self._indexes = IndexSet(config, self.metrics, self._health)
        self._services = self._indexes.services
        self._jobs = Jobs(self._indexes, str(config.admin_folder or ""))
        self._admission = Admission(self._tokens, config.limits, self.metrics, self._services.keys())
        self._stack = AsyncExitStack()

    async def run(self, on_ready: Callable[[Addresses], None]) -> None:
        """Serve until SIGTERM or SIGINT and the end of calls in progress. on_ready is called once it listens."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end(number: int) -> None:
            ended.set()
            # A second signal ends the process at once.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

        # Until it serves there is nothing to end in order, and opening an index or loading an encoder may take long.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        addresses = await self.start()
        signal.signal(signal.SIGINT, before)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        on_ready(addresses)
        # What is there now stays: without it, a full collection takes a fraction of the time that calls wait for it.
        gc.collect()
        gc.freeze()
        # A collection of all objects holds up everyone: .1 s while a text of a megabyte is cited, and there were many.
        gc.set_threshold(*gc.get_threshold()[:2], _OLD_COLLECTIONS)
        try:
            await ended.wait()
        finally:
            await self.stop()

    def _reload(self) -> None:
        """Read tokens and certificates again."""
        self._tokens.reload()
        if self._certificates is not None:
            self._certificates.reload()

    def _check_files(self) -> None:
        """Read tokens and certificates again if they have changed."""
        self._tokens.check()
        if self._certificates is not None:
            self._certificates.check()

    async def start(self) -> Addresses:
        """Open the indexes, start listening, and return the addresses."""
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _start(self) -> Addresses:
        self._stack.push_async_callback(self._indexes.close)
        self._indexes.open()
        server = self._grpc_server()
        port = self._bind(server)
        address = f"{'grpcs' if self._config.tls else 'grpc'}://{_public_host(self._config.host)}:{port}"
        self._indexes.lock(address)
        await server.start()
        # Calls end before indexes are closed.
        self._stack.push_async_callback(server.stop, self._config.drain_s)
        connections = GrpcConnections(port, connection_caps(), self._admission)
        connections.start()
        self._stack.callback(connections.stop)
        http = await self._start_http(server)
        for name in ("", *self._services):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._stack.callback(self._jobs.stop)
        maintenance = Maintenance(self._config, self._services.values(), self.metrics, self._check_files)
        maintenance.start()
        self._stack.callback(maintenance.stop)
        follower = Follower(self._indexes.followed, self._config.follow_every_s, self.metrics, self._indexes.swap)
        follower.start()
        self._stack.push_async_callback(follower.stop)
        return Addresses(address, http, tuple(self._services))

    async def stop(self) -> None:
        """Refuse new calls, wait for those in progress, and close the indexes."""
        if self._admission.is_draining:
            return
        self._admission.draining.set()
        logger.info("draining", extra={"fields": {"in_flight": self._admission.in_flight}})
        await self._health.enter_graceful_shutdown()
        await self._stack.aclose()
        logger.info("stopped")

    def _grpc_server(self) -> grpc.aio.Server:
        limits = self._config.limits
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_send_message_length", -1),
                # gRPC inflates a message before it knows its size: 1.5 GB of zeros take seconds. Such calls end with
                # UNIMPLEMENTED.
                ("grpc.compression_enabled_algorithms_bitset", 1),
                ("grpc.max_concurrent_streams", limits.calls),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", 5_000),
                ("grpc.max_allowed_incoming_connections", connection_caps().of_port),
                ("grpc.max_connection_idle_ms", 300_000),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ),
            # Admission refuses earlier and with a reason; this bounds the load on it.
            maximum_concurrent_rpcs=4 * limits.calls,
        )
        middleware = GrpcMiddleware(server, self._admission)
        add_MvindexServiceServicer_to_server(Servicer(self._services, self._admission, self._jobs), middleware)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, middleware)
        names = (_SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, REFLECTION)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), middleware)
        return server

    def _bind(self, server: grpc.aio.Server) -> int:
        config = self._config
        host = f"[{config.host}]" if ":" in config.host else config.host
        try:
            if self._certificates is None:
                return int(server.add_insecure_port(f"{host}:{config.port}"))
            return int(server.add_secure_port(f"{host}:{config.port}", self._certificates.credentials()))
        except RuntimeError as err:
            raise ConfigError(
                f"--port: cannot listen on {config.host}:{config.port}. Is another server running there?"
            ) from err

    async def _start_http(self, server: grpc.aio.Server) -> str | None:
        if self._config.http_port is None:
            return None
        from mvindex_connectors.server.http.lifecycle import start_http

        http = await start_http(self._config, self._services, self._admission, self._certificates, self._jobs)
        # Both at once: calls of both have the same time to end.
        self._stack.push_async_callback(lambda: asyncio.gather(http.stop(), server.stop(self._config.drain_s)))
        return http.address


def _public_host(host: str) -> str:
    """Return the host name under which others reach the server."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
