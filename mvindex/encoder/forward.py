"""Run a batch of windows through a transformer."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from mvindex.encoder.batches import Batch
from mvindex.encoder.checkpoint.reader import POSITIONS_AFTER_PADDING
from mvindex.errors import CheckpointError

if TYPE_CHECKING:
    import torch


def last_states(model: Any, batch: Batch) -> torch.Tensor:
    """Return the last hidden states, (b, t, dim), with gradients where they are enabled.

    Raises CheckpointError when the windows set positions, or what each token reads, and the model cannot follow.
    """
    import torch

    device = model.device
    inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": _mask(model, batch)}
    if batch.positions is not None:
        if "position_ids" not in inspect.signature(type(model).forward).parameters:
            raise CheckpointError(
                f"{type(model).__name__} takes no position ids, which viewers at position 0 need (MVR eq. 3); "
                "take the family 'context-viewers', or a BERT, RoBERTa or ModernBERT"
            )
        inputs["position_ids"] = torch.from_numpy(batch.positions) + first_position(model.config)
    states: torch.Tensor = model(**{name: tensor.to(device) for name, tensor in inputs.items()}).last_hidden_state
    return states


def _mask(model: Any, batch: Batch) -> torch.Tensor:
    """Return (b, t) of 1 and 0, or (b, 1, t, t) bool where tokens differ in what they read."""
    import torch

    if batch.reads is None:
        return torch.from_numpy(batch.mask)
    config = model.config
    # Such a mask stands in place of a model's own: a sliding window would be lost, and eager attention adds it.
    if getattr(config, "local_attention", None) or config._attn_implementation == "eager":
        raise CheckpointError(
            f"{type(model).__name__} ({config._attn_implementation} attention) cannot restrict what viewers read "
            "(own_snippet); take a BERT or RoBERTa, which attend to all tokens, with sdpa attention"
        )
    return torch.from_numpy(batch.reads[:, None])


def first_position(config: Any) -> int:
    """Return the position id of a text's first token: 0, or padding_idx + 1 in RoBERTa and its kin."""
    return int(config.pad_token_id or 0) + 1 if config.model_type in POSITIONS_AFTER_PADDING else 0
