"""Read lengths and lower case from a Transformer module of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.errors import CheckpointError

# Its older versions named the file after the model.
_NAMES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Setting -> the values besides None with which the module is a transformer's last hidden states, and nothing else.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
    "backend": ("torch",),
    "query_expansion": (),
    "processing_kwargs": ({},),
    "tokenizer_name_or_path": (),
}
_READ = frozenset({"max_seq_length", "document_length", "query_length", "do_lower_case"})
_NO_EFFECT = frozenset({"unpad_inputs"})
# Arguments of loading, and those of them that change no vector; code from a checkpoint is refused elsewhere.
_ARGUMENTS = {
    "model": {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype"},
    "tokenizer": {"padding_side", "use_fast"},
    "processor": {"padding_side", "use_fast"},
    "config": set(),
}
_LENGTHS = ("max_seq_length", "document_length", "query_length")
# A tokenizer without a limit says 10 ** 30.
_NO_LIMIT = 1 << 24


def read_window(folder: Path, *, is_module: bool) -> dict[str, Any]:
    """Return lengths as the files set them, and `lower_case` where it is set; an absent file sets nothing.

    is_module: the folder is a module of sentence-transformers, which keeps the length with the tokenizer since 5.4.
    """
    path = next((folder / name for name in _NAMES if (folder / name).exists()), None)
    config = {} if path is None else read_json_object(path)
    if path is not None:
        _check_plain(config, path)
    read: dict[str, Any] = {
        name: _length(config[name], name, path) for name in _LENGTHS if config.get(name) is not None
    }
    if is_module and "max_seq_length" not in read:
        read |= _tokenizer_length(folder / "tokenizer_config.json")
    return read | ({"lower_case": True} if config.get("do_lower_case") else {})


def _check_plain(config: Mapping[str, Any], path: Path) -> None:
    """Raise CheckpointError naming a setting that would change vectors and is not supported."""
    for key, value in config.items():
        if value is None or key in _READ | _NO_EFFECT or value in _PLAIN.get(key, ()):
            continue
        kind = key.removesuffix("_args").removesuffix("_kwargs")
        if key not in _PLAIN and kind != key and kind in _ARGUMENTS and isinstance(value, dict):
            unknown = sorted(value.keys() - _ARGUMENTS[kind] - {"trust_remote_code"})
            if not unknown:
                continue
            raise CheckpointError(f"{path}: {key} has {unknown[0]!r}, which is not supported")
        raise CheckpointError(f"{path}: {key} is {value!r:.120}, which is not supported")


def _length(value: object, name: str, path: Path | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError(f"{path}: {name} is {value!r}; expected a whole number from 1 on")
    return value


def _tokenizer_length(path: Path) -> dict[str, int]:
    length = read_json_object(path).get("model_max_length") if path.exists() else None
    is_limit = isinstance(length, int) and not isinstance(length, bool) and 1 <= length < _NO_LIMIT
    return {"max_seq_length": length} if is_limit and isinstance(length, int) else {}
