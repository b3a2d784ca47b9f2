"""Import of vectors computed elsewhere, or of an export of mvindex: `mvindex import vectors`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mvindex.corpus.paths import STDIN, expand_local_paths, names_of
from mvindex.errors import ConfigError, CorpusError
from mvindex.io.array_rows import open_array, open_export
from mvindex.io.import_ import ImportReport, Target, check_target, compute_mark, fill
from mvindex.io.join import Texts
from mvindex.io.json_rows import open_jsonl
from mvindex.io.manifest import MANIFEST, Manifest, check_whole, read_manifest
from mvindex.io.parquet_rows import open_parquet
from mvindex.io.staging_table import VectorTable
from mvindex.io.validation import Columns, VectorSource
from mvindex.records import ProgressCallback, no_progress

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
    source = (
        open_export(directory, Columns())
        if manifest.to == "npy"
        else _OPENED[manifest.to](paths, Columns(), is_export=True)
    )
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
