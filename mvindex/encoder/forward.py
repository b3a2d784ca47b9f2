"""Run the model over windows, pool its token states into rows, and read where views look."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.encoder.batches import BatchShape, TokenBatch, batches
from mvindex.encoder.checkpoint.reader import POSITIONS_AFTER_PADDING
from mvindex.encoder.device import on_device
from mvindex.encoder.families.windows import CONTEXT
from mvindex.errors import CheckpointError, Unsupported
from mvindex.records import Floats, Ints

if TYPE_CHECKING:
    import torch


class RowMeans:
    """Means of states by row, summed in fp32 batch after batch: a row's states may come from several windows."""

    def __init__(self, num_rows: int, dim: int) -> None:
        self._sums = np.zeros((num_rows, dim), dtype=np.float32)
        self._weights = np.zeros(num_rows, dtype=np.float32)

    def add(self, batch: TokenBatch, states: Floats) -> None:
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
    parts: Iterable[tuple[TokenBatch, torch.Tensor]], num_rows: int, dim: int, device: torch.device
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


def last_states(model: Any, batch: TokenBatch) -> torch.Tensor:
    """Return the last hidden states, (b, t, dim), with gradients where they are enabled.

    Raises CheckpointError when the windows set positions, or what each token reads, and the model cannot follow.
    """
    device = model.device
    inputs = {"input_ids": on_device(batch.ids, device), "attention_mask": _mask(model, batch)}
    if batch.positions is not None:
        if "position_ids" not in inspect.signature(type(model).forward).parameters:
            raise CheckpointError(
                f"{type(model).__name__} takes no position ids, which viewers at position 0 need (MVR eq. 3); "
                "take the family 'context-viewers', or a BERT, RoBERTa or ModernBERT"
            )
        inputs["position_ids"] = on_device(batch.positions + first_position(model.config), device)
    with attention(device):
        states: torch.Tensor = model(**inputs).last_hidden_state
    return states


def _mask(model: Any, batch: TokenBatch) -> torch.Tensor | None:
    """Return (b, 1, t, t) bool, which tokens each reads; None where all read all; (b, t) for some models.

    A model that is given (b, t) looks whether all of it is 1: on a GPU it would wait for each batch.
    """
    if batch.reads is not None:
        config = model.config
        # Such a mask stands in place of a model's own: a sliding window would be lost, and eager attention adds it.
        if getattr(config, "local_attention", None) or config._attn_implementation == "eager":
            raise CheckpointError(
                f"{type(model).__name__} ({config._attn_implementation} attention) cannot restrict what viewers read "
                "(own_snippet); take a BERT or RoBERTa, which attend to all tokens, with sdpa attention"
            )
        return on_device(batch.reads[:, None], model.device)
    if batch.mask.all():
        return None
    if not _takes_whole_mask(model):
        return on_device(batch.mask, model.device)
    mask = on_device(batch.mask.astype(bool)[:, None, None, :], model.device)
    return mask.expand(-1, -1, batch.mask.shape[1], -1)


def _takes_whole_mask(model: Any) -> bool:
    """Return whether the model takes a mask of four dimensions as it is, and would make this very one itself."""
    config = model.config
    makes_it = hasattr(sys.modules[type(model).__module__], "create_bidirectional_mask")
    return makes_it and config._attn_implementation == "sdpa" and not getattr(config, "local_attention", None)


@contextmanager
def attention(device: torch.device) -> Iterator[None]:
    """Choose the kernels of attention: those that are fast on the device.

    On a GPU cuDNN's may prepare a plan for each shape of a batch. On a CPU the backward pass of the fused one is slow:
    in bf16 it took half of a training step.
    """
    import torch

    if device.type != "cuda" and not torch.is_grad_enabled():
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION] if device.type == "cuda" else []
    with sdpa_kernel([*fused, SDPBackend.MATH]):
        yield


def first_position(config: Any) -> int:
    """Return the position id of a text's first token: 0, or padding_idx + 1 in RoBERTa and its kin."""
    return int(config.pad_token_id or 0) + 1 if config.model_type in POSITIONS_AFTER_PADDING else 0


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


def _last_attention(model: Any, batch: TokenBatch) -> Floats:
    """Return (b, t, t), what each token attends to, averaged over heads."""
    import torch

    inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": _layer_mask(batch)}
    if batch.positions is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions) + first_position(model.config)
    with torch.inference_mode():
        given = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        attentions = model(**given, output_attentions=True).attentions
    if not attentions:
        raise Unsupported(f"{type(model).__name__} gives no attention")
    found: Floats = attentions[-1].float().mean(dim=1).cpu().numpy()
    return found


def _layer_mask(batch: TokenBatch) -> torch.Tensor:
    """Return (b, t) of 1 and 0, or an additive (b, 1, t, t) where tokens differ in what they read."""
    import torch

    if batch.reads is None:
        return torch.from_numpy(batch.mask)
    reads = torch.from_numpy(batch.reads[:, None])
    return torch.zeros(reads.shape).masked_fill(~reads, torch.finfo(torch.float32).min)
