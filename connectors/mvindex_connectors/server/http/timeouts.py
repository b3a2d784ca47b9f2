"""A timeout for the head of an HTTP request, which uvicorn lacks."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_TIMEOUT_S = 10.0


class HeaderTimeoutProtocol(H11Protocol):
    """Uvicorn's protocol; closes a connection if the head of a request is not complete in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def data_received(self, data: bytes) -> None:
        """Stop the timer at the end of a head; restart it with the first part of the next."""
        super().data_received(data)
        if not self._awaits_head():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

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
