"""The server's certificate and tokens: read again when their files change, and on SIGHUP."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import grpc

from mvindex.errors import ConfigError
from mvindex_connectors.remote.address import read_file
from mvindex_connectors.server.config import Tls

logger = logging.getLogger(__name__)


class WatchedFiles:
    """Files whose changes are looked for: by their times and sizes, and by what links lead to (as in Kubernetes)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._seen = self._states()

    def have_changed(self) -> bool:
        """Return whether a file was replaced or written since the last call."""
        before, self._seen = self._seen, self._states()
        return before != self._seen

    def _states(self) -> list[tuple[int, int, int] | None]:
        return [_state(path) for path in self._paths]


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Certificates:
    """The certificate and key of a server, for both ports; the authority of clients stays that of the start."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._ca = None if tls.client_ca is None else read_file(tls.client_ca)
        self._files = WatchedFiles((tls.cert, tls.key))
        self._contexts: list[ssl.SSLContext] = []
        self._configuration = self._read()
        self._is_fresh = False

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a gRPC port, which asks at each handshake whether there is another certificate."""
        return grpc.dynamic_ssl_server_credentials(self._configuration, self._next, self._ca is not None)

    def use_for(self, context: ssl.SSLContext) -> None:
        """Load certificates into the context of the HTTP port when they change."""
        self._contexts.append(context)

    def check(self) -> None:
        """Read the files again if they have changed."""
        if self._files.have_changed():
            self.reload()

    def reload(self) -> None:
        """Read the files again; if they are no pair, keep the old certificate and log an error."""
        try:
            Tls(cert=self._tls.cert, key=self._tls.key)
            configuration = self._read()
            for context in self._contexts:
                context.load_cert_chain(self._tls.cert, self._tls.key, password="")
        except (ConfigError, OSError) as err:  # of ssl, too
            logger.error("certificate not reloaded, the old one stays in use: %s", err)
        else:
            self._configuration, self._is_fresh = configuration, True
            logger.warning("certificate reloaded")

    def _read(self) -> grpc.ServerCertificateConfiguration:
        pair = (read_file(self._tls.key), read_file(self._tls.cert))
        return grpc.ssl_server_certificate_configuration([pair], self._ca)

    def _next(self) -> grpc.ServerCertificateConfiguration | None:
        """Return another configuration for gRPC, None to keep the present one; called at each handshake."""
        is_fresh, self._is_fresh = self._is_fresh, False
        return self._configuration if is_fresh else None
