"""Who may call, by tokens from a file compared in constant time, and the certificate that a server shows.

Each line of the file holds read-only, read-write or admin, the token, and optionally a name for the log and what the
token is bound to: indexes=NAME,NAME and, last, filter={...}, a metadata filter as JSON. Empty lines and lines that
begin with # are ignored.

Tokens and the certificate are read again when their files change, and on SIGHUP.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import grpc

from mvindex.errors import AccessDenied, ConfigError, NotPermitted, QueryError
from mvindex.store.filters import Filter, matches_everything, parse_filter
from mvindex_connectors.remote.address import read_file
from mvindex_connectors.server.config import Tls

logger = logging.getLogger(__name__)

_MIN_CHARS = 16
_FILTER = re.compile(r"\sfilter=")


class Role(Enum):
    """The permissions of a token."""

    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, repr=False)
class Caller:
    """A caller: its name for the log, its role, and what its token is bound to.

    Attributes:
        indexes: The names of the indexes that exist for it; None for all.
        filter: What the documents match that exist for it; None for all.

    """

    name: str
    role: Role
    digest: bytes = b""
    indexes: frozenset[str] | None = None
    filter: Filter | None = None

    @property
    def is_bound(self) -> bool:
        """Whether a part of the server does not exist for it."""
        return self.indexes is not None or self.filter is not None

    def may_see(self, index: str) -> bool:
        """Return whether the index of this name, where there is one, exists for it."""
        return self.indexes is None or index in self.indexes

    def check_unbound(self, what: str) -> None:
        """Check that everything exists for the caller; raise NotPermitted, which names what it wants, otherwise."""
        if self.is_bound:
            raise NotPermitted(f"token: expected one that is not bound to indexes or a filter for {what}")

    def check_may_write(self) -> None:
        """Check that the caller may write; raise NotPermitted if its token is read-only."""
        if self.role is Role.READ_ONLY:
            raise NotPermitted("token: expected a read-write token for writing, got a read-only one")

    def check_may_administer(self) -> None:
        """Check that the caller may start jobs; raise NotPermitted unless its token is an admin's."""
        if self.role is not Role.ADMIN:
            raise NotPermitted(f"token: expected one of role admin for administration, got a {self.role.value} one")


ANYONE = Caller("anyone", Role.ADMIN)


class Tokens:
    """The tokens of a file, which reload() reads again. Without a file, every caller may do everything."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else _read(path)
        self._file = WatchedFiles([] if path is None else [path])

    @property
    def are_required(self) -> bool:
        """Whether calls need a token."""
        return self._path is not None

    @property
    def are_bound(self) -> bool:
        """Whether a token is bound to indexes or a filter."""
        return any(caller.is_bound for caller in self._known.values())

    def check(self) -> None:
        """Read the file again if it has changed."""
        if self._file.have_changed():
            self.reload()

    def reload(self) -> None:
        """Read the file again; if it is malformed, keep the old tokens and log an error."""
        if self._path is None:
            return
        try:
            self._known = _read(self._path)
        except ConfigError as err:
            logger.error("tokens not reloaded, the old ones stay valid: %s", err)
        else:
            logger.warning("tokens reloaded: %d", len(self._known))

    def authenticate(self, header: str | None) -> Caller:
        """Return the caller with this `authorization` header; AccessDenied for a missing or wrong token."""
        if self._path is None:
            return ANYONE
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AccessDenied("this server requires a token: send the header 'authorization: Bearer TOKEN' "
                               "(clients of mvindex: set MVINDEX_TOKEN)")  # fmt: skip
        sent, found = _digest(token.strip()), None
        # Every token is compared, each in constant time, so that timing reveals nothing.
        for digest, caller in self._known.items():
            if hmac.compare_digest(digest, sent):
                found = caller
        if found is None:
            raise AccessDenied("the token is not one of this server's")
        return found

    def check_known(self, caller: Caller) -> None:
        """Check that the caller's token is still in the file; raise AccessDenied if not: a stream may outlive it."""
        if self._path is not None and self._known.get(caller.digest) != caller:
            raise AccessDenied("the token was withdrawn during this call")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path) -> dict[bytes, Caller]:
    """Return the callers by the digests of their tokens; ConfigError names the line, never the token."""
    known: dict[bytes, Caller] = {}
    for number, line in enumerate(read_file(path).decode("utf-8", "replace").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        caller = _parse(line, f"{path}:{number}", f"token {number}")
        if caller.digest in known:
            raise ConfigError(f"{path}:{number}: this token occurs twice in the file")
        known[caller.digest] = caller
    if not known:
        raise ConfigError(f"{path}: expected at least one token, got no token")
    with suppress(FileNotFoundError):  # it was replaced since
        if path.stat().st_mode & 0o007:
            logger.warning("%s can be read by every user of this machine", path)
    return known


def _parse(line: str, place: str, name: str) -> Caller:
    """Return the caller of a line; name: its name where the line has none."""
    head, *condition = _FILTER.split(line, maxsplit=1)
    fields = head.split()
    names = [each for each in fields[2:] if not each.startswith("indexes=")]
    bindings = [each.removeprefix("indexes=").split(",") for each in fields[2:] if each not in names]
    is_known = len(fields) >= 2 and fields[0] in [role.value for role in Role]
    if not is_known or len(names) > 1 or len(bindings) > 1:
        raise ConfigError(
            f"{place}: expected read-only, read-write or admin, a token, and optionally a name, indexes=NAME,NAME and "
            f"filter={{...}}, got {len(fields)} fields"
        )
    if len(fields[1]) < _MIN_CHARS:
        raise ConfigError(f"{place}: expected a token of {_MIN_CHARS} characters or more, got "
                          f"{len(fields[1])}. Make one with `openssl rand -hex 24`")  # fmt: skip
    if bindings and not all(bindings[0]):
        raise ConfigError(f"{place}: indexes=: expected names of indexes with commas between, got an empty one")
    if condition and fields[0] == Role.ADMIN.value:
        raise ConfigError(f"{place}: filter=: expected read-only or read-write; an admin works on whole indexes")
    return Caller(
        names[0] if names else name,
        Role(fields[0]),
        _digest(fields[1]),
        frozenset(bindings[0]) if bindings else None,
        _parse_filter(condition[0], place) if condition else None,
    )


def _parse_filter(text: str, place: str) -> Filter:
    """Return a filter of JSON; ConfigError unless it can leave out a document."""
    try:
        condition = json.loads(text)
        parse_filter(condition)
    except (ValueError, RecursionError, QueryError) as err:
        raise ConfigError(f"{place}: filter=: expected a metadata filter as JSON, last in its line: {err}") from err
    if matches_everything(condition):
        raise ConfigError(f"{place}: filter=: expected one with a condition, got one that matches every document")
    return condition  # type: ignore[no-any-return]  # parse_filter() takes objects only


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
