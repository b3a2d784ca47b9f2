"""The light form of the packaged encoder: no torch, the same vectors in any company and on other processors, damage."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.encoder import light, load_encoder
from mvindex.encoder.checkpoint.hub import DEFAULT, LIGHT_FORMS, packaged_folder
from mvindex.encoder.onnx_encoder import OnnxEncoder
from mvindex.errors import CheckpointError, ExtraMissing
from mvindex.plugins import install_command
from mvindex.records import Document

FOLDER = packaged_folder(LIGHT_FORMS[DEFAULT])
DOCUMENTS = [
    Document("oil", "The oil crisis began in October 1973. OPEC proclaimed an embargo! Prices rose to $12.", "1973"),
    Document("plants", "Photosynthesis turns light into chemical energy. It takes place in chloroplasts."),
    Document("long", "The committee met on Tuesday. It approved the minutes of the last meeting. " * 40),
    Document("title only", "", "Normans"),
]
QUERIES = ["when did the embargo begin?", "how do plants make energy?", "", "who approved the minutes? " * 80]
# At least so near the vectors of torch in fp32; an empty text is the farthest (0.9896).
LEAST_COSINE = 0.985


@pytest.fixture(scope="module")
def encoder():
    found = load_encoder(device="cpu")
    assert isinstance(found, OnnxEncoder)
    return found


@pytest.fixture
def usual_threads():
    yield
    mvindex.set_threads(None)


def test_documents_of_many_lengths_are_counted_while_they_are_encoded(encoder):
    text = " ".join("Word " + "word " * count + "ends." for count in range(1, 90))
    done = []
    encoder.encode_documents([Document(str(number), text) for number in range(6)], done.append)
    assert sum(done) == 6 and max(done) == 1


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import mvindex
with mvindex.create(sys.argv[1], encoder="minilm-views") as index:
    index.add([mvindex.Document("1", "The cat sat on the mat."), mvindex.Document("2", "Oil prices rose in 1973.")])
    hit = index.search("when did oil cost more?", 1).hits[0]
print(hit.id, hit.text)
assert "torch" not in {name for name, module in sys.modules.items() if module}
"""


def test_documents_and_queries_need_no_torch(tmp_path):
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "x.mvx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "2 Oil prices rose in 1973."


def test_a_text_has_the_same_vectors_in_any_company(encoder):
    together = encoder.encode_documents(DOCUMENTS)
    for number, document in enumerate(DOCUMENTS):
        begin, end = together.starts[number : number + 2]
        np.testing.assert_allclose(encoder.encode_documents([document]).rows, together.rows[begin:end], atol=2e-7)
    alone = np.concatenate([encoder.encode_queries([text]) for text in QUERIES])
    np.testing.assert_allclose(alone, encoder.encode_queries(QUERIES), atol=2e-7)


def test_any_number_of_threads_gives_the_same_vectors(encoder, usual_threads):
    found = []
    for threads in (1, 3):
        mvindex.set_threads(threads)
        found.append(load_encoder(device="cpu").encode_documents(DOCUMENTS * 10).rows)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.needs("minilm")
@pytest.mark.parametrize("family", ["snippets", "single", "sentences", "first-k"])
def test_vectors_are_near_those_of_torch(family):
    from mvindex.encoder.checkpoint import parse_family, read_checkpoint
    from mvindex.encoder.transformer import TransformerEncoder

    theirs = TransformerEncoder(read_checkpoint(DEFAULT, parse_family(family)), "cpu")
    ours = load_encoder(family=family, device="cpu")
    assert (ours.fingerprint, ours.spec, ours.dim) == (theirs.fingerprint, theirs.spec, theirs.dim)
    views, expected = ours.encode_documents(DOCUMENTS), theirs.encode_documents(DOCUMENTS)
    np.testing.assert_array_equal(views.spans, expected.spans)
    assert (views.rows * expected.rows).sum(axis=1).min() > LEAST_COSINE
    assert (ours.encode_queries(QUERIES) * theirs.encode_queries(QUERIES)).sum(axis=1).min() > LEAST_COSINE


