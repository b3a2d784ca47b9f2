"""A random BERT-shaped encoder with viewers, and random batches of questions and documents in its words."""

import json
from dataclasses import dataclass

import numpy as np
import tokenizers
import torch
import transformers

from mvindex.records import Document
from mvindex_train.checkpoints import save_checkpoint
from mvindex_train.config import EncoderConfig
from mvindex_train.model import build_encoder

SPECIALS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
WORDS = [f"w{number}" for number in range(200)]
LENGTH = 64


@dataclass(frozen=True)
class Texts:
    """q questions, and their documents in the order in which each question's stand together, its positive first."""

    questions: list[str]
    documents: list[Document]


def make_encoder(folder, num_views, seed):
    """Return the encoder in mvindex's training form, in inference mode; the same weights are in folder/"saved"."""
    _write_base(folder / "base", seed)
    config = EncoderConfig(
        base=str(folder / "base"), family="viewers", max_views=num_views, pooling="cls", normalise=False,
        document_length=LENGTH, query_length=LENGTH,
    )  # fmt: skip
    encoder = build_encoder(config, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # fresh viewers are nearly alike, biases are 0 and norms 1: a fault in them would not show
        for name, parameter in encoder.named_parameters():
            size = 0.3 if name.endswith(".viewers") else 0.05
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
    save_checkpoint(encoder, folder / "saved", "a random encoder")
    return encoder.eval()


def make_texts(num_questions, num_documents, seed):
    """Return texts of random words, num_documents a question; their lengths differ, so that padding takes part."""
    random = np.random.default_rng(seed)
    questions = [_words(random, 2, 10) for _ in range(num_questions)]
    documents = [_words(random, 3, 50) for _ in range(num_questions * num_documents)]
    return Texts(questions, [Document(str(number), text) for number, text in enumerate(documents)])


def _words(random, fewest, most):
    return " ".join(random.choice(WORDS, size=random.integers(fewest, most + 1)))


def _write_base(folder, seed):
    vocabulary = {piece: number for number, piece in enumerate([*SPECIALS.values(), *WORDS])}
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH + 16, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIALS}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
