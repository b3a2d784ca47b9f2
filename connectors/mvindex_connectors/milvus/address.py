"""The address of an index in Milvus: milvus-lite:PATH, or milvus://[user:password@|token@]host:port/collection?settings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from mvindex.errors import ConfigError
from mvindex.paths import user_path

LITE, SERVER = "milvus-lite", "milvus"
_LEVELS = {"strong": "Strong", "session": "Session", "bounded": "Bounded", "eventually": "Eventually"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_DEFAULT_NAME, _DEFAULT_PORT = "mvindex", 19530
_SETTINGS = ("tls", "server_name", "timeout", "consistency", "lease", "db", "collection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The place of an index in Milvus.

    Attributes:
        uri: The address for pymilvus.
        shown: The address without secrets, for messages and printed commands.
        timeout_s: Longest wait for a response.
        consistency: The consistency level of searches.
        lease_s: Time after which a silent writer loses its lease.
        pem: A file of certificates for TLS; None for those of the system.
        text: The address as it was given, of a file the absolute path.

    """

    uri: str
    shown: str
    collection: str
    is_lite: bool
    token: str = field(default="", repr=False)
    database: str = ""
    tls: bool = False
    pem: str | None = None
    server_name: str = ""
    timeout_s: float = 60.0
    consistency: str = "Session"
    lease_s: float = 30.0
    text: str = field(default="", repr=False)

    @property
    def reopens(self) -> str:
        """The address for parse_address() elsewhere; ConfigError where it holds a secret."""
        if "@" in self.text.partition("?")[0]:
            raise ConfigError(
                f"{self.shown}: expected a token from the environment (MVINDEX_MILVUS_TOKEN), got one in the address, "
                "which a pickle would hold. Set the variable here and where the pickle is read"
            )
        return self.text

    @property
    def lacks_database(self) -> bool:
        """Whether the database of Lite does not exist, though its folder does: opening it would create one."""
        path = Path(self.uri)
        return self.is_lite and path.parent.is_dir() and not os.path.lexists(path)


def is_address(text: str) -> bool:
    """Return whether parse_address() reads the text."""
    return text.startswith((f"{LITE}:", f"{SERVER}://"))


def parse_address(text: str) -> Address:
    """Return the parsed address; ConfigError names the part that is wrong, and never a secret.

    Secrets that the address lacks come from the environment: MVINDEX_MILVUS_TOKEN, or MVINDEX_MILVUS_USER and
    MVINDEX_MILVUS_PASSWORD.
    """
    if text.startswith(f"{LITE}:"):
        return _parse_lite(text)
    if text.startswith(f"{SERVER}://"):
        return _parse_server(text)
    raise ConfigError(f"Milvus address: expected {LITE}:PATH or {SERVER}://HOST/NAME, got {text.split(':')[0]:.40}:...")


def _parse_lite(text: str) -> Address:
    rest, _, query = text.removeprefix(f"{LITE}:").partition("?")
    given = _settings(text.partition("?")[0], query)
    for name in ("tls", "server_name", "db"):
        if name in given:
            raise ConfigError(f"{LITE}:{rest}: the setting {name} belongs to a server")
    if not rest or rest.startswith("//"):
        raise ConfigError(f"{text.partition('?')[0]}: expected {LITE}:PATH, such as {LITE}:corpus.db")
    shown = f"{LITE}:{rest}"
    absolute = user_path(rest).absolute()
    name = _checked_name(given.get("collection", _DEFAULT_NAME), shown)
    # pymilvus takes only what ends in .db for a Lite database.
    if not rest.endswith(".db"):
        raise ConfigError(f"{shown}: expected a path that ends in .db")
    return Address(
        uri=str(absolute),
        shown=shown if name == _DEFAULT_NAME else f"{shown}?collection={name}",
        collection=name,
        is_lite=True,
        text=f"{LITE}:{absolute}?{query}",
        **_common(given, shown),
    )


def _parse_server(text: str) -> Address:
    parts, host, port = _split(text)
    given = _settings(f"{SERVER}://{host}", parts.query)
    shown = f"{SERVER}://{host}:{port}/{parts.path.strip('/')}"
    name = _checked_name(parts.path.strip("/") or given.get("collection", ""), shown)
    tls = given.get("tls", "")
    is_tls = tls not in ("", "0", "no", "false")
    pem = tls if is_tls and tls not in ("1", "yes", "true") else None
    if pem is not None and not os.path.isfile(pem):
        raise ConfigError(f"{shown}: tls={pem}: expected 1, or a file of certificates (PEM), got no such file")
    return Address(
        uri=f"{'https' if is_tls else 'http'}://{host}:{port}",
        shown=shown,
        collection=name,
        is_lite=False,
        text=text,
        token=_token(parts),
        database=given.get("db", ""),
        tls=is_tls,
        pem=pem,
        server_name=given.get("server_name", ""),
        **_common(given, shown),
    )


def _split(text: str) -> tuple[SplitResult, str, int]:
    """Return the parts of the URL, its host and port; messages never show what precedes the host."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        host = None
    if host is None:
        raise ConfigError(f"{SERVER}://...: expected {SERVER}://HOST:PORT/COLLECTION, got no host and port")
    return parts, f"[{host}]" if ":" in host else host, port


def _token(parts: SplitResult) -> str:
    """Return the token, or user:password; those of the address precede those of the environment."""
    user, password = parts.username, parts.password
    if user is not None:
        return unquote(user) if password is None else f"{unquote(user)}:{unquote(password)}"
    from_user = ":".join(os.environ.get(f"MVINDEX_MILVUS_{name}", "") for name in ("USER", "PASSWORD"))
    return os.environ.get("MVINDEX_MILVUS_TOKEN") or ("" if from_user == ":" else from_user)


def _settings(shown: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in _SETTINGS:
            raise ConfigError(f"{shown.rpartition('@')[2]}: expected a setting of {', '.join(_SETTINGS)}, got {name!r}")
    return given


def _common(given: Mapping[str, str], shown: str) -> dict[str, Any]:
    level = given.get("consistency", "session")
    if level not in _LEVELS:
        raise ConfigError(f"{shown}: consistency: expected one of {', '.join(_LEVELS)}, got {level!r}")
    return {
        "consistency": _LEVELS[level],
        "timeout_s": _seconds(given, "timeout", 60.0, shown),
        "lease_s": _seconds(given, "lease", 30.0, shown),
    }


def _seconds(given: Mapping[str, str], name: str, default: float, shown: str) -> float:
    try:
        value = float(given.get(name, default))
    except ValueError:
        value = math.nan
    if not 1 <= value <= 86_400:
        raise ConfigError(f"{shown}: {name}: expected seconds, from 1 to 86400, got {given[name]!r}")
    return value


def _checked_name(name: str, shown: str) -> str:
    if _NAME.fullmatch(name):
        return name
    raise ConfigError(f"{shown}: collection name: expected letters, digits and _, no digit first, got {name!r}")
