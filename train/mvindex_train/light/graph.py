"""Write a BERT encoder as an ONNX graph: in fp32, or with int8 products whose result does not depend on the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.encoder.levels import GELU_OFFSET
from mvindex.encoder.onnx_encoder import IDS, MASK, STATES, WORDS
from mvindex.plugins import require
from mvindex.records import Floats
from mvindex_train.light.quantise import WORD_BLOCK, Linear, QuantisedLinear, quantise_rows

_OPSET, _IR_VERSION = 18, 9
_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_CONTRIB = "com.microsoft"
# Of a row that is all zeros: a scale that can be divided by.
_LEAST = np.float32(1e-20)
# Farther than any two scores of attention are apart: exp() of it is 0.
_FAR = np.float32(1e4)
# Levels on each side of zero of an input, and all levels of one that is shifted to be positive.
_SIGNED_LEVELS, _LEVELS = 127, 255
_ZERO_POINT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The part of config.json that a graph depends on."""

    layers: int
    heads: int
    width: int
    epsilon: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """Return the shape of a BERT; ValueError for another model."""
        if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
            raise ValueError(f"expected a BERT with GELU, got {config.get('model_type')}, {config.get('hidden_act')}")
        return cls(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            width=config["hidden_size"],
            epsilon=config["layer_norm_eps"],
        )


@dataclass(slots=True)
class _Nodes:
    """The nodes and constants of a graph in the making."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, *, contrib: bool = False, **options: Any) -> str:
        domain = _CONTRIB if contrib else ""
        made = self.onnx.helper.make_node(kind, list(inputs), [output], name=output, domain=domain, **options)
        self.nodes.append(made)
        return output

    def split(self, value: str, outputs: Sequence[str]) -> None:
        """Add the split of a value into equal parts along its first axis."""
        node = self.onnx.helper.make_node
        self.nodes.append(node("Split", [value], list(outputs), name=f"{value}.split", num_outputs=len(outputs)))


def linear_names(layer: int) -> tuple[str, ...]:
    """Return the names of a layer's linear maps, in the order in which they run."""
    place = f"encoder.layer.{layer}."
    attention = [f"{place}attention.self.{part}" for part in ("query", "key", "value")]
    return (*attention, f"{place}attention.output.dense", f"{place}intermediate.dense", f"{place}output.dense")


def split_names(layer: int) -> tuple[str, ...]:
    """Return the names where the wider map and the one behind it are two: for large outputs of GELU, and for small."""
    *others, wide, narrow = linear_names(layer)
    return (*others, *(f"{name}.{part}" for name in (wide, narrow) for part in ("large", "small")))


def write_graph(
    path: Path,
    weights: Mapping[str, Floats],
    shape: Shape,
    linears: Mapping[str, Linear | QuantisedLinear],
    weights_file: str | None = None,
) -> None:
    """Write the graph of token ids and mask, both (b, t) int64, to the last states, (b, t, width) float32.

    Without embeddings of words among the weights, these are an input in place of the ids, (b, t, width) float32.

    Args:
        path: The file; weights_file, if given, lies beside it and takes all constants of 1,024 bytes or more.
        weights: The embeddings and norms by their name in the checkpoint.
        shape: The model's.
        linears: The linear maps by name, of each layer those of linear_names() or of split_names(). The inputs of a
            Linear that is tapped are outputs of the graph too, by name.
        weights_file: The name of the file of weights.

    """
    onnx = require("onnx", "train", "the light form of an encoder")
    graph = _Graph(_Nodes(onnx), weights, shape, linears)
    graph.write()
    helper, kinds = onnx.helper, onnx.TensorProto
    mask = helper.make_tensor_value_info(MASK, kinds.INT64, ["b", "t"])
    if _WORD_EMBEDDINGS in weights:
        inputs = [helper.make_tensor_value_info(IDS, kinds.INT64, ["b", "t"]), mask]
    else:
        inputs = [helper.make_tensor_value_info(WORDS, kinds.FLOAT, ["b", "t", shape.width]), mask]
    outputs = [helper.make_tensor_value_info(STATES, kinds.FLOAT, ["b", "t", shape.width])]
    outputs += [helper.make_tensor_value_info(name, kinds.FLOAT, None) for name in graph.taps]
    parts = graph.nodes
    made = helper.make_graph(parts.nodes, "encoder", inputs, outputs, list(parts.constants.values()))
    versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
    model = helper.make_model(made, opset_imports=versions, ir_version=_IR_VERSION, producer_name="mvindex")
    if weights_file is None:
        onnx.save(model, str(path))
    else:
        onnx.save(
            model, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=weights_file,
            size_threshold=1024,
        )  # fmt: skip


