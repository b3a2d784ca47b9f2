"""Folders of sentence-transformers over tiny random models, and its own vectors of them."""

import json
import logging
from contextlib import contextmanager

import numpy as np

from tests.helpers.tiny_models import (
    LENGTH,
    LETTERS,
    SHAPE,
    WORDS,
    _write_byte_pairs,
    make_model,
    tokenizers,
    torch,
    transformers,
)

# fp32 on both sides, other orders of summing.
ATOL = 1e-5
TEXTS = [
    "The cat sat on the mat. It ran; was it the dog?",
    "a new house",
    "He was red, she was BLUE. The river ran under the old house.",
    "x",
]
QUESTIONS = ["was the cat on the mat?", "House", "the old river ran under it."]
# Beside tiny_models' kinds: what these add is another layout of positions, types or attention.
MORE = {
    "distilbert": ("DistilBertModel", dict(dim=32, n_layers=2, n_heads=2, hidden_dim=48, initializer_range=0.2)),
    "mpnet": ("MPNetModel", SHAPE),
    "xlm-roberta": ("XLMRobertaModel", SHAPE),
    "t5": ("T5EncoderModel", dict(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2)),
    "qwen2": ("Qwen2Model", SHAPE | {"num_key_value_heads": 1}),
}


def make_transformer(folder, kind):
    """The folder with a transformer of the kind."""
    if kind not in MORE:
        return make_model(folder, kind)
    name, shape = MORE[kind]
    folder.mkdir(parents=True)
    names = _write_unigrams(folder) if kind in ("xlm-roberta", "t5") else _write_byte_pairs(folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    written = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names})
    (folder / "tokenizer_config.json").write_text(written, encoding="utf-8")
    model_class = getattr(transformers, name)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = model_class.config_class(**shape, **ids, vocab_size=len(vocabulary), max_position_embeddings=4 * LENGTH)
    torch.manual_seed(0)
    with quiet():
        model_class(config).save_pretrained(folder)
    return folder


def _write_unigrams(folder):
    """Pieces with a mark for the space before a word, as SentencePiece has them, and RoBERTa's special ids."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*special, *(f"\u2581{word}" for word in WORDS), "\u2581", *LETTERS, *LETTERS.upper(), *".,;:?!$123"]
    scores = [(piece, -float(number) / 10) for number, piece in enumerate(pieces)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=3))
    parts = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = parts.Sequence([parts.WhitespaceSplit(), parts.Metaspace()])
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    return {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def save_st(folder, kind, *, pooling="mean", dense=(), normalize=True, prompts=None, similarity=None, **options):
    """The folder as sentence-transformers saves it. dense: (out_features, activation) each; options of Transformer."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    source = make_transformer(folder.with_name(folder.name + "-transformer"), kind)
    torch.manual_seed(1)
    with quiet():
        modules, dim = [Transformer(str(source), **options), Pooling(32, pooling)], 32
        for size, activation in dense:
            modules.append(Dense(dim, size, bias=activation is not None, activation_function=activation))
            dim = size
        modules += [Normalize()] if normalize else []
        model = sentence_transformers.SentenceTransformer(
            modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity
        )
        model.save(str(folder), create_model_card=False)
    return folder


def open_st(folder, cls="SentenceTransformer"):
    import sentence_transformers

    with quiet():
        return getattr(sentence_transformers, cls)(str(folder), device="cpu", local_files_only=True)


def st_vectors(folder, *, normalize=False, texts=TEXTS, questions=QUESTIONS):
    """encode_document() and encode_query() of the folder."""
    model = open_st(folder)
    options = {"show_progress_bar": False, "normalize_embeddings": normalize}
    return model.encode_document(texts, **options), model.encode_query(questions, **options)


@contextmanager
def quiet():
    transformers.utils.logging.disable_progress_bar()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    yield
    logging.disable(before)
    transformers.utils.logging.enable_progress_bar()


def near(found, expected):
    np.testing.assert_allclose(found, expected, atol=ATOL, rtol=0)
