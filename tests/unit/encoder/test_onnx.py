"""The ONNX form of query encoders: equal vectors to torch's, refusals, damage, changed checkpoints, two processes."""

import json
import logging
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("peft")

import mvindex as mv  # noqa: E402 - only where the extras are
from mvindex.encoder import (  # noqa: E402 - as above
    encoder_from_spec,
    load_encoder,
    onnx_cache,
    onnx_export,
    prepare_queries,
    transformer,
)
from mvindex.encoder.checkpoint import hashes, read_checkpoint  # noqa: E402 - as above
from mvindex.encoder.onnx_cache import OnnxForm, Refused, find_form  # noqa: E402 - as above
from mvindex.encoder.onnx_encoder import OnnxEncoder  # noqa: E402 - as above
from mvindex.encoder.registry import describe_queries, leave_form  # noqa: E402 - as above
from mvindex.encoder.transformer import TransformerEncoder  # noqa: E402 - as above
from mvindex.errors import CheckpointError, ExtraMissing, StoreError  # noqa: E402 - as above
from mvindex.index.factory import create  # noqa: E402 - as above
from mvindex.plugins import install_command
from mvindex.records import Document  # noqa: E402 - as above
from mvindex_train.checkpoints import save_checkpoint  # noqa: E402 - as above
from tests.helpers.cli import mvindex, ok  # noqa: E402 - as above
from tests.helpers.marks import full  # noqa: E402 - as above
from tests.helpers.st_folders import MORE, make_transformer, save_st  # noqa: E402 - as above
from tests.helpers.tiny_encoders import FAMILIES, build, shaken  # noqa: E402 - as above
from tests.helpers.tiny_models import KINDS, make_kind, make_model, torch, write_settings  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("plain_arithmetic")
# Two orders of fp32 sums over tiny models, at unit length.
ATOL = 1e-6
QUERIES = ["", "a", "was the cat on the mat?", "House", "zebra \u0301 xyz", "the old river ran under it. " * 12]
DOCUMENTS = [Document("1", "The cat sat on the mat. It ran.", "Dog"), Document("2", "a new house")]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of the test's own."""
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnx"


@pytest.fixture
def folder(tmp_path):
    return make_model(tmp_path / "bert")


@pytest.fixture
def usual_threads():
    """The usual number of threads again, after the test."""
    yield
    mv.set_threads(None)


def check_same(source, **chosen):
    """The checkpoint's queries are torch's, in a batch and alone, and so is all else of the encoder."""
    expected = TransformerEncoder(read_checkpoint(source, **chosen))
    told = prepare_queries(expected)
    assert told.startswith("ONNX Runtime"), told
    found = load_encoder(source, max_views=chosen.get("max_views"))
    assert isinstance(found, OnnxEncoder)
    assert (found.dim, found.max_views, found.spec) == (expected.dim, expected.max_views, expected.spec)
    vectors = expected.encode_queries(QUERIES)
    scale = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs((found.encode_queries(QUERIES) - vectors) / scale).max() < ATOL
    alone = np.concatenate([found.encode_queries([text]) for text in QUERIES])
    assert np.abs((alone - vectors) / scale).max() < ATOL
    assert found.encode_queries(QUERIES).dtype == np.float32
    np.testing.assert_array_equal(found.encode_documents(DOCUMENTS).rows, expected.encode_documents(DOCUMENTS).rows)
    return found


def test_any_number_of_threads_gives_the_same_vectors(folder, monkeypatch, usual_threads):
    several = [f"the {word} of the old house near river {n}" for n in range(60) for word in ("cat", "mat")]
    prepare_queries(load_encoder(folder))
    compute, found, together = OnnxEncoder._states, [], threading.Barrier(2)
    for threads in (1, 2, 7):
        mv.set_threads(threads)
        encoder = load_encoder(folder)
        found.append(encoder.encode_queries(several))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    seen = []

    def watched(encoder, batch):
        seen.append(threading.current_thread())
        if len(seen) <= 2:
            together.wait(30)  # broken, unless two are computed at once
        return compute(encoder, batch)

    monkeypatch.setattr(OnnxEncoder, "_states", watched)
    np.testing.assert_array_equal(encoder.encode_queries(several), found[0])
    monkeypatch.undo()
    monkeypatch.setattr(
        OnnxEncoder, "_states", lambda *given: seen.append(threading.current_thread()) or compute(*given)
    )
    encoder.encode_queries(several[:1])
    assert seen[-1] is threading.current_thread()


