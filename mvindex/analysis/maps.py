"""A document's views and its questions in a plane."""

from __future__ import annotations

import numpy as np

from mvindex.records import Doubles, Floats


def plane(points: Floats) -> tuple[Doubles, float]:
    """The points (n, d) in the plane that keeps most of their variance, (n, 2), and the share of it that is kept.

    Principal components by singular values. The signs are fixed, so that the same points give the same picture: the
    entry furthest from the centre on each axis lies on its positive side.
    """
    centred = points.astype(np.float64) - points.astype(np.float64).mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    placed = np.zeros((len(points), 2))
    kept = min(2, len(sizes))
    placed[:, :kept] = left[:, :kept] * sizes[:kept]
    signs = np.sign(placed[np.abs(placed).argmax(axis=0), [0, 1]])
    total = float((sizes**2).sum())
    return placed * np.where(signs == 0, 1, signs), float((sizes[:kept] ** 2).sum()) / total if total else 1.0
