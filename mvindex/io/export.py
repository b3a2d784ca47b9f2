"""An index as files that others read: `mvindex export`. Streamed, part by part; each part is whole or not there."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.index import Index, backends
from mvindex.index.sharded import ShardedIndex
from mvindex.io.arrays import write_arrays
from mvindex.io.manifest import (
    MANIFEST,
    ExportedFile,
    Manifest,
    find_wrong_file,
    read_manifest,
    write_manifest,
)
from mvindex.io.parquet import write_document_rows, write_view_rows
from mvindex.io.texts import write_jsonl, write_trec
from mvindex.store.embedded import Batch
from mvindex.store.fsync import flush_to_disk, make_directories, rename
from mvindex.store.views import ViewType

logger = logging.getLogger(__name__)

Told = Callable[[str, int, "int | None"], None]

# Of 1,024 documents each: with 8 views of 768 dims in fp16 a part is 0.8 GB.
PART_BATCHES = 64
KEPT = ("dim", "dtype", "encoder", "temperature", "prune_views", "lexical", "fusion")


@dataclass(frozen=True, slots=True)
class Format:
    """How an export is laid out: the files of a part, what writes them, and whether all is one part."""

    names: tuple[str, ...]
    write: Callable[[Sequence[Path], ViewType, Iterator[Batch]], None]
    is_one_part: bool = False


FORMATS = {
    "parquet": Format(("views-{:05d}.parquet",), write_view_rows),
    "parquet-documents": Format(("documents-{:05d}.parquet",), write_document_rows),
    "npy": Format(("vectors.npy", "ids.txt", "documents.jsonl"), write_arrays, is_one_part=True),
    "jsonl": Format(("documents-{:05d}.jsonl",), write_jsonl),
    "trec": Format(("documents-{:05d}.trec",), write_trec),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What stands in the directory. written: files of this run, the others were there already."""

    directory: str
    to: str
    documents: int
    views: int
    files: int
    written: int
    size_bytes: int


def find_exporter(to: str) -> Callable[[Index, Path, Told], Any]:
    """What writes an index as files of this format, ours or an add-on's; ConfigError names those there are."""
    if to in FORMATS:
        return lambda index, directory, told: export_index(index, directory, to, told)
    return backends.find_exporter(to, tuple(FORMATS))


def export_index(
    index: Index, directory: str | Path, to: str, on_progress: Told = lambda what, done, total: None
) -> ExportReport:
    """What was written: the whole index, as one of FORMATS, and manifest.json, by which it can be imported again.

    Interrupted, the same call goes on with the first part that is not there. ConfigError when the directory holds
    something else, or an export of another state; Unsupported for an index behind a server of mvindex.
    """
    if to not in FORMATS:
        raise ConfigError(f"format {to!r} is unknown; wanted one of {', '.join(FORMATS)}")
    directory = Path(directory)
    settings = _settings(index)
    if index.dim is None or not len(index):
        raise StoreError(f"{index.where}: holds no documents; there is nothing to export")
    kept = {name: settings.get(name) for name in KEPT} | {"dim": index.dim}
    fresh = Manifest(to=to, source=_state(index), settings=kept, next_ordinal=index.next_ordinal)
    try:
        with _writing_alone(directory):
            manifest = _begun(directory, fresh, index.where)
            export = _Export(directory, FORMATS[to], ViewType(kept["dtype"]), len(index), on_progress)
            return export.run(index, manifest)
    except OSError as err:
        raise StoreError(f"{directory}: cannot be written: {err.strerror or err}") from err


def _settings(index: Index) -> Mapping[str, Any]:
    try:
        return index.settings
    except Unsupported as err:
        raise Unsupported(
            f"{index.where}: an export reads documents and views as they are stored, which a server does not give; run "
            "`mvindex export` where its index lies"
        ) from err


def _state(index: Index) -> list[list[Any]]:
    """What tells that an index is still as it was: id and version of each of its stores."""
    parts = index.shards.values() if isinstance(index, ShardedIndex) else [index]
    return [[str(part.settings["index_id"]), part.settings.get("version")] for part in parts]


