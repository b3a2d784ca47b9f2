"""Calls to one of several servers that have the same index, with a second try where the first takes long.

A call that takes longer than 95 % of the recent ones is sent a second time, to another server where there is one; the
first response counts (Dean and Barroso 2013, "The tail at scale": hedged requests).
"""

from __future__ import annotations

import queue
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, islice
from threading import Lock
from typing import Any, NamedTuple

import grpc

from mvindex.errors import TimedOut
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.retry import (
    RetryBudget,
    RetryingChannel,
    closed_error,
    error_from_rpc,
    is_retryable,
)

# Latencies of the last calls of a kind, and how many of them it takes before one is sent a second time.
_RECENT, _ENOUGH = 128, 20
# No call is sent again earlier: below it, a pause of the garbage collector would decide.
_LEAST_WAIT_S = 0.005
# How many second tries there may be at once after a quiet time.
_BURST = 10


class Hedging:
    """When calls are sent a second time, and how many may be: at most a share of all, and a few at once."""

    def __init__(self, share: float) -> None:
        """share: of the calls, 0 for none."""
        self._share, self._tokens = share, float(_BURST if share else 0)
        self._lock = Lock()
        self._recent: dict[object, deque[float]] = defaultdict(lambda: deque(maxlen=_RECENT))
        self.num_hedged = 0

    def record(self, kind: object, seconds: float) -> None:
        """Record how long a call of this kind took."""
        with self._lock:
            self._recent[kind].append(seconds)

    def wait_s(self, kind: object) -> float | None:
        """Return the seconds after which a call of this kind is sent again, the 95th percentile; None for never."""
        with self._lock:
            self._tokens = min(self._tokens + self._share, _BURST)
            recent = sorted(self._recent[kind])
        if not self._share or len(recent) < _ENOUGH:
            return None
        return max(recent[int(0.95 * (len(recent) - 1))], _LEAST_WAIT_S)

    def may_hedge(self) -> bool:
        """Return whether one more call may be sent again now, and count it."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            self.num_hedged += 1
            return True


class _Attempt(NamedTuple):
    """A call in progress."""

    channel: RetryingChannel
    future: Any
    begun: float


class Replicas:
    """Servers that have the same index. Safe to use from several threads."""

    def __init__(self, channels: Sequence[RetryingChannel], hedging: Hedging) -> None:
        """Take the channels of the servers, at least one; calls begin at each in turn."""
        self.channels, self._hedging = tuple(channels), hedging
        self._turn = count()

    @property
    def where(self) -> str:
        """The addresses."""
        return " or ".join(str(channel.address) for channel in self.channels)

    def in_turn(self) -> Iterator[RetryingChannel]:
        """Yield the channels without end, from the next one on."""
        begin = next(self._turn) % len(self.channels)
        return islice(cycle(self.channels), begin, None)

    def call(
        self, method: str, make: Callable[[str], Any], deadline: float, *, size: int = 1, retry_s: float | None = None
    ) -> Any:
        """Return the first response.

        Args:
            method: The name of an idempotent method.
            make: Returns the request for the name that an index has on its server.
            deadline: When the call ends, by time.monotonic().
            size: How much is asked for; calls of about the same size take about the same time.
            retry_s: Seconds for an unreachable server to come back; those of the channels by default.

        Raises:
            MvindexError: Of the class that the server raised; ServerUnavailable when all servers are unreachable.

        """
        return _Call(self, self._hedging, method, make, deadline, size, retry_s).run()


class _Call:
    """One call, sent to one server after the other, and to two at once where the first takes long."""

    def __init__(  # noqa: PLR0913 - those of Replicas.call()
        self,
        replicas: Replicas,
        hedging: Hedging,
        method: str,
        make: Callable[[str], Any],
        deadline: float,
        size: int,
        retry_s: float | None,
    ) -> None:
        self._replicas, self._hedging = replicas, hedging
        self._method, self._make, self._deadline = method, make, deadline
        self._kind = (replicas, method, size.bit_length())
        self._order = replicas.in_turn()
        self._done: queue.SimpleQueue[_Attempt] = queue.SimpleQueue()
        self._running: list[_Attempt] = []
        self._budget = RetryBudget(replicas.channels[0].settings, retry_s)

    def run(self) -> Any:
        """Return the first response; calls that are still in progress are cancelled."""
        wait_s = self._hedging.wait_s(self._kind)
        hedge_at = None if wait_s is None else time.monotonic() + wait_s
        failures = 0
        try:
            self._send()
            while True:
                attempt = self._next_done(hedge_at)
                if attempt is None:
                    hedge_at = None
                    if self._hedging.may_hedge():
                        self._send()
                    continue
                error = attempt.future.exception()
                if error is None:
                    self._hedging.record(self._kind, time.monotonic() - attempt.begun)
                    return attempt.future.result()
                failures += 1
                self._after_failure(attempt, error, failures)
        finally:
            for attempt in self._running:
                attempt.future.cancel()

    def _send(self) -> None:
        channel = next(self._order)
        method = getattr(MvindexServiceStub(channel.grpc_channel), self._method)
        left = max(self._deadline - time.monotonic(), 0.001)
        request = self._make(channel.address.name)
        try:
            future = method.future(request, timeout=left, metadata=channel.metadata())
        except ValueError as err:
            raise closed_error(channel.address) from err
        attempt = _Attempt(channel, future, time.monotonic())
        self._running.append(attempt)
        future.add_done_callback(lambda _: self._done.put(attempt))

    def _next_done(self, hedge_at: float | None) -> _Attempt | None:
        """Return the next attempt that ends; None when none did by hedge_at. TimedOut at the deadline."""
        # gRPC ends a call at the deadline itself; a second later it will not.
        until = self._deadline + 1 if hedge_at is None else min(hedge_at, self._deadline + 1)
        try:
            attempt = self._done.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            if hedge_at is not None and hedge_at < self._deadline:
                return None
            raise TimedOut(f"{self._replicas.where}: expected a response before the deadline, got none") from None
        self._running.remove(attempt)
        return attempt

    def _after_failure(self, attempt: _Attempt, error: grpc.RpcError, failures: int) -> None:
        """Go on after a failed attempt: with the other one, at the next server, or after a pause; else raise."""
        if not is_retryable(error):
            raise error_from_rpc(attempt.channel.address, error) from None
        if self._running:
            return
        if failures % len(self._replicas.channels) == 0:
            pause = self._budget.pause_after(error)
            if pause is None or time.monotonic() + pause >= self._deadline:
                raise error_from_rpc(attempt.channel.address, error) from None
            time.sleep(pause)
        self._send()
