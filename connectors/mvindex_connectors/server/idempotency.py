"""Requests that come again, since their answer was lost on the way: they are not done twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import xxhash

from mvindex.errors import QueryError

T = TypeVar("T")

# Of an index's settings; lists what chunks of which runs are stored, the latest last.
SETTING = "served_chunks"
_KEPT_STORED = 128
_KEPT_ANSWERS = 4096
_MAX_KEY_CHARS = 128


def checked_key(key: str) -> str:
    """The idempotency key; QueryError when it is none."""
    if len(key) > _MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise QueryError(f"idempotency_key {key[:40]!r}: wanted up to {_MAX_KEY_CHARS} printable ASCII characters")
    return key


class Answers(Generic[T]):
    """The latest answers by key. What a server forgets when it ends."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """The answer that was given, or None."""
        return self._answers.get(key)

    def keep(self, key: str, answer: T) -> None:
        """Nothing; the answer is known from now on."""
        self._answers[key] = answer
        while len(self._answers) > _KEPT_ANSWERS:
            self._answers.popitem(last=False)


def mark_of(key: str, chunk: int) -> str:
    """What stands for a chunk of a run in an index's settings."""
    return xxhash.xxh3_64_hexdigest(f"{chunk} {key}".encode())


def is_stored(settings: Mapping[str, Any], mark: str) -> bool:
    """True when the index has stored the chunk."""
    return mark in settings.get(SETTING, ())


def with_mark(settings: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The settings that say that the chunk is stored, to be set in its transaction."""
    return {SETTING: [*settings.get(SETTING, ()), mark][-_KEPT_STORED:]}