QUICK = {"bert", "roberta", "modernbert-sdpa", "t5"}


@pytest.mark.parametrize("kind", [kind if kind in QUICK else full(kind) for kind in (*KINDS, *MORE)])
def test_every_kind_of_model_gives_the_vectors_of_torch(tmp_path, kind):
    check_same(make_kind(tmp_path / "model", kind) if kind in KINDS else make_transformer(tmp_path / "model", kind))


CASES = [
    ("snippets", {"lora_rank": 4}),
    ("viewers", {}),
    ("single", {"separate": True, "pooling": "cls"}),
    full("viewers", {"lora_rank": 4, "separate": True}),
    # Their questions are as those of snippets.
    *(full(family, {}) for family in FAMILIES if family != "viewers"),
]


@pytest.mark.parametrize(("family", "options"), CASES)
def test_every_family_gives_the_vectors_of_torch_once_trained(tmp_path, family, options):
    encoder = shaken(build(make_model(tmp_path / "base"), family, **options)).eval()
    save_checkpoint(encoder, tmp_path / "trained", "card")
    check_same(tmp_path / "trained")


@pytest.mark.needs("sentence-transformers")
def test_dense_modules_prompts_and_norms_are_kept(tmp_path):
    folder = save_st(
        tmp_path / "st", "bert", normalize=False, similarity="dot", prompts={"query": "he "},
        dense=[(16, torch.nn.Tanh()), (24, torch.nn.GELU())],
    )  # fmt: skip
    assert check_same(folder).dim == 24


@pytest.mark.parametrize("pooling", ["weightedmean", "lasttoken"])
def test_poolings_and_lower_case_are_kept(folder, pooling):
    write_settings(folder, family="single", max_views=1, pooling=pooling, lower_case=True)
    check_same(folder)


@pytest.mark.needs("minilm")
@pytest.mark.parametrize("source", [full("minilm"), "minilm-snippets"])
def test_the_packaged_encoder_and_its_adapter_have_a_form(source):
    check_same(source)


def test_a_form_is_made_once(folder, cache):
    started = []
    for _ in range(2):
        prepare_queries(load_encoder(folder), started.append)
    prepare_queries(TransformerEncoder(read_checkpoint(folder)), started.append)
    assert len(started) == 1 and len(list(cache.iterdir())) == 1


def test_a_gpu_that_is_asked_for_serves_queries_by_torch(folder, monkeypatch):
    prepare_queries(load_encoder(folder))
    monkeypatch.setattr(transformer, "choose_device", lambda name: torch.device("cpu"))
    assert isinstance(load_encoder(folder, device="cuda"), TransformerEncoder)
    assert isinstance(load_encoder(folder, device="cpu"), OnnxEncoder)


