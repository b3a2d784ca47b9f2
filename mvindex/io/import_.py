"""Makes an index from imported vectors: complete under its name, or absent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mvindex.durable import remove_entry, rename
from mvindex.encoder import EncoderLike
from mvindex.errors import ConfigError, CorpusError, EncoderError, StoreError
from mvindex.index import Index, store_of
from mvindex.index.backends import Backend, find_backend
from mvindex.index.factory import index_exists, local_index, new_settings, open_local
from mvindex.io.copy import store_batches
from mvindex.io.manifest import Manifest
from mvindex.io.validation import TargetSchema, VectorSource, make_batches
from mvindex.paths import user_path
from mvindex.records import ProgressCallback
from mvindex.search.fusion import is_fusion
from mvindex.store.create import create_store
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.lexical.language import NONE
from mvindex.store.lexical.tokenizer import parse_lexical
from mvindex.store.locks import writer_lock
from mvindex.store.views import ViewType

_MARK = "imported_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The new index.

    Attributes:
        path: A directory or an address.
        encoder: The encoder that made the vectors, for text queries.
        dtype: fp16 or fp32; None for that of the files (fp32 for float64).
        lexical: See mvindex.create(); not "auto".

    """

    path: str
    encoder: EncoderLike | None = None
    dtype: str | None = None
    lexical: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The counts of an import. imported: documents written by this run; an interrupted one wrote the others.

    notes: counts of what was left out.
    """

    index: str
    documents: int
    views: int
    dim: int
    dtype: str
    imported: int
    notes: Mapping[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        """Return the report as one flat record."""
        names = ("index", "documents", "views", "dim", "dtype", "imported")
        return {name: getattr(self, name) for name in names} | dict(self.notes)


def check_target(target: Target) -> None:
    """Raise ConfigError when the directory exists; called before any long work."""
    if find_backend(target.path) is None and index_exists(target.path):
        raise ConfigError(f"{_shown(target.path)} exists already; an import makes a new index: give a new path")


def spool_folder(target: Target) -> Path | None:
    """Return the directory for vectors while they are read: beside the index, which needs as much room; None: any."""
    folder = user_path(target.path).absolute().parent
    return folder if find_backend(target.path) is None and folder.is_dir() else None


def compute_mark(files: Sequence[str], *options: Any) -> str:
    """Return a digest of files and options, by which an interrupted import is recognised."""
    try:
        seen = [(os.path.abspath(file), found.st_size, found.st_mtime_ns) for file in files if (found := os.stat(file))]
    except OSError as err:
        raise CorpusError(f"{err.filename}: cannot be read: {err.strerror or err}") from err
    return hashlib.sha256(json.dumps([seen, options], default=str).encode()).hexdigest()


def fill(
    target: Target, source: VectorSource, mark: str, on_progress: ProgressCallback, manifest: Manifest | None = None
) -> ImportReport:
    """Make or complete the index with all documents of the source; an export makes an equal index."""
    settings = _settings(target, source, manifest)
    schema = TargetSchema(
        dim=source.dim, view_type=ViewType(settings["dtype"]), is_encoded=settings["encoder"] is not None
    )
    total = source.total
    own = hashlib.sha256(json.dumps([mark, settings], default=str).encode()).hexdigest()
    with _open_target(target.path, {**settings, _MARK: own}) as index:
        num_read = imported = 0
        next_ordinal = None if manifest is None else manifest.next_ordinal
        batches = make_batches(source.documents, schema)
        for count, stored in store_batches(store_of(index), batches, next_ordinal):
            num_read, imported = num_read + count, imported + stored
            on_progress("importing", num_read, total)
        index.refresh()
        _check_counts(index, num_read, manifest)
        info = index.info()
        counts = {"documents": len(index), "views": info.views, "imported": imported}
    return ImportReport(
        index=_shown(target.path), dim=source.dim, dtype=settings["dtype"], notes=source.notes, **counts
    )


def _settings(target: Target, source: VectorSource, manifest: Manifest | None) -> dict[str, Any]:
    """Return the settings of the new index: those of the export, unless the caller chose others."""
    kept: Mapping[str, Any] = {} if manifest is None else manifest.settings
    dtype = target.dtype or kept.get("dtype") or ("fp16" if source.dtype.itemsize == 2 else "fp32")
    lexical = parse_lexical(target.lexical or kept.get("lexical"))
    settings, encoder = new_settings(
        encoder=target.encoder,
        dim=source.dim if target.encoder is None else None,
        dtype=dtype,
        temperature=kept.get("temperature"),
        prune_views=kept.get("prune_views"),
        lexical=NONE if lexical is None else lexical.value,
        filter_fields=kept.get("filter_fields"),
    )
    if "lexical" in settings and is_fusion(kept.get("fusion")):
        settings["fusion"] = kept["fusion"]
    if encoder is None:
        return {**settings, "encoder": kept.get("encoder")}
    if encoder.dim != source.dim:
        raise ConfigError(
            f"the encoder {encoder.fingerprint!r} makes vectors of {encoder.dim} dims; expected {source.dim}, "
            "as in the files"
        )
    before = (kept.get("encoder") or {}).get("fingerprint")
    if before is not None and before != encoder.fingerprint:
        raise ConfigError(
            f"expected the encoder of the export, {before!r}, got {encoder.fingerprint!r}. "
            "Vectors of two encoders cannot be compared"
        )
    return settings


@contextmanager
def _open_target(path: str, settings: Mapping[str, Any]) -> Iterator[Index]:
    """Open a new index to be filled, or the one that an interrupted run of the same files began.

    A directory gets its name when it is complete; it is removed after bad input.
    """
    backend = find_backend(path)
    if backend is not None:
        with _open_address(path, backend, settings) as index:
            yield index
        return
    final = user_path(path)
    aside = final.with_name(f".{final.name}.importing")
    _begin(aside, settings)
    try:
        with local_index(EmbeddedStore(aside)) as index:
            yield index
        rename(aside, final)
    except (CorpusError, ConfigError, EncoderError):
        remove_entry(aside)
        raise
    except OSError as err:
        raise StoreError(f"{final}: cannot be written: {err.strerror or err}") from err


def _open_address(path: str, backend: Backend, settings: Mapping[str, Any]) -> Index:
    """Open the index at an address, new or begun by an interrupted run; its documents are visible as they arrive."""
    if settings.get("lexical") and not backend.has_lexical:
        raise ConfigError(
            f"{backend.shown(path)}: expected no lexical option, which an index in a directory or in Milvus has"
        )
    if not backend.exists(path):
        return backend.create(path, settings, None)
    old = open_local(path)
    if old.settings.get(_MARK) != settings[_MARK]:
        old.close()
        raise ConfigError(f"{backend.shown(path)} exists already, and was not begun by this import; give a new address")
    return old


def _begin(aside: Path, settings: Mapping[str, Any]) -> None:
    """Create an index of these settings, unless an interrupted run left one."""
    if os.path.lexists(aside):
        with open_local(aside) as old:
            is_same = old.settings.get(_MARK) == settings[_MARK]
        with writer_lock(aside):
            if is_same:
                return
            remove_entry(aside)
    create_store(aside, settings)


def _check_counts(index: Index, num_read: int, manifest: Manifest | None) -> None:
    if not num_read:
        raise CorpusError("the files hold no documents")
    if len(index) != num_read:
        raise StoreError(f"{index.where}: expected {num_read:,} documents, as imported, got {len(index):,}")
    views = index.info().views
    if manifest is not None and (manifest.documents, manifest.views) != (num_read, views):
        raise CorpusError(
            f"the files hold {num_read:,} documents and {views:,} views; their manifest says "
            f"{manifest.documents:,} and {manifest.views:,}"
        )


def _shown(path: str) -> str:
    """Return the path or address without secrets."""
    backend = find_backend(path)
    return path if backend is None else backend.shown(path)
