"""An HTTP connection that does not wait for ever: who opens one must send the head of a request soon."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_S = 10.0


class PatientProtocol(H11Protocol):
    """Uvicorn's protocol; closes a connection on which the head of a request is not complete in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Nothing; the clock runs."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Nothing; the clock stops with a whole head, and runs again with a part of the next."""
        super().data_received(data)
        if not self._awaits_head():
            self._forget_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing; there is nothing to wait for any more."""
        self._forget_timer()
        super().connection_lost(exc)

    def _awaits_head(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _give_up(self) -> None:
        self._timer = None
        if self._awaits_head() and not self.transport.is_closing():
            self.transport.close()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
