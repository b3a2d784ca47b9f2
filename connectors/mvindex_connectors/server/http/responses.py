"""Responses in parts: counted while they are encoded, and sent as fast as the client reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mvindex.errors import MvindexError, Unsupported
from mvindex_connectors.remote.status import http_status, nearest_known_class
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.limits import ResponseMeter, TooLarge

# What is handed over to a connection at once.
_SLICE_BYTES = 256 << 10
# How long a client may take to read a slice.
_READ_TIMEOUT_S = 30.0


class PartsResponse(Response):
    """A response of JSON in parts. Once it was sent, or the client is gone or does not read, its meter is closed."""

    def __init__(self, parts: Sequence[bytes], meter: ResponseMeter) -> None:
        """Take the parts, which make the body together."""
        self._parts, self._meter = parts, meter
        super().__init__(None, media_type="application/json")
        self.headers["content-length"] = str(sum(map(len, parts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; end the connection of a client that stops reading."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for part in self._parts:
                for begin in range(0, len(part), _SLICE_BYTES):
                    body = part[begin : begin + _SLICE_BYTES]
                    sending = send({"type": "http.response.body", "body": body, "more_body": True})
                    await asyncio.wait_for(sending, _READ_TIMEOUT_S)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._parts = ()
            self._meter.close()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_response(err: MvindexError, request_id: str, status: int | None = None) -> Response:
    """Return the response of an error; status: instead of that of its class."""
    if status is None:
        status = 413 if isinstance(err, TooLarge) else 501 if isinstance(err, Unsupported) else http_status(err)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {"retry-after": "1"} if status in (429, 503) else {}
    detail = schemas.ErrorDetail(nearest_known_class(err).__name__, str(err), request_id)
    return json_response(schemas.Error(detail), status, headers)


def encoded_parts(values: Iterable[Any], meter: ResponseMeter) -> list[bytes]:
    """Return the JSON of each value; TooLarge once they have more bytes than the response may have."""
    parts, num_bytes = [], 0
    for value in values:
        meter.give_way()
        parts.append(msgspec.json.encode(value))
        num_bytes += len(parts[-1])
        meter.check(num_bytes)
    return parts


def joined(head: bytes, parts: Sequence[bytes], tail: bytes) -> list[bytes]:
    """Return the parts with commas between them, and what stands before and after them."""
    between = [piece for part in parts for piece in (b",", part)][1:]
    # Small parts are sent together.
    return [head + b"".join(between) + tail] if sum(map(len, parts)) < _SLICE_BYTES else [head, *between, tail]
