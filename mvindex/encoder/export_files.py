"""Write a sentence-transformers folder in the oldest sufficient form, which newer versions read too."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint import Parts, Pooling, Settings, write_settings
from mvindex.encoder.checkpoint.dense import DENSE_WEIGHTS, Dense
from mvindex.encoder.checkpoint.load import quiet
from mvindex.encoder.checkpoint.reader import QUERY_FOLDER

_TYPE = "sentence_transformers.models."
_POOLING = "1_Pooling"
_FLAGS = {
    Pooling.MEAN: "pooling_mode_mean_tokens",
    Pooling.CLS: "pooling_mode_cls_token",
    Pooling.WEIGHTED: "pooling_mode_weightedmean_tokens",
    Pooling.LAST: "pooling_mode_lasttoken",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    kind: str
    path: str


def write_modules(folder: Path, settings: Settings, parts: Parts, tokenizer: Any, dense: Sequence[Dense]) -> list[str]:
    """Write the modules and mvindex.json into the folder; return the kinds of the modules, in order."""
    _write_transformer(folder, parts.documents, tokenizer, settings)
    width = int(parts.documents.config.hidden_size)
    flags = {flag: pooling is settings.pooling for pooling, flag in _FLAGS.items()}
    _write(folder / _POOLING / "config.json", {"word_embedding_dimension": width, **flags})
    modules = [_Module(kind="Transformer", path=""), _Module(kind="Pooling", path=_POOLING)]
    if settings.separate:
        _write_transformer(folder / QUERY_FOLDER, parts.queries, tokenizer, settings)
        modules = [_write_router(folder)]
    for one in dense:
        modules.append(_Module(kind="Dense", path=f"{len(modules)}_Dense"))
        _write_dense(folder / modules[-1].path, one)
    if settings.normalise:
        modules.append(_Module(kind="Normalize", path=f"{len(modules)}_Normalize"))
        (folder / modules[-1].path).mkdir()
    _write_lists(folder, settings, modules)
    write_settings(folder, settings)
    _share(folder)
    return [module.kind for module in modules]


def _write_transformer(folder: Path, model: Any, tokenizer: Any, settings: Settings) -> None:
    lengths = {"document_length": settings.document_length, "query_length": settings.query_length}
    longest = max(lengths.values())
    tokenizer.model_max_length = longest
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # The tokenizer has learnt to lower-case, where it must. Two lengths are read from version 6 on.
    content: dict[str, Any] = {"max_seq_length": longest, "do_lower_case": False}
    if "add_pooling_layer" in inspect.signature(type(model).__init__).parameters:
        # There is none in these weights; one would be drawn at random, with a warning.
        content["model_args"] = {"add_pooling_layer": False}
    _write(folder / "sentence_bert_config.json", content | (lengths if len(set(lengths.values())) > 1 else {}))


def _write_router(folder: Path) -> _Module:
    """Write the module with one transformer for queries and one for documents; versions from 5 on know it."""
    transformer = f"{_TYPE}Transformer"
    _write(
        folder / "router_config.json",
        {
            "types": {".": transformer, QUERY_FOLDER: transformer, _POOLING: f"{_TYPE}Pooling"},
            "structure": {"query": [QUERY_FOLDER, _POOLING], "document": [".", _POOLING]},
            "parameters": {"default_route": "document", "allow_empty_key": True},
        },
    )
    return _Module(kind="Router", path="")


def _write_dense(folder: Path, dense: Dense) -> None:
    place = "linear" if dense.activation == "Identity" else "activation"
    config = {
        "in_features": dense.inputs,
        "out_features": dense.outputs,
        "bias": dense.has_bias,
        "activation_function": f"torch.nn.modules.{place}.{dense.activation}",
    }
    _write(folder / "config.json", config)
    shutil.copyfile(dense.folder / DENSE_WEIGHTS, folder / DENSE_WEIGHTS)


def _write_lists(folder: Path, settings: Settings, modules: Sequence[_Module]) -> None:
    entries = [
        {"idx": row, "name": str(row), "path": module.path, "type": _TYPE + module.kind}
        for row, module in enumerate(modules)
    ]
    _write(folder / "modules.json", entries)
    config = {
        "model_type": "SentenceTransformer",
        "prompts": {"query": settings.query_prompt, "document": settings.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": settings.similarity.value,
    }
    _write(folder / "config_sentence_transformers.json", config)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _share(folder: Path) -> None:
    """Make every file as readable as a new one: safetensors creates its files for their owner only."""
    mode = (folder / "modules.json").stat().st_mode
    for path in folder.rglob("*.safetensors"):
        path.chmod(mode)
