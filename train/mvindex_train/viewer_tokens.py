"""Viewer tokens in training: new entries of the vocabulary whose embeddings are parameters of their own."""

from __future__ import annotations

from typing import Any

import torch

from mvindex.encoder.checkpoint import viewer_ids
from mvindex.encoder.checkpoint.load import DOCUMENT_VIEWER, QUERY_VIEWER

# Viewers that start from the same embedding need noise, or they would stay equal (MVR at one position). It is a tenth
# of the standard deviation with which embeddings are initialised.
NOISE = 0.002
INITIALISER_RANGE = 0.02


class ViewerEmbedding(torch.nn.Module):
    """An embedding table with the viewers' rows as a separate parameter, which can have its own learning rate.

    The tokens `first` to first + len(viewers) - 1 are viewers.
    """

    def __init__(self, table: torch.nn.Embedding, first: int, viewers: torch.Tensor) -> None:
        super().__init__()
        self.table = table
        self.viewers = torch.nn.Parameter(viewers)
        self.first = first

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of the ids, (..., d)."""
        number = ids - self.first
        is_viewer = (number >= 0) & (number < len(self.viewers))
        words: torch.Tensor = self.table(ids.masked_fill(is_viewer, 0))
        rows = torch.nn.functional.embedding(number.masked_fill(~is_viewer, 0), self.viewers)
        return torch.where(is_viewer[..., None], rows.to(words.dtype), words)

    @property
    def weight(self) -> torch.Tensor:
        """The weight of the table, for code that reads its dtype or device."""
        weight: torch.Tensor = self.table.weight
        return weight


def add_viewer_tokens(tokenizer: Any, num_views: int) -> list[int]:
    """Add [VIE] and [VIE_1] to [VIE_k] to the transformers tokenizer; return their ids, which are consecutive."""
    names = [QUERY_VIEWER, *(DOCUMENT_VIEWER.format(slot) for slot in range(1, num_views + 1))]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    return viewer_ids(tokenizer.backend_tokenizer)


def init_viewers(model: Any, init: str, cls_id: int, count: int) -> torch.Tensor:
    """Return the initial embeddings of `count` viewers, (count, d).

    init: "random", N(0, .02) as in the papers; "cls", the [CLS] embedding; "pooled", the mean word embedding; the last
    two with noise.
    """
    weight: torch.Tensor = model.get_input_embeddings().weight.detach().float()
    if init == "random":
        return torch.randn(count, weight.shape[1]) * INITIALISER_RANGE
    start: torch.Tensor = weight[cls_id] if init == "cls" else weight.mean(dim=0)
    return start.expand(count, -1) + torch.randn(count, weight.shape[1]) * NOISE
