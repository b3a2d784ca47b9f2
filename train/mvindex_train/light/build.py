"""Write the light form of a packaged encoder into a folder.

    python -m mvindex_train.light.build ENCODER FOLDER --texts FILE

ENCODER is `minilm-views`; FILE holds texts, one a line, on which the integers are chosen: some hundred passages. The
weights are the base's with the adapter added, in fp32. FOLDER is then what mvindex/encoder/light.py reads: the graph,
its weights, the base's configuration and tokenizer, and form.json with checksums and what the form was made of. The
form is compared with torch's encoder on every eighth text.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.onnx_cache import MODEL, TOKENIZER, WEIGHTS, OnnxForm, describe
from mvindex.encoder.onnx_encoder import OnnxEncoder
from mvindex.encoder.transformer import TransformerEncoder
from mvindex.plugins import require
from mvindex.records import Floats
from mvindex_train.light.graph import Shape, linear_names, split_names, write_graph
from mvindex_train.light.quantise import Linear, QuantisedLinear, even_out, quantise_linears, smooth

# What of the base the runtime reads, beside weights: everything that enters the fingerprint, or settings.
BASE_FILES = (
    "config.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "modules.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
)  # fmt: skip
_BATCH, _MAX_LENGTH, _COMPARED_STEP = 16, 256, 8
# One output of GELU in so many is large: the map behind it reads these in fp32.
_SHARE_OF_LARGE = 12


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    given = parser.parse_args(arguments)
    texts = [line for line in given.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    cosines = build(given.encoder, given.folder, texts)
    sys.stdout.write(f"cosine with torch in fp32: mean {cosines.mean():.5f}, least {cosines.min():.5f}\n")


def build(source: str, folder: Path, texts: Sequence[str]) -> Floats:
    """Write the form of the encoder, and return the cosines of its vectors with those of torch in fp32."""
    checkpoint = read_checkpoint(source)
    if checkpoint.base is None:
        raise ValueError(f"{source}: expected an adapter on a packaged base")
    base = checkpoint.base.folder
    shape = Shape.of(read_json_object(base / "config.json"))
    model = load_parts(checkpoint, load_tokenizer(checkpoint)).queries
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    folder.mkdir(parents=True)
    for name in BASE_FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(base / name, folder / name)
    shutil.copyfile(base / TOKENIZER, folder / TOKENIZER)
    inputs = _inputs(folder / TOKENIZER, texts)
    with tempfile.TemporaryDirectory() as temporary:
        quantised = _quantise(Path(temporary) / MODEL, weights, shape, inputs)
    write_graph(folder / MODEL, weights, shape, quantised, WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)
    padding = read_json_object(base / "config.json").get("pad_token_id") or 0
    form = OnnxForm(folder=folder, width=shape.width, pad_id=padding, has_head=False, difference=0.0, is_packaged=True)
    compared = texts[::_COMPARED_STEP]
    expected = TransformerEncoder(checkpoint, "cpu").encode_queries(compared)
    found = OnnxEncoder(checkpoint, form).encode_queries(compared)
    describe(
        folder, checkpoint.fingerprint, width=shape.width, pad_id=padding,
        difference=float(np.abs(found - expected).max()), base=dict(checkpoint.base.weights),
        adapter=dict(checkpoint.weights), texts=len(texts),
    )  # fmt: skip
    return np.asarray((found * expected).sum(axis=1))


def _inputs(tokenizer_file: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the inputs of the graph, in batches of similar length."""
    tokenizer = require("tokenizers", "train", "encoding texts").Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_LENGTH)
    ids = sorted((encoding.ids for encoding in tokenizer.encode_batch(list(texts))), key=len)
    batches = []
    for begin in range(0, len(ids), _BATCH):
        some = ids[begin : begin + _BATCH]
        padded = np.zeros((len(some), len(some[-1])), dtype=np.int64)
        for line, own in enumerate(some):
            padded[line, : len(own)] = own
        batches.append({"ids": padded, "mask": (padded > 0).astype(np.int64)})
    return batches


def _quantise(
    path: Path, weights: Mapping[str, Floats], shape: Shape, inputs: Sequence[dict[str, Any]]
) -> dict[str, Linear | QuantisedLinear]:
    """Return the maps quantised, each on what it reads behind quantised layers; path: of a graph that is written."""
    onnxruntime = require("onnxruntime", "train", "the light form of an encoder")
    linears = {name: one for layer in range(shape.layers) for name, one in layer_linears(weights, layer).items()}
    found: dict[str, Linear | QuantisedLinear] = {}
    for layer in range(shape.layers):
        write_graph(path, weights, replace(shape, layers=layer + 1), {**linears, **found})
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        # Of the last layer, which is still in fp32.
        own = [one.name for one in session.get_outputs() if one.name != "states"]
        taps = zip(*(_read_rows(session.run(own, batch), batch["mask"]) for batch in inputs), strict=True)
        found |= quantise_layer(weights, layer, [np.concatenate(rows) for rows in taps])
    return found


def layer_linears(weights: Mapping[str, Floats], layer: int) -> dict[str, Linear]:
    """Return the linear maps of a layer by name."""
    return {
        name: Linear(np.ascontiguousarray(weights[f"{name}.weight"].T), weights[f"{name}.bias"])
        for name in linear_names(layer)
    }


def quantise_layer(
    weights: Mapping[str, Floats], layer: int, taps: Sequence[Floats]
) -> dict[str, Linear | QuantisedLinear]:
    """Return a layer's maps; taps: what its four kinds of maps read, (rows, inputs), in order.

    Errors of values, and of what is read of them, reach the state as they are: these maps stay in fp32.
    """
    query, key, value, mixed, wide, narrow = layer_linears(weights, layer).values()
    state, _, state_between, gelu = taps
    compared = quantise_linears([query, key], state, even=smooth)
    centre = compared[0].centre
    bias = value.bias if centre is None else value.bias + centre @ value.weight
    # All inputs of a row have one scale: a few large outputs of GELU would cost the others their levels.
    order = np.argsort(-gelu.max(axis=0), kind="stable")
    border = len(order) // _SHARE_OF_LARGE // 2 * 2
    large, small = np.sort(order[:border]), np.sort(order[border:])
    wides = [Linear(wide.weight[:, part], wide.bias[part]) for part in (large, small)]
    made: list[Linear | QuantisedLinear] = [
        *compared,
        Linear(value.weight, bias, is_tapped=False),
        replace(mixed, is_tapped=False),
        *quantise_linears(wides, state_between, even=even_out),
        Linear(narrow.weight[large], narrow.bias, is_tapped=False),
        # The bias is added once, to the sum of both.
        *quantise_linears([Linear(narrow.weight[small], 0 * narrow.bias)], gelu[:, small], shifted=True),
    ]
    return dict(zip(split_names(layer), made, strict=True))


def _read_rows(taps: Sequence[Floats], mask: Any) -> list[Floats]:
    """Return every second row of each tap, flat, without padding: tokens beside each other say little new."""
    is_read = mask.ravel().astype(bool)
    is_read[is_read] = np.arange(np.count_nonzero(is_read)) % 2 == 0
    return [tap.reshape(len(is_read), -1)[is_read] for tap in taps]


if __name__ == "__main__":
    main()
