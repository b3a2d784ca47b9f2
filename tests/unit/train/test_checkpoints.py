"""A saved encoder gives the views that it had in training."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint import load_model, read_checkpoint
from mvindex.errors import CheckpointError
from mvindex_train.checkpoints import save_checkpoint
from tests.helpers.marks import full
from tests.helpers.tiny_encoders import DOCUMENTS, FAMILIES, build, shaken
from tests.helpers.tiny_models import ATOL, make_model, torch, transformers, write_settings

load_file = pytest.importorskip("safetensors.torch").load_file

pytestmark = pytest.mark.usefixtures("plain_arithmetic")
QUESTIONS = ["was it the cat?", "", "the cat sat on the mat " * 8]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def untrained_questions(base):
    return load_encoder(base).encode_queries(QUESTIONS)


def trained(base, family="snippets", seed=0, **options):
    """An encoder whose trained weights have all moved."""
    return shaken(build(base, family, seed, **options), seed + 1).eval()


def saved(encoder, folder, **options):
    save_checkpoint(encoder, folder, "card", **options)
    return folder


def check_same(encoder, loaded, documents=DOCUMENTS):
    """The encoder in training and the loaded one give the same views, spans and question vectors."""
    with torch.no_grad():
        found, questions = encoder.encode_documents(documents), encoder.encode_queries(QUESTIONS)
    views = loaded.encode_documents(documents)
    assert found.starts.tolist() == views.starts.tolist() and found.spans.tolist() == views.spans.tolist()
    np.testing.assert_allclose(views.rows, found.rows, atol=ATOL, rtol=0)
    np.testing.assert_allclose(loaded.encode_queries(QUESTIONS), questions, atol=ATOL, rtol=0)


@pytest.mark.parametrize(("lora_rank", "separate"), [(None, False), full(None, True), full(2, False), full(2, True)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_encoder_gives_the_views_that_it_had_in_training(
    base, tmp_path, untrained_questions, family, lora_rank, separate
):
    encoder = trained(base, family, lora_rank=lora_rank, separate=separate, freeze_word_embeddings=True)
    folder = saved(encoder, tmp_path / "saved")
    loaded = load_encoder(folder)
    check_same(encoder, loaded)
    check_same(encoder, encoder.frozen_encoder(), DOCUMENTS[:2])
    assert np.abs(loaded.encode_queries(QUESTIONS) - untrained_questions).max() > 0.01


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_a_scaled_adapter_gives_the_views_that_it_had_in_training(base, tmp_path, untrained_questions, scale):
    encoder = trained(base, lora_rank=2)
    at_one = encoder.frozen_encoder()
    encoder.set_scale(scale)
    loaded = load_encoder(saved(encoder, tmp_path / "saved"))
    check_same(encoder, loaded)
    assert encoder.frozen_encoder().spec != at_one.spec
    is_base = np.allclose(loaded.encode_queries(QUESTIONS), untrained_questions, atol=ATOL, rtol=0)
    assert is_base == (scale == 0)
    encoder.set_scale(1.0)
    check_same(encoder, at_one)


@pytest.mark.parametrize(
    "options",
    [
        {"family": "context-viewers", "residual": 2.0},
        {"family": "context-viewers", "own_snippet": True, "pooling": "cls"},
        {"family": "viewers", "own_snippet": True, "residual": 0.5, "lora_rank": 2},
        {"family": "single", "normalise": False, "lora_rank": 2, "lora_alpha": 7.0},
        {"family": "snippets", "document_length": 12, "query_length": 9},
    ],
)
def test_every_setting_of_an_encoder_is_saved(base, tmp_path, options):
    encoder = trained(base, **options)
    folder = saved(encoder, tmp_path / "saved")
    check_same(encoder, load_encoder(folder))
    settings = read_checkpoint(folder).settings
    assert settings == encoder.settings
    for name, value in options.items():
        if hasattr(settings, name) and name not in ("family", "pooling"):
            assert getattr(settings, name) == value


@pytest.mark.parametrize("kind", ["roberta", full("modernbert")])
@pytest.mark.parametrize("lora_rank", [None, full(2)])
def test_viewers_on_other_backbones_are_saved_too(tmp_path, kind, lora_rank):
    base = make_model(tmp_path / "base", kind)
    for family in ("viewers", "context-viewers"):
        encoder = trained(base, family, lora_rank=lora_rank)
        check_same(encoder, load_encoder(saved(encoder, tmp_path / family)), DOCUMENTS[:3])


@pytest.mark.parametrize("lora_rank", [None, 2], ids=["full", "lora"])
def test_prompts_and_pooling_of_the_base_are_kept(base, tmp_path, lora_rank):
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    write_settings(copy, pooling="cls", prompts={"query": "he ran: ", "document": "it was: "}, temperature=0.3)
    encoder = trained(copy, "kmeans", lora_rank=lora_rank)
    folder = saved(encoder, tmp_path / "saved")
    check_same(encoder, load_encoder(folder))
    settings = read_checkpoint(folder).settings
    assert (settings.query_prompt, settings.pooling.value, settings.temperature) == ("he ran: ", "cls", 0.3)


@pytest.mark.parametrize(
    ("first", "lora_rank"),
    [
        ("lora", None),
        ("separate", 2),
        ("viewers", None),
        *(full(*case) for case in (("full", 2), ("separate", None), ("viewers-lora", None), ("poly", 2))),
    ],
)
def test_a_saved_encoder_can_be_trained_further(base, tmp_path, first, lora_rank):
    family = first.split("-")[0] if first[0] in "vp" else "snippets"
    options = {"lora_rank": 2 if "lora" in first else None, "separate": first == "separate"}
    folder = saved(trained(base, family, **options), tmp_path / "first")
    second = trained(folder, family, seed=3, lora_rank=lora_rank, separate=first == "separate")
    check_same(second, load_encoder(saved(second, tmp_path / "second")))


@pytest.mark.parametrize("num_views", [2, 5])
def test_lora_on_a_base_of_more_or_fewer_viewers_is_saved_whole(base, tmp_path, num_views):
    folder = saved(trained(base, "viewers"), tmp_path / "first")
    second = trained(folder, "viewers", max_views=num_views, lora_rank=2)
    check_same(second, load_encoder(saved(second, tmp_path / "second")))


@pytest.mark.parametrize("lora_rank", [None, 2], ids=["full", "lora"])
def test_viewers_are_new_rows_and_words_stay_as_they_were(base, tmp_path, lora_rank):
    words = load_model(base).get_input_embeddings().weight.detach()
    encoder = trained(base, "viewers", lora_rank=lora_rank, freeze_word_embeddings=True)
    viewers = encoder.viewers(encoder.documents)
    folder = saved(encoder, tmp_path / "saved")
    if lora_rank is None:
        table = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
        np.testing.assert_array_equal(table[: len(words)], words)
        np.testing.assert_array_equal(table[len(words) :], viewers)
        assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"] == len(words) + 4
    else:
        np.testing.assert_array_equal(load_file(folder / "views.safetensors")["viewers"], viewers)
        assert not any("embedding" in name for name in load_file(folder / "adapter_model.safetensors"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = ["[VIE]", "[VIE_1]", "[VIE_2]", "[VIE_3]"]
    assert tokenizer.convert_tokens_to_ids(names) == list(range(len(words), len(words) + 4))
    assert tokenizer.tokenize("the [VIE_2] cat") == ["the", "[VIE_2]", "cat"]


def test_transformers_and_peft_load_what_is_saved(base, tmp_path):
    peft = pytest.importorskip("peft")
    full, lora = trained(base), trained(base, lora_rank=2)
    model = transformers.AutoModel.from_pretrained(saved(full, tmp_path / "full"), add_pooling_layer=False)
    for name, parameter in full.documents.named_parameters():
        np.testing.assert_array_equal(model.get_parameter(name).detach(), parameter.detach())
    folder = saved(lora, tmp_path / "lora")
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == str(base)
    plain = transformers.AutoModel.from_pretrained(base, add_pooling_layer=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # peft asks for a former name
        merged = peft.PeftModel.from_pretrained(plain, folder).merge_and_unload().eval()
    expected = lora.merged().documents
    for name, parameter in expected.named_parameters():
        np.testing.assert_allclose(merged.get_parameter(name).detach(), parameter, atol=ATOL)


@pytest.mark.parametrize("lora_rank", [None, 2], ids=["full", "lora"])
def test_the_folder_holds_the_card_the_record_and_no_pickle(base, tmp_path, lora_rank):
    encoder = trained(base, "context-viewers", lora_rank=lora_rank, separate=True)
    folder = saved(encoder, tmp_path / "saved", label="small budget", record={"seed": 1})
    assert (folder / "README.md").read_text(encoding="utf-8") == "card"
    assert json.loads((folder / "training.json").read_text(encoding="utf-8")) == {"seed": 1}
    assert read_checkpoint(folder).settings.label == "small budget"
    endings = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert endings <= {".json", ".safetensors", ".md", ".txt", ".jinja"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_the_label_changes_no_fingerprint_and_the_weights_do(base, tmp_path):
    encoder = trained(base, lora_rank=2)
    first = read_checkpoint(saved(encoder, tmp_path / "first", label="a")).fingerprint
    assert read_checkpoint(saved(encoder, tmp_path / "second", label="b")).fingerprint == first
    other = trained(base, lora_rank=2, seed=1)
    assert read_checkpoint(saved(other, tmp_path / "third")).fingerprint != first


def test_the_config_of_separate_question_weights_is_in_the_fingerprint(base, tmp_path):
    folder = saved(trained(base, separate=True), tmp_path / "saved")
    before = read_checkpoint(folder).fingerprint
    path = folder / "query" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"hidden_act": "relu"}
    path.write_text(json.dumps(config), encoding="utf-8")
    assert read_checkpoint(folder).fingerprint != before


def test_separate_question_weights_that_are_missing_are_named(base, tmp_path):
    for number, lora_rank in enumerate((None, 2)):
        folder = saved(trained(base, separate=True, lora_rank=lora_rank), tmp_path / str(number))
        next((folder / "query").glob("*.safetensors")).unlink()
        with pytest.raises(CheckpointError, match=rf"{folder}/query: no (adapter_)?model\.safetensors"):
            load_encoder(folder)


def test_viewers_of_another_shape_than_tokenizer_or_base_are_refused(base, tmp_path):
    from safetensors.torch import save_file

    folder = saved(trained(base, "viewers", lora_rank=2), tmp_path / "saved")
    for shape in ((3, 32), (5, 32), (4, 16), (4,)):
        save_file({"viewers": torch.ones(shape)}, folder / "views.safetensors")
        with pytest.raises(CheckpointError, match=r"views\.safetensors: viewers of shape"):
            load_encoder(folder)


def test_a_base_that_has_changed_since_the_training_is_refused(base, tmp_path):
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    folder = saved(trained(copy, lora_rank=2), tmp_path / "saved")
    shutil.copy(saved(trained(copy), tmp_path / "other") / "model.safetensors", copy / "model.safetensors")
    with pytest.raises(CheckpointError, match="was trained on other weights"):
        load_encoder(folder)


def test_a_folder_that_is_there_is_not_overwritten(base, tmp_path):
    encoder = trained(base)
    folder = saved(encoder, tmp_path / "saved")
    content = (folder / "model.safetensors").read_bytes()
    with pytest.raises(OSError):
        save_checkpoint(trained(base, seed=9), folder, "another")
    assert (folder / "model.safetensors").read_bytes() == content
    assert (folder / "README.md").read_text(encoding="utf-8") == "card"
