"""Large requests: parsed in threads, and refused where their parsing alone would keep the interpreter for long.

A parser in C holds the interpreter until it is done, in whatever thread, so that the number of values is bounded first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor

from mvindex_connectors.server.fairness import LONG_WORK_S, SmallFirst, switch_interval
from mvindex_connectors.server.response_budget import TooLarge

T = TypeVar("T")

# Up to so many bytes, a request is parsed in the event loop: in about a millisecond.
INLINE_BYTES = 64 << 10
# About 60 ms each: objects and lists, and numbers or texts.
_MAX_CONTAINERS, _MAX_VALUES = 500_000, 2_000_000
_MAX_FIELDS = 1_000_000
_PIECE, _FEW_BYTES = 256 << 10, 1 << 10
_BACKSLASH = ord("\\")
# Wire types of protobuf's encoding, and the bytes of those of a fixed size.
_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
# Of the last seven bits of a number but one: without an end, each step would take as long as all before it.
_MAX_SHIFT = 56

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="parse")


async def parse_large(function: Callable[[], T], num_bytes: int, turns: SmallFirst) -> T:
    """Run the function, which parses so many bytes, here if it is quick: in a thread, if others would wait."""
    if num_bytes <= INLINE_BYTES:
        return function()

    def parse() -> T:
        turns.pause()
        with switch_interval.at_most(LONG_WORK_S):
            return function()

    return await asyncio.get_running_loop().run_in_executor(_THREADS, parse)


def check_json_values(content: bytes | bytearray) -> None:
    """Check that a JSON text has no more values than are parsed at once; raise TooLarge otherwise."""
    if len(content) <= INLINE_BYTES or not _is_beyond(content, [(0, len(content))]):
        return
    # Signs inside strings are no values; to tell them apart takes long, so only where all together are too many.
    if _is_beyond(content, _outside_strings(content)):
        raise TooLarge(
            f"body: expected at most {_MAX_CONTAINERS:,} objects and lists, and {_MAX_VALUES:,} values, got more. Send "
            "less at a time"
        )


def _is_beyond(content: bytes | bytearray, spans: Iterable[tuple[int, int]]) -> bool:
    """Return whether the spans have more objects, lists or values than are parsed at once."""
    containers = values = 0
    for begin, end in spans:
        for at in range(begin, end, _PIECE):
            to = min(at + _PIECE, end)
            opened = _count(content, b"{", at, to) + _count(content, b"[", at, to)
            containers += opened
            values += opened + _count(content, b",", at, to)
            if containers > _MAX_CONTAINERS or values > _MAX_VALUES:
                return True
    return False


def _count(content: bytes | bytearray, sign: bytes, begin: int, end: int) -> int:
    """Return how often a sign occurs between two places."""
    if end - begin < _FEW_BYTES:
        return content.count(sign, begin, end)
    # Thirty times as fast as count() where there are many, and threads that wait for the interpreter get it.
    return int(np.count_nonzero(np.frombuffer(content, np.uint8, end - begin, begin) == ord(sign)))


def _outside_strings(content: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield where each part of a JSON text between its strings begins and ends."""
    at = 0
    while (begin := content.find(b'"', at)) >= 0:
        yield at, begin
        at = _end_of_string(content, begin + 1)
    yield at, len(content)


def _end_of_string(content: bytes | bytearray, at: int) -> int:
    """Return the place behind the string whose first character is at a place; the end of all, if it has no end."""
    while (end := content.find(b'"', at)) >= 0:
        first = end
        while first > at and content[first - 1] == _BACKSLASH:
            first -= 1
        at = end + 1
        if (end - first) % 2 == 0:
            return at
    return len(content)


def check_fields(content: bytes, descriptor: Descriptor) -> None:
    """Check that a message has no more fields, at all levels, than are parsed at once; raise TooLarge otherwise.

    What is no message is left to the parser to refuse.
    """
    if len(content) <= INLINE_BYTES:
        return
    count, parts = 0, [(0, len(content), descriptor)]
    while parts:
        at, end, kind = parts.pop()
        while at < end:
            count += 1
            if count > _MAX_FIELDS:
                raise TooLarge(f"message: expected at most {_MAX_FIELDS:,} fields, got more. Send less at a time")
            try:
                key, at = _varint(content, at)
                if key & 7 == _LENGTH:
                    size, at = _varint(content, at)
                    field = kind.fields_by_number.get(key >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((at, min(at + size, end), field.message_type))
                    at += size
                elif key & 7 == _VARINT:
                    _, at = _varint(content, at)
                else:
                    at += _FIXED_BYTES.get(key & 7, 0)
            except IndexError:
                return


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it; IndexError where it has no end in 64 bits."""
    value = shift = 0
    while (byte := content[at]) & 0x80:
        if shift > _MAX_SHIFT:
            raise IndexError("expected a number of 64 bits, got more")
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | byte << shift, at + 1
