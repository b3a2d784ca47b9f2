"""Folders of sentence-transformers as what a training starts from."""

import json

import numpy as np
import pytest

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint import Pooling, read_checkpoint
from mvindex.errors import CheckpointError, ConfigError
from mvindex_train.checkpoints import save_checkpoint
from tests.helpers.st_folders import QUESTIONS, near, open_st, save_st, st_vectors, torch
from tests.helpers.tiny_encoders import build, shaken

pytestmark = [pytest.mark.needs("sentence-transformers"), pytest.mark.usefixtures("plain_arithmetic")]


def test_a_base_with_dense_modules_is_refused(tmp_path):
    base = save_st(tmp_path / "st", "bert", dense=[(16, torch.nn.Tanh())])
    with pytest.raises(ConfigError, match="encoder.base: expected a base without Dense modules, .* got '.*st'"):
        build(base)


@pytest.mark.parametrize("lora_rank", [None, 4])
def test_pooling_prompts_and_lower_case_of_the_base_are_kept(tmp_path, lora_rank):
    base = save_st(tmp_path / "st", "roberta", pooling="lasttoken", prompts={"query": "was ", "document": "a "})
    path = base / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    encoder = shaken(build(base, lora_rank=lora_rank)).eval()
    save_checkpoint(encoder, tmp_path / "own", "card")
    settings = read_checkpoint(tmp_path / "own").settings
    assert (settings.pooling, settings.lower_case, settings.query_prompt) == (Pooling.LAST, True, "was ")
    with torch.no_grad():
        trained = encoder.encode_queries(QUESTIONS).numpy()
    found = load_encoder(tmp_path / "own", device="cpu").encode_queries(QUESTIONS)
    near(found, trained)
    assert not np.allclose(found, load_encoder(base, device="cpu").encode_queries(QUESTIONS), atol=0.01)
    upper = load_encoder(tmp_path / "own", device="cpu").encode_queries([text.upper() for text in QUESTIONS])
    near(upper, found)


def test_an_adapter_that_sentence_transformers_saved_is_read_with_its_own_modules(tmp_path, monkeypatch):
    peft = pytest.importorskip("peft")
    model = open_st(save_st(tmp_path / "base", "bert", pooling="mean"))
    torch.manual_seed(2)
    model[0].model.add_adapter(peft.LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False))
    model[1].pooling_mode = "cls"
    model.save(str(tmp_path / "st"), create_model_card=False)
    assert (tmp_path / "st/adapter_model.safetensors").exists() and not (tmp_path / "st/model.safetensors").exists()
    with pytest.raises(CheckpointError, match="its base is"):
        load_encoder(tmp_path / "st", family="single", device="cpu")
    monkeypatch.setenv("MVINDEX_ALLOW_DOWNLOAD", "1")
    found = load_encoder(tmp_path / "st", family="single", device="cpu").encode_queries(QUESTIONS)
    near(found, model.encode_query(QUESTIONS, show_progress_bar=False))
    near(found, st_vectors(tmp_path / "st")[1])
