"""HTTP connections with limits that uvicorn lacks: a time for the head, the number of small chunks, unread bytes.

And with rules that h11 leaves to its users: a head that a proxy may read in another way is refused (RFC 9112, 2.2, 5.2
and 6.1).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_TIMEOUT_S = 10.0
_MAX_HEAD_BYTES = 32 << 10
# The line before a chunk of less than 4 KiB. To parse it takes the event loop longer than to receive a kilobyte.
_SMALL_CHUNK = re.compile(rb"\r\n0*[0-9A-Fa-f]{1,3}[ \t]*(?:;[^\r\n]*)?\r\n")
_SMALL_CHUNKS, _BYTES_A_CHUNK = 1_000, 64
# What a client may send of a body whose request was answered before its end, such as one that is too large.
_MAX_UNREAD_BYTES = 64 << 20


# An empty line, as h11 ends a head; and in a head a line that ends without CR, or goes on with the one before it.
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\n[ \t]")


class StrictConnection(h11.Connection):
    """A connection that takes only heads which everyone reads in the same way."""

    def next_event(self) -> Any:
        """Return the next event; h11.RemoteProtocolError for an ambiguous head."""
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].lstrip(b"\r\n")
            end = _END_OF_HEAD.search(head)
            if _AMBIGUOUS.search(head, 0, end.end() if end else len(head)):
                raise h11.RemoteProtocolError("expected lines that end with CRLF, none of them folded")
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= dict(event.headers).keys():
            raise h11.RemoteProtocolError("expected Content-Length or Transfer-Encoding, got both")
        return event


class LimitedProtocol(H11Protocol):
    """Uvicorn's protocol; ends connections that are beyond these limits."""

    # Called when the connection begins a request, and when it has ended.
    on_active: Callable[[], None] = staticmethod(lambda: None)
    on_lost: Callable[[], None] = staticmethod(lambda: None)
    _timer: asyncio.TimerHandle | None = None
    _num_bytes = _num_chunks = _num_unread = 0

    @property
    def is_busy(self) -> bool:
        """Whether a request was received in full, and its response is not sent yet."""
        return not self._awaits_head() and not self.cycle.more_body

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self.conn = StrictConnection(h11.SERVER, _MAX_HEAD_BYTES)
        self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def data_received(self, data: bytes) -> None:
        """Stop the timer at the end of a head; restart it with the first part of the next."""
        if self._is_beyond(data):
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._num_bytes = self._num_chunks = self._num_unread = 0
            # Bytes of a head or of a body are no sign of life: a slow client sends them for ever.
            self.on_active()
        if not self._awaits_head():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._close)

    def _is_beyond(self, data: bytes) -> bool:
        """Count what was received; end the connection and return True where it is more than a request may have."""
        self._num_bytes += len(data)
        self._num_chunks += len(_SMALL_CHUNK.findall(data))
        if self._num_chunks > _SMALL_CHUNKS + self._num_bytes // _BYTES_A_CHUNK:
            if not self.transport.is_closing():
                self.send_400_response("Too many small chunks in the body.")
            return True
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self._num_unread += len(data)
            if self._num_unread > _MAX_UNREAD_BYTES:
                self.transport.abort()
                return True
        return False

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
