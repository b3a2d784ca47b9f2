"""Calls that wait, retry and give up: what both clients share."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from mvindex.errors import ConfigError, MvindexError, ServerUnavailable
from mvindex_connectors.remote.address import Access, Address, check_secret, read_file
from mvindex_connectors.remote.status import REQUEST_ID_KEY, error_of

T = TypeVar("T")

# Where a certificate is wrong or another's, or the server speaks no TLS, another try changes nothing. A handshake that
# was merely broken off (a server that restarts, a slow network) has nothing of this in its message.
_HOPELESS = ("certificate", "ssl_error_ssl", "verification check failed")
# What grpc.aio makes of a write into a stream whose connection has broken.
_BROKEN_WRITE = "internal error from core"
# What gRPC says of calls whose channel their own program has closed.
_CLOSED = ("Channel closed!", "Channel closed.")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
OPTIONS = (
    # Ours are (see Patience); gRPC's own would take their part of each call's time.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name, what one connection may take to be made, TLS included (MIN_CONNECT_TIMEOUT in gRPC's
    # connection-backoff.md): several round trips, maybe between continents or to a machine that is busy.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How long a client waits. timeout_s: for one call, its retries included; retry_s: for a server to come back.

    chunk_timeout_s: for the acknowledgement of a chunk, whose documents the server may have to encode first.
    """

    timeout_s: float = 60.0
    retry_s: float = 15.0
    chunk_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "retry_s", "chunk_timeout_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1e7 or (value == 0 and name != "retry_s"):
                raise ConfigError(f"{name} is {value!r}; wanted seconds")


def channel_parts(address: Address, access: Access) -> tuple[str, grpc.ChannelCredentials | None]:
    """What a channel is made of: the target, and credentials where there is TLS."""
    check_secret(address, access)
    if not address.is_tls:
        return address.target, None
    ca, cert, key = (None if path is None else read_file(path) for path in (access.tls_ca, access.tls_cert,
                                                                            access.tls_key))  # fmt: skip
    return address.target, grpc.ssl_channel_credentials(ca, key, cert)


def call_metadata(access: Access) -> list[tuple[str, str]]:
    """The headers of a call: the token, and a new request id."""
    metadata = [(REQUEST_ID_KEY, secrets.token_hex(8))]
    if access.token:
        metadata.append(("authorization", f"Bearer {access.token}"))
    return metadata


def closed_error(address: Address) -> ServerUnavailable:
    """What a client says that was closed, before a call or during it."""
    return ServerUnavailable(f"{address}: this client was closed")


def as_error(address: Address, err: grpc.RpcError) -> MvindexError:
    """The error that a failed call stands for."""
    details: str = err.details() or ""
    if err.code() is grpc.StatusCode.CANCELLED and details in _CLOSED:
        return closed_error(address)
    trailing = err.trailing_metadata() or ()
    error = error_of(err.code(), details, trailing)
    if isinstance(error, ServerUnavailable):
        return ServerUnavailable(f"{address}: the server cannot be reached: {details}")
    return type(error)(f"{address}: {details}") if not dict(trailing).get("mvindex-error") else error


def is_worth_a_retry(err: grpc.RpcError) -> bool:
    """True when the server may be back soon."""
    details = (err.details() or "").lower()
    if err.code() is grpc.StatusCode.INTERNAL:
        return details.startswith(_BROKEN_WRITE)
    return err.code() is grpc.StatusCode.UNAVAILABLE and not any(word in details for word in _HOPELESS)


class Patience:
    """The time that a call has, and the pauses between its tries."""

    def __init__(self, settings: CallSettings) -> None:
        self._settings = settings
        self._begun = time.monotonic()
        self._failed: float | None = None
        self._pause = _FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        """Seconds until the call's deadline, a little at least."""
        return max(self._begun + self._settings.timeout_s - time.monotonic(), 0.001)

    def next_pause(self) -> float | None:
        """Seconds to wait before another try; None when there should be none: the server has been away for too long."""
        now = time.monotonic()
        if self._failed is None:
            # What the call took before its server went away is no time that the server had to come back.
            self._failed = now
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        return pause if now - self._failed + pause < self._settings.retry_s else None


class Caller:
    """Calls that block, over one channel; safe to use from several threads."""

    def __init__(self, address: Address, access: Access, settings: CallSettings) -> None:
        self.address, self.access, self.settings = address, access, settings
        target, credentials = channel_parts(address, access)
        if credentials is None:
            self.channel = grpc.insecure_channel(target, options=OPTIONS)
        else:
            self.channel = grpc.secure_channel(target, credentials, options=OPTIONS)

    def close(self) -> None:
        """Nothing; calls under way are cancelled."""
        self.channel.close()

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """The response; a server that is away is asked again until retry_s is over, so the call must be idempotent."""
        return self.retrying(
            lambda patience: method(request, timeout=patience.left_s, metadata=call_metadata(self.access))
        )

    def retrying(self, attempt: Callable[[Patience], T]) -> T:
        """What the attempt gives, made again while the server is away."""
        patience = Patience(self.settings)
        while True:
            try:
                return attempt(patience)
            except grpc.RpcError as err:
                pause = patience.next_pause() if is_worth_a_retry(err) else None
                if pause is None:
                    raise as_error(self.address, err) from None
                time.sleep(pause)
            except ValueError as err:
                raise closed_error(self.address) from err

    def stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """The responses of a stream, which is not resumed; it has no deadline."""
        try:
            yield from method(request, metadata=call_metadata(self.access))
        except grpc.RpcError as err:
            raise as_error(self.address, err) from None
        except ValueError as err:
            raise closed_error(self.address) from err
