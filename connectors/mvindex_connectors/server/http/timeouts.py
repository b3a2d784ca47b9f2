"""A timeout for the head of an HTTP request, which uvicorn lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_TIMEOUT_S = 10.0


class HeaderTimeoutProtocol(H11Protocol):
    """Uvicorn's protocol; closes a connection if the head of a request is not complete in time."""

    # Called when the connection begins a request, and when it has ended.
    on_active: Callable[[], None] = staticmethod(lambda: None)
    on_lost: Callable[[], None] = staticmethod(lambda: None)
    _timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request was received in full, and its response is not sent yet."""
        return not self._awaits_head() and not self.cycle.more_body

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def data_received(self, data: bytes) -> None:
        """Stop the timer at the end of a head; restart it with the first part of the next."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            # Bytes of a head or of a body are no sign of life: a slow client sends them for ever.
            self.on_active()
        if not self._awaits_head():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)
        self.on_lost()

    def _awaits_head(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close(self) -> None:
        self._timer = None
        if self._awaits_head() and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
