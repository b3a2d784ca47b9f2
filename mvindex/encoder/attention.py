"""Attention of the views of a document in the last layer."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.encoder.batches import Batch, BatchShape, batches
from mvindex.encoder.families import CONTEXT
from mvindex.encoder.forward import first_position
from mvindex.errors import Unsupported
from mvindex.records import Floats

if TYPE_CHECKING:
    import torch


def view_attentions(model: Any, arranged: Arranged, shape: BatchShape, pad_id: int) -> list[Floats | None]:
    """Return for each document the attention (k, t) of its k views over its t tokens, rows of sum 1, last layer.

    None for a document of several windows, whose tokens no view sees together, or with a view of no token. The mean
    over the heads, which CAMVR eq. 14 leaves open; a view that is a mean of states attends to the same mean of what
    these attend to, so that a viewer's row is its own. Unsupported when the model gives no attention.
    """
    whole = np.flatnonzero(arranged.num_windows == 1)
    found: list[Floats | None] = [None] * len(arranged)
    arranged, attending = arranged.take(whole), _attending(model)
    first_rows = arranged.first_rows
    for batch in batches(arranged, shape, pad_id):
        attention = _last_attention(attending, batch)
        for line, place in enumerate(batch.places.tolist()):
            num_tokens = int(arranged.lengths[place])
            rows = batch.rows[line, :num_tokens]
            is_read = rows != CONTEXT
            rows = rows - first_rows[place]
            weights = np.zeros((arranged.num_rows[place], num_tokens))
            weights[rows[is_read], np.flatnonzero(is_read)] = batch.weights[line, :num_tokens][is_read]
            mixed = weights @ attention[line, :num_tokens, :num_tokens]
            total = mixed.sum(axis=1, keepdims=True)
            if (total > 0).all():
                found[int(whole[place])] = (mixed / total).astype(np.float32)
    return found


def _attending(model: Any) -> Any:
    """Return the model with readable attention: fused attention gives none."""
    if not hasattr(model, "set_attn_implementation"):
        raise Unsupported(f"{type(model).__name__} of this transformers gives no attention; transformers 4.56 does")
    attending = copy.deepcopy(model)
    attending.set_attn_implementation("eager")
    return attending


def _last_attention(model: Any, batch: Batch) -> Floats:
    """Return (b, t, t), what each token attends to, averaged over heads."""
    import torch

    inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": _mask(batch)}
    if batch.positions is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions) + first_position(model.config)
    with torch.inference_mode():
        given = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        attentions = model(**given, output_attentions=True).attentions
    if not attentions:
        raise Unsupported(f"{type(model).__name__} gives no attention")
    found: Floats = attentions[-1].float().mean(dim=1).cpu().numpy()
    return found


def _mask(batch: Batch) -> torch.Tensor:
    """Return (b, t) of 1 and 0, or an additive (b, 1, t, t) where tokens differ in what they read."""
    import torch

    if batch.reads is None:
        return torch.from_numpy(batch.mask)
    reads = torch.from_numpy(batch.reads[:, None])
    return torch.zeros(reads.shape).masked_fill(~reads, torch.finfo(torch.float32).min)
