"""Removal of near-duplicate views: those of a document that lie within a distance of another view that stays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import ConfigError
from mvindex.kernels.score import decode
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.views import PackedViews

# Differences of views in memory at once, in float64: 8 MiB, whatever the number of views of a document.
_BLOCK_ELEMENTS = 1 << 20


def kept_views(rows: npt.NDArray[Any], starts: Ints, eps: float) -> Bools:
    """Return which views are kept, (r,) bool: in slot order, all but those within eps of one kept before.

    rows: (r, d) finite float32, or fp16 or fp32 as stored; starts: (n + 1,) int64, document i owns
    rows[starts[i]:starts[i + 1]]. The distance is Euclidean, in float64 (relative error below 1e-9); for unit
    vectors 1 - cosine = distance^2 / 2. eps 0 removes exact duplicates only. ConfigError when eps is no finite
    number from 0 on.

    The first view of a document always stays, and each view v that is removed has a kept view u of its document with
    |v - u| <= eps. So no document loses more than eps |q| of its score by best view (scoring "max"): by Cauchy-Schwarz
    q.u = q.v - q.(v - u) >= q.v - |q| |v - u| >= q.v - eps |q|, also where v was the best view; and the best of fewer
    views is never above the best of all.
    """
    eps = check_eps(eps)
    is_kept = np.ones(len(rows), dtype=bool)
    for block in _blocks(starts, rows.shape[1]):
        is_kept[block] = _kept_slots(decode(rows[block]), eps)
    return is_kept


def remove_near_duplicates(views: PackedViews, eps: float) -> PackedViews:
    """Remove the views that kept_views() removes."""
    is_kept = kept_views(views.rows, views.starts, eps)
    seen = np.append(0, np.cumsum(is_kept))
    return PackedViews(views.rows[is_kept], seen[views.starts], views.spans[is_kept])


def check_eps(value: object) -> float:
    """Return the value as a float; raise ConfigError when it is no distance, a finite number from 0 on."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            eps = float(value)
        except OverflowError:
            eps = math.inf
        if 0 <= eps < math.inf:
            return eps
    raise ConfigError(f"prune_views is {value!r:.40}; expected a distance: a finite number from 0 on")


def _blocks(starts: Ints, dim: int) -> Iterator[Ints]:
    """Yield the rows of documents with equally many views, more than one, (n, k), in blocks of bounded memory."""
    counts = np.diff(starts)
    for num_views in np.unique(counts[counts > 1]).tolist():
        begins = starts[:-1][counts == num_views]
        step = max(1, _BLOCK_ELEMENTS // (num_views * dim))
        for begin in range(0, len(begins), step):
            yield begins[begin : begin + step, None] + np.arange(num_views)


def _kept_slots(views: Floats, eps: float) -> Bools:
    """Return which slots of documents with equally many views are kept, (n, k); views: (n, k, d)."""
    num_documents, num_views, dim = views.shape
    is_kept = np.ones((num_documents, num_views), dtype=bool)
    step = max(1, _BLOCK_ELEMENTS // (num_documents * dim))
    for slot in range(num_views - 1):
        if not is_kept[:, slot].any():
            continue
        for begin in range(slot + 1, num_views, step):
            later = slice(begin, begin + step)
            is_near = _distances(views[:, later], views[:, slot, None]) <= eps
            is_kept[:, later] &= ~(is_near & is_kept[:, slot, None])
    return is_kept


def _distances(some: Floats, other: Floats) -> Doubles:
    """Return the distances (n, m) of views (n, m, d) to one view of the same document, (n, 1, d)."""
    # By differences: from inner products, the distance of close views would be mostly rounding.
    gaps = np.subtract(some, other, dtype=np.float64)
    distances: Doubles = np.sqrt(np.einsum("nmd,nmd->nm", gaps, gaps))
    return distances
