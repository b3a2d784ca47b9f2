"""Read Dense modules of sentence-transformers: linear maps of the pooled vector, each with an activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.checkpoint.tensors import read_tensors
from mvindex.errors import CheckpointError

if TYPE_CHECKING:
    import torch

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
