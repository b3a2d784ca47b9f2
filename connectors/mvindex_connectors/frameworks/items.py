"""Documents of a framework as callers give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from mvindex.errors import DocumentError

T = TypeVar("T")


def check_items(name: str, items: Iterable[T], kind: type[T]) -> list[T]:
    """Return the items as a list; DocumentError unless each is of this kind. name: what messages call them."""
    if isinstance(items, kind) or not isinstance(items, Iterable):
        raise DocumentError(f"{name}: expected several {kind.__name__}, got {type(items).__name__}")
    listed = list(items)
    for number, item in enumerate(listed, start=1):
        if not isinstance(item, kind):
            raise DocumentError(f"{name}: expected {kind.__name__}, got {type(item).__name__} as number {number}")
    return listed
