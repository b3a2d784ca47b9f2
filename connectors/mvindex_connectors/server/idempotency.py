"""Idempotency: a request that is sent again because its response was lost is not carried out twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import xxhash

from mvindex.errors import QueryError

T = TypeVar("T")

# The key in an index's settings that lists the marks of stored chunks, the latest last.
SETTING = "served_chunks"
_MAX_MARKS = 128
_MAX_RESPONSES = 4096
_MAX_KEY_CHARS = 128


def check_idempotency_key(key: str) -> str:
    """Return the key; QueryError if it is malformed."""
    if len(key) > _MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise QueryError(
            f"idempotency_key: expected up to {_MAX_KEY_CHARS} printable ASCII characters, got {key[:40]!r}"
        )
    return key


class IdempotencyCache(Generic[T]):
    """The latest responses by idempotency key, in memory."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """Return the response for the key, or None."""
        return self._responses.get(key)

    def put(self, key: str, response: T) -> None:
        """Store the response for the key."""
        self._responses[key] = response
        while len(self._responses) > _MAX_RESPONSES:
            self._responses.popitem(last=False)


def chunk_mark(key: str, chunk: int) -> str:
    """Return the mark of a chunk of a run in an index's settings."""
    return xxhash.xxh3_64_hexdigest(f"{chunk} {key}".encode())


def is_chunk_stored(settings: Mapping[str, Any], mark: str) -> bool:
    """Return whether the index has stored the chunk."""
    return mark in settings.get(SETTING, ())


def settings_with_mark(settings: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Return settings that list the chunk as stored, to be saved in its transaction."""
    return {SETTING: [*settings.get(SETTING, ()), mark][-_MAX_MARKS:]}
