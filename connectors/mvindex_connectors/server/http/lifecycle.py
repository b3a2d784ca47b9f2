"""The HTTP server, in the event loop of the gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mvindex.errors import ConfigError
from mvindex.plugins import require
from mvindex_connectors.remote.address import is_loopback
from mvindex_connectors.server.admission import Admission
from mvindex_connectors.server.config import ServerConfig
from mvindex_connectors.server.grpc_middleware import connection_caps
from mvindex_connectors.server.index_service import IndexService
from mvindex_connectors.server.jobs import Jobs
from mvindex_connectors.server.tokens import Certificates

if TYPE_CHECKING:
    from mvindex_connectors.server.http.acceptor import Acceptor

# How long a connection may stay open between requests.
_KEEP_ALIVE_S = 30
_BACKLOG = 1024


class HttpServer:
    """A running HTTP server."""

    def __init__(self, address: str, server: object, task: asyncio.Task[None], acceptor: Acceptor) -> None:
        self.address = address
        self._server, self._task, self._acceptor = server, task, acceptor

    async def stop(self) -> None:
        """Stop the server once requests in progress have ended."""
        self._acceptor.close()
        self._server.should_exit = True  # type: ignore[attr-defined]  # uvicorn's, imported late
        await self._task


async def start_http(
    config: ServerConfig,
    services: Mapping[str, IndexService],
    admission: Admission,
    certificates: Certificates | None,
    jobs: Jobs,
) -> HttpServer:
    """Start the server and return it once it listens; ConfigError if its port is taken."""
    require("uvicorn", "server", "mvindex serve --http")
    import uvicorn

    from mvindex_connectors.server.http.acceptor import Acceptor, LimitedProtocol
    from mvindex_connectors.server.http.app import make_app

    class Server(uvicorn.Server):
        """Uvicorn's server, which leaves signals to this program."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    listener = _listen(config)
    port = listener.getsockname()[1]
    hosts = _hosts(config, port)
    settings = uvicorn.Config(
        make_app(services, admission, hosts, jobs),
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.drain_s) + 1,
        ws="none",
        http=LimitedProtocol,
    )
    if config.tls is not None:
        settings.ssl_certfile, settings.ssl_keyfile = str(config.tls.cert), str(config.tls.key)
        if config.tls.client_ca is not None:
            settings.ssl_ca_certs, settings.ssl_cert_reqs = str(config.tls.client_ca), ssl.CERT_REQUIRED
    server = Server(settings)
    # It has no sockets: the acceptor has.
    task = asyncio.get_running_loop().create_task(server.serve([]))
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    if certificates is not None and settings.ssl is not None:
        certificates.use_for(settings.ssl)
    acceptor = Acceptor(
        listener,
        lambda: LimitedProtocol(settings, server.server_state, server.lifespan.state),
        settings.ssl,
        connection_caps(),
    )
    host = f"[{config.host}]" if ":" in config.host else config.host
    return HttpServer(f"{'https' if config.tls else 'http'}://{host}:{port}", server, task, acceptor)


def _listen(config: ServerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # With the protocol by name: asyncio sets TCP_NODELAY only on sockets that are marked as TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.http_port or 0))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as err:
        listener.close()
        raise ConfigError(f"--http: cannot listen on {config.host}:{config.http_port}: {err.strerror or err}") from err
    return listener


def _hosts(config: ServerConfig, port: int) -> frozenset[str] | None:
    """Return the host names that requests may use; None for any.

    Without tokens, a page of another site whose name is made to point here must be refused (DNS rebinding).
    """
    if config.token_file is not None or not is_loopback(config.host):
        return None
    names = ("localhost", "127.0.0.1", "[::1]", config.host)
    return frozenset(f"{name}{end}" for name in names for end in ("", f":{port}"))
