"""Export of an encoder as a folder of sentence-transformers: its files, and a model card."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.durable import UNFINISHED, remove_entry, whole_folder
from mvindex.encoder.checkpoint import (
    Checkpoint,
    Parts,
    Pooling,
    Settings,
    load_parts,
    parse_family,
    read_checkpoint,
    write_settings,
)
from mvindex.encoder.checkpoint.hub import PACKAGED, PACKAGED_HUB_ID
from mvindex.encoder.checkpoint.load import check_can_load, load_wrapped_tokenizer, quiet
from mvindex.encoder.checkpoint.reader import QUERY_FOLDER
from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.encoder.checkpoint.tensors import DENSE_WEIGHTS, Dense
from mvindex.errors import ConfigError, StoreError
from mvindex.plugins import require

_LICENCE = re.compile(r"^license:[ \t]*['\"]?([\w.+-]+)['\"]?[ \t]*$", flags=re.MULTILINE)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_CARD_BYTES = 1 << 20


def find_licence(checkpoint: Checkpoint) -> str | None:
    """Return the licence that the checkpoint's card names, else its base's; None where neither does."""
    folders = [Path(checkpoint.source), checkpoint.folder]
    if checkpoint.base is not None:
        folders += [Path(checkpoint.base.source), checkpoint.base.folder]
    return next((found for folder in folders if (found := _licence_of(folder / "README.md"))), None)


def _licence_of(card: Path) -> str | None:
    """Return the licence in the metadata at the head of a card, as model hubs write it."""
    if not card.is_file():
        return None
    with open(card, encoding="utf-8", errors="replace") as file:
        text = file.read(_MAX_CARD_BYTES)
    if not text.startswith("---\n"):
        return None
    found = _LICENCE.search(text[4:].partition("\n---")[0])
    return found[1] if found else None


def find_base(checkpoint: Checkpoint) -> str | None:
    """Return the hub id of the model that the checkpoint is, or was trained from; None where it is unknown."""
    names = [checkpoint.source]
    if checkpoint.base is not None:
        names = [checkpoint.base.source]
    elif (checkpoint.folder / "training.json").is_file():
        names = [_trained_from(read_json_object(checkpoint.folder / "training.json"))]
    name = PACKAGED_HUB_ID if names[0] == PACKAGED else names[0].partition("@")[0]
    return name if _HUB_ID.fullmatch(name) and not Path(name).exists() else None


def _trained_from(record: dict[str, Any]) -> str:
    """Return the base that the record of a training names."""
    config = record.get("config")
    encoder = config.get("encoder") if isinstance(config, dict) else None
    return str(encoder.get("base")) if isinstance(encoder, dict) else ""


def write_card(settings: Settings, licence: str | None, base: str | None) -> str:
    """Return README.md of the exported folder, with the metadata that model hubs read."""
    metadata = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "license": licence,
        "base_model": base,
    }
    similarity = f"Vectors are compared by {'their cosine' if settings.normalise else 'inner product'}"
    shorter, longer = sorted((settings.document_length, settings.query_length))
    window = (
        f"{longer} tokens"
        if shorter == longer
        else f"{settings.document_length} tokens, questions {settings.query_length}"
    )
    return "\n".join(
        [
            "---",
            *(f"{name}: {value}" for name, value in metadata.items() if value),
            "tags:",
            "- sentence-transformers",
            "- mvindex",
            "---",
            "",
            "# Encoder exported by mvindex",
            "",
            f"- Family: `{settings.family.name}`, one vector a document." + _label(settings),
            f"- Base: {f'`{base}`' if base else 'not known'}.",
            f"- Licence: {licence or 'not known; that of the base goes with these weights'}.",
            f"- Pooling: {settings.pooling.value}. {similarity}. Longer texts are cut at {window}.",
            "",
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            'model = SentenceTransformer("DIR")',
            'model.encode_document(["Oil reached $12 a barrel."]) @ model.encode_query("how dear was oil?")',
            "```",
            "",
            "or `mvindex ingest corpus.tsv --encoder DIR`, which reads a longer text in several windows.",
            "",
        ]
    )


def _label(settings: Settings) -> str:
    return f" Training: {settings.label}." if settings.label else ""


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


LOADED_BY = "sentence_transformers.SentenceTransformer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export. family: as exported; loads_with: the class to open it; licence, base: None: unknown."""

    folder: str
    source: str
    family: str
    dim: int
    modules: tuple[str, ...]
    loads_with: str
    licence: str | None
    base: str | None


def save_sentence_transformer(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], family: str | None = None
) -> Exported:
    """Save the checkpoint, whole or not at all, as a folder of sentence-transformers, which mvindex reads too.

    Args:
        source: A checkpoint, as load_encoder() takes it; an adapter is merged into full weights.
        folder: A new or empty directory.
        family: "single" exports one vector per document of a checkpoint that makes several; None its own family.

    Returns:
        What was written.

    Raises:
        ConfigError: For a family that sentence-transformers' modules cannot express, or a directory that is not empty.
        CheckpointError: The checkpoint cannot be read.
        ExtraMissing: torch or transformers is not installed.

    """
    target = Path(folder).absolute()
    checkpoint = read_checkpoint(source, None if family is None else parse_family(family))
    _check_expressible(checkpoint, read_checkpoint(source))
    _check_free(target)
    check_can_load(checkpoint)
    tokenizer = load_wrapped_tokenizer(checkpoint)
    parts = load_parts(checkpoint, tokenizer.backend_tokenizer)
    licence, base = find_licence(checkpoint), find_base(checkpoint)
    with _new_folder(target) as temporary:
        modules = write_modules(temporary, checkpoint.settings, parts, tokenizer, checkpoint.dense)
        (temporary / "README.md").write_text(write_card(checkpoint.settings, licence, base), encoding="utf-8")
    return Exported(
        folder=str(target),
        source=checkpoint.source,
        family=checkpoint.settings.family.name,
        dim=checkpoint.dense[-1].outputs if checkpoint.dense else int(parts.documents.config.hidden_size),
        modules=tuple(modules),
        loads_with=LOADED_BY,
        licence=licence,
        base=base,
    )


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes the target when the block ends well, and is deleted otherwise."""
    broken = require("safetensors", "train", "saving weights").SafetensorError
    try:
        with whole_folder(target) as temporary:
            yield temporary
    except BaseException as err:
        remove_entry(target.with_name(target.name + UNFINISHED))
        if isinstance(err, (OSError, broken)):
            raise StoreError(f"{target}: cannot be written: {getattr(err, 'strerror', None) or err}") from err
        raise


def _check_expressible(checkpoint: Checkpoint, original: Checkpoint) -> None:
    family, trained = checkpoint.settings.family, original.settings.family
    if family.no_export is not None:
        raise ConfigError(
            f"{checkpoint.source}: the family {family.name!r} cannot be exported: {family.no_export}. "
            "One vector a document can be (--family single): questions keep theirs"
        )
    if trained.has_viewers and checkpoint.settings.pooling is Pooling.CLS:
        raise ConfigError(
            f"{checkpoint.source}: a question of this checkpoint, of the family {trained.name!r}, is the state of a "
            "token of its own, [VIE], which no module of sentence-transformers puts before it: there is no export"
        )


def _check_free(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target}: is there already; expected a new or an empty folder")
