"""Calls to one of several servers that have the same index, in turn; where one is away, the next one is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, islice
from typing import Any

import grpc

from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote.retry import (
    RetryBudget,
    RetryingChannel,
    closed_error,
    error_from_rpc,
    is_retryable,
)


class Replicas:
    """Servers that have the same index. Safe to use from several threads."""

    def __init__(self, channels: Sequence[RetryingChannel]) -> None:
        """Take the channels of the servers, at least one; calls begin at each in turn."""
        self.channels = tuple(channels)
        self._turn = count()

    @property
    def where(self) -> str:
        """The addresses."""
        return " or ".join(str(channel.address) for channel in self.channels)

    def in_turn(self) -> Iterator[RetryingChannel]:
        """Yield the channels without end, from the next one on."""
        begin = next(self._turn) % len(self.channels)
        return islice(cycle(self.channels), begin, None)

    def call(self, method: str, make: Callable[[str], Any], deadline: float, *, retry_s: float | None = None) -> Any:
        """Return the response of the first server that can be reached.

        Args:
            method: The name of an idempotent method.
            make: Returns the request for the name that an index has on its server.
            deadline: When the call ends, by time.monotonic().
            retry_s: Seconds for an unreachable server to come back; those of the channels by default.

        Raises:
            MvindexError: Of the class that the server raised; ServerUnavailable when all servers are unreachable.

        """
        order, last = self.in_turn(), self.channels[0]

        def ask_each() -> Any:
            nonlocal last
            for left in reversed(range(len(self.channels))):
                last = next(order)
                try:
                    return _send(last, method, make(last.address.name), deadline)
                except grpc.RpcError as err:
                    if not left or not is_retryable(err):
                        raise

        try:
            return RetryBudget(last.settings, retry_s, deadline).run(ask_each)
        except grpc.RpcError as err:
            raise error_from_rpc(last.address, err) from None


def _send(channel: RetryingChannel, method: str, request: Any, deadline: float) -> Any:
    call = getattr(MvindexServiceStub(channel.grpc_channel), method)
    left = max(deadline - time.monotonic(), 0.001)
    try:
        return call(request, timeout=left, metadata=channel.metadata())
    except ValueError as err:
        raise closed_error(channel.address) from err
