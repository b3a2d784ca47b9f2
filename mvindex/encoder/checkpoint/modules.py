"""Read the modules of a sentence-transformers folder, in the one supported order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.settings import read_json, read_json_object, read_settings
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
