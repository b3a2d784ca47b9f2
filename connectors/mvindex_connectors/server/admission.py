"""What surrounds every call, by gRPC or HTTP: who calls, how many at once, how it ended; errors as their codes."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mvindex.errors import LimitExceeded, MvindexError, ServerFailed, ServerUnavailable
from mvindex_connectors.remote.status import code_of, known_class
from mvindex_connectors.server.config import Limits
from mvindex_connectors.server.telemetry import Metrics, traced
from mvindex_connectors.server.tokens import ANYONE, Caller, Tokens

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_SECONDS_TO_RETRY = "try again in a second"


@dataclass(slots=True, kw_only=True)
class Call:
    """A call under way, as the log will tell of it."""

    method: str
    request_id: str
    peer: str
    protocol: str
    caller: Caller = ANYONE
    index: str = ""
    code: str = "OK"
    error: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class Guard:
    """The door: one for all calls of a server."""

    def __init__(self, tokens: Tokens, limits: Limits, metrics: Metrics, names: frozenset[str]) -> None:
        self.tokens, self.limits, self.metrics = tokens, limits, metrics
        self._names = names
        self._in_flight = 0
        self._open = 0
        self._streams = 0
        self.draining = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Calls under way, those about health left out."""
        return self._in_flight

    @property
    def is_draining(self) -> bool:
        """True when the server is about to end."""
        return self.draining.is_set()

    @contextmanager
    def passing(self, call: Call, header: str | None, *, is_open: bool = False) -> Iterator[None]:
        """Inside it, the call is let through, counted and timed; afterwards it is logged.

        is_open: health, which needs no token and takes no other call's place. Errors that leave it are MvindexErrors.
        """
        begun = time.perf_counter()
        self._count(1, is_open)
        try:
            with traced(call.method):
                if not is_open:
                    call.caller = self.tokens.caller_of(header)
                    self.check_running()
                self._check_room()
                yield
        except MvindexError as err:
            call.code, call.error = code_of(err).name, f"{known_class(err).__name__}: {err}"
            raise
        except asyncio.CancelledError:
            call.code = "CANCELLED"
            raise
        except Exception as err:
            call.code, call.error = "INTERNAL", f"{type(err).__name__}: {err}"
            logger.exception("unforeseen", extra={"fields": {"request_id": call.request_id, "method": call.method}})
            raise ServerFailed(
                f"something unforeseen went wrong; the server's log tells more of request {call.request_id}"
            ) from err
        finally:
            self._count(-1, is_open)
            # Once the answer is on its way: nobody waits for what is told of it.
            asyncio.get_running_loop().call_soon(self._ended, call, time.perf_counter() - begun, is_open)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Inside it, a stream has one of the places for streams."""
        if self._streams >= self.limits.streams:
            raise LimitExceeded(f"{self._streams} ingests and lists are under way, as many as this server takes; "
                                "try again when one is done")  # fmt: skip
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def check_running(self) -> None:
        """Nothing; ServerUnavailable when the server is about to end."""
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
            raise LimitExceeded(f"{self.limits.calls} calls are under way, as many as this server takes; "
                                f"{_SECONDS_TO_RETRY}")  # fmt: skip

    def _ended(self, call: Call, seconds: float, is_open: bool) -> None:
        # Names that clients make up must not become series of their own.
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


def request_id_of(given: str | bytes | None) -> str:
    """The caller's request id where it is a plain one, else a new one."""
    text = given.decode("ascii", "replace") if isinstance(given, bytes) else given or ""
    return text if _REQUEST_ID.fullmatch(text) else secrets.token_hex(8)
