"""The int8 form of a query encoder: its graph with products of 8-bit integers instead of floats.

A product x W of states and a constant matrix becomes s (q Q) S: q is a row of x in 127 steps of s = max |x| / 127 to
either side of 0, Q a column of W in steps of S. Each token has a scale of its own, so that a query's vector does not
depend on the queries that are encoded with it; a scale for all would (Dettmers et al. 2022, LLM.int8(), section 2.1.1:
vector-wise quantization). All other operations stay in fp32.

Few elements of normalised states are far larger than the others, which would have few steps left. So x is divided and W
multiplied by numbers c that make both even: c = max |x|^0.5 / max |W|^0.5 for each element of x, over sample queries
and the columns of W (Xiao et al. 2023, SmoothQuant, equation 4, alpha = 0.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.batches import Batch
from mvindex.encoder.onnx_encoder import IDS, MASK, open_session
from mvindex.plugins import require
from mvindex.records import Floats

if TYPE_CHECKING:
    import onnx

# 128 stands for 0: products of unsigned and signed bytes are what processors have an instruction for.
_ZERO = 128
_STEPS = 127
_MICROSOFT = "com.microsoft"
# A row of zeros has a scale, too.
_LEAST = 1e-12


def write_int8(graph: Path, path: Path, samples: Iterable[Batch]) -> None:
    """Write an optimised graph with its products in int8; nothing where it has none.

    Weights that stay as they are stay in the file of the graph's weights, beside it.

    Args:
        graph: The graph of ids and mask to states.
        path: Where to write.
        samples: Queries that show how large states are.

    """
    onnx = require("onnx", "encode", "the int8 form of an encoder")
    model = onnx.load(str(graph), load_external_data=False)
    conversion = _Conversion(model.graph, graph.parent)
    if not conversion.products:
        return
    normalised = conversion.normalised
    conversion.run(dict(zip(normalised, _highest(model, normalised, graph, samples), strict=True)))
    onnx.save(model, str(path))


def _highest(model: Any, names: list[str], graph: Path, samples: Iterable[Batch]) -> list[Floats]:
    """Return the highest absolute value of each element of these states, (width,), over all tokens of the samples."""
    if not names:
        return []
    import onnx

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    path = graph.with_name("watched.onnx")
    try:
        onnx.save(watched, str(path))
        session = open_session(path)
    finally:
        path.unlink(missing_ok=True)
    highest = [np.zeros(1, dtype=np.float32)] * len(names)
    for batch in samples:
        found = session.run(names, {IDS: batch.ids, MASK: batch.mask})
        here = [np.abs(states[batch.mask.astype(bool)]).max(axis=0) for states in found]
        highest = [np.maximum(*pair) for pair in zip(highest, here, strict=True)]
    return highest


class _Conversion:
    """Replaces the products of one graph."""

    def __init__(self, graph: Any, folder: Path) -> None:
        self._graph, self._folder = graph, folder
        matrices = {each.name: each for each in graph.initializer if len(each.dims) == 2}
        self.products = [each for each in graph.node if each.op_type == "MatMul" and each.input[1] in matrices]
        self._weights = {each.input[1]: self._values(matrices[each.input[1]]) for each in self.products}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        # By name of the floats: several products read the same ones.
        self._quantized: dict[str, str] = {}
        self._converted: set[str] = set()

    @property
    def normalised(self) -> list[str]:
        """The names of the products' states that come from a normalisation, and whose matrices multiply no others."""
        made = {name for node in self._graph.node if node.op_type == "LayerNormalization" for name in node.output}
        pairs = {(each.input[0], each.input[1]) for each in self.products}
        uses = Counter(weights for _, weights in pairs)
        shared = {states for states, weights in pairs if uses[weights] > 1}
        return [name for name in dict.fromkeys(each.input[0] for each in self.products) if name in made - shared]

    def run(self, highest: Mapping[str, Floats]) -> None:
        """Replace every product; highest: of some states by name, the highest absolute value of each element."""
        for node in self._graph.node:
            if node.op_type == "MatMul" and node.input[1] in self._weights:
                self._replace(node, highest.get(node.input[0]))
            else:
                self._nodes.append(node)
        for name, value in (
            ("int8_steps", np.float32(_STEPS)),
            ("int8_least", np.float32(_LEAST)),
            ("int8_one", np.float32(1)),
            ("int8_zero", np.uint8(_ZERO)),
        ):
            self._constant(name, np.array(value))
        read = {name for node in self._nodes for name in node.input}
        kept = [each for each in self._graph.initializer if each.name not in self._converted or each.name in read]
        del self._graph.node[:], self._graph.initializer[:]
        self._graph.node.extend(self._nodes)
        self._graph.initializer.extend([*kept, *self._constants])

    def _replace(self, product: onnx.NodeProto, highest: Floats | None) -> None:
        """Compute a product of floats and a constant matrix in int8."""
        states, weights = product.input
        evened = None if highest is None else self._evened(states, highest)
        if states not in self._quantized:
            self._quantized[states] = self._quantize(states, f"int8_{len(self._quantized)}", evened)
        if weights not in self._converted:
            self._converted.add(weights)
            values = self._weights[weights]
            steps, scales = _in_columns(values if evened is None else values * evened[:, None])
            self._constant(f"{weights}_int8", steps)
            self._constant(f"{weights}_scales", scales)
            self._constant(f"{weights}_zeros", np.zeros(len(scales), dtype=np.int8))
        row, unscaled = self._quantized[states], f"{product.output[0]}_unscaled"
        self._add(
            "MatMulIntegerToFloat",
            [f"{row}_steps", f"{weights}_int8", "int8_one", f"{weights}_scales", "int8_zero", f"{weights}_zeros"],
            unscaled,
            domain=_MICROSOFT,
        )
        self._add("Mul", [unscaled, f"{row}_scale"], product.output[0])

    def _evened(self, states: str, highest: Floats) -> Floats:
        """Return what the elements of the states are divided by, (width,); see the head of this file."""
        own = [np.abs(self._weights[each.input[1]]).max(axis=1) for each in self.products if each.input[0] == states]
        ratios = np.sqrt(np.maximum(highest, _LEAST) / np.maximum(np.max(own, axis=0), _LEAST))
        return np.asarray(ratios / np.exp(np.log(ratios).mean()), dtype=np.float32)

    def _quantize(self, states: str, row: str, evened: Floats | None) -> str:
        """Add what rounds each row of the states, and return the prefix of its names: _steps and _scale."""
        if evened is not None:
            self._constant(f"{row}_factors", 1 / evened)
            self._add("Mul", [states, f"{row}_factors"], f"{row}_evened")
            states = f"{row}_evened"
        self._add("Abs", [states], f"{row}_sizes")
        self._add("ReduceMax", [f"{row}_sizes"], f"{row}_highest", axes=[-1], keepdims=1)
        self._add("Max", [f"{row}_highest", "int8_least"], f"{row}_size")
        self._add("Div", [f"{row}_size", "int8_steps"], f"{row}_scale")
        self._add("Div", ["int8_steps", f"{row}_size"], f"{row}_inverse")
        self._add("Mul", [states, f"{row}_inverse"], f"{row}_scaled")
        self._add("QuantizeLinear", [f"{row}_scaled", "int8_one", "int8_zero"], f"{row}_steps")
        return row

    def _add(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node(operation, inputs, [output], **attributes))

    def _constant(self, name: str, value: Any) -> None:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(value, name))

    def _values(self, weights: onnx.TensorProto) -> Floats:
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(weights, base_dir=str(self._folder)), dtype=np.float32)


def _in_columns(weights: Floats) -> tuple[Any, Floats]:
    """Return the matrix in 127 steps to either side of 0, int8, and the size of a step of each column, float32."""
    scales = np.maximum(np.abs(weights).max(axis=0), _LEAST) / _STEPS
    return np.rint(weights / scales).astype(np.int8), np.asarray(scales, dtype=np.float32)
