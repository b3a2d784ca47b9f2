"""Adapters: merged as peft merges them, refused where they are more than LoRA, and known by what they change."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
safetensors_torch = pytest.importorskip("safetensors.torch")

from mvindex.encoder import load_encoder  # noqa: E402 - as above
from mvindex.encoder.checkpoint import load_model, read_checkpoint  # noqa: E402 - as above
from mvindex.encoder.checkpoint.load import merge_adapter  # noqa: E402 - as above
from mvindex.errors import CheckpointError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from tests.helpers.tiny_models import ATOL, make_model, plain_arithmetic, write_settings  # noqa: E402 - only where torch is

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
DOCUMENTS = [Document("1", "The cat sat on the mat. It ran.", "Dog"), Document("2", "a red house")]


@pytest.fixture(autouse=True)
def arithmetic(monkeypatch):
    # Most adapters here are on a base beside them.
    monkeypatch.setenv("MVINDEX_ALLOW_DOWNLOAD", "1")
    with plain_arithmetic(monkeypatch):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A base and a plain adapter of rank 3 on it, in the format of peft, written by hand."""
    folder = tmp_path_factory.mktemp("adapters")
    make_model(folder / "base")
    adapter = folder / "adapter"
    adapter.mkdir()
    generator = torch.Generator().manual_seed(2)
    shapes = {"attention.self.query": (32, 32), "intermediate.dense": (48, 32), "output.dense": (32, 48)}
    tensors = {}
    for layer in range(2):
        for module, (height, width) in shapes.items():
            name = f"base_model.model.encoder.layer.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(3, width, generator=generator) * 0.3
            tensors[f"{name}.lora_B.weight"] = torch.randn(height, 3, generator=generator) * 0.3
    safetensors_torch.save_file(tensors, adapter / WEIGHTS)
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none", "base_model_name_or_path": "?"}
    (adapter / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def base(made, tmp_path):
    return Path(shutil.copytree(made / "base", tmp_path / "base"))


@pytest.fixture
def adapter(made, base, tmp_path):
    folder = Path(shutil.copytree(made / "adapter", tmp_path / "adapter"))
    configure(folder, base_model_name_or_path=str(base))
    return folder


def configure(folder, **changes):
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def change_weights(folder, name, change):
    """The tensors of a safetensors file of the folder are what `change` makes of them afterwards."""
    tensors = safetensors_torch.load_file(folder / name)
    change(tensors)
    safetensors_torch.save_file(tensors, folder / name, metadata={"format": "pt"})


def with_base(adapter, base):
    """mvindex.json of the adapter names the base and its weights."""
    weights = dict(read_checkpoint(base).weights)
    write_settings(adapter, family="single", max_views=1, base={"source": str(base), "weights": weights})


def test_a_merged_weight_is_the_weight_and_the_scaled_product(base, adapter):
    plain, merged = load_model(base), load_model(base)
    merge_adapter(merged, adapter)
    tensors = safetensors_torch.load_file(adapter / WEIGHTS)
    changed = 0
    for name, weight in plain.named_parameters():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        expected = weight.double()
        if f"{module}.lora_A.weight" in tensors:
            up, down = tensors[f"{module}.lora_B.weight"].double(), tensors[f"{module}.lora_A.weight"].double()
            expected = expected + 6 / 3 * up @ down
            changed += 1
        np.testing.assert_allclose(merged.get_parameter(name).detach(), expected.detach(), atol=ATOL)
    assert changed == 6


@pytest.mark.parametrize("options", [{}, {"use_rslora": True}, {"lora_alpha": 5}, {"init_lora_weights": "gaussian"}])
def test_it_merges_what_peft_merges(base, tmp_path, options):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"} | options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(load_model(base), config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(tmp_path / "saved", save_embedding_layers=False)
        expected = model.merge_and_unload()
    found = load_model(base)
    merge_adapter(found, tmp_path / "saved")
    names = [name for name, _ in found.named_parameters()]
    assert names == [name for name, _ in expected.named_parameters()]
    for name in names:
        np.testing.assert_allclose(found.get_parameter(name).detach(), expected.get_parameter(name).detach(), atol=ATOL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "an adapter of kind IA3; expected plain LORA"),
        ({"peft_type": None}, "an adapter of kind None"),
        ({"use_dora": True}, "LORA with use_dora"),
        ({"bias": "all"}, "expected plain LORA without biases"),
        ({"rank_pattern": {"query": 8}}, "LORA with rank_pattern"),
        ({"alpha_pattern": {"query": 8}}, "LORA with alpha_pattern"),
        ({"modules_to_save": ["embeddings"]}, "LORA with modules_to_save"),
        ({"fan_in_fan_out": True}, "LORA with fan_in_fan_out"),
        ({"alora_invocation_tokens": [5]}, "LORA with alora_invocation_tokens"),
        ({"init_lora_weights": "pissa"}, "LORA with init_lora_weights 'pissa'"),
        ({"a_variant_of_next_year": {"x": 1}}, "LORA with a_variant_of_next_year"),
        ({"r": 0}, "r is 0"),
        ({"r": "3"}, "r is '3'"),
        ({"r": True}, "r is True"),
        ({"lora_alpha": None}, "lora_alpha None"),
        ({"r": 4}, "does not fit the base model at r 4"),
    ],
)
def test_what_is_not_plain_lora_is_refused(base, adapter, changes, message):
    configure(adapter, **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        merge_adapter(load_model(base), adapter)
    assert str(adapter) in str(caught.value)


QUERY = "base_model.model.encoder.layer.0.attention.self.query"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(f"{QUERY}.lora_A.weight"), "lora_B.weight' is no weight of a LoRA adapter"),
        (lambda tensors: tensors.pop(f"{QUERY}.lora_B.weight"), "query' does not fit the base model"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_magnitude_vector": torch.ones(32)}), "magnitude_vector' is no"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_B.bias": torch.ones(32)}), "lora_B.bias' is no weight"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_B.weight": torch.ones(16, 3)}), "does not fit"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_B.weight": torch.ones(3)}), "does not fit"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_A.weight": torch.ones(3, 16)}), "does not fit"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_A.weight": torch.ones(())}), "does not fit"),
        (lambda tensors: tensors.update({f"{QUERY}.lora_A.weight": torch.ones(3, 32, 1)}), "does not fit"),
        (lambda tensors: tensors.update({"x.lora_A.weight": torch.ones(3, 32), "x.lora_B.weight": torch.ones(32, 3)}),
         "'x' does not fit the base model"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(base, adapter, change, message):
    change_weights(adapter, WEIGHTS, change)
    with pytest.raises(CheckpointError, match=message):
        merge_adapter(load_model(base), adapter)


def test_a_pickled_adapter_is_never_read(adapter):
    (adapter / WEIGHTS).rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"weights only in adapter_model\.bin, a pickle"):
        read_checkpoint(adapter)


