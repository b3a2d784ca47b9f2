"""Authentication by tokens from a file, compared in constant time.

Each line of the file holds read-only or read-write, the token, and optionally a name for the log. Empty lines and
lines that begin with # are ignored.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mvindex.errors import AccessDenied, ConfigError, NotPermitted
from mvindex_connectors.remote.address import read_file
from mvindex_connectors.server.certificates import WatchedFiles

logger = logging.getLogger(__name__)

_MIN_CHARS = 16


class Role(Enum):
    """The permissions of a token."""

    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


@dataclass(frozen=True, slots=True, repr=False)
class Caller:
    """A caller: its name for the log, and its role."""

    name: str
    role: Role
    digest: bytes = b""

    def check_may_write(self) -> None:
        """Check that the caller may write; raise NotPermitted if its token is read-only."""
        if self.role is not Role.READ_WRITE:
            raise NotPermitted("token: expected a read-write token for writing, got a read-only one")


ANYONE = Caller("anyone", Role.READ_WRITE)


class Tokens:
    """The tokens of a file, which reload() reads again. Without a file, every caller may read and write."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else _read(path)
        self._file = WatchedFiles([] if path is None else [path])

    @property
    def are_required(self) -> bool:
        """Whether calls need a token."""
        return self._path is not None

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
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) not in (2, 3) or fields[0] not in [role.value for role in Role]:
            raise ConfigError(
                f"{path}:{number}: expected read-only or read-write, a token, and optionally a name, got "
                f"{len(fields)} fields"
            )
        if len(fields[1]) < _MIN_CHARS:
            raise ConfigError(f"{path}:{number}: expected a token of {_MIN_CHARS} characters or more, got "
                              f"{len(fields[1])}. Make one with `openssl rand -hex 24`")  # fmt: skip
        digest = _digest(fields[1])
        if digest in known:
            raise ConfigError(f"{path}:{number}: this token occurs twice in the file")
        known[digest] = Caller(fields[2] if len(fields) == 3 else f"token {number}", Role(fields[0]), digest)
    if not known:
        raise ConfigError(f"{path}: expected at least one token, got no token")
    if path.stat().st_mode & 0o007:
        logger.warning("%s can be read by every user of this machine", path)
    return known
