"""Export of an index: Parquet, NumPy, JSON Lines or TREC files, in parts that an interrupted run continues."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from xml.sax.saxutils import escape

import numpy as np

from mvindex.durable import flush_to_disk, make_directories, map_write_errors, rename
from mvindex.errors import ConfigError, StoreError
from mvindex.index import Index, factory, store_of
from mvindex.io.manifest import MANIFEST, ExportedFile, Manifest, find_wrong_file, read_manifest, write_manifest
from mvindex.paths import user_path
from mvindex.plugins import require
from mvindex.records import Document, Ints, ProgressCallback, dump_metadata, no_progress
from mvindex.store.embedded import LocalStore
from mvindex.store.rows import Batch
from mvindex.store.views import ViewType

logger = logging.getLogger(__name__)

# The vectors are not among them: no two are the same.
_DICTIONARIES = ["doc_id", "title", "metadata"]


def write_view_rows(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write a row for each view; title, text and metadata are in the first row of a document."""
    _write(paths[0], view_type, batches, _view_rows)


def write_document_rows(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write a row for each document, with the list of its vectors."""
    _write(paths[0], view_type, batches, _document_rows)


def _write(
    path: Path, view_type: ViewType, batches: Iterator[Batch], columns_of: Callable[[Any, Batch, ViewType], Any]
) -> None:
    arrow = require("pyarrow", "files", "an export as Parquet")
    parquet = require("pyarrow.parquet", "files", "an export as Parquet")
    writer = None
    try:
        for batch in batches:
            rows = arrow.RecordBatch.from_pydict(columns_of(arrow, batch, view_type))
            if writer is None:
                writer = parquet.ParquetWriter(
                    path, rows.schema, compression="zstd", use_dictionary=_DICTIONARIES, write_page_checksum=True
                )
            writer.write_batch(rows)
    finally:
        if writer is not None:
            writer.close()


def _view_rows(arrow: Any, batch: Batch, view_type: ViewType) -> dict[str, Any]:
    starts = batch.views.starts
    counts = np.diff(starts)
    document_of_row = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(document_of_row)) - starts[document_of_row]
    first_rows = arrow.array(document_of_row, mask=slots > 0)
    documents = _document_columns(arrow, batch)
    begins, ends = _spans(arrow, batch.views.spans)
    return {
        "doc_id": documents["doc_id"].take(arrow.array(document_of_row)),
        "view": arrow.array(slots, type=arrow.int32()),
        "vector": _vectors(arrow, batch, view_type),
        "span_begin": begins,
        "span_end": ends,
        **{name: documents[name].take(first_rows) for name in ("ordinal", "title", "text", "metadata")},
    }


def _document_rows(arrow: Any, batch: Batch, view_type: ViewType) -> dict[str, Any]:
    starts = arrow.array(batch.views.starts, type=arrow.int32())
    columns = {"vectors": _vectors(arrow, batch, view_type)}
    columns["span_begins"], columns["span_ends"] = _spans(arrow, batch.views.spans)
    lists = {name: arrow.ListArray.from_arrays(starts, values) for name, values in columns.items()}
    return _document_columns(arrow, batch) | lists


def _document_columns(arrow: Any, batch: Batch) -> dict[str, Any]:
    documents = batch.documents
    metadata = [dump_metadata(document.metadata, document.id) for document in documents]
    ordinals = np.arange(len(documents)) if batch.ordinals is None else batch.ordinals
    return {
        "doc_id": arrow.array([document.id for document in documents], type=arrow.string()),
        "ordinal": arrow.array(ordinals, type=arrow.int64()),
        "title": arrow.array([document.title for document in documents], type=arrow.string()),
        "text": arrow.array([document.text for document in documents], type=arrow.string()),
        "metadata": arrow.array(metadata, type=arrow.string()),
    }


def _vectors(arrow: Any, batch: Batch, view_type: ViewType) -> Any:
    rows = batch.views.rows
    return arrow.FixedSizeListArray.from_arrays(arrow.array(rows.astype(view_type.dtype).reshape(-1)), rows.shape[1])


def _spans(arrow: Any, spans: Ints) -> tuple[Any, Any]:
    """Return begins and ends, null where a view has no span."""
    is_none = spans[:, 0] < 0
    begins, ends = (arrow.array(np.ascontiguousarray(spans[:, side]), mask=is_none) for side in (0, 1))
    return begins, ends


def write_jsonl(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write a JSON object a line: a document with its vectors, each number exactly."""
    with open_text(paths[0]) as file:
        for batch in batches:
            starts, rows = batch.views.starts.tolist(), batch.views.rows
            for row, begin, end in zip(document_rows(batch), starts[:-1], starts[1:], strict=True):
                write_line(file, {**row, "vectors": rows[begin:end].tolist()})


def write_trec(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write each document's id, title and text as TREC's <DOC>, with &, < and > as entities.

    StoreError for an id with white space, which no run or judgement file of TREC could contain.
    """
    with open_text(paths[0]) as file:
        for batch in batches:
            file.writelines(map(_trec_document, batch.documents))


def open_text(path: Path) -> TextIO:
    """Create a UTF-8 file whose lines end with a line feed on any machine."""
    return open(path, "w", encoding="utf-8", newline="\n")


def write_line(file: TextIO, row: dict[str, Any]) -> None:
    """Write the row as one line of JSON."""
    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def document_rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield each document of the batch as a JSON object, with the spans of its vectors and without these."""
    starts = batch.views.starts.tolist()
    for number, document in enumerate(batch.documents):
        begin, end = starts[number], starts[number + 1]
        row: dict[str, Any] = {"id": document.id, "title": document.title, "text": document.text}
        row["metadata"] = dict(document.metadata)
        if batch.ordinals is not None:
            row["ordinal"] = int(batch.ordinals[number])
        spans = batch.views.spans[begin:end]
        if (spans >= 0).any():
            row["spans"] = [span if span[0] >= 0 else None for span in spans.tolist()]
        yield row


def _trec_document(document: Document) -> str:
    if document.id.split() != [document.id]:
        raise StoreError(f"document {document.id!r}: expected an id without white space, which TREC's files need")
    title = f"<TITLE>{escape(document.title)}</TITLE>\n" if document.title else ""
    return f"<DOC>\n<DOCNO>{escape(document.id)}</DOCNO>\n{title}<TEXT>\n{escape(document.text)}\n</TEXT>\n</DOC>\n"


def write_arrays(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Write three files: all views (r, d), the document id of each on a line, and the documents."""
    vectors, ids, documents = paths
    shape = (0, 0)
    with open(vectors, "wb") as rows, open_text(ids) as names, open_text(documents) as lines:
        for batch in batches:
            dim = batch.views.rows.shape[1]
            if not shape[1]:
                _write_header(rows, view_type, (0, dim))
            rows.write(batch.views.rows.astype(view_type.dtype).data)
            shape = (shape[0] + len(batch.views.rows), dim)
            counts = np.diff(batch.views.starts).tolist()
            names.writelines(f"{doc.id}\n" * count for doc, count in zip(batch.documents, counts, strict=True))
            for row, count in zip(document_rows(batch), counts, strict=True):
                write_line(lines, {**row, "views": count})
        # NumPy leaves room in the header for a first axis that grows: the two have one length.
        rows.seek(0)
        _write_header(rows, view_type, shape)


def _write_header(file: BinaryIO, view_type: ViewType, shape: tuple[int, int]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(view_type.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


# Of 1,024 documents each: with 8 views of 768 dims in fp16 a part is 0.8 GB.
PART_BATCHES = 64
# Documents in a batch.
BATCH = 1024
EXPORTED_SETTINGS = ("dim", "dtype", "encoder", "temperature", "prune_views", "lexical", "fusion", "filter_fields")


@dataclass(frozen=True, slots=True)
class Format:
    """The layout of an export: the files of a part, their writer, and whether all is one part."""

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
    """The counts of an export. written: files of this run; an earlier one wrote the others."""

    directory: str
    to: str
    documents: int
    views: int
    files: int
    written: int
    size_bytes: int


def find_exporter(to: str) -> Callable[[Index, Path, ProgressCallback], Any]:
    """Return the function that exports to this format, ours or an add-on's; raise ConfigError for an unknown one."""
    if to in FORMATS:
        return lambda index, directory, on_progress: export_index(index, directory, to, on_progress)
    return factory.find_exporter(to, tuple(FORMATS))


def export_index(
    index: Index, directory: str | Path, to: str, on_progress: ProgressCallback = no_progress
) -> ExportReport:
    """Export an index to a directory, with a manifest.json by which it can be imported again.

    After an interruption, the same call continues with the first missing part.

    Args:
        index: The index.
        directory: A new or empty directory, or that of an interrupted export.
        to: One of FORMATS.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the export.

    Raises:
        ConfigError: The directory has other files, or an export of another state.
        Unsupported: The index is behind a server of mvindex.

    """
    if to not in FORMATS:
        raise ConfigError(f"expected a format ({', '.join(FORMATS)}), got {to!r}")
    directory = user_path(directory)
    settings = index.settings
    if index.dim is None or not len(index):
        raise StoreError(f"{index.where}: expected documents to export, got an empty index")
    kept = {name: settings.get(name) for name in EXPORTED_SETTINGS}
    kept |= {"dim": index.dim, "lexical": index.info().lexical}
    fresh = Manifest(to=to, source=_state(index), settings=kept, next_ordinal=int(settings["next_ordinal"]))
    with map_write_errors(directory), _exclusive_directory(directory):
        manifest = _begin_or_resume(directory, fresh, index.where)
        export = _Export(directory, FORMATS[to], ViewType(settings["dtype"]), len(index), on_progress)
        return export.run(index, manifest)


def _state(index: Index) -> list[list[Any]]:
    """Return id and version of each store of an index, which change with its content."""
    store = store_of(index)
    parts = [part.store.settings for part in store.parts()] if isinstance(store, LocalStore) else [store.settings]
    return [[str(settings["index_id"]), settings.get("version")] for settings in parts]


def _begin_or_resume(directory: Path, fresh: Manifest, where: str) -> Manifest:
    """Return the manifest to continue from: a new one, or that of an interrupted run."""
    found = read_manifest(directory)
    if found is None:
        # Our own unfinished files may be left.
        left = [entry.name for entry in directory.iterdir() if not re.fullmatch(r"\..*\.new", entry.name)]
        if left:
            raise ConfigError(
                f"{directory}: expected a new directory or one of an export, got other files; give a new one"
            )
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
def _exclusive_directory(directory: Path) -> Iterator[None]:
    """Lock the directory against other exports; raise StoreError when one holds the lock."""
    make_directories(directory)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(handle)
        raise StoreError(f"{directory}: another export writes to it; wait for it, or give another directory") from err
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
    on_progress: ProgressCallback

    def run(self, index: Index, manifest: Manifest) -> ExportReport:
        written = 0 if manifest.is_complete else len(manifest.files)
        if not manifest.is_complete:
            manifest = self._write_missing(index, manifest)
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

    def _write_missing(self, index: Index, manifest: Manifest) -> Manifest:
        """Write the missing parts and return the manifest of the whole export."""
        batches = _skip(manifest.documents, store_of(index).batches(BATCH))
        number = len(manifest.files) // len(self.format.names)
        while (first := next(batches, None)) is not None:
            part = chain([first], batches if self.format.is_one_part else islice(batches, PART_BATCHES - 1))
            manifest = self._write_part(manifest, number, part)
            write_manifest(self.directory, manifest)
            number += 1
        if manifest.documents != self.total:
            raise StoreError(
                f"{self.directory}: {manifest.documents:,} documents were written of {self.total:,}: the index was "
                "changed during the export; remove the directory and export again"
            )
        manifest = replace(manifest, is_complete=True)
        write_manifest(self.directory, manifest)
        return manifest

    def _write_part(self, manifest: Manifest, number: int, batches: Iterator[Batch]) -> Manifest:
        """Write one more part durably and return the manifest with it."""
        names = [name.format(number) for name in self.format.names]
        aside = [self.directory / f".{name}.new" for name in names]
        counts = np.zeros(2, dtype=np.int64)
        self.format.write(aside, self.view_type, self._count(batches, counts, manifest.documents))
        documents, views = counts.tolist()
        files = []
        for path, name in zip(aside, names, strict=True):
            flush_to_disk(path)
            files.append(ExportedFile(name=name, size_bytes=path.stat().st_size, documents=documents, views=views))
        for path, name in zip(aside, names, strict=True):
            rename(path, self.directory / name)
        return manifest.with_files(files, documents, views)

    def _count(self, batches: Iterator[Batch], counts: Any, before: int) -> Iterator[Batch]:
        """Yield the batches; add their documents and views to `counts`."""
        for batch in batches:
            yield batch
            counts += (len(batch.documents), len(batch.views.rows))
            self.on_progress("exporting", before + int(counts[0]), self.total)


def _skip(documents: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Skip the batches of the documents that are written already; return the rest."""
    while documents > 0:
        batch = next(batches, None)
        if batch is None or len(batch.documents) > documents:
            raise StoreError(f"{MANIFEST} counts other documents than the index; remove the export and start again")
        documents -= len(batch.documents)
    return batches
