"""The maker of light forms: its graph against torch, and the integers that it chooses."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint  # noqa: E402 - only where torch is
from mvindex.encoder.checkpoint.settings import read_json_object  # noqa: E402 - as above
from mvindex_train.light.build import layer_linears, quantise_layer  # noqa: E402 - as above
from mvindex_train.light.graph import Shape, write_graph  # noqa: E402 - as above
from mvindex_train.light.quantise import (  # noqa: E402 - as above
    GELU_OFFSET,
    PAIR_LEVELS,
    WEIGHT_LEVELS,
    Linear,
    even_out,
    quantise_linears,
    quantise_rows,
)
from tests.helpers.tiny_models import make_model, torch  # noqa: E402 - as above


@pytest.fixture
def model(tmp_path):
    """A tiny BERT: its torch module, its weights by name, its linear maps and its shape."""
    checkpoint = read_checkpoint(make_model(tmp_path / "bert"))
    module = load_parts(checkpoint, load_tokenizer(checkpoint)).queries
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    shape = Shape.of(read_json_object(checkpoint.folder / "config.json"))
    linears = {name: one for layer in range(shape.layers) for name, one in layer_linears(weights, layer).items()}
    return module, weights, linears, shape


def batch():
    ids = np.random.default_rng(0).integers(5, 12, (3, 9))
    mask = np.ones_like(ids)
    mask[1, 4:] = 0
    return {"ids": ids, "mask": mask}


def run(path, names=None):
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(names, batch())


def test_the_exact_graph_gives_the_states_of_torch(tmp_path, model):
    module, weights, linears, shape = model
    write_graph(tmp_path / "exact.onnx", weights, shape, linears)
    given = {name: torch.from_numpy(array) for name, array in batch().items()}
    with torch.inference_mode():
        expected = module(input_ids=given["ids"], attention_mask=given["mask"]).last_hidden_state.numpy()
    is_read = batch()["mask"].astype(bool)
    np.testing.assert_allclose(run(tmp_path / "exact.onnx")[0][is_read], expected[is_read], atol=1e-5)


def test_the_integer_graph_gives_nearly_the_same_states(tmp_path, model):
    _, weights, linears, shape = model
    write_graph(tmp_path / "exact.onnx", weights, shape, linears)
    outputs = run(tmp_path / "exact.onnx")
    quantised = {}
    for layer in range(shape.layers):
        quantised |= quantise_layer(weights, layer, outputs[1 + 4 * layer : 5 + 4 * layer])
    write_graph(tmp_path / "light.onnx", weights, shape, quantised, "weights.bin")
    found, expected = run(tmp_path / "light.onnx")[0], outputs[0]
    cosines = (found * expected).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosines[batch()["mask"].astype(bool)].min() > 0.999


def gelu_like(rows, width):
    """Return correlated inputs that are never below the least output of GELU."""
    random = np.random.default_rng(0)
    mixed = random.normal(size=(rows, 6)) @ random.normal(size=(6, width))
    return np.maximum(mixed, -0.17).astype(np.float32)


@pytest.mark.parametrize("shifted", [False, True])
def test_outputs_change_less_than_by_plain_rounding(shifted):
    random = np.random.default_rng(1)
    inputs = gelu_like(500, 64)
    linear = Linear(random.normal(size=(64, 16)).astype(np.float32), random.normal(size=16).astype(np.float32))
    [made] = quantise_linears([linear], inputs, shifted=shifted)
    assert made.levels.dtype == np.int8 and np.abs(made.levels.astype(int)).max() <= WEIGHT_LEVELS
    for sign in (1, -1):
        pairs = np.maximum(sign * made.levels.astype(int), 0).reshape(32, 2, 16).sum(axis=1)
        assert 100 < pairs.max() <= PAIR_LEVELS
    expected = inputs @ linear.weight + linear.bias
    seen = inputs + (GELU_OFFSET if shifted else 0)
    found = seen @ (made.levels * made.scales) + made.bias
    scales = np.abs(linear.weight).max(axis=0) / WEIGHT_LEVELS
    plain = inputs @ (np.rint(linear.weight / scales) * scales) + linear.bias
    assert np.abs(found - expected).mean() < 0.7 * np.abs(plain - expected).mean()


def test_inputs_with_outliers_are_evened_before_they_are_rounded():
    random = np.random.default_rng(2)
    inputs = random.normal(size=(400, 32)).astype(np.float32)
    inputs[:, 3] = 40 + 8 * inputs[:, 3]
    linear = Linear(random.normal(size=(32, 16)).astype(np.float32), random.normal(size=16).astype(np.float32))
    expected = inputs @ linear.weight + linear.bias

    def error(evened):
        [made] = quantise_linears([linear], inputs, even=even_out if evened else None)
        seen = (inputs - made.centre) / made.smooth if evened else inputs
        levels, scales = quantise_rows(np.asarray(seen, np.float32))
        return np.abs((levels * scales) @ (made.levels * made.scales) + made.bias - expected).mean()

    assert error(evened=True) < 0.2 * error(evened=False)


def test_rows_are_rounded_each_by_its_own_scale():
    levels, scales = quantise_rows(np.array([[1.0, -0.5], [0.0, 0.0], [0.01, 0.002]], np.float32))
    np.testing.assert_allclose(levels * scales, [[1.0, -0.5], [0, 0], [0.01, 0.002]], atol=0.005)
    assert levels[1].tolist() == [0, 0] and levels[2, 0] == 127


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match="expected a BERT with GELU, got roberta"):
        Shape.of({"model_type": "roberta", "hidden_act": "gelu"})
