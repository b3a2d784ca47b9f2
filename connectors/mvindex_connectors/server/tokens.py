"""Who may do what: tokens from a file, compared in constant time.

Each line of the file: read-only or read-write, the token, and a name for the log, if there is one. Empty lines and
those that begin with # say nothing.
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

logger = logging.getLogger(__name__)

_LEAST_CHARS = 16


class Role(Enum):
    """What a token lets its holder do."""

    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


@dataclass(frozen=True, slots=True, repr=False)
class Caller:
    """Who calls: a name for the log, and what it may do."""

    name: str
    role: Role
    digest: bytes = b""

    def check_may_write(self) -> None:
        """Nothing; NotPermitted for a token that only reads."""
        if self.role is not Role.READ_WRITE:
            raise NotPermitted("this token is read-only; writing needs a read-write token")


ANYONE = Caller("anyone", Role.READ_WRITE)


class Tokens:
    """The tokens of a file, which reload() reads again. Without a file anyone may do anything."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else _read(path)

    @property
    def are_wanted(self) -> bool:
        """True when calls need a token."""
        return self._path is not None

    def reload(self) -> None:
        """Nothing; the file counts as it is now. Where it is wrong the old tokens stay, and the log says so."""
        if self._path is None:
            return
        try:
            self._known = _read(self._path)
        except ConfigError as err:
            logger.error("tokens not reloaded, the old ones stay: %s", err)
        else:
            logger.warning("tokens reloaded: %d", len(self._known))

    def caller_of(self, header: str | None) -> Caller:
        """Who shows this `authorization` header; AccessDenied for no or a wrong token."""
        if self._path is None:
            return ANYONE
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AccessDenied("this server wants a token: send the header 'authorization: Bearer TOKEN' "
                               "(clients of mvindex: set MVINDEX_TOKEN)")  # fmt: skip
        given, found = _digest(token.strip()), None
        # All are looked at, each in constant time: how long it takes tells nothing.
        for digest, caller in self._known.items():
            if hmac.compare_digest(digest, given):
                found = caller
        if found is None:
            raise AccessDenied("the token is not one of this server's")
        return found

    def check_known(self, caller: Caller) -> None:
        """Nothing; AccessDenied for a caller whose token is no longer in the file: a stream may outlive it."""
        if self._path is not None and self._known.get(caller.digest) != caller:
            raise AccessDenied("the token was withdrawn while this call was under way")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path) -> dict[bytes, Caller]:
    """The callers by the digests of their tokens; ConfigError names the line, never the token."""
    known: dict[bytes, Caller] = {}
    for number, line in enumerate(read_file(path).decode("utf-8", "replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3) or words[0] not in [role.value for role in Role]:
            raise ConfigError(f"{path}:{number}: wanted read-only or read-write, a token, and perhaps a name")
        if len(words[1]) < _LEAST_CHARS:
            raise ConfigError(f"{path}:{number}: the token has {len(words[1])} characters; wanted {_LEAST_CHARS} or "
                              "more, such as `openssl rand -hex 24` writes")  # fmt: skip
        digest = _digest(words[1])
        if digest in known:
            raise ConfigError(f"{path}:{number}: this token stands in the file twice")
        known[digest] = Caller(words[2] if len(words) == 3 else f"token {number}", Role(words[0]), digest)
    if not known:
        raise ConfigError(f"{path}: holds no token")
    if path.stat().st_mode & 0o007:
        logger.warning("%s can be read by every user of this machine", path)
    return known
