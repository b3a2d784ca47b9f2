"""The configuration of a server, checked; unsafe settings are refused with the reason."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mvindex.errors import ConfigError
from mvindex.paths import expand_home
from mvindex.records import MAX_DOCUMENT_CHARS
from mvindex_connectors.remote.address import is_loopback, read_file

# What gRPC can send and receive.
_MAX_MESSAGE_BYTES = 1 << 31
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of requests; a request beyond one ends with RESOURCE_EXHAUSTED and a hint.

    Args:
        message_bytes: Bytes of a request.
        queries: Queries in a request.
        top_k: Documents per result.
        hits: Documents in all results of a request.
        response_bytes: Bytes of a response; all large ones in flight may have four times as many.
        query_chars: Characters of a query.
        document_chars: Characters of a document: of title, text and view texts together.
        calls: Calls at once.
        streams: Ingests and lists at once.
        queued: Queries that may wait to be searched.
        idle_s: Seconds that a stream may be idle.

    """

    message_bytes: int = 16 << 20
    queries: int = 4096
    top_k: int = 10_000
    hits: int = 500_000
    response_bytes: int = 64 << 20
    query_chars: int = 32_768
    document_chars: int = MAX_DOCUMENT_CHARS
    calls: int = 256
    streams: int = 32
    queued: int = 4096
    idle_s: float = 300.0

    def __post_init__(self) -> None:
        counts = ("message_bytes", "queries", "top_k", "hits", "response_bytes", "query_chars", "document_chars",
                  "calls", "streams", "queued")  # fmt: skip
        for name in counts:
            if getattr(self, name) < 1:
                raise ConfigError(f"limit {name}: expected a whole number >= 1, got {getattr(self, name)}")
        for flag, num_bytes in (("--max-message-mb", self.message_bytes), ("--max-response-mb", self.response_bytes)):
            if num_bytes >= _MAX_MESSAGE_BYTES:
                raise ConfigError(f"{flag}: expected less than {_MAX_MESSAGE_BYTES >> 20:,}, got {num_bytes >> 20:,}")
        if not self.idle_s > 0:
            raise ConfigError(f"limit idle_s: expected seconds > 0, got {self.idle_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files: the server's certificate and key, and the authority of client certificates if these are required."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        read_file(self.cert), read_file(self.key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password="")
            if self.client_ca is not None:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self.client_ca)
        except (ssl.SSLError, OSError) as err:
            raise ConfigError(f"{self.cert}, {self.key}: expected a certificate and its key: {err}") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """Snapshots of every index that are made while it is served.

    Args:
        place: A folder, or an address of fsspec; each index has a place of its name there.
        every_s: Seconds from one to the next.
        keep: How many of an index stay.

    """

    place: str
    every_s: float
    keep: int = 7

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ConfigError(f"--snapshot-keep: expected a whole number >= 1, got {self.keep}")

    def place_of(self, name: str) -> str:
        """Return the place of the snapshots of an index."""
        return f"{self.place.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Which indexes are served, where, to whom, and within which limits.

    Args:
        indexes: Pairs of a name and a directory or URL.
        host: Address to listen on; one beyond loopback needs tls and token_file, or is_insecure.
        port: Port of gRPC; 0 takes a free one.
        http_port: Port of HTTP; 0 takes a free one, None for no HTTP.
        tls: Certificate and key, or None.
        token_file: File of tokens, or None to admit every caller.
        is_insecure: Allow every address without tls and token_file.
        is_read_only: Refuse writes, and follow the writes of other processes.
        device: "cpu" or "cuda" for the encoders; None for the best available.
        batch: The most queries searched together; 1 for no micro-batching.
        drain_s: Seconds that calls may take to end after a signal.
        compact_at: Compact an index when this share of its document rows is deleted or replaced; 1 for never.
        snapshots: Snapshots that are made on a schedule, or None.
        follow: Where the snapshots are that are restored to the directories of the indexes and served, or None.
        follow_every_s: Seconds between two looks for newer snapshots.
        admin_folder: Where jobs create indexes and keep snapshots; None refuses both.
        limits: Limits of requests.

    Raises:
        ConfigError: A value is malformed, unsafe or contradicts another.

    """

    indexes: Sequence[tuple[str, str]]
    host: str = "127.0.0.1"
    port: int = 7700
    http_port: int | None = None
    tls: Tls | None = None
    token_file: Path | None = None
    is_insecure: bool = False
    is_read_only: bool = False
    device: str | None = None
    batch: int = 256
    drain_s: float = 30.0
    compact_at: float = 0.5
    snapshots: Snapshots | None = None
    follow: str | None = None
    follow_every_s: float = 10.0
    admin_folder: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._check_indexes()
        for name, port in (("--port", self.port), ("--http", self.http_port)):
            if port is not None and not 0 <= port < 65536:
                raise ConfigError(f"{name}: expected a port from 0 (any free one) to 65535, got {port}")
        if not 0 <= self.drain_s < 1e6:
            raise ConfigError(f"--drain: expected seconds from 0 on, got {self.drain_s}")
        if self.batch < 1:
            raise ConfigError(f"--batch: expected a whole number >= 1, got {self.batch}")
        if not 0 < self.compact_at <= 1:
            raise ConfigError(f"--compact-at: expected a share above 0, up to 1 (never), got {self.compact_at}")
        if self.follow is not None and (self.snapshots or self.admin_folder or not self.is_read_only):
            raise ConfigError(
                "--follow: expected a read-only server without --snapshots and --admin-folder, got one that writes"
            )
        if not 1 <= self.follow_every_s < 1e9:
            raise ConfigError(f"--follow-every: expected at least a second, got {self.follow_every_s:g} s")
        if not is_loopback(self.host) and not self.is_insecure:
            self._check_safe()

    def _check_indexes(self) -> None:
        names = [name for name, _ in self.indexes]
        if not names and self.admin_folder is None:
            raise ConfigError("--index: expected NAME=DIR at least once, or --admin-folder, got none")
        for name in names:
            check_name("--index", name)
            if names.count(name) > 1:
                raise ConfigError(f"--index {name}: expected distinct names, got this one twice")

    def _check_safe(self) -> None:
        missing = [flag for flag, value in (("--tls-cert and --tls-key", self.tls), ("--token-file", self.token_file))
                   if value is None]  # fmt: skip
        if missing:
            raise ConfigError(
                f"--host {self.host} is reachable from other machines: give {' and '.join(missing)}, or --insecure if "
                "everyone who can reach this address may read and write these indexes"
            )


def check_name(place: str, name: str) -> None:
    """Check the name of an index or a snapshot; raise ConfigError for one that is no plain name of a file."""
    if not name or not _NAME_CHARS.issuperset(name) or len(name) > 100 or name.startswith("."):
        raise ConfigError(f"{place}: expected a name of 1 to 100 letters, digits, '-', '_' and '.', got {name!r:.120}")


def parse_index(text: str) -> tuple[str, str]:
    """Return the name and the directory or URL of NAME=DIR; a bare directory is named after itself."""
    name, equals, target = text.partition("=")
    if name and target:
        return name, expand_home(target)
    if equals or "://" in text:
        raise ConfigError(f"--index: expected NAME=DIR or NAME=URL, got {text}")
    return Path(text).name.removesuffix(".mvx"), expand_home(text)