@pytest.mark.needs("minilm")
def test_an_index_of_one_form_is_searched_with_the_other(tmp_path):
    from mvindex.encoder.checkpoint import read_checkpoint
    from mvindex.encoder.transformer import TransformerEncoder

    forms = {"light": load_encoder(device="cpu"), "torch": TransformerEncoder(read_checkpoint(DEFAULT), "cpu")}
    for made, asked in (("light", "torch"), ("torch", "light")):
        with mvindex.create(tmp_path / made, encoder=forms[made]) as index:
            index.add(DOCUMENTS)
        with mvindex.open(tmp_path / made, encoder=forms[asked]) as index:
            assert [index.search(text, 1).hits[0].id for text in QUERIES[:2]] == ["oil", "plants"]


@pytest.mark.needs("minilm")
def test_clusters_of_tokens_are_left_to_torch():
    views = load_encoder(family="kmeans", max_views=2, device="cpu").encode_documents(DOCUMENTS[:1])
    assert views.rows.shape == (2, 384)


def products():
    """Yield the name, the levels (k, n) and scales (n,) of each integer product of the graph."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(str(FOLDER / "model.onnx")).graph
    values = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            yield node, values[node.input[1]], values[node.input[3]], int(values[node.input[4]].item())


def test_no_pair_of_products_leaves_16_bits():
    # A processor without VNNI adds the products of two unsigned and two signed bytes in 16 bits, and cuts what is over.
    found = list(products())
    assert len(found) == 30
    for node, levels, _, _ in found:
        assert levels.dtype == np.int8, node.name
        # The two inputs of a sum stand beside each other; those of one sign are largest together.
        for sign in (1, -1):
            pairs = np.maximum(sign * levels.astype(int), 0).reshape(len(levels) // 2, 2, -1).sum(axis=1)
            assert 255 * int(pairs.max()) <= 32767, node.name


def write_products(folder):
    """Write a graph of some products, with inputs, and return what they give by whole numbers."""
    onnx = pytest.importorskip("onnx")
    helper, kinds, expected = onnx.helper, onnx.TensorProto, []
    random = np.random.default_rng(0)
    for number, (node, levels, scales, zero) in enumerate(list(products())[::7]):
        rows = random.integers(0, 256, (20, len(levels)), dtype=np.uint8)
        # All that one output adds, and all that it takes away, for the outputs of the largest pairs of weights.
        pairs = np.abs(levels.astype(int)).reshape(len(levels) // 2, 2, -1).sum(axis=1).max(axis=0)
        worst = levels[:, np.argsort(pairs)[-4:]].T
        rows[0], rows[1:5], rows[5:9] = 255, np.where(worst > 0, 255, 0), np.where(worst < 0, 255, 0)
        constants = {"w": levels, "one": np.float32(1), "s": scales, "z": np.uint8(zero)}
        inputs = [helper.make_tensor_value_info("x", kinds.UINT8, rows.shape)]
        outputs = [helper.make_tensor_value_info("y", kinds.FLOAT, [len(rows), len(scales)])]
        made = [helper.make_node(node.op_type, ["x", "w", "one", "s", "z"], ["y"], domain=node.domain)]
        tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
        graph = helper.make_graph(made, "g", inputs, outputs, tensors)
        versions = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()
        (folder / f"{number}.onnx").write_bytes(model)
        np.save(folder / f"{number}.npy", rows)
        exact = (rows.astype(np.int64) - zero) @ levels.astype(np.int64)
        expected.append(exact.astype(np.float32) * scales)
    return expected


MULTIPLY = """
import sys
from pathlib import Path
import numpy as np, onnxruntime
for path in Path(sys.argv[1]).glob("*.onnx"):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.save(path.with_suffix(".out.npy"), session.run(None, {"x": np.load(path.with_suffix(".npy"))})[0])
"""


@pytest.mark.parametrize("processor", [None, pytest.param("Haswell", marks=pytest.mark.needs("qemu"))])
def test_products_are_those_of_whole_numbers(tmp_path, processor):
    """ONNX Runtime's products are exact, with extreme inputs first, where bytes could saturate."""
    pytest.importorskip("onnxruntime")
    expected = write_products(tmp_path)
    run_on(processor, MULTIPLY, tmp_path)
    for number, values in enumerate(expected):
        np.testing.assert_allclose(np.load(tmp_path / f"{number}.out.npy"), values, rtol=2e-7)


