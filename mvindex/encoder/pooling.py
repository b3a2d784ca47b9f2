"""Token states to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mvindex.encoder.batches import Batch
from mvindex.encoder.families import CONTEXT
from mvindex.records import Floats

if TYPE_CHECKING:
    import torch


class RowMeans:
    """Means of states by row, summed up in fp32 batch after batch: a row's states may come from several windows."""

    def __init__(self, num_rows: int, dim: int) -> None:
        import torch

        self._sums = torch.zeros((num_rows, dim), dtype=torch.float32)
        self._counts = np.zeros(num_rows, dtype=np.int64)

    def add(self, batch: Batch, states: torch.Tensor) -> None:
        """Nothing; the batch's states (b, t, dim) of any float type are counted."""
        import torch

        is_pooled = batch.rows != CONTEXT
        # A window's rows are neighbours: numbered from its first one they are few, and one product sums them all.
        lowest = np.where(is_pooled, batch.rows, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        numbers = np.where(is_pooled, batch.rows - lowest, -1)
        one_hot = numbers[:, None, :] == np.arange(numbers.max() + 1)[None, :, None]
        weights = torch.from_numpy(one_hot).to(states.device, torch.float32)
        sums = torch.bmm(weights, states.float()).cpu()
        counts = one_hot.sum(axis=2)
        line, number = np.nonzero(counts)
        rows = lowest[line, 0] + number
        self._sums.index_add_(0, torch.from_numpy(rows), sums[line, number])
        np.add.at(self._counts, rows, counts[line, number])

    def means(self) -> Floats:
        """The means, (num_rows, dim) float32; NaN for a row that nothing counted for."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sums.numpy() / self._counts[:, None], dtype=np.float32)
