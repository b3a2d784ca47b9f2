"""Addresses of remote indexes, grpc://host:port/name (grpcs:// with TLS), and credentials, which are never in them.

A client is pickled by its address, and connects anew where it is read.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from mvindex.errors import ConfigError

TOKEN_VARIABLE = "MVINDEX_TOKEN"
_FORM = "grpc://HOST:PORT/NAME, or grpcs://HOST:PORT/NAME with TLS"
_OPTIONS = {"insecure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of an index behind a server."""

    host: str
    port: int
    name: str
    is_tls: bool
    is_insecure: bool = False

    @property
    def target(self) -> str:
        """Host and port, as gRPC expects them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'grpcs' if self.is_tls else 'grpc'}://{self.target}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Access:
    """The credentials of a client, and the authority it trusts; never printed. Files are PEM."""

    token: str | None = None
    tls_ca: str | Path | None = None
    tls_cert: str | Path | None = None
    tls_key: str | Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert, tls_key: expected both or neither, got one")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token: expected printable ASCII, got an empty token or other characters")


def access_from_environment(environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access of MVINDEX_TOKEN (or _TOKEN_FILE), MVINDEX_TLS_CA, MVINDEX_TLS_CERT and MVINDEX_TLS_KEY."""
    file = environment.get("MVINDEX_TOKEN_FILE")
    token = environment.get(TOKEN_VARIABLE) or (None if not file else read_file(file).decode().strip())
    paths = {name: environment.get(f"MVINDEX_{name.upper()}") or None for name in ("tls_ca", "tls_cert", "tls_key")}
    return Access(token=token, **paths)


def parse_address(url: str) -> Address:
    """Return the address of a URL; ConfigError if it has another form."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}: give the token by {TOKEN_VARIABLE}, "
                          "not in the URL, which ends up in logs")  # fmt: skip
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS:
        # Without the part after "?": it may be a secret.
        raise ConfigError(f"{url.partition('?')[0]}: there is no option {sorted(unknown)[0]!r}; expected {_FORM}")
    name = unquote(parts.path.strip("/"))
    try:
        port = parts.port
    except ValueError as err:
        raise ConfigError(f"{url}: {err}; expected {_FORM}") from err
    if parts.scheme not in ("grpc", "grpcs") or not parts.hostname or not port or not name or "/" in name:
        raise ConfigError(f"address: expected {_FORM}, got {url}")
    is_insecure = options.get("insecure", "0") not in ("0", "false", "")
    return Address(host=parts.hostname, port=port, name=name, is_tls=parts.scheme == "grpcs", is_insecure=is_insecure)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False


def check_secret(address: Address, access: Access) -> None:
    """Check that no token crosses a network unencrypted; raise ConfigError if one would."""
    if access.token and not address.is_tls and not address.is_insecure and not is_loopback(address.host):
        raise ConfigError(
            f"{address}: a token would cross the network in the clear. Use grpcs://, or add ?insecure=1 on a network "
            "that you trust"
        )


def read_file(path: str | Path) -> bytes:
    """Return the bytes of a certificate, key or token file; ConfigError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err


class Reconnecting:
    """A client whose copies are connections of their own, with the same settings."""

    def _remember(self, url: Any, access: Access | None, **options: Any) -> Access:
        """Note how the client was made; return its credentials, from the environment where none are given."""
        self._url, self._options = url, options
        self._access = access or access_from_environment()
        return self._access

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what connects again elsewhere. ConfigError where that would hold a token."""
        return partial(self._class(), access=self._pickled_access(), **self._options), (self._url,)

    def __copy__(self) -> Any:
        return self._class()(self._url, access=self._access, **self._options)

    def _class(self) -> Callable[..., Any]:
        return type(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def _pickled_access(self) -> Access | None:
        """Return the files of credentials; None where the environment has all, which is read again."""
        if self._access == access_from_environment():
            return None
        if self._access.token is not None:
            raise ConfigError(
                f"{self._url}: expected a token from the environment ({TOKEN_VARIABLE}), got one given in Python, "
                "which a pickle would hold. Set the variable here and where the pickle is read"
            )
        return self._access
