"""Save checkpoints as folders that sentence-transformers loads, where its modules can express them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mvindex.durable import UNFINISHED, remove_entry, whole_folder
from mvindex.encoder.checkpoint import Checkpoint, Pooling, load_parts, parse_family, read_checkpoint
from mvindex.encoder.checkpoint.load import check_can_load, load_wrapped_tokenizer
from mvindex.encoder.export_card import find_base, find_licence, write_card
from mvindex.encoder.export_files import write_modules
from mvindex.errors import ConfigError, StoreError
from mvindex.plugins import require

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
