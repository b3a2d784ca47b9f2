"""Queries in int8: near those in fp32, each by itself, and refused where they cannot be."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import mvindex as mv  # noqa: E402 - only where the extras are
from mvindex.encoder import load_encoder, onnx_encoder, onnx_export, prepare_queries  # noqa: E402 - as above
from mvindex.encoder.base import QueryPrecision  # noqa: E402 - as above
from mvindex.encoder.batches import Batch  # noqa: E402 - as above
from mvindex.encoder.onnx_encoder import OnnxEncoder  # noqa: E402 - as above
from mvindex.encoder.onnx_int8 import write_int8  # noqa: E402 - as above
from mvindex.errors import ConfigError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from tests.helpers.cli import mvindex, ok  # noqa: E402 - as above
from tests.helpers.marks import full  # noqa: E402 - as above
from tests.helpers.st_folders import MORE, make_transformer, save_st  # noqa: E402 - as above
from tests.helpers.tiny_models import KINDS, make_kind, make_model, torch  # noqa: E402 - as above

# Without VNNI a processor cuts off sums of two products: tiny random models are then too far from fp32, and refused.
pytestmark = [pytest.mark.usefixtures("plain_arithmetic"), pytest.mark.needs("vnni")]
QUERIES = ["a", "was the cat on the mat?", "House", "zebra \u0301 xyz", "the old river ran under it. " * 12]
DOCUMENTS = [Document("1", "The cat sat on the mat. It ran.", "Dog"), Document("2", "a new house")]
QUICK = {"bert", "modernbert-sdpa", "t5"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of the test's own."""
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    return make_model(tmp_path / "bert")


def cosines(one, other):
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def check_near(source, least=0.99):
    """The checkpoint's queries in int8 are near those in fp32, alone as in a batch; documents are the same."""
    expected, found = load_encoder(source), load_encoder(source, query_precision="int8")
    assert isinstance(found, OnnxEncoder) and found.precision is QueryPrecision.INT8
    assert (found.fingerprint, found.spec) == (expected.fingerprint, expected.spec)
    vectors = found.encode_queries(QUERIES)
    near = cosines(vectors, expected.encode_queries(QUERIES))
    assert least < near.min() and near.max() < 1 - 1e-8, near
    alone = np.concatenate([found.encode_queries([text]) for text in QUERIES])
    np.testing.assert_allclose(alone, vectors, rtol=0, atol=1e-6 * np.abs(vectors).max())
    np.testing.assert_array_equal(found.encode_documents(DOCUMENTS).rows, expected.encode_documents(DOCUMENTS).rows)
    return found


@pytest.mark.parametrize("kind", [kind if kind in QUICK else full(kind) for kind in (*KINDS, *MORE)])
def test_every_kind_of_model_is_near_fp32(tmp_path, kind):
    check_near(make_kind(tmp_path / "model", kind) if kind in KINDS else make_transformer(tmp_path / "model", kind))


@pytest.mark.needs("sentence-transformers")
def test_dense_modules_stay_in_fp32(tmp_path):
    assert check_near(save_st(tmp_path / "st", "bert", dense=[(16, torch.nn.Tanh())])).dim == 16


@pytest.mark.needs("minilm")
def test_questions_of_people_are_nearer(tmp_path):
    found, exact = check_near("minilm-views", least=0.98), load_encoder("minilm-views")
    asked = ["When did the oil crisis of the seventies end?", "who wrote the first programme for Babbage's engine"]
    assert cosines(found.encode_queries(asked), exact.encode_queries(asked)).min() > 0.997


def test_products_are_of_bytes_and_each_token_has_its_scale(folder):
    form = load_encoder(folder, query_precision="int8").form
    model = onnx.load(str(form.folder / "model-int8.onnx"))
    kinds = [node.op_type for node in model.graph.node]
    plain = [node.op_type for node in onnx.load(str(form.folder / "model.onnx")).graph.node]
    constants = kinds.count("MatMulIntegerToFloat")
    assert constants == 6 * 2 and kinds.count("MatMul") == plain.count("MatMul") - constants  # of two layers
    assert kinds.count("QuantizeLinear") == 4 * 2  # queries, keys and values read the same rows
    session = onnx_encoder.open_session(form.folder / "model-int8.onnx")
    ids, mask = np.array([[5, 6, 7], [5, 6, 7]]), np.ones((2, 3), dtype=np.int64)
    few = session.run(["states"], {"ids": ids[:1], "mask": mask[:1]})[0]
    np.testing.assert_array_equal(session.run(["states"], {"ids": ids, "mask": mask})[0], np.repeat(few, 2, axis=0))


