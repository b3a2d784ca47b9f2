"""Heaps of scored items in two arrays, the first of which is the best or the worst."""

from __future__ import annotations

from typing import Any

import numpy as np

from mvindex.kernels.compiled import compiled_strict

# The sign that scores are compared by.
HIGHEST_FIRST, LOWEST_FIRST = np.float32(1), np.float32(-1)


@compiled_strict
def push(scores: Any, items: Any, size: Any, score: Any, item: Any, sign: Any) -> None:
    """Add an item to a heap of `size` entries."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if (scores[above] - score) * sign >= 0:
            break
        scores[at], items[at] = scores[above], items[above]
        at = above
    scores[at], items[at] = score, item


@compiled_strict
def replace_first(scores: Any, items: Any, size: Any, score: Any, item: Any, sign: Any) -> None:
    """Put an item in the place of the first of a heap of `size` entries."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (scores[below + 1] - scores[below]) * sign > 0:
            below += 1
        if (score - scores[below]) * sign >= 0:
            break
        scores[at], items[at] = scores[below], items[below]
        at = below
    scores[at], items[at] = score, item


@compiled_strict
def sort_falling(scores: Any, items: Any, size: Any) -> None:
    """Sort a heap whose lowest is first, so that the highest is."""
    for last in range(size - 1, 0, -1):
        score, item = scores[last], items[last]
        scores[last], items[last] = scores[0], items[0]
        replace_first(scores, items, last, score, item, LOWEST_FIRST)
