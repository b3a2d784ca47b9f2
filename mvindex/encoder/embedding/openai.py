"""Embeddings of a server with OpenAI's interface, by requests that are repeated where it asks for it."""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np

from mvindex.encoder.embedding.encoder import MAX_CHARS
from mvindex.errors import ConfigError, EncoderError, EncoderUnavailable
from mvindex.records import Floats
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


KIND = "openai"
PREFIX = f"{KIND}:"
OWN_KEY, OPENAI_KEY, OPENAI_URL = "MVINDEX_OPENAI_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"
_OPENAI_HOST = "api.openai.com"
# Servers limit a request by texts (Text Embeddings Inference: 32) or by tokens (OpenAI: 300,000).
BATCH_TEXTS = 32
BATCH_CHARS = 100_000
_REQUESTS_AT_ONCE = 4


class OpenAIEmbedder:
    """A model behind an endpoint. The key comes from the environment, and goes nowhere but to the endpoint."""

    kind = KIND
    embeds_alike = True
    max_chars = MAX_CHARS

    def __init__(self, source: str, sending: Sending | None = None) -> None:
        """Take "openai:URL#model".

        Raises:
            ConfigError: For another form, a URL with a password, or a key that would go over plain HTTP.

        """
        url, self._model = _parse(source)
        self.source = f"{PREFIX}{url.geturl()}#{self._model}"
        self.identity = f"{PREFIX}{url.hostname}#{self._model}"
        self._endpoint = f"{url.geturl()}/embeddings"
        self._client = JsonClient(self._endpoint, _key_for(url), sending)

    def embed_documents(self, texts: list[str]) -> Floats:
        """Return the endpoint's vectors, in the order of the texts."""
        batches = list(_batches(texts))
        if len(batches) == 1:
            return self._embed(batches[0])
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="mvindex-embeddings") as pool:
            try:
                return np.concatenate(list(pool.map(self._embed, batches)))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    embed_queries = embed_documents

    def _embed(self, texts: list[str]) -> Floats:
        response = self._client.post({"model": self._model, "input": texts, "encoding_format": "float"})
        data = response.get("data") if isinstance(response, Mapping) else None
        if not isinstance(data, list) or len(data) != len(texts):
            got = f"{len(data)}" if isinstance(data, list) else f"{response!r:.80}"
            raise EncoderError(f"{self._endpoint}: expected 'data' with {len(texts)} embeddings, got {got}")
        return self._rows(data)

    def _rows(self, data: Sequence[Any]) -> Floats:
        """Return the embeddings by their index; servers need not keep the order."""
        rows: list[Any] = [None] * len(data)
        for place, item in enumerate(data):
            number = item.get("index", place) if isinstance(item, Mapping) else None
            if type(number) is not int or not 0 <= number < len(data) or rows[number] is not None:
                raise EncoderError(f"{self._endpoint}: expected one item for each index, got {item!r:.80}")
            rows[number] = item.get("embedding")
        try:
            array = np.array(rows, dtype=np.float32)
        except (TypeError, ValueError) as err:
            raise EncoderError(f"{self._endpoint}: expected lists of numbers of one length: {err}") from err
        if array.ndim != 2:
            raise EncoderError(f"{self._endpoint}: expected lists of numbers, got {rows[0]!r:.80}")
        return array


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in batches bounded by their number and by their characters."""
    batch: list[str] = []
    num_chars = 0
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS or num_chars + len(text) > BATCH_CHARS):
            yield batch
            batch, num_chars = [], 0
        batch.append(text)
        num_chars += len(text)
    if batch:
        yield batch


def _parse(source: str) -> tuple[SplitResult, str]:
    """Return the URL, without a slash at its end, and the model of "openai:URL#model"."""
    address, _, model = source.removeprefix(PREFIX).rpartition("#")
    try:
        url = urlsplit(address.rstrip("/"))
        has_host = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        has_host = False
    if not has_host or not model:
        raise ConfigError(
            f"encoder: expected openai:URL#model, such as openai:https://{_OPENAI_HOST}/v1#text-embedding-3-small, "
            f"got {'a URL that cannot be read' if '@' in source else repr(source)}"
        )
    if url.username is not None or url.password is not None or url.query:
        raise ConfigError(f"encoder: expected a URL without user, password and query; the key comes from {OWN_KEY}")
    return url, model


def _key_for(url: SplitResult) -> str | None:
    """Return the key for a URL, which an index of someone else may have recorded; None where none is meant for it.

    OPENAI_API_KEY goes to OpenAI, the host of OPENAI_BASE_URL and this machine only; MVINDEX_OPENAI_API_KEY to any.
    """
    own = os.environ.get(OWN_KEY)
    hosts = (_OPENAI_HOST, urlsplit(os.environ.get(OPENAI_URL, "")).hostname)
    is_local = _is_loopback(url.hostname or "")
    key = own or (os.environ.get(OPENAI_KEY) if is_local or url.hostname in hosts else None)
    if key and url.scheme != "https" and not is_local:
        raise ConfigError(f"encoder: {url.geturl()}: expected https, since a key is sent, or this machine")
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"encoder: the key in {OWN_KEY if own else OPENAI_KEY} holds characters that no key has")
    return key or None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