def test_a_matrix_that_multiplies_several_states_is_right_for_each(tmp_path):
    rng, width = np.random.default_rng(0), 32
    constants = {
        "embeddings": rng.standard_normal((50, width)),
        "shared": rng.standard_normal((width, width)),
        # Elements of very different sizes, other ones in each norm.
        "first": 10.0 ** rng.uniform(-2, 2, width),
        "second": 10.0 ** rng.uniform(-2, 2, width),
    }
    nodes = [
        onnx.helper.make_node("Gather", ["embeddings", "ids"], ["read"]),
        onnx.helper.make_node("LayerNormalization", ["read", "first"], ["a"]),
        onnx.helper.make_node("MatMul", ["a", "shared"], ["b"]),
        onnx.helper.make_node("LayerNormalization", ["b", "second"], ["c"]),
        onnx.helper.make_node("MatMul", ["c", "shared"], ["states"]),
    ]
    value = onnx.helper.make_tensor_value_info
    shape = ["queries", "tokens"]
    graph = onnx.helper.make_graph(
        nodes,
        "shared",
        [value(name, onnx.TensorProto.INT64, shape) for name in ("ids", "mask")],
        [value("states", onnx.TensorProto.FLOAT, [*shape, width])],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), str(tmp_path / "plain.onnx"))
    ids = rng.integers(0, 50, (4, 6))
    batch = Batch(ids, np.ones_like(ids), ids, np.arange(4), ids.astype(np.float32), None, None)
    write_int8(tmp_path / "plain.onnx", tmp_path / "int8.onnx", [batch])
    plain, rounded = (
        onnx_encoder.open_session(tmp_path / f"{name}.onnx").run(["states"], {"ids": ids, "mask": batch.mask})[0]
        for name in ("plain", "int8")
    )
    assert cosines(plain.reshape(-1, width), rounded.reshape(-1, width)).min() > 0.99


def test_an_index_is_opened_with_it_and_evaluated(folder, tmp_path):
    path = tmp_path / "a.mvx"
    with mv.create(path, encoder=folder) as index:
        index.add(DOCUMENTS)
    with mv.open(path) as exact, mv.open(path, query_precision="int8") as index:
        query = "was the cat on the mat?"
        scores = [each.search(query, mode="dense").hits[0].score for each in (exact, index)]
        assert scores[0] != scores[1] == pytest.approx(scores[0], abs=0.02)
        assert index.encoder.precision is QueryPrecision.INT8
        index.use_query_precision("int8")
        with pytest.raises(ConfigError, match="this index has its encoder already"):
            index.use_query_precision("fp32")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "the mat", "answers": ["mat"]}\n', encoding="utf-8")
    for more, told in (((), None), (("--query-precision", "int8"), "int8")):
        run = mvindex("eval", "--index", path, "--questions", questions, "--json", *more, cwd=tmp_path)
        assert json.loads(ok(run).stdout).get("query_precision") == told


def test_what_has_no_int8_form_says_so(folder, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=re.escape("query_precision: expected 'fp32' or 'int8', got 'int4'")):
        load_encoder(folder, query_precision="int4")
    with pytest.raises(ConfigError, match="int8 is for checkpoints; this encoder is of kind 'function'"):
        load_encoder(lambda texts: np.ones((len(texts), 4)), query_precision="int8")
    monkeypatch.setattr(onnx_export, "_MAX_WEIGHT_BYTES", 10)
    with pytest.raises(ConfigError, match="int8 needs the ONNX form of .*bytes of weights; one ONNX file holds 10"):
        load_encoder(make_model(tmp_path / "other", seed=1), query_precision="int8")


def test_a_graph_without_such_products_is_refused(folder, monkeypatch):
    monkeypatch.setattr(onnx_export, "write_int8", lambda *given: None)
    with pytest.raises(ConfigError, match="its graph has no products that could be computed in int8"):
        load_encoder(folder, query_precision="int8")


def test_a_conversion_that_fails_leaves_queries_in_fp32(folder, monkeypatch, caplog):
    def fail(*given):
        raise RuntimeError("a graph of another kind\nand more")

    monkeypatch.setattr(onnx_export, "write_int8", fail)
    assert prepare_queries(load_encoder(folder)).startswith("ONNX Runtime")
    assert "no queries in int8: a graph of another kind" in caplog.text
    assert isinstance(load_encoder(folder), OnnxEncoder)


def test_queries_far_from_fp32_are_refused(folder, monkeypatch):
    load_encoder(folder, query_precision="int8")
    monkeypatch.setattr(onnx_encoder, "LEAST_COSINE", 1.0)
    with pytest.raises(ConfigError, match=r"a sample has a cosine of [01]\.\d+ with its vector in fp32, expected at l"):
        load_encoder(folder, query_precision="int8")