def _begun(directory: Path, fresh: Manifest, where: str) -> Manifest:
    """The manifest to go on from: new, or that of a run that was interrupted."""
    found = read_manifest(directory)
    if found is None:
        # Our own unfinished files may be left.
        left = [entry.name for entry in directory.iterdir() if not re.fullmatch(r"\..*\.new", entry.name)]
        if left:
            raise ConfigError(f"{directory}: is not empty, and holds no export; give a new directory")
        write_manifest(directory, fresh)
        return fresh
    same = replace(found, is_complete=False, documents=0, views=0, files=())
    if same != fresh or any(version is None for _, version in fresh.source):
        raise ConfigError(
            f"{directory}: holds an export of another index, format or state than {where} has now; give a new "
            "directory, or remove this one"
        )
    wrong = find_wrong_file(directory, found)
    if wrong is not None:
        raise StoreError(f"{wrong}; remove the directory and export again")
    return found


@contextmanager
def _writing_alone(directory: Path) -> Iterator[None]:
    """Inside it, no other export writes into the directory; StoreError when one does."""
    make_directories(directory)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(handle)
        raise StoreError(f"{directory}: another export writes there; wait for it, or give another directory") from err
    except OSError as err:  # a file system that locks no directories
        logger.info("%s cannot be locked: %s", directory, err)
    try:
        yield
    finally:
        os.close(handle)


@dataclass(slots=True)
class _Export:
    """One run into a directory."""

    directory: Path
    format: Format
    view_type: ViewType
    total: int
    told: Told

    def run(self, index: Index, manifest: Manifest) -> ExportReport:
        written = 0 if manifest.is_complete else len(manifest.files)
        if not manifest.is_complete:
            manifest = self._completed(index, manifest)
            written = len(manifest.files) - written
        return ExportReport(
            directory=str(self.directory),
            to=manifest.to,
            documents=manifest.documents,
            views=manifest.views,
            files=len(manifest.files),
            written=written,
            size_bytes=sum(file.size_bytes for file in manifest.files),
        )

    def _completed(self, index: Index, manifest: Manifest) -> Manifest:
        """The manifest of the whole export, whose missing parts are written."""
        batches = _after(manifest.documents, index.batches())
        number = len(manifest.files) // len(self.format.names)
        while (first := next(batches, None)) is not None:
            part = chain([first], batches if self.format.is_one_part else islice(batches, PART_BATCHES - 1))
            manifest = self._with_part(manifest, number, part)
            write_manifest(self.directory, manifest)
            number += 1
        if manifest.documents != self.total:
            raise StoreError(
                f"{self.directory}: {manifest.documents:,} documents were written of {self.total:,}: the index was "
                "changed meanwhile; remove the directory and export again"
            )
        manifest = replace(manifest, is_complete=True)
        write_manifest(self.directory, manifest)
        return manifest

    def _with_part(self, manifest: Manifest, number: int, batches: Iterator[Batch]) -> Manifest:
        """The manifest with one more part, whose files stand under their names, durably."""
        names = [name.format(number) for name in self.format.names]
        aside = [self.directory / f".{name}.new" for name in names]
        counts = np.zeros(2, dtype=np.int64)
        self.format.write(aside, self.view_type, self._counted(batches, counts, manifest.documents))
        documents, views = counts.tolist()
        files = []
        for path, name in zip(aside, names, strict=True):
            flush_to_disk(path)
            files.append(ExportedFile(name=name, size_bytes=path.stat().st_size, documents=documents, views=views))
        for path, name in zip(aside, names, strict=True):
            rename(path, self.directory / name)
        return manifest.with_files(files, documents, views)

    def _counted(self, batches: Iterator[Batch], counts: Any, before: int) -> Iterator[Batch]:
        """The batches; counts holds documents and views of those that were taken."""
        for batch in batches:
            yield batch
            counts += (len(batch.documents), len(batch.views.rows))
            self.told("exporting", before + int(counts[0]), self.total)


def _after(documents: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches without those of the documents that were written already."""
    while documents > 0:
        batch = next(batches, None)
        if batch is None or len(batch.documents) > documents:
            raise StoreError(f"{MANIFEST} counts documents otherwise than the index; remove the export and start again")
        documents -= len(batch.documents)
    return batches
