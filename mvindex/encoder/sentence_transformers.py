"""Checkpoints as folders that sentence-transformers loads, where its modules can express them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mvindex.checkpoint import Checkpoint, Family, Pooling, load_parts, read_checkpoint
from mvindex.checkpoint.load import check_can_load, load_wrapped_tokenizer
from mvindex.checkpoint.settings import VIEWER_FAMILIES, parse_family
from mvindex.encoder.export_card import find_base, find_licence, write_card
from mvindex.encoder.export_files import write_modules
from mvindex.errors import ConfigError, StoreError
from mvindex.plugins import require
from mvindex.store.fsync import UNFINISHED, remove_entry, whole_folder

LOADED_BY = "sentence_transformers.SentenceTransformer"
# Why no modules of sentence-transformers, MultiVectorEncoder's among them, give a family's views. Modules of one's own
# would, but they are Python code in the folder, which is loaded only by those who trust it (trust_remote_code).
REASONS = {
    Family.SNIPPETS: "a view is the mean of a snippet's own states, and no module knows where sentences end",
    Family.FIRST_K: "no module keeps the first k states of a text: MultiVectorMask chooses tokens by what they are",
    Family.POLY: "no module has codes that attend to the states",
    Family.KMEANS: "a view is a k-means centroid, and HierarchicalTokenPooling is another clustering (Ward's)",
    Family.VIEWERS: "no module puts viewer tokens at position 0 before the documents' texts alone",
    Family.CONTEXT_VIEWERS: "no module puts a viewer token before each snippet of a document",
    Family.SENTENCES: "each sentence is read as a text of its own, and no module cuts a text",
    Family.SPLITS: "each stretch of tokens is read as a text of its own, and no module cuts a text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was exported. family: as exported; loads_with: the class that opens it; licence, base: None if unknown."""

    folder: str
    source: str
    family: str
    dim: int
    modules: tuple[str, ...]
    loads_with: str
    licence: str | None
    base: str | None


def export_encoder(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], family: str | None = None
) -> Exported:
    """What was exported: the checkpoint as a folder of sentence-transformers, which mvindex reads too; whole or not.

    source: as load_encoder() takes it; an adapter is merged into full weights. folder: new, or empty. family: "single"
    exports one vector a document from a checkpoint of several; questions keep theirs.
    Raises ConfigError for a family that its modules cannot express, or a folder that holds something.
    """
    target = Path(folder).absolute()
    checkpoint = read_checkpoint(source, None if family is None else parse_family(family))
    _check_expressible(checkpoint, read_checkpoint(source))
    _check_free(target)
    check_can_load("encode")
    tokenizer = load_wrapped_tokenizer(checkpoint)
    parts = load_parts(checkpoint, tokenizer.backend_tokenizer)
    licence, base = find_licence(checkpoint), find_base(checkpoint)
    with _new_folder(target) as temporary:
        modules = write_modules(temporary, checkpoint.settings, parts, tokenizer, checkpoint.dense)
        (temporary / "README.md").write_text(write_card(checkpoint.settings, licence, base), encoding="utf-8")
    return Exported(
        folder=str(target),
        source=checkpoint.source,
        family=checkpoint.settings.family.value,
        dim=checkpoint.dense[-1].outputs if checkpoint.dense else int(parts.documents.config.hidden_size),
        modules=tuple(modules),
        loads_with=LOADED_BY,
        licence=licence,
        base=base,
    )


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes the target when the block ends well, and is gone when it does not."""
    broken = require("safetensors", "encode", "saving weights").SafetensorError
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
    if family is not Family.SINGLE:
        raise ConfigError(
            f"{checkpoint.source}: the family {family.value!r} cannot be exported: {REASONS[family]}. "
            "One vector a document can be (--family single): questions keep theirs"
        )
    if trained in VIEWER_FAMILIES and checkpoint.settings.pooling is Pooling.CLS:
        raise ConfigError(
            f"{checkpoint.source}: a question of this checkpoint, of the family {trained.value!r}, is the state of a "
            "token of its own, [VIE], which no module of sentence-transformers puts before it: there is no export"
        )


def _check_free(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target}: is there already; wanted a new or an empty folder")
