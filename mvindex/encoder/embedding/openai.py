"""Models behind an OpenAI-compatible endpoint: POST URL/embeddings."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np

from mvindex.encoder.embedding.function import MAX_CHARS
from mvindex.encoder.embedding.http import JsonClient, Sending
from mvindex.errors import ConfigError, EncoderError
from mvindex.records import Floats

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
