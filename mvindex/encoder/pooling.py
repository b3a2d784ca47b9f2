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
        self._sums = np.zeros((num_rows, dim), dtype=np.float32)
        self._weights = np.zeros(num_rows, dtype=np.float32)

    def add(self, batch: Batch, states: torch.Tensor | Floats) -> None:
        """Add the batch's states, (b, t, dim): a tensor of any float type, or float32."""
        places = np.flatnonzero(batch.rows != CONTEXT)
        rows = batch.rows.ravel()[places]
        if isinstance(states, np.ndarray):
            self._add_stretches(batch, states, places)
            return
        # Where rows are single tokens there is nothing to sum, and the product below would be tokens by tokens.
        if (np.diff(np.sort(rows)) > 0).all():
            self._add_chosen(batch, states, places)
        else:
            self._add_summed(batch, states)

    def means(self) -> Floats:
        """Return the means, (num_rows, dim) float32; NaN for a row without states."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sums / self._weights[:, None], dtype=np.float32)

    def _add_stretches(self, batch: Batch, states: Floats, places: Ints) -> None:
        """Add the states at these places, one after the other: a row's sum does not depend on the rest of the batch."""
        order = np.argsort(batch.rows.ravel()[places], kind="stable")
        places = places[order]
        rows, weights = batch.rows.ravel()[places], batch.weights.ravel()[places]
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        chosen = states.reshape(-1, states.shape[-1])[places] * weights[:, None]
        self._sums[rows[firsts]] += np.add.reduceat(chosen, firsts, axis=0)
        self._weights[rows[firsts]] += np.add.reduceat(weights, firsts)

    def _add_chosen(self, batch: Batch, states: torch.Tensor, places: Ints) -> None:
        """Add the states at these places of the flattened batch, each to a row of its own."""
        rows, weights = batch.rows.ravel()[places], batch.weights.ravel()[places]
        self._sums[rows] += _chosen(states, places) * weights[:, None]
        self._weights[rows] += weights

    def _add_summed(self, batch: Batch, states: torch.Tensor) -> None:
        """Add the states, summed by row on the device that computed them."""
        is_pooled = batch.rows != CONTEXT
        # A window's rows are neighbours: numbered from its first one they are few, and one product sums them all.
        lowest = np.where(is_pooled, batch.rows, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        numbers = np.where(is_pooled, batch.rows - lowest, -1)
        one_hot = numbers[:, None, :] == np.arange(numbers.max() + 1)[None, :, None]
        weights = (one_hot * batch.weights[:, None, :]).astype(np.float32)
        line, number = np.nonzero(one_hot.any(axis=2))
        rows = lowest[line, 0] + number
        sums = _weighted_sums(weights, states)
        for at in range(len(sums)):  # a row may lie in several windows, but only once in each
            here = line == at
            self._sums[rows[here]] += sums[at, number[here]]
        np.add.at(self._weights, rows, weights.sum(axis=2)[line, number])


def _chosen(states: torch.Tensor, places: Ints) -> Floats:
    """Return the states at these places of the flattened batch, (m, dim) float32."""
    import torch

    chosen = states.flatten(0, 1).index_select(0, torch.from_numpy(places).to(states.device))
    return np.asarray(chosen.float().cpu().numpy())


def _weighted_sums(weights: Floats, states: torch.Tensor) -> Floats:
    """Return the products of weights (b, r, t) and states, (b, r, dim) float32, computed where the states are."""
    import torch

    return np.asarray(torch.bmm(torch.from_numpy(weights).to(states.device), states.float()).cpu().numpy())


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
