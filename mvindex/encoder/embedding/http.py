"""POST requests of JSON, repeated where a server asks for it."""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mvindex.errors import EncoderError, EncoderUnavailable
from mvindex.retries import Again, Retries

_REPEATED = frozenset((408, 409, 429, 500, 502, 503, 504, 529))
_LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How often and how patiently a request is sent: a wait doubles from first_wait_s to longest_wait_s."""

    attempts: int = 6
    timeout_s: float = 60.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would carry the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class JsonClient:
    """Sends JSON to one URL. `key` goes into the header of each request and into nothing else."""

    def __init__(self, url: str, key: str | None, sending: Sending | None = None) -> None:
        """Take the URL and the bearer token."""
        self._url, self._key, self._sending = url, key, sending or Sending()
        self._opener = urllib.request.build_opener(_NoRedirects())

    def post(self, body: Mapping[str, Any]) -> Any:
        """Return the JSON that the server answers.

        Raises:
            EncoderUnavailable: When it refuses, or does not answer after all attempts; names URL and status.
            EncoderError: When the answer is not JSON, or the server finds fault with the request.

        """
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        sending = self._sending
        retries = Retries(Again, tries=sending.attempts, first_s=sending.first_wait_s, longest_s=sending.longest_wait_s)
        try:
            return retries.run(lambda: self._send(data))
        except Again as err:
            raise EncoderUnavailable(f"{err}; gave up after {retries.tried} attempts") from None

    def _send(self, data: bytes) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "mvindex"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, data, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._sending.timeout_s) as response:
                content = response.read()
        except urllib.error.HTTPError as err:
            raise self._refusal(err) from None
        except (socket.timeout, TimeoutError):  # noqa: UP041 - two classes in Python 3.10's ssl
            raise Again(f"{self._url}: expected an answer within {self._sending.timeout_s:g} s, got none") from None
        except (OSError, http.client.HTTPException) as err:
            reason = getattr(err, "reason", None) or err
            raise Again(f"{self._url}: expected an answer, got none: {self._hide(str(reason))}") from None
        try:
            return json.loads(content)
        except ValueError as err:
            raise EncoderError(f"{self._url}: expected JSON, got {content[:60]!r}: {err}") from None

    def _refusal(self, err: urllib.error.HTTPError) -> Exception:
        """Return what to raise for a status that is no success."""
        with err:
            said = self._hide(_message_of(err.read(100_000)))
        text = f"{self._url}: status {err.code}{f': {said}' if said else ''}"
        if err.code in _REPEATED:
            return Again(text, _retry_after(err.headers.get("Retry-After")))
        if err.code in (401, 403):
            way = "check the key" if self._key else "no key was sent"
            return EncoderUnavailable(
                f"{text}; {way}: MVINDEX_OPENAI_API_KEY, or for api.openai.com OPENAI_API_KEY, in the environment"
            )
        if 300 <= err.code < 400:
            return EncoderUnavailable(f"{text}; a redirect is not followed, since it would carry the key along")
        return EncoderUnavailable(text) if err.code == 404 else EncoderError(text)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _message_of(content: bytes) -> str:
    """Return what an error response says: its JSON's message, else its beginning."""
    text = content.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:_LONGEST_MESSAGE]
    for name in ("error", "message", "detail"):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
    return str(value)[:_LONGEST_MESSAGE]


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None where it has neither."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