def test_a_damaged_adapter_is_named(base, adapter):
    (adapter / WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS}: cannot be read"):
        merge_adapter(load_model(base), adapter)


def test_an_adapter_of_peft_alone_works_as_snippets(base, adapter):
    encoder = load_encoder(adapter)
    settings = read_checkpoint(adapter).settings
    assert (settings.family.name, settings.max_views, settings.document_length) == ("snippets", 8, 40)
    # The same model, saved with the adapter merged in.
    whole = base.parent / "whole"
    shutil.copytree(base, whole)
    model = load_model(base)
    merge_adapter(model, adapter)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    safetensors_torch.save_file(state, whole / "model.safetensors", metadata={"format": "pt"})
    expected = load_encoder(whole)
    np.testing.assert_allclose(
        encoder.encode_documents(DOCUMENTS).rows, expected.encode_documents(DOCUMENTS).rows, atol=ATOL
    )
    np.testing.assert_allclose(encoder.encode_queries(["cat"]), expected.encode_queries(["cat"]), atol=ATOL)
    # And it is another model than the base.
    assert np.abs(encoder.encode_queries(["cat"]) - load_encoder(base).encode_queries(["cat"])).max() > 0.01


@pytest.mark.parametrize("named", [None, "", 7])
def test_an_adapter_that_names_no_base_is_refused(adapter, named):
    configure(adapter, base_model_name_or_path=named)
    with pytest.raises(CheckpointError, match="an adapter that names no base"):
        read_checkpoint(adapter)


def test_an_adapter_on_an_adapter_is_refused_even_on_itself(adapter, tmp_path):
    configure(adapter, base_model_name_or_path=str(adapter))
    with pytest.raises(CheckpointError, match="is an adapter itself; expected full weights"):
        read_checkpoint(adapter)
    second = Path(shutil.copytree(adapter, tmp_path / "second"))
    configure(second, base_model_name_or_path=str(adapter))
    with pytest.raises(CheckpointError, match="is an adapter itself; expected full weights"):
        read_checkpoint(second)


