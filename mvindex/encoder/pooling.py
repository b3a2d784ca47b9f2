"""Pool token states into rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mvindex.encoder.batches import Batch
from mvindex.encoder.families.windows import CONTEXT
from mvindex.records import Floats, Ints

if TYPE_CHECKING:
    import torch


class RowMeans:
    """Means of states by row, summed in fp32 batch after batch: a row's states may come from several windows."""

    def __init__(self, num_rows: int, dim: int) -> None:
        import torch

        self._sums = torch.zeros((num_rows, dim), dtype=torch.float32)
        self._weights = np.zeros(num_rows, dtype=np.float32)

    def add(self, batch: Batch, states: torch.Tensor) -> None:
        """Add the batch's states, (b, t, dim) of any float type."""
        places = np.flatnonzero(batch.rows != CONTEXT)
        rows = batch.rows.ravel()[places]
        # Where rows are single tokens there is nothing to sum, and the product below would be tokens by tokens.
        if len(np.unique(rows)) == len(rows):
            self._add_chosen(batch, states, places)
        else:
            self._add_summed(batch, states)

    def means(self) -> Floats:
        """Return the means, (num_rows, dim) float32; NaN for a row without states."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sums.numpy() / self._weights[:, None], dtype=np.float32)

    def _add_chosen(self, batch: Batch, states: torch.Tensor, places: Ints) -> None:
        """Add the states at these places of the flattened batch, each to a row of its own."""
        import torch

        rows, weights = batch.rows.ravel()[places], batch.weights.ravel()[places]
        chosen = states.flatten(0, 1).index_select(0, torch.from_numpy(places).to(states.device)).float().cpu()
        self._sums.index_add_(0, torch.from_numpy(rows), chosen * torch.from_numpy(weights)[:, None])
        self._weights[rows] += weights

    def _add_summed(self, batch: Batch, states: torch.Tensor) -> None:
        """Add the states, summed by row on the device that computed them."""
        import torch

        is_pooled = batch.rows != CONTEXT
        # A window's rows are neighbours: numbered from its first one they are few, and one product sums them all.
        lowest = np.where(is_pooled, batch.rows, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        numbers = np.where(is_pooled, batch.rows - lowest, -1)
        one_hot = numbers[:, None, :] == np.arange(numbers.max() + 1)[None, :, None]
        weights = (one_hot * batch.weights[:, None, :]).astype(np.float32)
        sums = torch.bmm(torch.from_numpy(weights).to(states.device), states.float()).cpu()
        line, number = np.nonzero(one_hot.any(axis=2))
        rows = lowest[line, 0] + number
        self._sums.index_add_(0, torch.from_numpy(rows), sums[line, number])
        np.add.at(self._weights, rows, weights.sum(axis=2)[line, number])


def row_means(parts: Iterable[tuple[Batch, torch.Tensor]], num_rows: int, dim: int) -> torch.Tensor:
    """Return the means over batches that together hold all windows of the rows: (num_rows, dim) fp32, with gradients.

    parts: each batch with its states, (b, t, dim) of any float type, on one device.
    """
    import torch

    sums, totals = torch.zeros((num_rows, dim)), torch.zeros(num_rows)
    for batch, states in parts:
        line, place = (torch.from_numpy(found).to(states.device) for found in np.nonzero(batch.rows != CONTEXT))
        rows, weights = (
            torch.from_numpy(array).to(states.device)[line, place] for array in (batch.rows, batch.weights)
        )
        chosen = states[line, place].float() * weights[:, None]
        sums = sums.to(states.device).index_add(0, rows, chosen)
        totals = totals.to(states.device).index_add(0, rows, weights)
    return sums / totals[:, None]
