"""Admission of calls, by gRPC or HTTP: authentication, limits, metrics, the log line of each call."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mvindex.errors import LimitExceeded, MvindexError, ServerFailed, ServerUnavailable
from mvindex_connectors.remote.status import grpc_code, nearest_known_class
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.fairness import CALLER, SmallFirst, has_room
from mvindex_connectors.server.limits import ResponseBudget, ResponseMeter
from mvindex_connectors.server.telemetry import Metrics, trace_span
from mvindex_connectors.server.tokens import ANYONE, Caller, Tokens

logger = logging.getLogger(__name__)

# For each slice of a large request that is received while small ones are served: 64 MiB of it in a second.
_SLICE_PAUSE_S = 0.004
# So many requests of the largest size may be received by HTTP at once.
_LARGEST_REQUESTS = 16
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(slots=True, kw_only=True)
class CallContext:
    """A call in progress, as it will be logged."""

    method: str
    request_id: str
    peer: str
    protocol: str
    meter: ResponseMeter
    caller: Caller = ANYONE
    index: str = ""
    code: str = "OK"
    error: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    # Called when the call ends; set by the index that it uses.
    on_end: Callable[[], None] | None = None


@dataclass(slots=True)
class PeerUse:
    """The use of a connection: its calls in progress, and when the last one began or ended."""

    calls: int = 0
    last: float = 0.0


class Admission:
    """Admits, counts and times the calls of a server; one object for all of them."""

    def __init__(self, tokens: Tokens, limits: Limits, metrics: Metrics, names: Container[str]) -> None:
        """names: of the indexes, as they are at each call."""
        self.tokens, self.limits, self.metrics = tokens, limits, metrics
        self._names = names
        self._responses, self.turns = ResponseBudget(limits.response_bytes), SmallFirst()
        self._calls_of: Counter[str] = Counter()
        self._in_flight = 0
        self._open = 0
        self._streams_of: Counter[str] = Counter()
        self._request_bytes = 0
        # Of gRPC connections; those that have ended are removed by GrpcConnections.
        self.peers: dict[str, PeerUse] = {}
        self.draining = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Calls in progress, health checks excluded."""
        return self._in_flight

    @property
    def is_draining(self) -> bool:
        """Whether the server is shutting down."""
        return self.draining.is_set()

    def new_meter(self) -> ResponseMeter:
        """Return the meter of a response; close it when that was sent."""
        return ResponseMeter(self._responses, self.turns)

    @contextmanager
    def admit(self, call: CallContext, header: str | None, *, is_open: bool = False) -> Iterator[None]:
        """Admit a call, count and time it, and log it when it ends; it raises MvindexErrors only.

        is_open: for health checks, which need no token and do not count against the limit of other calls.
        """
        begun = time.perf_counter()
        self._count(1, is_open)
        peer = self.peers.setdefault(call.peer, PeerUse()) if call.protocol == "grpc" else PeerUse()
        peer.calls, peer.last = peer.calls + 1, time.monotonic()
        try:
            with trace_span(call.method):
                if not is_open:
                    call.caller = self.tokens.authenticate(header)
                    self.check_running()
                self._check_room()
                with self._share_of(call, is_open):
                    yield
        except MvindexError as err:
            call.code, call.error = grpc_code(err).name, f"{nearest_known_class(err).__name__}: {err}"
            raise
        except asyncio.CancelledError:
            call.code = "CANCELLED"
            raise
        except Exception as err:
            call.code, call.error = "INTERNAL", f"{type(err).__name__}: {err}"
            logger.exception(
                "unexpected error", extra={"fields": {"request_id": call.request_id, "method": call.method}}
            )
            raise ServerFailed(
                f"unexpected error; the server's log has the details of request {call.request_id}"
            ) from err
        finally:
            self._count(-1, is_open)
            peer.calls, peer.last = peer.calls - 1, time.monotonic()
            if call.on_end is not None:
                call.on_end()
            # After the response is on its way, so that no client waits for the log.
            asyncio.get_running_loop().call_soon(self._ended, call, time.perf_counter() - begun, is_open)

    @contextmanager
    def _share_of(self, call: CallContext, is_open: bool) -> Iterator[None]:
        """Count the call as its caller's inside the block; LimitExceeded for more than its share of a busy server.

        A caller is a token; without tokens a connection.
        """
        caller = call.meter.caller = call.caller.name if self.tokens.are_required else call.peer
        CALLER.set(caller)
        if is_open:
            yield
            return
        calls, total = self._calls_of, self._in_flight - 1
        num_callers = len(calls) + (caller not in calls)
        if num_callers > 1 and not has_room(calls[caller], total, self.limits.calls, num_callers):
            raise LimitExceeded(
                f"{calls[caller]} calls of this caller are in progress, its share of {self.limits.calls} (--max-calls) "
                f"between {num_callers} callers. Try again in a second"
            )
        calls[caller] += 1
        try:
            yield
        finally:
            calls[caller] -= 1
            if not calls[caller]:
                del calls[caller]

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count a stream while it runs; LimitExceeded when there are too many, or more than a caller's share."""
        streams, total, caller = self._streams_of, self._streams_of.total(), CALLER.get()
        if total >= self.limits.streams:
            raise LimitExceeded(f"{total} ingests and lists are in progress, the limit of this server "
                                "(--max-streams). Try again when one has ended")  # fmt: skip
        # Streams may be long: there is always room for one who has none yet.
        num_callers = len(streams.keys() | {caller}) + 1
        if self.tokens.are_required and not has_room(streams[caller], total, self.limits.streams, num_callers):
            raise LimitExceeded(
                f"{streams[caller]} ingests and lists of this caller are in progress, its share of "
                f"{self.limits.streams} (--max-streams). Try again when one has ended"
            )
        streams[caller] += 1
        try:
            yield
        finally:
            streams[caller] -= 1
            if not streams[caller]:
                del streams[caller]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Do not count the call inside the block, in which its client sends the rest of the request.

        It costs nothing but a connection meanwhile, and those of slow clients must not keep others out.
        """
        self._count(-1, False)
        try:
            yield
        finally:
            self._count(1, False)
        self._check_room()

    async def give_way(self) -> None:
        """Wait a moment while small requests are served; call it for each slice of a large one that is received.

        The event loop takes longer to receive a slice than to serve a small request.
        """
        if self.turns.had_small_lately:
            await asyncio.sleep(_SLICE_PAUSE_S)

    def take_request_bytes(self, num_bytes: int) -> None:
        """Count bytes of requests that are being received, or give them back; LimitExceeded for too many of all."""
        most = _LARGEST_REQUESTS * self.limits.message_bytes
        if num_bytes > 0 and self._request_bytes + num_bytes > most:
            raise LimitExceeded(
                f"requests of {self._request_bytes >> 20} MiB are being received, near the limit of this server "
                f"({_LARGEST_REQUESTS} times --max-message-mb). Try again in a second"
            )
        self._request_bytes += num_bytes

    def check_running(self) -> None:
        """Check that the server is not shutting down; raise ServerUnavailable if it is."""
        if self.is_draining:
            raise ServerUnavailable("the server is shutting down")

    def _count(self, change: int, is_open: bool) -> None:
        if is_open:
            self._open += change
        else:
            self._in_flight += change
            self.metrics.in_flight.set(self._in_flight)

    def _check_room(self) -> None:
        if max(self._in_flight, self._open) > self.limits.calls:
            raise LimitExceeded(f"{self.limits.calls} calls are in progress, the limit of this server (--max-calls). "
                                "Try again in a second")  # fmt: skip

    def _ended(self, call: CallContext, seconds: float, is_open: bool) -> None:
        # Names that clients invent must not become time series.
        index = call.index if call.index in self._names else ""
        self.metrics.calls.labels(call.method, index, call.code).inc()
        self.metrics.seconds.labels(call.method).observe(seconds)
        if is_open and call.code == "OK":
            return
        fields = {
            "request_id": call.request_id,
            "method": call.method,
            "index": index,
            "code": call.code,
            "ms": round(1000 * seconds, 3),
            "peer": call.peer,
            "protocol": call.protocol,
            "caller": call.caller.name,
            **call.fields,
        }
        if call.error:
            fields["error"] = call.error[:500]
        logger.info("call", extra={"fields": fields})


def request_id_from(header: str | bytes | None) -> str:
    """Return the caller's request id if it is well-formed, else a new one."""
    text = header.decode("ascii", "replace") if isinstance(header, bytes) else header or ""
    return text if _REQUEST_ID.fullmatch(text) else secrets.token_hex(8)
