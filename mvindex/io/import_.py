"""An index made of vectors that others computed: complete under its name, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError, CorpusError, EncoderError, StoreError
from mvindex.index import Index
from mvindex.index.backends import Backend, find_backend
from mvindex.index.factory import index_exists, open_index
from mvindex.index.options import EncoderLike, new_settings
from mvindex.io.manifest import Manifest
from mvindex.io.validation import Kept, Told, VectorSource, batches_of
from mvindex.scoring.fusion import is_fusion
from mvindex.store.embedded import EmbeddedStore, create_store
from mvindex.store.fsync import remove_entry, rename
from mvindex.store.locks import writer_lock
from mvindex.store.views import ViewType

_MARK = "imported_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The index that is made. encoder: the one that the vectors came from, so that texts can be asked.

    dtype: fp16 or fp32; None: as the files hold them (of float64, fp32). lexical: see mvindex.create().
    """

    path: str
    encoder: EncoderLike | None = None
    dtype: str | None = None
    lexical: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What was done. imported: documents written by this run, the others were there from an interrupted one.

    notes: what was left out or is to be known, by name.
    """

    index: str
    documents: int
    views: int
    dim: int
    dtype: str
    imported: int
    notes: Mapping[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """The report as one flat record."""
        names = ("index", "documents", "views", "dim", "dtype", "imported")
        return {name: getattr(self, name) for name in names} | dict(self.notes)


def check_target(target: Target) -> None:
    """Nothing; ConfigError when a directory stands there already. Called before anything long begins."""
    if find_backend(target.path) is None and index_exists(target.path):
        raise ConfigError(f"{_shown(target.path)} exists already; an import makes a new index: give a new place")


def spool_folder(target: Target) -> Path | None:
    """Where vectors may be kept while they are read: beside the index, which needs as much room; None: anywhere."""
    folder = Path(target.path).absolute().parent
    return folder if find_backend(target.path) is None and folder.is_dir() else None


def mark_of(files: Sequence[str], *options: Any) -> str:
    """What tells whether an interrupted import was of the same files, as they are now, with the same options."""
    seen = [(os.path.abspath(file), os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps([seen, options], default=str).encode()).hexdigest()


def fill(target: Target, source: VectorSource, mark: str, told: Told, manifest: Manifest | None = None) -> ImportReport:
    """What was done: the index holds all documents of the source. Of an export of ours it is as that index was."""
    settings = _settings(target, source, manifest)
    kept = Kept(dim=source.dim, view_type=ViewType(settings["dtype"]), is_encoded=settings["encoder"] is not None)
    total = source.total
    own = hashlib.sha256(json.dumps([mark, settings], default=str).encode()).hexdigest()
    with _made(target.path, {**settings, _MARK: own}) as index:
        looked_at = imported = 0
        next_ordinal = None if manifest is None else manifest.next_ordinal
        batches = batches_of(source.given, kept)
        for count, stored in index.take(batches, next_ordinal):
            looked_at, imported = looked_at + count, imported + stored
            told("importing", looked_at, total)
        index.refresh()
        _check_counts(index, looked_at, manifest)
        info = index.info()
        counts = {"documents": len(index), "views": info.views, "imported": imported}
    return ImportReport(
        index=_shown(target.path), dim=source.dim, dtype=settings["dtype"], notes=source.notes, **counts
    )


def _settings(target: Target, source: VectorSource, manifest: Manifest | None) -> dict[str, Any]:
    """Those of the new index: of an export its own, unless the caller says otherwise."""
    kept: Mapping[str, Any] = {} if manifest is None else manifest.settings
    dtype = target.dtype or kept.get("dtype") or ("fp16" if source.dtype.itemsize == 2 else "fp32")
    settings, encoder = new_settings(
        encoder=target.encoder,
        dim=source.dim if target.encoder is None else None,
        dtype=dtype,
        temperature=kept.get("temperature"),
        prune_views=kept.get("prune_views"),
        lexical=target.lexical or kept.get("lexical"),
    )
    if "lexical" in settings and is_fusion(kept.get("fusion")):
        settings["fusion"] = kept["fusion"]
    if encoder is None:
        return {**settings, "encoder": kept.get("encoder")}
    if encoder.dim != source.dim:
        raise ConfigError(
            f"the encoder {encoder.fingerprint!r} gives vectors of {encoder.dim} dims; those of the files have "
            f"{source.dim}"
        )
    before = (kept.get("encoder") or {}).get("fingerprint")
    if before is not None and before != encoder.fingerprint:
        raise ConfigError(
            f"the encoder given is {encoder.fingerprint!r}; the export was made with {before!r}. "
            "Vectors of two encoders cannot be compared"
        )
    return settings


@contextmanager
def _made(path: str, settings: Mapping[str, Any]) -> Iterator[Index]:
    """A new index to be filled, or the one that an interrupted run of the same files has begun.

    A directory takes its name when all is in it; what bad input began is removed.
    """
    backend = find_backend(path)
    if backend is not None:
        with _at_address(path, backend, settings) as index:
            yield index
        return
    final = Path(path)
    aside = final.with_name(f".{final.name}.importing")
    _begin(aside, settings)
    try:
        with Index(EmbeddedStore(aside)) as index:
            yield index
        rename(aside, final)
    except (CorpusError, ConfigError, EncoderError):
        remove_entry(aside)
        raise
    except OSError as err:
        raise StoreError(f"{final}: cannot be written: {err.strerror or err}") from err


def _at_address(path: str, backend: Backend, settings: Mapping[str, Any]) -> Index:
    """The index at the address: new, or begun by an interrupted run; others see what is in it so far."""
    if settings.get("lexical"):
        raise ConfigError(f"{backend.shown(path)}: a lexical side belongs to an index in a directory")
    if not backend.exists(path):
        return backend.create(path, {name: value for name, value in settings.items() if name != "lexical"}, None)
    old = open_index(path)
    if old.settings.get(_MARK) != settings[_MARK]:
        old.close()
        raise ConfigError(f"{backend.shown(path)} exists already, and was not begun by this import; give a new place")
    return old


def _begin(aside: Path, settings: Mapping[str, Any]) -> None:
    """Nothing; the directory holds an index of these settings: that of an interrupted run, or a new one."""
    if os.path.lexists(aside):
        with open_index(aside) as old:
            is_same = old.settings.get(_MARK) == settings[_MARK]
        with writer_lock(aside):
            if is_same:
                return
            remove_entry(aside)
    create_store(aside, settings)


def _check_counts(index: Index, looked_at: int, manifest: Manifest | None) -> None:
    if not looked_at:
        raise CorpusError("the files hold no documents")
    if len(index) != looked_at:
        raise StoreError(f"{index.where}: holds {len(index):,} documents, and {looked_at:,} were imported")
    views = index.info().views
    if manifest is not None and (manifest.documents, manifest.views) != (looked_at, views):
        raise CorpusError(
            f"the files hold {looked_at:,} documents and {views:,} views; their manifest says "
            f"{manifest.documents:,} and {manifest.views:,}"
        )


def _shown(path: str) -> str:
    """The place without secrets."""
    backend = find_backend(path)
    return path if backend is None else backend.shown(path)
