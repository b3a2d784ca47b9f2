"""What sentence-transformers' own files in an encoder directory say: modules, pooling, window, prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.checkpoint.settings import Pooling, Similarity, is_text, read_json, read_json_object
from mvindex.errors import CheckpointError

_CONFIG = "config_sentence_transformers.json"
_SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING_FLAG = "pooling_mode_"
_POOLING_FLAGS = {f"{_POOLING_FLAG}mean_tokens": "mean", f"{_POOLING_FLAG}cls_token": "cls"}
# sentence-transformers' names for the prompt of a document, in the order in which it looks for them.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def find_transformer(folder: Path) -> Path:
    """The folder that holds config.json, the weights and the tokenizer: the folder itself or its first module."""
    return _modules(folder).get("Transformer", folder)


def read_layout(folder: Path) -> dict[str, Any]:
    """What the files set, as arguments of Settings, and `max_seq_length`; an absent file sets nothing.

    Raises CheckpointError for modules, pooling or options that mvindex would have to ignore.
    """
    modules = _modules(folder)
    config = _read_if_there(folder / _CONFIG)
    prompts = _read_prompts(config, folder)
    read = prompts | _read_similarity(config, "Normalize" in modules)
    pooling = modules.get("Pooling", folder / "1_Pooling") / "config.json"
    if pooling.exists():
        read["pooling"] = _read_pooling(pooling, has_prompts=any(prompts.values()))
    return read | _read_window(modules.get("Transformer", folder) / "sentence_bert_config.json")


def _modules(folder: Path) -> dict[str, Path]:
    """Kind -> folder of each module of modules.json, in order."""
    path = folder / "modules.json"
    if not path.exists():
        return {}
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CheckpointError(f"{path}: wanted a list of objects")
    found: dict[str, Path] = {}
    for entry in entries:
        kind = str(entry.get("type")).rsplit(".", maxsplit=1)[-1]
        if kind not in _SUPPORTED_MODULES or kind in found:
            raise CheckpointError(
                f"{path}: module {len(found) + 1} is {kind!r}, which is not supported yet; "
                f"wanted {', '.join(_SUPPORTED_MODULES)}, each once at most"
            )
        found[kind] = _inside(folder, str(entry.get("path", "")), path)
    return found


def _inside(folder: Path, relative: str, place: Path) -> Path:
    try:
        target = (folder / relative).resolve()
    except (ValueError, RuntimeError) as err:  # a NUL, no Unicode, or links that lead to each other
        raise CheckpointError(f"{place}: the path {relative!r} leads nowhere: {err}") from err
    if not target.is_relative_to(folder.resolve()):
        raise CheckpointError(f"{place}: the path {relative!r} leads out of the checkpoint")
    return target


def _read_pooling(path: Path, has_prompts: bool) -> Pooling:
    config = read_json_object(path)
    if has_prompts and config.get("include_prompt") is False:
        raise CheckpointError(f"{path}: include_prompt false (a prompt left out of the pooling) is not supported yet")
    modes = [_POOLING_FLAGS.get(key, key) for key, value in config.items() if key.startswith(_POOLING_FLAG) and value]
    if not modes and isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    if modes == ["mean"] or modes == ["cls"]:
        return Pooling(modes[0])
    raise CheckpointError(f"{path}: pooling by {' and '.join(modes) or 'nothing'}; wanted mean or cls, one of them")


def _read_window(path: Path) -> dict[str, int]:
    config = _read_if_there(path)
    if config.get("do_lower_case"):
        raise CheckpointError(
            f"{path}: do_lower_case true is not supported; set it to false if the tokenizer lower-cases by itself"
        )
    length = config.get("max_seq_length")
    if length is None:
        return {}
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise CheckpointError(f"{path}: max_seq_length is {length!r}; wanted a whole number from 1 on")
    return {"max_seq_length": length}


def _read_prompts(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(is_text(prompt) for prompt in prompts.values()):
        raise CheckpointError(f"{folder / _CONFIG}: prompts is {prompts!r:.80}; wanted an object of strings")
    name = config.get("default_prompt_name")
    default = prompts.get(name, "") if isinstance(name, str) else ""
    document = next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), default)
    return {"document_prompt": document, "query_prompt": prompts.get("query") or default}


def _read_similarity(config: Mapping[str, Any], has_normalize: bool) -> dict[str, Any]:
    # Without a Normalize module the vectors are still compared by their cosine, unless the checkpoint says dot.
    if config.get("similarity_fn_name") != "dot":
        return {}
    return {"similarity": Similarity.DOT, "normalise": has_normalize}


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.exists() else {}
