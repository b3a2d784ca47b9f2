"""Pool token states into rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mvindex.encoder.batches import Batch
from mvindex.encoder.device import on_device
from mvindex.encoder.families.windows import CONTEXT
from mvindex.records import Floats, Ints

if TYPE_CHECKING:
    import torch


class RowMeans:
    """Means of states by row, summed in fp32 batch after batch: a row's states may come from several windows."""

    def __init__(self, num_rows: int, dim: int) -> None:
        self._sums = np.zeros((num_rows, dim), dtype=np.float32)
        self._weights = np.zeros(num_rows, dtype=np.float32)

    def add(self, batch: Batch, states: Floats) -> None:
        """Add the batch's states, (b, t, dim) float32: a row's sum does not depend on the rest of the batch."""
        places = np.flatnonzero(batch.rows != CONTEXT)
        places = places[np.argsort(batch.rows.ravel()[places], kind="stable")]
        rows, weights = batch.rows.ravel()[places], batch.weights.ravel()[places]
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        chosen = states.reshape(-1, states.shape[-1])[places] * weights[:, None]
        self._sums[rows[firsts]] += np.add.reduceat(chosen, firsts, axis=0)
        self._weights[rows[firsts]] += np.add.reduceat(weights, firsts)

    def means(self) -> Floats:
        """Return the means, (num_rows, dim) float32; NaN for a row without states."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sums / self._weights[:, None], dtype=np.float32)


def add_document_share(rows: Floats, starts: Ints, share: float) -> None:
    """Add to each view, in place, `share` times the unit mean of its document's views; scale to length 1.

    A view alone says little of what its document is about: a question of a topic then finds one document of a sentence
    that fits by chance. rows: (r, d) float32 of length 1; starts: (n + 1,), each document has a view.
    """
    means = np.add.reduceat(rows, starts[:-1], axis=0)
    # Views that cancel out have no mean to add.
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    rows += np.float32(share) * np.repeat(means, np.diff(starts), axis=0)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def row_means(
    parts: Iterable[tuple[Batch, torch.Tensor]], num_rows: int, dim: int, device: torch.device
) -> torch.Tensor:
    """Return the means over batches that together hold all windows of the rows: (num_rows, dim) fp32, with gradients.

    parts: each batch with its states, (b, t, dim) of any float type, on the device. Nothing is copied from the device,
    and the sums are the same in every run.
    """
    import torch

    sums, totals = torch.zeros((num_rows, dim), device=device), np.zeros(num_rows)
    for batch, states in parts:
        places = np.flatnonzero(batch.rows != CONTEXT)
        rows, weights = batch.rows.ravel()[places], batch.weights.ravel()[places]
        totals += np.bincount(rows, weights, minlength=num_rows)
        chosen = states.flatten(0, 1).index_select(0, on_device(places, device)).float()
        sums = _add_rows(sums, on_device(rows, device), chosen * on_device(weights, device)[:, None])
    return sums / on_device(totals.astype(np.float32), device)[:, None]


def _add_rows(sums: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the sums with the values added to their rows, in their order: the same bits in every run."""
    if sums.device.type == "cpu":
        return sums.index_add(0, rows, values)
    # On CUDA index_add adds in any order; this one sorts the rows.
    return sums.index_put((rows,), values, accumulate=True)
