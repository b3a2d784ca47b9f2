"""A limit of the bytes of documents that a caller reads, so that what it gathers cannot fill the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, TypeVar

from mvindex.errors import LimitExceeded

RowT = TypeVar("RowT", bound=tuple[Any, ...])


@dataclass(slots=True)
class _Left:
    """The limit, and what is left of it."""

    max_bytes: int
    num_bytes: int


_LEFT: ContextVar[_Left | None] = ContextVar("left", default=None)


@contextmanager
def byte_limit(max_bytes: int) -> Iterator[None]:
    """Raise LimitExceeded inside the block once the documents that this thread reads take more than max_bytes.

    For callers that gather documents, as a server does for a response; what passes over documents sets no limit.
    """
    token = _LEFT.set(_Left(max_bytes, max_bytes))
    try:
        yield
    finally:
        _LEFT.reset(token)


def limited(rows: Iterable[RowT]) -> Iterable[RowT]:
    """Return the rows, counted as they are taken where a block limits them."""
    left = _LEFT.get()
    return rows if left is None else _counted(rows, left)


def _counted(rows: Iterable[RowT], left: _Left) -> Iterator[RowT]:
    for row in rows:
        left.num_bytes -= sum(map(getsizeof, row))
        if left.num_bytes < 0:
            raise LimitExceeded(f"documents: expected at most {left.max_bytes:,} bytes together, got more")
        yield row