class _Graph:
    """The graph of one encoder. Rows of tokens stay flat, (b t, width), but for attention.

    A norm's bias takes the centre from its output that the quantised maps which read it want; the bias of the map whose
    output is added to it gives it back. So centred inputs cost nothing.
    """

    def __init__(
        self,
        nodes: _Nodes,
        weights: Mapping[str, Floats],
        shape: Shape,
        linears: Mapping[str, Linear | QuantisedLinear],
    ) -> None:
        self.nodes, self.taps = nodes, list[str]()
        self._weights, self._shape, self._linears = weights, shape, linears
        self._is_quantised = any(isinstance(one, QuantisedLinear) for one in linears.values())

    def write(self) -> None:
        """Add all nodes; the last one's output is `states`."""
        add, constant = self.nodes.add, self.nodes.constant
        constant("last_axis", np.array([-1], np.int64))
        constant("flat", np.array([-1, self._shape.width], np.int64))
        # What is added to the scores of padding: so much that nothing of it is read.
        found = add("Cast", [MASK], "read", to=self.nodes.onnx.TensorProto.FLOAT)
        column = add("Unsqueeze", [found, constant("of_values", np.array([1, 3], np.int64))], "read_column")
        # Two equal columns: a product with one is a dot product, whose order depends on the padding and the batch.
        add("Expand", [column, constant("two_columns", np.array([1, 1, 1, 2], np.int64))], "read_columns")
        constant("one_column", np.array([1], np.int64))
        found = add("Sub", [found, constant("read_one", np.float32(1))], "padding")
        found = add("Mul", [found, constant("far", _FAR)], "padding.far")
        add("Unsqueeze", [found, constant("of_scores", np.array([1, 2], np.int64))], "unread")
        add("Shape", [MASK], "size")
        add("Concat", ["size", constant("width", np.array([self._shape.width], np.int64))], "whole", axis=0)
        shape = np.array([self._shape.heads, self._shape.width // self._shape.heads], np.int64)
        add("Concat", ["size", constant("shape_of_heads", shape)], "heads", axis=0)
        state = add("Reshape", [self._embedded(), "flat"], "layer_0")
        if self._is_quantised:
            self._zero_points(state)
        for layer in range(self._shape.layers):
            state = self._layer(layer, state)
        add("Reshape", [state, "whole"], STATES)

    def _embedded(self) -> str:
        """Add the embeddings: of words, one scale a block where the graph is quantised; of places and of type 0."""
        add, constant, name = self.nodes.add, self.nodes.constant, "embeddings."
        words = self._weights.get(_WORD_EMBEDDINGS)
        if words is None:
            found = WORDS
        elif self._is_quantised:
            levels, scales = quantise_rows(words.reshape(-1, WORD_BLOCK))
            found = add("Gather", [constant("words", levels.reshape(len(words), -1, WORD_BLOCK)), IDS], "word_levels")
            found = add("Cast", [found], "word_floats", to=self.nodes.onnx.TensorProto.FLOAT)
            constant("word_scales", scales.reshape(len(words), -1, 1))
            found = add("Mul", [found, add("Gather", ["word_scales", IDS], "scales")], "word_blocks")
            found = add("Reshape", [found, "whole"], "word")
        else:
            found = add("Gather", [constant("words", words), IDS], "word")
        places = self._weights[f"{name}position_embeddings.weight"]
        places = places + self._weights[f"{name}token_type_embeddings.weight"][0]
        add("Shape", [MASK], "length", start=1, end=2)
        constant("first", np.array([0], np.int64))
        found = add(
            "Add", [found, add("Slice", [constant("places", places), "first", "length"], "place")], "embedded_raw"
        )
        return self._norm(found, f"{name}LayerNorm", "embedded", self._centre(linear_names(0)[0]))

    def _zero_points(self, rows: str) -> None:
        """Add the zero points of all inputs: one a row."""
        self.nodes.add("Shape", [rows], "num_rows", start=0, end=1)
        for name, value in (("middle", _ZERO_POINT), ("bottom", 0)):
            filled = self.nodes.onnx.numpy_helper.from_array(np.array([value], np.uint8))
            self.nodes.add("ConstantOfShape", ["num_rows"], name, value=filled)
        self.nodes.constant("zero_middle", np.uint8(_ZERO_POINT))
        self.nodes.constant("zero_bottom", np.uint8(0))
        self.nodes.constant("one", np.float32(1))
        self.nodes.constant("least", _LEAST)
        self.nodes.constant("gelu_offset", np.float32(GELU_OFFSET))

    def _layer(self, layer: int, state: str) -> str:
        query, key, value, mixed, *wider = split_names(layer)
        if wider[0] not in self._linears:
            wider = list(linear_names(layer)[4:])
        wide, narrow = wider[: len(wider) // 2], wider[len(wider) // 2 :]
        place = f"encoder.layer.{layer}."
        read = self._attended((query, key, value), state, place)
        centre_in, centre_out = self._centre(query), self._centre(wide[0])
        state = self._joined([mixed], [read], state, f"{place}attention.output.LayerNorm", (centre_in, centre_out))
        gelus = [self._gelu(name, state) for name in wide]
        following = self._centre(linear_names(layer + 1)[0])
        return self._joined(narrow, gelus, state, f"{place}output.LayerNorm", (centre_out, following))

    def _attended(self, names: Sequence[str], state: str, place: str) -> str:
        """Add the attention; names: of the maps for query, key and value.

        ONNX Runtime's softmax, alone or in its one operation for attention, sums in lanes of the processor. Last bits
        differ then, which moves some input to the next level. A product with two columns of ones sums one after the
        other: the bits are the same with any padding, and wherever multiply-add is fused. ReduceSum's depend on the
        padding.
        """
        add = self.nodes.add
        bias = self.nodes.constant(f"{place}bias", np.concatenate([self._linears[name].bias for name in names]))
        biases = [f"{name}.bias" for name in names]
        self.nodes.split(bias, biases)
        by_head = []
        for name, own in zip(names, biases, strict=True):
            found = add("Add", [self._linear(name, state), own], f"{name}.biased")
            found = add("Reshape", [found, "heads"], f"{name}.heads")
            by_head.append(add("Transpose", [found], f"{name}.by_head", perm=[0, 2, 1, 3]))
        query, key, value = by_head
        factor = float((self._shape.width // self._shape.heads) ** -0.5)
        found = add("FusedMatMul", [query, key], f"{place}scores", contrib=True, transB=1, alpha=factor)
        found = add("Add", [found, "unread"], f"{place}masked")
        largest = add("ReduceMax", [found, "last_axis"], f"{place}largest")
        found = add("Exp", [add("Sub", [found, largest], f"{place}below")], f"{place}shares")
        total = add("MatMul", [found, "read_columns"], f"{place}totals")
        total = add("Slice", [total, "first", "one_column", "last_axis"], f"{place}total")
        found = add("Div", [add("MatMul", [found, value], f"{place}read.total"), total], f"{place}read.by_head")
        found = add("Transpose", [found], f"{place}read", perm=[0, 2, 1, 3])
        return add("Reshape", [found, "flat"], f"{place}read.flat")

    def _gelu(self, wide: str, state: str) -> str:
        bias = self.nodes.constant(f"{wide}.bias", self._linears[wide].bias)
        return self.nodes.add("BiasGelu", [self._linear(wide, state), bias], f"{wide}.gelu", contrib=True)

    def _centre(self, name: str) -> Floats | float:
        """Return what the named map wants to be taken from its inputs."""
        linear = self._linears.get(name)
        return linear.centre if isinstance(linear, QuantisedLinear) and linear.centre is not None else 0.0

    def _joined(
        self,
        linears: Sequence[str],
        inputs: Sequence[str],
        state: str,
        norm: str,
        centres: tuple[Floats | float, Floats | float],
    ) -> str:
        """Add linear maps, their sum with the state before, and the norm.

        centres: what was taken from the state, and what is taken from the norm's output. ONNX Runtime's one operation
        for sum and norm is slower than the two, so that optimisers must leave them.
        """
        found, *more = (self._linear(*each) for each in zip(linears, inputs, strict=True))
        for other in more:
            found = self.nodes.add("Add", [found, other], f"{linears[0]}.both")
        bias = sum((self._linears[name].bias for name in linears), np.float32(centres[0]))
        found = self.nodes.add("Add", [found, self.nodes.constant(f"{linears[0]}.bias", bias)], f"{linears[0]}.biased")
        found = self.nodes.add("Add", [found, state], f"{linears[0]}.sum")
        return self._norm(found, norm, f"{norm}.out", centres[1])

    def _norm(self, inputs: str, name: str, output: str, centre_out: Floats | float) -> str:
        """Add a norm; centre_out: what is taken from its output."""
        weight, bias = (self._weights[f"{name}.{part}"] for part in ("weight", "bias"))
        both = [
            self.nodes.constant(f"{name}.weight", weight),
            self.nodes.constant(f"{name}.bias", bias - np.float32(centre_out)),
        ]
        return self.nodes.add("LayerNormalization", [inputs, *both], output, axis=-1, epsilon=self._shape.epsilon)

    def _linear(self, name: str, inputs: str) -> str:
        """Add a linear map without its bias."""
        linear = self._linears[name]
        if isinstance(linear, QuantisedLinear):
            levels, zero, scales = self._quantised(inputs, linear)
            both = [
                self.nodes.constant(f"{name}.levels", linear.levels),
                self.nodes.constant(f"{name}.scales", linear.scales),
            ]
            found = self.nodes.add(
                "MatMulIntegerToFloat", [levels, both[0], "one", both[1], zero], f"{name}.product", contrib=True
            )
            return self.nodes.add("Mul", [found, scales], f"{name}.scaled")
        if linear.is_tapped and inputs not in self.taps:
            self.taps.append(inputs)
        return self.nodes.add(
            "MatMul", [inputs, self.nodes.constant(f"{name}.weight", linear.weight)], f"{name}.product"
        )

    def _quantised(self, inputs: str, linear: QuantisedLinear) -> tuple[str, str, str]:
        """Add the inputs' quantisation, once for all maps that share them; return levels, zero point, row scales."""
        levels = f"{inputs}.levels"
        zero = "middle" if linear.smooth is not None or not linear.is_shifted else "bottom"
        scales = f"{inputs}.column"
        if any(node.output[0] == scales for node in self.nodes.nodes):
            return levels, f"zero_{zero}", scales
        add = self.nodes.add
        if linear.smooth is not None:
            inputs = add("Mul", [inputs, self.nodes.constant(f"{inputs}.smooth", 1 / linear.smooth)], f"{inputs}.even")
        if linear.is_shifted:
            inputs = size = add("Add", [inputs, "gelu_offset"], f"{inputs}.shifted")
        else:
            size = add("Abs", [inputs], f"{inputs}.abs")
        count = _LEVELS if linear.is_shifted else _SIGNED_LEVELS
        largest = add("ReduceMax", [size, "last_axis"], f"{size}.largest", keepdims=0)
        per_level = self.nodes.constant(f"one_of_{count}", np.float32(1 / count))
        scale = add("Max", [add("Mul", [largest, per_level], f"{size}.raw_scale"), "least"], f"{size}.scale")
        add("QuantizeLinear", [inputs, scale, zero], levels, axis=0)
        add("Unsqueeze", [scale, "last_axis"], scales)
        return levels, f"zero_{zero}", scales
