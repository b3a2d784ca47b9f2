"""Channels, timeouts and retries, shared by both clients."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from mvindex.errors import ConfigError, MvindexError, ServerUnavailable
from mvindex.retries import Retries
from mvindex_connectors.coroutines import run_to_end
from mvindex_connectors.remote.address import Access, Address, check_secret, read_file
from mvindex_connectors.remote.status import REQUEST_ID_KEY, error_from_code

T = TypeVar("T")

# Messages of TLS failures (wrong certificate, no TLS) that a retry cannot change. A handshake that was merely
# interrupted (a server that restarts, a slow network) has none of these in its message.
_PERMANENT = ("certificate", "ssl_error_ssl", "verification check failed")
# The message of grpc.aio for a write into a stream whose connection has broken.
_BROKEN_WRITE = "internal error from core"
# The message of gRPC for a call whose channel never was connected.
_UNCONNECTED = "failed to connect"
# The messages of gRPC for calls on a channel that this program has closed.
_CLOSED = ("Channel closed!", "Channel closed.")
_FIRST_PAUSE_S = 0.05
_OPTIONS = (
    # Retries does the retries; those of gRPC would use up a part of each call's time.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """Timeouts of a client.

    Args:
        timeout_s: Seconds for one call, retries included.
        connect_timeout_s: Seconds for establishing a connection, TLS included.
        retry_s: Seconds for an unreachable server to come back; connecting to one that does not answer counts.
        chunk_timeout_s: Seconds for the acknowledgement of a chunk, whose documents the server may have to encode.

    Raises:
        ConfigError: A value is not a number of seconds.

    """

    timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    retry_s: float = 5.0
    chunk_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_timeout_s", "retry_s", "chunk_timeout_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1e7 or (value == 0 and name != "retry_s"):
                raise ConfigError(f"{name}: expected seconds, got {value!r}")


def closed_error(address: Address) -> ServerUnavailable:
    """Return the error of a client that was closed before or during a call."""
    return ServerUnavailable(f"{address}: this client was closed")


def error_from_rpc(address: Address, err: grpc.RpcError) -> MvindexError:
    """Return the error of a failed call, of the class that the server raised."""
    details: str = err.details() or ""
    if err.code() is grpc.StatusCode.CANCELLED and details in _CLOSED:
        return closed_error(address)
    trailing = err.trailing_metadata() or ()
    error = error_from_code(err.code(), details, trailing)
    if isinstance(error, ServerUnavailable):
        return ServerUnavailable(f"{address}: the server cannot be reached: {details}")
    return type(error)(f"{address}: {details}") if not dict(trailing).get("mvindex-error") else error


def is_retryable(err: grpc.RpcError) -> bool:
    """Return whether a retry may succeed."""
    details = (err.details() or "").lower()
    if err.code() is grpc.StatusCode.INTERNAL:
        return details.startswith(_BROKEN_WRITE)
    if err.code() is grpc.StatusCode.CANCELLED:
        # A server that ends cancels a call that came as it closed its port.
        return err.details() not in _CLOSED
    return err.code() is grpc.StatusCode.UNAVAILABLE and not any(word in details for word in _PERMANENT)


class RetryBudget(Retries):
    """The time left for a call, and its tries while the server is unreachable."""

    def __init__(self, settings: CallSettings, retry_s: float | None = None, deadline: float = math.inf) -> None:
        """retry_s: instead of that of the settings. deadline: for the beginning of a try, by time.monotonic()."""
        super().__init__(lambda err: isinstance(err, grpc.RpcError) and is_retryable(err), first_s=_FIRST_PAUSE_S)
        self._settings, self._retry_s = settings, settings.retry_s if retry_s is None else retry_s
        self._begun_at, self._deadline = time.monotonic(), deadline

    @property
    def remaining_s(self) -> float:
        """Seconds until the call's deadline, at least 1 ms."""
        return max(self._begun_at + self._settings.timeout_s - time.monotonic(), 0.001)

    def wait_after(self, err: Exception) -> float | None:
        """Return the seconds to wait before the next try; None if it is in vain, or was for too long."""
        if self.ends == math.inf and isinstance(err, grpc.RpcError):
            # The server's time to come back begins when it was found to be away; the work of a call that broke is none.
            away_at = self._begun_at if _UNCONNECTED in (err.details() or "") else time.monotonic()
            self.ends = min(away_at + self._retry_s, self._deadline)
        return super().wait_after(err)