def test_what_cannot_be_exported_is_refused_once_with_its_reason(folder, monkeypatch):
    tried, notes = [], []

    def fail(*arguments, **options):
        tried.append(1)
        raise RuntimeError("no such operator\nand more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    for _ in range(2):
        encoder = load_encoder(folder)
        assert isinstance(encoder, TransformerEncoder)
        leave_form(encoder, notes.append)
    assert len(tried) == 1 and notes[1:] == [
        "queries go on loading torch: torch cannot export States: no such operator"
    ]
    assert describe_queries(encoder.spec).endswith("no ONNX form: torch cannot export States: no such operator")


def test_create_leaves_a_form(folder, tmp_path):
    with create(tmp_path / "x.mvx", encoder=folder):
        assert isinstance(load_encoder(folder), OnnxEncoder)


def test_without_torch_and_without_a_form_the_way_out_is_named(folder, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    command = re.escape(install_command("train"))
    message = f"'torch': {command}; for queries alone, copy the ONNX form .* to {cache}/snippets-8-"
    with pytest.raises(ExtraMissing, match=message):
        load_encoder(folder)


def test_newer_versions_try_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "export", lambda *arguments, **options: 1 / 0)
        prepare_queries(load_encoder(folder))
        assert isinstance(find_form(load_encoder(folder).fingerprint), Refused)
    monkeypatch.setattr(onnx_export, "_versions", lambda: "newer ones")
    assert prepare_queries(load_encoder(folder)).startswith("ONNX Runtime")


def test_other_vectors_are_refused(folder, monkeypatch, cache):
    forward = OnnxEncoder._states
    monkeypatch.setattr(OnnxEncoder, "_states", lambda self, batch: forward(self, batch) + np.float32(1e-3))
    told = prepare_queries(load_encoder(folder))
    assert "differ from torch's by" in told and "expected at most 1e-05" in told
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["form.json"]


def flip_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "harm",
    [
        lambda form: flip_byte(form / "weights.bin"),
        lambda form: flip_byte(form / "model.onnx"),
        lambda form: (form / "tokenizer.json").write_text("{}"),
        lambda form: (form / "weights.bin").unlink(),
        lambda form: (form / "form.json").write_text("{"),
        lambda form: (form / "form.json").write_text("[1]"),
        lambda form: (form / "form.json").write_text('{"version": 0}'),
    ],
    ids=["weights", "graph", "tokenizer", "missing", "no JSON", "no object", "other version"],
)
def test_a_damaged_form_is_left_alone_and_made_again(folder, cache, harm, caplog):
    prepare_queries(load_encoder(folder))
    (form,) = cache.iterdir()
    harm(form)
    with caplog.at_level(logging.WARNING):
        encoder = load_encoder(folder)
    assert isinstance(encoder, TransformerEncoder)
    assert "the ONNX form of an encoder is damaged" in caplog.text or not (form / "weights.bin").exists()
    assert prepare_queries(encoder).startswith("ONNX Runtime")
    assert isinstance(load_encoder(folder), OnnxEncoder) and len(list(cache.iterdir())) == 1


def test_a_form_of_another_release_is_made_again_without_a_warning(folder, cache, caplog):
    prepare_queries(load_encoder(folder))
    (form,) = cache.iterdir()
    content = json.loads((form / "form.json").read_text())
    (form / "form.json").write_text(json.dumps(content | {"version": content["version"] - 1}))
    with caplog.at_level(logging.WARNING):
        encoder = load_encoder(folder)
    assert isinstance(encoder, TransformerEncoder) and not caplog.text
    assert prepare_queries(encoder).startswith("ONNX Runtime")
    assert isinstance(load_encoder(folder), OnnxEncoder) and len(list(cache.iterdir())) == 1


def test_a_form_is_of_one_checkpoint_only(folder, cache, tmp_path):
    prepare_queries(load_encoder(folder))
    spec = dict(load_encoder(folder).spec)
    other = make_model(tmp_path / "other", seed=1)
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    assert isinstance(load_encoder(folder), TransformerEncoder)
    with pytest.raises(CheckpointError, match="has changed since the index was made"):
        encoder_from_spec(spec)
    # Nor is one whose folder was renamed.
    (form,) = cache.iterdir()
    form.rename(onnx_cache.form_folder(load_encoder(folder).fingerprint))
    assert isinstance(load_encoder(folder), TransformerEncoder)


def test_a_cache_that_cannot_be_written_is_an_error_of_its_own(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "file"))
    encoder = load_encoder(folder)
    with pytest.raises(StoreError, match="file.*: cannot be written: "):
        prepare_queries(encoder)
    assert len(encoder.encode_queries(["cat"])) == 1


