"""Check that the config of a model describes what its weights hold, no more and no less."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.reader import ENCODER_HALVES, weight_files
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.errors import CheckpointError
from mvindex.plugins import require

# So many numbers (64 MiB) more may be drawn in vain: transformers then says which tensors the weights lack.
_SPARE, _SPARE_MODULES = 1 << 24, 20
# Counts of modules, each of which has a tensor of its own at least.
_MODULES = re.compile(r"(layers?|groups?|experts?)$")
# The number of a layer among the parts of its tensors' names; attention alone has four tensors.
_LAYER_NUMBER, _LAYER_TENSORS = re.compile(r"\.[0-9]+\."), 4


def check_sizes(folder: Path) -> None:
    """Raise CheckpointError where config.json has more layers, or far more numbers, than the folder's weights.

    transformers draws at random what the weights lack, of whatever size, and only then says so.
    """
    import torch

    transformers = require("transformers", "train", "encoding texts")
    sizes = list(_tensor_sizes(folder))
    for name, count in _whole_numbers(read_json_object(folder / "config.json")):
        if _MODULES.search(name) and count > len(sizes) + _SPARE_MODULES:
            raise CheckpointError(
                f"{folder}: {name} is {count:.6g} in config.json; the weights have {len(sizes)} tensors"
            )
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):  # shapes without numbers
        if half := ENCODER_HALVES.get(config.model_type):
            model = getattr(transformers, half)(config)
        else:
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    # Some checkpoints leave the pooler out.
    needed = sum(part.numel() for name, part in model.named_parameters() if not name.startswith("pooler."))
    if needed > sum(sizes) + _SPARE:
        raise CheckpointError(
            f"{folder}: config.json describes a model of {needed:,} numbers; the weights have {sum(sizes):,}"
        )


def check_all_used(folder: Path, unused: Iterable[str], *, is_half: bool = False) -> None:
    """Raise CheckpointError where the weights have whole layers that config.json does not name.

    unused: The names of the tensors that the model has no place for. Heads of other tasks may be among them: they have
    no numbered parts of _LAYER_TENSORS tensors. is_half: Whether only the encoder of an encoder-decoder is loaded.
    """
    found = Counter(
        name[: number.end() - 1]
        for name in unused
        if (number := _LAYER_NUMBER.search(name)) and not (is_half and name.startswith("decoder."))
    )
    layers = sorted(layer for layer, count in found.items() if count >= _LAYER_TENSORS)
    if layers:
        raise CheckpointError(
            f"{folder}: the weights have layers that config.json does not name: {', '.join(layers[:3])}; its number of "
            "layers is wrong"
        )


def _tensor_sizes(folder: Path) -> Iterator[int]:
    """Yield how many numbers each tensor of the weights has."""
    safetensors = require("safetensors", "train", "encoding texts")
    for path in weight_files(folder):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dictionary
                yield math.prod(file.get_slice(name).get_shape())


def _whole_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield key and value of every whole number in the config and its parts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _whole_numbers(value)
        elif isinstance(value, int):
            yield name, value
