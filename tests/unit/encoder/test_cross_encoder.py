"""A cross-encoder of random weights against the model alone."""

import json

import numpy as np
import pytest

from mvindex.encoder.cross_encoder import CrossEncoder
from mvindex.errors import CheckpointError
from mvindex.records import Document
from tests.helpers.tiny_classifiers import save_classifiers


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Folders of tiny BERT classifiers of 1, 2 and 3 labels, with random weights."""
    return save_classifiers(tmp_path_factory.mktemp("classifiers"))


PAIRS = [
    ("where is the river", Document("1", "the river flows past the old house", "river")),
    ("what is it", Document("2", "oil", "")),
    ("what is the oil crisis", Document("3", "the house is old " * 20, "it")),
    ("what", Document("4", "", "crisis")),
]


@pytest.mark.parametrize("num_labels", [1, 2])
def test_a_cross_encoder_scores_each_pair_as_the_model_alone_does(classifier, num_labels):
    import torch
    import transformers

    folder = classifier / str(num_labels)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = []
    for question, document in PAIRS:
        text = "\n".join(part for part in (document.title, document.text) if part)
        tokens = tokenizer(question, text, truncation="only_second", max_length=24, return_tensors="pt")
        with torch.no_grad():
            logits = model(**tokens).logits[0].tolist()
        wanted.append(logits[0] if num_labels == 1 else logits[1] - logits[0])
    judge = CrossEncoder(str(folder), device="cpu")
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(judge.score(PAIRS), wanted, atol=2e-5)
    assert judge.score(PAIRS * 20) == pytest.approx(judge.score(PAIRS) * 20, abs=2e-5)
    assert judge.score([]) == []


def test_what_is_no_cross_encoder_is_refused(classifier, tmp_path):
    with pytest.raises(CheckpointError, match="classifies into 3 labels"):
        CrossEncoder(str(classifier / "3"))
    with pytest.raises(CheckpointError, match="no such directory"):
        CrossEncoder(str(tmp_path / "nothing"))
    with pytest.raises(CheckpointError, match="no tokenizer"):
        CrossEncoder(str(tmp_path))
    copy = tmp_path / "no head"
    copy.mkdir()
    for file in (classifier / "1").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"the weights lack bert\.encoder\.layer\.2"):
        CrossEncoder(str(copy))
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        CrossEncoder(str(copy))
