"""Projection of a document's views and questions onto a plane."""

from __future__ import annotations

import numpy as np

from mvindex.records import Doubles, Floats


def plane(points: Floats) -> tuple[Doubles, float]:
    """Return the points (n, d) in the plane of most variance, (n, 2), and the share of the variance it shows.

    Principal components by singular values. Signs are fixed, so that the same points give the same picture: on each
    axis the point furthest from the centre lies on the positive side.
    """
    centred = points.astype(np.float64) - points.astype(np.float64).mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    placed = np.zeros((len(points), 2))
    num_axes = min(2, len(sizes))
    placed[:, :num_axes] = left[:, :num_axes] * sizes[:num_axes]
    signs = np.sign(placed[np.abs(placed).argmax(axis=0), [0, 1]])
    total = float((sizes**2).sum())
    return placed * np.where(signs == 0, 1, signs), float((sizes[:num_axes] ** 2).sum()) / total if total else 1.0
