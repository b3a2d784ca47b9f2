"""The HTTP server, in the event loop of the gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping

from mvindex.errors import ConfigError
from mvindex.plugins import require
from mvindex_connectors.remote.address import is_loopback
from mvindex_connectors.server.admission import Guard
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.index_service import ServedIndex

# How long a connection may stay open between requests.
_KEPT_S = 30
_BACKLOG = 256


class HttpServer:
    """A running HTTP server."""

    def __init__(self, address: str, server: object, task: asyncio.Task[None]) -> None:
        self.address = address
        self._server, self._task = server, task

    async def stop(self) -> None:
        """Nothing; requests under way have ended."""
        self._server.should_exit = True  # type: ignore[attr-defined]  # uvicorn's, imported late
        await self._task


async def started_http(config: ServerConfig, served: Mapping[str, ServedIndex], guard: Guard) -> HttpServer:
    """The server, once it listens; ConfigError when its port is taken."""
    require("uvicorn", "server", "mvindex serve --http")
    import uvicorn

    from mvindex_connectors.server.http.app import make_app
    from mvindex_connectors.server.http.timeouts import PatientProtocol

    class Server(uvicorn.Server):
        """Leaves signals to the program that it is a part of."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    listening = _listening(config)
    port = listening.getsockname()[1]
    hosts = _hosts(config, port)
    settings = uvicorn.Config(
        make_app(served, guard, hosts),
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEPT_S,
        timeout_graceful_shutdown=int(config.drain_s) + 1,
        limit_concurrency=4 * config.limits.calls,
        h11_max_incomplete_event_size=32 << 10,
        ws="none",
        http=PatientProtocol,
    )
    if config.tls is not None:
        settings.ssl_certfile, settings.ssl_keyfile = str(config.tls.cert), str(config.tls.key)
        if config.tls.client_ca is not None:
            settings.ssl_ca_certs, settings.ssl_cert_reqs = str(config.tls.client_ca), ssl.CERT_REQUIRED
    server = Server(settings)
    task = asyncio.get_running_loop().create_task(server.serve([listening]))
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    host = f"[{config.host}]" if ":" in config.host else config.host
    return HttpServer(f"{'https' if config.tls else 'http'}://{host}:{port}", server, task)


def _listening(config: ServerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Named, since asyncio turns delays of small packets off (TCP_NODELAY) only where it sees that this is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((config.host, config.http_port or 0))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as err:
        made.close()
        raise ConfigError(f"--http: cannot listen on {config.host}:{config.http_port}: {err.strerror or err}") from err
    return made


def _hosts(config: ServerConfig, port: int) -> frozenset[str] | None:
    """The names that requests may call this server by; None where any will do.

    Without tokens, a page of some other site whose name is made to point here must not be let in (DNS rebinding).
    """
    if config.token_file is not None or not is_loopback(config.host):
        return None
    names = ("localhost", "127.0.0.1", "[::1]", config.host)
    return frozenset(f"{name}{end}" for name in names for end in ("", f":{port}"))