def test_a_base_that_is_gone_is_named(base, adapter):
    with_base(adapter, base)
    shutil.rmtree(base)
    with pytest.raises(CheckpointError, match=f"encoder '{base}': no such directory"):
        read_checkpoint(adapter)


def test_a_base_with_other_weights_is_refused(base, adapter):
    with_base(adapter, base)
    read_checkpoint(adapter)
    change_weights(base, "model.safetensors", lambda tensors: tensors["embeddings.LayerNorm.bias"].add_(1e-3))
    with pytest.raises(CheckpointError, match=f"was trained on other weights than '{base}' has now"):
        read_checkpoint(adapter)


@pytest.mark.parametrize(
    "content",
    [{"source": "x"}, {"weights": {}}, {"source": "x", "weights": {"a": 1}}, {"source": 1, "weights": {}}, [], "x",
     {"source": "x", "weights": {}, "more": 1}],
)  # fmt: skip
def test_a_base_that_is_wrongly_written_is_refused(adapter, content):
    write_settings(adapter, base=content)
    with pytest.raises(CheckpointError, match=r"mvindex\.json: 'base'"):
        read_checkpoint(adapter)


def change_adapter(base, adapter):
    change_weights(adapter, WEIGHTS, lambda tensors: tensors[f"{QUERY}.lora_A.weight"].add_(1e-3))


def change_base(base, adapter):
    change_weights(base, "model.safetensors", lambda tensors: tensors["embeddings.LayerNorm.bias"].add_(1e-3))


def change_base_tokenizer(base, adapter):
    path = base / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"lowercase": true', '"lowercase": false'), "utf-8")


def change_base_config(base, adapter):
    path = base / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"hidden_act": "relu"}), "utf-8")


def change_alpha(base, adapter):
    configure(adapter, lora_alpha=7)


def change_scaling(base, adapter):
    configure(adapter, use_rslora=True)


def add_tokenizer(base, adapter):
    shutil.copy(base / "tokenizer.json", adapter)
    change_base_tokenizer(adapter, adapter)


@pytest.mark.parametrize(
    "change",
    [change_adapter, change_base, change_base_tokenizer, change_base_config, change_alpha, change_scaling,
     add_tokenizer],
)  # fmt: skip
def test_whatever_changes_a_vector_changes_an_adapters_fingerprint(base, adapter, change):
    before = read_checkpoint(adapter).fingerprint
    content = [path.read_bytes() for path in sorted([*base.iterdir(), *adapter.iterdir()])]
    change(base, adapter)
    assert [path.read_bytes() for path in sorted([*base.iterdir(), *adapter.iterdir()])] != content
    assert read_checkpoint(adapter).fingerprint != before


def test_the_fingerprint_does_not_depend_on_where_base_and_adapter_lie(base, adapter, tmp_path):
    with_base(adapter, base)
    before = read_checkpoint(adapter)
    moved = base.rename(tmp_path / "moved base")
    with_base(adapter, moved)
    configure(adapter, base_model_name_or_path=str(moved))
    after = read_checkpoint(adapter.rename(tmp_path / "moved adapter"))
    assert after.fingerprint == before.fingerprint != read_checkpoint(moved).fingerprint
    assert after.source == str(tmp_path / "moved adapter")


def test_reading_and_loading_leave_the_random_numbers_alone(base, adapter):
    before = torch.get_rng_state()
    load_encoder(base)
    load_encoder(adapter)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_base_is_packaged_inside_the_folder_or_allowed(made, base, adapter, monkeypatch):
    """An adapter that a stranger made must lead neither out of its folder nor to a download."""
    (adapter / "mvindex.json").unlink(missing_ok=True)

    def name(place):
        config = json.loads((adapter / CONFIG).read_text())
        (adapter / CONFIG).write_text(json.dumps(config | {"base_model_name_or_path": str(place)}))

    monkeypatch.delenv("MVINDEX_ALLOW_DOWNLOAD", raising=False)
    elsewhere = (base, f"../{base.name}", "someone/model", "someone/model@main", "a\0b", "../..")
    for place in elsewhere:
        name(place)
        with pytest.raises(CheckpointError, match="packaged"):
            read_checkpoint(adapter)
    shutil.copytree(base, adapter / "own")
    name("own")
    inside = read_checkpoint(adapter)
    monkeypatch.setenv("MVINDEX_ALLOW_DOWNLOAD", "1")
    name(base)
    assert read_checkpoint(adapter).fingerprint == inside.fingerprint
    for place in (f"../{base.name}", "a\0b"):
        name(place)
        with pytest.raises(CheckpointError, match="packaged"):
            read_checkpoint(adapter)
