"""Marks of writes in a store's settings: a write that is sent again, its response lost, is not carried out again.

A mark is stored in the transaction of its write, so that no kill parts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SETTING = "served_writes"
# More than are on their way at once; those of a running server are in its memory as well.
_MAX_MARKS = 256


def result_of(settings: Mapping[str, Any], mark: str) -> int | None:
    """Return how many documents the write of this mark changed; None unless it was carried out."""
    return dict(settings.get(_SETTING, ())).get(mark) if mark else None


def with_mark(settings: Mapping[str, Any], mark: str, result: int) -> dict[str, Any]:
    """Return the change of settings that records a write and how many documents it changed; none without a mark."""
    return {_SETTING: [*settings.get(_SETTING, ()), [mark, result]][-_MAX_MARKS:]} if mark else {}
