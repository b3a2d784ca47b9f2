"""The layout of a sentence-transformers folder: its modules in the one supported order, and its window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.settings import Pooling, Similarity, is_text, read_json, read_json_object, read_settings
from mvindex.errors import CheckpointError

# At most one of each, but for Dense; their order is this.
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
_EXPECTED = "expected Transformer, Pooling, then any number of Dense, then Normalize or nothing"
# Any other class is looked for in the folder's own Python files.
_OWN_CODE = "sentence_transformers."
_INPUT = "sentence_embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The places of a folder's modules.

    pooling: None where nothing says how; is_listed: by modules.json, else the folder has only a transformer.
    """

    transformer: Path
    pooling: Path | None = None
    dense: tuple[Path, ...] = ()
    has_normalize: bool = False
    is_listed: bool = False


def read_modules(folder: Path) -> Modules:
    """Return the modules that modules.json lists; CheckpointError names one that is not supported."""
    path = folder / "modules.json"
    if not path.exists():
        pooling = folder / "1_Pooling"
        return Modules(transformer=folder, pooling=pooling if (pooling / "config.json").exists() else None)
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CheckpointError(f"{path}: expected a list of objects")
    kinds = [_kind(entry, number, path) for number, entry in enumerate(entries, 1)]
    if kinds[:1] == ["Router"] and read_settings(folder).get("separate"):
        # Our own export: the Router is the transformer of the documents here, that of the questions, and one pooling.
        kinds[:1], entries[:1] = ["Transformer", "Pooling"], [{"path": ""}, {"path": "1_Pooling"}]
    _check_order(kinds, path)
    folders = [_inside(folder, str(entry.get("path", "")), path) for entry in entries]
    _check_inputs(kinds, folders)
    return Modules(
        transformer=folders[0],
        pooling=folders[1],
        dense=tuple(found for kind, found in zip(kinds, folders, strict=True) if kind == "Dense"),
        has_normalize="Normalize" in kinds,
        is_listed=True,
    )


def _kind(entry: dict[str, Any], number: int, path: Path) -> str:
    kind = str(entry.get("type"))
    if not kind.startswith(_OWN_CODE):
        raise CheckpointError(
            f"{path}: module {number} is {kind!r}, code from the checkpoint, which mvindex never runs"
        )
    return kind.rsplit(".", maxsplit=1)[-1]


def _check_order(kinds: list[str], path: Path) -> None:
    for number, kind in enumerate(kinds, 1):
        if kind not in _ORDER:
            raise CheckpointError(f"{path}: module {number} is {kind!r}, which is not supported; {_EXPECTED}")
    is_single = all(kinds.count(kind) == 1 for kind in ("Transformer", "Pooling")) and kinds.count("Normalize") <= 1
    if not is_single or kinds != sorted(kinds, key=_ORDER.index):
        raise CheckpointError(f"{path}: the modules are {', '.join(kinds) or 'none'}; {_EXPECTED}")


def _check_inputs(kinds: list[str], folders: list[Path]) -> None:
    """Raise CheckpointError where Dense or Normalize works on something else than the pooled vector."""
    for kind, folder in zip(kinds, folders, strict=True):
        path = folder / "config.json"
        if kind not in ("Dense", "Normalize") or not path.exists():
            continue
        config = read_json_object(path)
        for key in ("module_input_name", "module_output_name"):
            if config.get(key) not in (None, _INPUT):
                raise CheckpointError(f"{path}: {key} is {config[key]!r:.80}; expected {_INPUT!r}, the pooled vector")


def _inside(folder: Path, relative: str, place: Path) -> Path:
    try:
        target = (folder / relative).resolve()
    except (ValueError, RuntimeError) as err:  # a NUL, no Unicode, or links that lead to each other
        raise CheckpointError(f"{place}: the path {relative!r} leads nowhere: {err}") from err
    if not target.is_relative_to(folder.resolve()):
        raise CheckpointError(f"{place}: the path {relative!r} leads out of the checkpoint")
    return target


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