def run_on(processor, code, *arguments):
    """Run Python code on an emulated processor, or on this one."""
    program = str(Path(sys.executable).resolve())
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    variables.pop("OPENBLAS_CORETYPE", None)  # the type of this processor
    emulator = ["qemu-x86_64", "-cpu", processor] if processor else []
    command = [*emulator, program, "-c", code, *map(str, arguments)]
    subprocess.run(command, check=True, timeout=900, env=variables, capture_output=True)


# Long enough that sums of attention in another order, as of ONNX Runtime's softmax, would change each vector.
TEXTS = [
    "The 1973 oil crisis began in October 1973 when the members of the Organization of Arab Petroleum "
    "Exporting Countries proclaimed an oil embargo. By the end of the embargo in March 1974, the price of oil "
    "had risen from US$3 per barrel to nearly $12 globally; US prices were significantly higher. The embargo "
    "caused a shock, with many short- and long-term effects on global politics and the global economy. It was "
    "later called the first oil shock, followed by the 1979 oil crisis, termed the second oil shock.",
    "Plants turn light into chemical energy, which they store in sugars made of carbon dioxide and water. It "
    "takes place in chloroplasts, whose membranes hold chlorophyll: a pigment that takes up blue and red "
    "light, and leaves green. Oxygen is set free as a by-product, and most of the oxygen of the air was made "
    "so.",
    "Committees meet on the first Tuesday of each month at half past nine, unless the chair decides otherwise "
    "in writing at least ten days before. Minutes are kept by the secretary, sent to all members within a "
    "week, and approved at the next meeting; an objection has to name the page and the sentence that it is "
    "about.",
]

ENCODE = """
import json, sys
import numpy as np
from mvindex.encoder import load_encoder
from mvindex.records import Document
encoder, texts = load_encoder(device="cpu"), json.loads(sys.argv[2])
rows = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(texts)]).rows
questions = [text[:60] for text in texts]
np.save(sys.argv[1], np.concatenate([rows, encoder.encode_queries(questions)]))
"""


@pytest.mark.needs("qemu")
@pytest.mark.parametrize(
    ("processor", "texts", "differs"),
    [
        ("Haswell", TEXTS[1:2], 1e-6),
        pytest.param("Haswell", TEXTS, 1e-6, marks=pytest.mark.long),
        pytest.param("SandyBridge", TEXTS, 0.02, marks=pytest.mark.long),
    ],
)
def test_processors_without_vnni_give_the_same_vectors(tmp_path, processor, texts, differs):
    # The integer products are exact, and sums have one order. A processor without fused multiply-add rounds the rest
    # otherwise, which moves some input of a product to the next level: as far from torch's vectors, but not the same.
    here, there = tmp_path / "here.npy", tmp_path / "there.npy"
    run_on(None, ENCODE, here, json.dumps(texts))
    run_on(processor, ENCODE, there, json.dumps(texts))
    np.testing.assert_allclose(np.load(there), np.load(here), atol=differs)


def flip_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def change_form(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda form: flip_byte(form / "weights.bin"), "weights.bin: expected"),
        (lambda form: flip_byte(form / "model.onnx"), "model.onnx: expected"),
        (lambda form: (form / "tokenizer.json").write_text("{}"), "tokenizer.json: expected"),
        (lambda form: (form / "weights.bin").unlink(), "weights.bin"),
        (lambda form: (form / "form.json").write_text("{"), "Expecting"),
        (lambda form: change_form(form / "form.json", version=0), "expected version 2, got 0"),
        (lambda form: change_form(form / "form.json", adapter={"a": "b"}), "expected a form of the weights"),
    ],
    ids=["weights", "graph", "tokenizer", "missing", "no JSON", "other version", "other weights"],
)
def test_a_damaged_form_is_named_and_never_run(tmp_path, monkeypatch, harm, named):
    form = tmp_path / "light"
    shutil.copytree(FOLDER, form)
    harm(form)
    monkeypatch.setattr(light, "LIGHT_FORMS", {DEFAULT: str(form)})
    with pytest.raises(CheckpointError, match="the encoder 'minilm-views' is damaged: .*" + named):
        load_encoder(device="cpu")


def test_another_encoder_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExtraMissing) as raised:
        load_encoder("minilm-snippets")
    assert "'torch'" in str(raised.value) and install_command("train") in str(raised.value)


def test_the_form_is_small_and_its_files_are_known():
    total = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert total < 35e6
    listed = set(json.loads((FOLDER / "form.json").read_text())["files"]) | {"form.json"}
    assert listed == {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