def test_a_full_disk_leaves_nothing_and_refuses_nothing(folder, cache, monkeypatch):
    monkeypatch.setattr(onnx_export.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(StoreError, match="cannot be written: expected .* bytes of free disk, got 1"):
        prepare_queries(load_encoder(folder))
    assert list(cache.iterdir()) == []
    assert find_form(load_encoder(folder).fingerprint) is None


def test_two_processes_may_make_a_form_at_once(folder, cache):
    encoder = load_encoder(folder)
    with onnx_cache.new_form(encoder.fingerprint) as slower:
        prepare_queries(encoder)
        (slower / "form.json").write_text("{}")
    assert isinstance(find_form(encoder.fingerprint), OnnxForm) and len(list(cache.iterdir())) == 1


def test_forms_of_other_versions_of_the_runtime_go(folder, cache):
    encoder = load_encoder(folder)
    old = cache / f"{encoder.fingerprint}-ort1.0.0-x86_64"
    kept = cache / "another-ort1.0.0-x86_64"
    old.mkdir(parents=True)
    kept.mkdir()
    prepare_queries(encoder)
    assert not old.exists() and kept.exists()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MVINDEX_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/mvindex"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/mvindex"),
    ],
)
def test_the_cache_lies_where_the_platform_keeps_caches(monkeypatch, variables, expected):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("MVINDEX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(hashes.cache_folder()) == expected


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = sys.modules["transformers"] = None
import mvindex
from mvindex.errors import ExtraMissing
with mvindex.open(sys.argv[1]) as index:
    hits = index.search("was the cat on the mat?", 2).hits
    try:
        index.add([mvindex.Document("3", "text")])
    except ExtraMissing as err:
        refused = str(err)
print(json.dumps([[[hit.id, hit.score] for hit in hits], refused]))
"""

# A process that asks once imports what it needs, and writes to stderr what else it imported.
IMPORTED = """
import sys
from mvindex.cli import main
try:
    main()
except SystemExit:
    pass
slow = {"torch", "transformers", "numba", "rich", "nltk", "faiss", "pyarrow", "mvindex.corpus.reader", "mvindex.ingest"}
sys.stderr.write(str(sorted(slow & set(sys.modules))))
"""


def test_a_query_is_answered_where_torch_is_missing(folder, tmp_path):
    import mvindex

    encoder = TransformerEncoder(read_checkpoint(folder))
    with mvindex.create(tmp_path / "x.mvx", encoder=encoder) as index:
        index.add(DOCUMENTS)
        expected = index.search("was the cat on the mat?", 2).hits
    prepare_queries(encoder)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "x.mvx")]
    hits, refused = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [hit[0] for hit in hits] == [hit.id for hit in expected]
    np.testing.assert_allclose([hit[1] for hit in hits], [hit.score for hit in expected], atol=ATOL)
    expected = f"encoding texts by {str(folder)!r} needs the package 'torch': {install_command('train')}"
    assert refused == expected
    command = [sys.executable, "-c", IMPORTED, "query", "was the cat on the mat?", "--mode", "dense", "-i"]
    command.append(str(tmp_path / "x.mvx"))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == "[]" and "1. 0." in done.stdout


def test_the_command_line_makes_the_form_once_and_goes_on_without(folder, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "The cat sat on the mat."}\n')
    make = "making the ONNX form of the encoder"
    ingest = ["ingest", "a.jsonl", "--encoder", folder, "--index", "a.mvx", "--json"]
    ask = ["query", "cat", "--index", "a.mvx", "--json"]
    assert [make in ok(mvindex(*words, cwd=tmp_path)).stderr for words in (ingest, ask)] == [True, False]
    assert "ONNX Runtime" in ok(mvindex("info", "--index", "a.mvx", "--json", cwd=tmp_path)).stdout
    # Another machine, without a form, and then without a place for one.
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "other"))
    assert [make in ok(mvindex(*ask, cwd=tmp_path)).stderr for _ in range(2)] == [True, False]
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "a.jsonl"))
    done = ok(mvindex(*ask, cwd=tmp_path))
    assert "queries go on loading torch: " in done.stderr and json.loads(done.stdout)["hits"]
