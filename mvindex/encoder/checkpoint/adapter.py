"""Merge LoRA adapters in peft's format into the weights of their base."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from mvindex.encoder.checkpoint.reader import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.checkpoint.tensors import read_tensors
from mvindex.errors import CheckpointError

if TYPE_CHECKING:
    import torch

_PREFIX = "base_model.model."
# What plain LoRA says of itself; any other key with a value stands for a variant, whose weights may not be
# W + scale * B A.
_PLAIN = frozenset(
    {"peft_type", "base_model_name_or_path", "r", "lora_alpha", "lora_dropout", "target_modules", "bias", "task_type",
     "inference_mode", "peft_version", "init_lora_weights", "revision", "use_rslora", "auto_mapping", "exclude_modules",
     "layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size"}
)  # fmt: skip
_PLAIN_STARTS = (True, False, "gaussian")
# No layer is as wide, and no weight of fp32 bears more.
_MAX_RANK, _MAX_ALPHA = 1 << 20, 1e30


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Change the model's weights to W + scale * B A (LoRA, Hu et al. 2022, section 4.1).

    scale is alpha / r, or alpha / sqrt(r) where the adapter says use_rslora. Why not peft, which wrote the adapter:
    importing it takes 3 seconds, on every command that encodes. Raises CheckpointError for another kind of adapter, or
    one that does not fit the model.
    """
    config = read_json_object(folder / ADAPTER_CONFIG)
    scale, rank = _scale(config, folder), config["r"]
    tensors = read_tensors(folder / ADAPTER_WEIGHTS)
    parameters = dict(model.named_parameters())
    for name in sorted(tensors):
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        up, down = tensors.pop(f"{module}.lora_B.weight", None), tensors.pop(name)
        weight = parameters.get(f"{module.removeprefix(_PREFIX)}.weight")
        if up is None or weight is None or not _fits(weight, up, down, rank):
            raise CheckpointError(f"{folder / ADAPTER_WEIGHTS}: {module!r} does not fit the base model at r {rank}")
        weight.data += scale * (up.float() @ down.float())
    if tensors:
        raise CheckpointError(f"{folder / ADAPTER_WEIGHTS}: {sorted(tensors)[0]!r} is no weight of a LoRA adapter")


def _fits(weight: torch.Tensor, up: torch.Tensor, down: torch.Tensor, rank: int) -> bool:
    """Return whether B (up) and A (down) are matrices of that rank whose product has the weight's shape."""
    return weight.ndim == 2 and up.shape == (weight.shape[0], rank) and down.shape == (rank, weight.shape[1])


def _scale(config: dict[str, Any], folder: Path) -> float:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    variants = sorted(name for name, value in config.items() if value and name not in _PLAIN)
    if config.get("init_lora_weights", True) not in _PLAIN_STARTS:
        variants.append(f"init_lora_weights {config['init_lora_weights']!r}")
    if config.get("peft_type") != "LORA" or variants or config.get("bias", "none") != "none":
        kind = config.get("peft_type") if not variants else f"LORA with {variants[0]}"
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: an adapter of kind {kind}; expected plain LORA without biases"
        )
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= _MAX_RANK or not _is_finite(alpha):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: r is {rank!r:.40}, lora_alpha {alpha!r:.40}; "
            f"expected r from 1 to {_MAX_RANK:,} and a finite number"
        )
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) <= _MAX_ALPHA
