"""A tiny model, loaded and asked: one of its files changed. Slow, for transformers takes 20 ms to load the smallest.

An input's first byte chooses the file, the second the kind of checkpoint; the rest is the file's content.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

from fuzz_parts.opened_files import only_below
from fuzz_parts.target import Limits, require
from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint
from mvindex.errors import CheckpointError

_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[VIE]", "[VIE_1]", "the", "cat", "sat", "##s", ".")
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "mvindex.json")
_TEXT = "the cat sat. cats"


def open_target(name: str, folder: Path):
    return CheckpointModel(folder)


class CheckpointModel(Limits):
    """A checkpoint of a BERT of one layer: read, loaded, and a text encoded by its tokenizer and its model."""

    name = "checkpoint-model"
    refusals = (CheckpointError,)
    extra_mib = 256
    seconds = 20.0
    tokens = (b'"../outside/x"', b'"/etc/passwd"', b'"auto_map": {"AutoModel": "x.y"}', 
              b'"vocab_file": "../outside/v.txt"',
              b'"hidden_size": 4611686018427387904', b'"vocab_size": 999999999', b'"num_hidden_layers": 100000',
              b'"model_type": "roberta"', b'"tokenizer_class": "BertTokenizer"', b'"architectures": ["X"]',
              b"null", b"{}",
              b'"quantization_config": {"quant_method": "bitsandbytes"}', b'"attn_implementation": "flash_attention_2"',
              b'"type": "BPE"', b'"type": "Unigram"', b'"pattern": {"Regex": "(a+)+$"}', b"[", b"]", b"{", b"}", b",",
              b'"dtype": "float8_e4m3fn"', b'"torch_dtype": "x"', b'"max_position_embeddings": 1', b"-1", b"1e999",
              b'"trust_remote_code": true', b'"tokenizer_file": "../outside/t.json"', b'"id": 4294967295')  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._folder, self._outside = folder / "model", folder / "outside"
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        torch.set_num_threads(1)
        self._outside.mkdir()
        for name in ("x", "v.txt", "t.json"):
            (self._outside / name).write_text("{}", encoding="utf-8")
        _make_model(self._folder)
        self._good = {name: (self._folder / name).read_bytes() for name in _FILES}
        self._encode()

    def seeds(self) -> list[bytes]:
        return [bytes([place]) + self._good[name] for place, name in enumerate(_FILES)]

    def check(self, data: bytes) -> None:
        name = _FILES[(data[0] if data else 0) % len(_FILES)]
        path = self._folder / name
        path.write_bytes(data[1:])
        try:
            with only_below(self._folder):
                self._encode()
        finally:
            path.write_bytes(self._good[name])

    def _encode(self) -> None:
        """Encode a text's tokens; refuse results that are not vectors of the model's width."""
        checkpoint = read_checkpoint(self._folder)
        tokenizer = load_tokenizer(checkpoint)
        parts = load_parts(checkpoint, tokenizer)
        ids = tokenizer.encode(_TEXT).ids
        size = parts.documents.get_input_embeddings().num_embeddings
        require(all(0 <= each < size for each in ids), "tokens", ids, "beyond the", size, "embeddings")
        width = int(parts.documents.config.hidden_size)
        require(width == parts.documents.get_input_embeddings().embedding_dim, "a width of", width)
        with torch.no_grad():
            limit = checkpoint.settings.document_length
            states = parts.documents(input_ids=torch.tensor([ids[:limit]])).last_hidden_state.numpy()
        require(states.shape == (1, len(ids[:limit]), width), "states of", states.shape)
        require(bool(np.isfinite(states).all()), "states are not finite")


def _make_model(folder: Path) -> None:
    folder.mkdir()
    vocabulary = {word: number for number, word in enumerate(_WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.manual_seed(0)
    shape = transformers.BertConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, vocab_size=len(_WORDS),
        max_position_embeddings=12,
    )  # fmt: skip
    transformers.BertModel(shape, add_pooling_layer=False).save_pretrained(folder)
    (folder / "mvindex.json").write_text(json.dumps({"format_version": 1, "family": "single"}), encoding="utf-8")
    shutil.rmtree(folder / ".cache", ignore_errors=True)
