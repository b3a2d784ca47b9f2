"""An index from imported vectors: complete under its name, or absent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mvindex.corpus.paths import STDIN, expand_local_paths, names_of
from mvindex.durable import remove_entry, rename
from mvindex.encoder import EncoderLike
from mvindex.errors import ConfigError, CorpusError, EncoderError, StoreError
from mvindex.index import Index, store_of
from mvindex.index.factory import Backend, find_backend, index_exists, local_index, new_settings, open_local
from mvindex.io.array_rows import open_array, open_export, open_jsonl
from mvindex.io.manifest import MANIFEST, Manifest, check_whole, read_manifest
from mvindex.io.migrate import store_batches
from mvindex.io.parquet_rows import open_parquet
from mvindex.io.staging import Columns, TargetSchema, Texts, VectorSource, VectorTable, make_batches
from mvindex.paths import user_path
from mvindex.records import ProgressCallback, no_progress
from mvindex.search.fusion import is_fusion
from mvindex.store.create import create_store
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.files import writer_lock
from mvindex.store.lexical.tokenizer import NONE, parse_lexical
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


_OPENED: dict[str, Callable[..., VectorSource]] = {
    "parquet": open_parquet,
    "parquet-documents": open_parquet,
    "jsonl": open_jsonl,
}


def import_vectors(  # noqa: PLR0913 - each argument is a choice of the caller
    files: Sequence[str | os.PathLike[str]],
    target: Target,
    *,
    columns: Columns | None = None,
    ids: str | None = None,
    texts: Texts | None = None,
    on_progress: ProgressCallback = no_progress,
) -> ImportReport:
    """Make an index from the documents and vectors of files.

    Args:
        files: The directory of an export, which makes an equal index; or Parquet or JSON Lines files; or one .npy.
        target: The new index.
        columns: Names of columns or fields.
        ids: For .npy, a file of the id of each vector: a line each, or .npy, or .json.
        texts: For .npy, the corpus that the vectors were made from.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the import.

    Raises:
        CorpusError: A file or row is bad or missing; no index is made.
        ConfigError: The arguments do not fit the files.

    """
    check_target(target)
    columns = columns or Columns()
    names = names_of(files)
    if len(names) == 1 and os.path.isdir(names[0]):
        _reject_options(names[0], ids, texts, columns)
        return _import_export(Path(names[0]), target, on_progress)
    paths = expand_local_paths(names)
    kind = _detect_kind(paths)
    if kind == "npy":
        return _import_array(paths, ids, target, texts or Texts(), on_progress)
    if ids is not None or texts is not None:
        raise ConfigError(f"--ids and --corpus go with a .npy file; {paths[0]} holds ids and texts itself")
    source = _OPENED[kind](paths, columns, is_export=False)
    return fill(target, source, compute_mark(paths, kind, columns, target.dtype), on_progress)


def _import_export(directory: Path, target: Target, on_progress: ProgressCallback) -> ImportReport:
    manifest = read_manifest(directory)
    if manifest is None:
        raise CorpusError(f"{directory}: expected the {MANIFEST} of an export in it; name its files instead")
    if manifest.to != "npy" and manifest.to not in _OPENED:
        raise CorpusError(f"{directory}: is an export as {manifest.to}, which has no vectors; ingest it as texts")
    check_whole(directory, manifest)
    paths = [str(directory / file.name) for file in manifest.files]
    return fill(
        target, _open_exported(directory, manifest, paths), compute_mark(paths, target.dtype), on_progress, manifest
    )


def _open_exported(directory: Path, manifest: Manifest, paths: Sequence[str]) -> VectorSource:
    source = open_export(directory) if manifest.to == "npy" else _OPENED[manifest.to](paths, Columns(), is_export=True)
    if source.dim != manifest.settings.get("dim"):
        raise CorpusError(
            f"{directory}: expected vectors of {manifest.settings.get('dim')} dims, as in {MANIFEST}, got {source.dim}"
        )
    source.total = manifest.documents
    return source


def _import_array(
    paths: Sequence[str], ids: str | None, target: Target, texts: Texts, on_progress: ProgressCallback
) -> ImportReport:
    if len(paths) > 1:
        raise ConfigError(f"expected one .npy file, since --ids has the ids of one, got {len(paths)}")
    if ids is None:
        raise ConfigError(f"{paths[0]}: has vectors and no ids; give --ids FILE, one a line, or .npy or .json")
    with VectorTable() as table:
        source = open_array(paths[0], ids, table, texts, on_progress)
        corpus = [] if texts.files is None else expand_local_paths(list(texts.files))
        mark = compute_mark([*paths, ids, *corpus], "npy", target.dtype, texts.missing.value, texts.options)
        return fill(target, source, mark, on_progress)


def _reject_options(directory: str, ids: str | None, texts: Texts | None, columns: Columns) -> None:
    if ids is not None or texts is not None or columns != Columns():
        raise ConfigError(
            f"{directory}: is the directory of an export, which needs no options; leave out --ids, "
            "--corpus and the columns"
        )


def _detect_kind(paths: Sequence[str]) -> str:
    """Return the kind of the files, by their first bytes; raise ConfigError when they differ."""
    kinds = {path: _kind(path) for path in paths}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{path} is {kind}" for path, kind in list(kinds.items())[:4])
        raise ConfigError(f"the files are of several kinds ({listed}); import one kind at a time")
    return kinds[paths[0]]


def _kind(path: str) -> str:
    if path == STDIN:
        raise ConfigError("-: expected a file, whose kind is detected from its first bytes; name it")
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"\x93NUMPY", b"PK\x03\x04")):
        return "npy"
    if head[:1] == b"\x80" or head[:2] in (b"]q", b"(l"):
        raise CorpusError(f"{path}: looks like a pickle; DPR's are read by `mvindex import dpr`, others never")
    return "jsonl"
