"""Read sentence-transformers' own files in an encoder directory: modules, pooling, window, prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.modules import Modules, read_modules
from mvindex.encoder.checkpoint.settings import Pooling, Similarity, is_text, read_json_object
from mvindex.encoder.checkpoint.window import read_window
from mvindex.errors import CheckpointError

_CONFIG = "config_sentence_transformers.json"
_POOLING_FLAG = "pooling_mode_"
_POOLING_FLAGS = {
    f"{_POOLING_FLAG}mean_tokens": "mean",
    f"{_POOLING_FLAG}cls_token": "cls",
    f"{_POOLING_FLAG}max_tokens": "max",
    f"{_POOLING_FLAG}mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    f"{_POOLING_FLAG}weightedmean_tokens": "weightedmean",
    f"{_POOLING_FLAG}lasttoken": "lasttoken",
}
# The mean times the root of the number of tokens: the mean, once it has length 1.
_SCALED_MEAN = "mean_sqrt_len_tokens"
# sentence-transformers' names for the prompt of a document, in the order in which it looks for them.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def find_transformer(folder: Path) -> Path:
    """Return the folder with config.json, weights and tokenizer: the folder itself or its first module."""
    return read_modules(folder).transformer


def read_layout(folder: Path) -> dict[str, Any]:
    """Return what the files set, as arguments of Settings, and `max_seq_length`; an absent file sets nothing.

    Raises CheckpointError for modules, pooling or options that mvindex would have to ignore.
    """
    modules, path = read_modules(folder), folder / _CONFIG
    config = read_json_object(path) if path.exists() else {}
    if config.get("truncate_dim") is not None:
        raise CheckpointError(f"{path}: truncate_dim is {config['truncate_dim']!r:.40}, which is not supported")
    prompts = _read_prompts(config, path)
    read = prompts | _read_similarity(config, modules, path)
    if modules.pooling is not None:
        is_scaled = not modules.dense and read.get("normalise", True)
        read["pooling"] = _read_pooling(modules.pooling / "config.json", any(prompts.values()), is_scaled)
    return read | read_window(modules.transformer, is_module=modules.is_listed)


def _read_pooling(path: Path, has_prompts: bool, is_scaled: bool) -> Pooling:
    """Return the pooling; is_scaled: only the direction of the pooled vector counts."""
    config = read_json_object(path)
    if has_prompts and config.get("include_prompt") is False:
        raise CheckpointError(f"{path}: include_prompt false (a prompt left out of the pooling) is not supported yet")
    modes = [_POOLING_FLAGS.get(key, key) for key, value in config.items() if key.startswith(_POOLING_FLAG) and value]
    if "pooling_mode" in config:  # its newer versions' one key, before which the flags do not count
        modes = config["pooling_mode"] if isinstance(config["pooling_mode"], list) else [config["pooling_mode"]]
    names = [str(mode) for mode in modes]
    if names == [_SCALED_MEAN] and is_scaled:
        return Pooling.MEAN
    if len(names) == 1 and names[0] in [pooling.value for pooling in Pooling]:
        return Pooling(names[0])
    raise CheckpointError(
        f"{path}: pooling by {' and '.join(names) or 'nothing'}; expected {', '.join(one.value for one in Pooling)} "
        f"(or {_SCALED_MEAN} where the vectors are normalised), one of them"
    )


def _read_prompts(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the prompts of encode_query() and encode_document(): default_prompt_name counts for neither."""
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(prompt is None or is_text(prompt) for prompt in prompts.values()):
        raise CheckpointError(f"{path}: prompts is {prompts!r:.80}; expected an object of strings")
    document = next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), "")
    return {"document_prompt": document, "query_prompt": prompts.get("query") or ""}


def _read_similarity(config: Mapping[str, Any], modules: Modules, path: Path) -> dict[str, Any]:
    name = config.get("similarity_fn_name")
    # Without a Normalize module the vectors are still compared by their cosine, unless the checkpoint says dot. Of
    # vectors of one length the distance gives the order of the cosine.
    if name in (None, "cosine") or (name == "euclidean" and modules.has_normalize):
        return {}
    if name != "dot":
        raise CheckpointError(f"{path}: similarity_fn_name is {name!r:.40}; expected cosine or dot")
    return {"similarity": Similarity.DOT, "normalise": modules.has_normalize}