class Channel:
    """The address, credentials and timeouts of a channel, in the process that made it."""

    def __init__(self, address: Address, access: Access, settings: CallSettings) -> None:
        self.address, self.access, self.settings = address, access, settings
        self._pid = os.getpid()

    def _opened(self, library: Any) -> Any:
        """Return a channel of grpc, or of grpc.aio, encrypted where the address says so."""
        address, access = self.address, self.access
        check_secret(address, access)
        # In spite of its name, the timeout for establishing a connection (MIN_CONNECT_TIMEOUT in gRPC's
        # connection-backoff.md): several round trips, possibly between continents or to a busy machine.
        connect_ms = max(1, int(1000 * self.settings.connect_timeout_s))
        options = [*_OPTIONS, ("grpc.min_reconnect_backoff_ms", connect_ms)]
        if not address.is_tls:
            return library.insecure_channel(address.target, options=options)
        files = (access.tls_ca, access.tls_key, access.tls_cert)
        credentials = grpc.ssl_channel_credentials(*(None if file is None else read_file(file) for file in files))
        return library.secure_channel(address.target, credentials, options=options)

    def metadata(self) -> list[tuple[str, str]]:
        """Return the headers of a call: a new request id, and the token. ServerUnavailable in a forked process."""
        if os.getpid() != self._pid:
            raise ServerUnavailable(
                f"{self.address}: expected the process that made this client, got one forked from it, which gRPC does "
                "not allow. Start it by spawn; a client that is pickled opens again there"
            )
        metadata = [(REQUEST_ID_KEY, secrets.token_hex(8))]
        if self.access.token:
            metadata.append(("authorization", f"Bearer {self.access.token}"))
        return metadata


class RetryingChannel(Channel):
    """Blocking calls with retries over one channel; safe to use from several threads."""

    def __init__(self, address: Address, access: Access, settings: CallSettings) -> None:
        super().__init__(address, access, settings)
        self.grpc_channel: grpc.Channel = self._opened(grpc)

    def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        self.grpc_channel.close()

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Return the response, retrying for retry_s while the server is unreachable; the call must be idempotent."""
        budget = RetryBudget(self.settings)
        with self._errors():
            return budget.run(lambda: method(request, timeout=budget.remaining_s, metadata=self.metadata()))

    async def again(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a step returns that awaits no more than this channel, which never waits; retry as call() does."""
        return RetryBudget(self.settings).run(lambda: run_to_end(step()))

    def stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """Yield the responses of a stream, which has no deadline and is not resumed."""
        with self._errors():
            yield from method(request, metadata=self.metadata())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn gRPC's errors, and those of a channel that is closed, into ours."""
        try:
            yield
        except grpc.RpcError as err:
            raise error_from_rpc(self.address, err) from None
        except ValueError as err:
            raise closed_error(self.address) from err


class AsyncRetryingChannel(Channel):
    """Calls with retries over one channel, awaited; it belongs to one event loop."""

    def __init__(self, address: Address, access: Access, settings: CallSettings) -> None:
        super().__init__(address, access, settings)
        self.grpc_channel: grpc.aio.Channel = self._opened(grpc.aio)
        self._is_closed = False

    async def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        self._is_closed = True
        await self.grpc_channel.close()

    @contextmanager
    def closed_channel_errors(self) -> Iterator[None]:
        """Turn gRPC's errors of a channel that close() has closed into the blocking channel's."""
        try:
            yield
        except (grpc.aio.UsageError, asyncio.CancelledError) as err:
            if not self._is_closed:
                raise
            raise closed_error(self.address) from err

    async def call(self, method: Callable[..., Awaitable[Any]], request: Any) -> Any:
        """Return the response, retrying for retry_s while the server is unreachable; the call must be idempotent."""
        budget = RetryBudget(self.settings)

        async def attempt() -> Any:
            with self.closed_channel_errors():
                return await method(request, timeout=budget.remaining_s, metadata=self.metadata())

        try:
            return await budget.run_async(attempt)
        except grpc.RpcError as err:
            raise error_from_rpc(self.address, err) from None

    async def again(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what an awaited step returns, retrying as call() does."""
        return await RetryBudget(self.settings).run_async(step)

    async def stream(self, method: Callable[..., Any], request: Any) -> AsyncGenerator[Any, None]:
        """Yield the responses of a stream, which has no deadline and is not resumed."""
        with self.closed_channel_errors():
            responses = method(request, metadata=self.metadata())
        try:
            with self.closed_channel_errors():
                async for response in responses:
                    yield response
        except grpc.RpcError as err:
            raise error_from_rpc(self.address, err) from None
        finally:
            # A caller that stops in the middle must free the stream on the server.
            responses.cancel()
