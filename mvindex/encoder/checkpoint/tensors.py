"""Files of a checkpoint that are read with limits: weights in safetensors, and the tokenizer.

Weights are of the model, of dense modules, and of parts that are added to them. A tokenizer may not make texts grow
without an end.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.encoder.checkpoint.settings import first_line, read_json_object
from mvindex.errors import CheckpointError
from mvindex.plugins import require

if TYPE_CHECKING:
    import torch


def read_tensors(path: Path) -> dict[str, Any]:
    """Return name -> tensor of a safetensors file; raise CheckpointError where it is none."""
    reader = require("safetensors.torch", "train", "encoding texts")
    try:
        tensors: dict[str, Any] = reader.load_file(path)
    except Exception as err:  # noqa: BLE001 - a size or kind of number that is wrong raises what torch raises then
        raise CheckpointError(f"{path}: cannot be read: {first_line(err)}") from err
    return tensors


DENSE_WEIGHTS = "model.safetensors"
# Those without parameters or options. Only the names are read: nothing that a checkpoint names is imported.
_ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")
_PLACES = ("torch.nn.modules.activation", "torch.nn.modules.linear", "torch.nn")
_DEFAULT = "torch.nn.modules.activation.Tanh"
# No vector is as wide.
_MAX_DIM = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """activation(W x + b); folder: where W and b lie; activation: a class of torch.nn."""

    folder: Path
    inputs: int
    outputs: int
    has_bias: bool
    activation: str


def read_dense(folder: Path) -> Dense:
    """Return the Dense module of the folder, without its weights; raise CheckpointError for an unsupported one."""
    path = folder / "config.json"
    config = read_json_object(path)
    sizes = [config.get(name) for name in ("in_features", "out_features")]
    if not all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= _MAX_DIM for size in sizes):
        raise CheckpointError(
            f"{path}: in_features and out_features are {sizes!r:.80}; expected whole numbers from 1 on"
        )
    if config.get("use_residual"):
        raise CheckpointError(f"{path}: use_residual true is not supported; expected a Dense without it")
    place, _, activation = str(config.get("activation_function", _DEFAULT)).rpartition(".")
    if place not in _PLACES or activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{path}: activation_function is {config.get('activation_function')!r:.80}; "
            f"expected one of {', '.join(_ACTIVATIONS)} of torch.nn"
        )
    return Dense(
        folder=folder,
        inputs=config["in_features"],
        outputs=config["out_features"],
        has_bias=bool(config.get("bias", True)),
        activation=activation,
    )


def load_head(modules: Sequence[Dense], dim: int) -> torch.nn.Sequential | None:
    """Return the modules in sequence, in fp32 for inference, None without any; dim: of the transformer's states."""
    import torch

    layers: list[torch.nn.Module] = []
    for dense in modules:
        if dense.inputs != dim:
            raise CheckpointError(f"{dense.folder / 'config.json'}: in_features is {dense.inputs}; expected {dim}")
        layers += [_linear(dense), getattr(torch.nn, dense.activation)()]
        dim = dense.outputs
    return torch.nn.Sequential(*layers).eval().requires_grad_(False) if layers else None


def _linear(dense: Dense) -> torch.nn.Linear:
    import torch

    path = dense.folder / DENSE_WEIGHTS
    tensors: dict[str, Any] = read_tensors(path)
    expected: dict[str, tuple[int, ...]] = {"linear.weight": (dense.outputs, dense.inputs)}
    if dense.has_bias:
        expected["linear.bias"] = (dense.outputs,)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise CheckpointError(f"{path}: holds {found!r:.200}; expected {expected}")
    linear = torch.nn.Linear(dense.inputs, dense.outputs, bias=dense.has_bias, device="meta")
    state = {name.removeprefix("linear."): tensor.float() for name, tensor in tensors.items()}
    linear.load_state_dict(state, assign=True)
    return linear


# Unicode's own forms make at most 18 characters of one; what trained models have beside them doubles a text.
MOST_GROWTH = 64
_SIZE_BYTES = 4


def check_tokenizer_file(folder: Path) -> None:
    """Raise CheckpointError where the folder's tokenizer.json may make a text more than MOST_GROWTH times longer.

    It is read before the tokenizer is loaded: that normalizes the added tokens.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        _check(read_json_object(path).get("normalizer"), str(path))


def check_normalizer(tokenizer: Any, place: str) -> None:
    """Raise CheckpointError where the normalizer of a loaded tokenizer may make a text that much longer."""
    if tokenizer.normalizer is not None:
        _check(json.loads(tokenizer.normalizer.__getstate__()), place)


def _check(normalizer: Any, place: str) -> None:
    try:
        growth = _growth(normalizer)
    except (TypeError, KeyError, ValueError, RecursionError, binascii.Error) as err:
        raise CheckpointError(
            f"{place}: expected a normalizer of the tokenizers library, got another: {err!r}"
        ) from err
    if growth > MOST_GROWTH:
        raise CheckpointError(
            f"{place}: the normalizer may make a text {growth:.6g} times longer; expected at most {MOST_GROWTH} times"
        )


def _growth(normalizer: Any) -> float:
    """Return how many characters a normalizer makes of one at most, apart from those that Unicode's forms make."""
    if not isinstance(normalizer, Mapping):
        return 1.0
    kind = normalizer["type"]
    if kind == "Sequence":
        product = 1.0
        for part in normalizer["normalizers"]:
            product *= _growth(part)
        return product
    if kind == "Replace":
        pattern = normalizer["pattern"]
        # A regular expression may match between any two characters.
        made = (
            len(normalizer["content"]) / len(pattern["String"])
            if pattern.get("String")
            else 1 + len(normalizer["content"])
        )
        return max(1.0, made)
    if kind == "Precompiled" and normalizer["precompiled_charsmap"]:
        return max(1.0, _longest_entry(base64.b64decode(normalizer["precompiled_charsmap"])))
    return 1.0


def _longest_entry(charsmap: bytes) -> int:
    """Return the length of the longest text in SentencePiece's map of characters: a trie, and texts that end in NUL."""
    trie_bytes = int.from_bytes(charsmap[:_SIZE_BYTES], "little")
    texts = charsmap[_SIZE_BYTES + trie_bytes :].split(b"\0")
    return max(len(text.decode(errors="replace")) for text in texts)
