"""A cross-encoder of random weights against the model alone."""

import json

import numpy as np
import pytest

from mvindex.errors import CheckpointError
from mvindex.records import Document
from mvindex_train.negatives.cross_encoder import CrossEncoder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Folders of tiny BERT classifiers of 1, 2 and 3 labels, with random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("classifiers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the river flows past old house oil crisis what where is it".split()]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **names)
    torch.manual_seed(0)
    for num_labels in (1, 2, 3):
        config = transformers.BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=24, initializer_range=0.6, num_labels=num_labels,
        )  # fmt: skip
        transformers.BertForSequenceClassification(config).save_pretrained(folder / str(num_labels))
        fast.save_pretrained(folder / str(num_labels))
    return folder


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
