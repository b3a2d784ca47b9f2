"""A sync of an index with a folder, once or whenever files change.

The index itself is the only state: the files of a folder are known by the metadata of their documents. So a run that
is killed at any moment is completed by the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

from mvindex.corpus import Folder, FolderFile, Reject, Row
from mvindex.corpus.reader import Corpus
from mvindex.corpus.registry import has_reader
from mvindex.errors import ConfigError, CorpusError
from mvindex.index.protocol import IndexProtocol
from mvindex.ingest.pipeline import CHUNK_CHARS, CHUNK_DOCUMENTS, IngestHooks
from mvindex.io.sync.report import Digest, FileCache, SyncHooks, SyncOptions, SyncReport, add_to_digests
from mvindex.plugins import require
from mvindex.records import Document, dump_metadata, shown

_DEBOUNCE_MS = 1_600


def changes(folder: str, should_stop: Callable[[], bool]) -> Iterator[int]:
    """Yield the number of changes, once none came for a moment; end when should_stop() is true.

    The first time it may yield 0, soon after watching began, for changes that came before. Hidden files and indexes in
    the folder are not watched, as they are not read.

    Raises:
        ExtraMissing: watchfiles is not installed.

    """
    watchfiles = require("watchfiles", "files", "--watch")

    def is_watched(change: Any, path: str) -> bool:
        return all(_is_read(part) for part in PurePath(path).relative_to(folder).parts)

    is_first = True
    for found in watchfiles.watch(
        folder,
        watch_filter=is_watched,
        debounce=_DEBOUNCE_MS,
        stop_event=SimpleNamespace(is_set=should_stop),
        yield_on_timeout=True,
    ):
        if found or is_first:
            yield len(found)
        is_first = False


def _is_read(part: str) -> bool:
    """Return whether a file or folder of this name may be read; a change of .gitignore decides what is."""
    if part == ".gitignore":
        return True
    return not (part.startswith(".") or part.endswith(".mvx") or ".rejects." in part)


# The documents of a file with more are not kept in memory: the file is read twice.
_HELD_DOCUMENTS = 20_000
_FILES_PER_FILTER = 500


def sync_folder(
    index: IndexProtocol | None,
    folder: str | os.PathLike[str],
    options: SyncOptions | None = None,
    hooks: SyncHooks | None = None,
) -> SyncReport:
    """Add and replace the documents of the folder's files in an index, and delete those whose file is gone.

    Only documents of this folder are deleted: their metadata have its name as "folder". Files that did not change are
    not encoded. A file that can no longer be read, or has bad rows, keeps its old passages; the report names it
    as stale.

    Args:
        index: The index; None for an empty one, with dry_run.
        folder: The folder.
        options: The options of the sync.
        hooks: Callbacks.

    Returns:
        What was done, and the passages in folder and index, counted and hashed on both sides.

    Raises:
        CorpusError: There is no such folder, or it cannot be read.
        ConfigError: The index has documents of another folder of this name, or none of the folder's files is there
            any more.

    """
    if not isinstance(folder, str | os.PathLike):
        raise CorpusError(f"folder: expected a path, got {shown(folder)}")
    if isinstance(index, str | os.PathLike):
        raise ConfigError(f"index: expected an open index, mvindex.open(...), got the path {os.fspath(index)!r:.80}")
    return _Sync(index, os.fspath(folder), options or SyncOptions(), hooks or SyncHooks()).run()


@dataclass(slots=True)
class _Pending:
    """Documents to add, and the known files that they complete, whose other documents are then deleted."""

    documents: dict[str, Document] = field(default_factory=dict)
    completed: dict[str, set[str]] = field(default_factory=dict)
    num_chars: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.documents) >= CHUNK_DOCUMENTS or self.num_chars >= CHUNK_CHARS


@dataclass(slots=True)
class _Reading:
    """The content of a file; documents is empty where there are too many of them."""

    digest: Digest = field(default_factory=Digest)
    documents: list[Document] = field(default_factory=list)
    num_rejected: int = 0
    is_broken: bool = False
    has_bad_rows: bool = False


class _Sync:
    """One run; see sync_folder()."""

    def __init__(self, index: IndexProtocol | None, folder: str, options: SyncOptions, hooks: SyncHooks) -> None:
        self._index = index
        self._folder = Folder(folder, options.folders, has_reader, options.name)
        self._options = options
        self._hooks = hooks
        self._cache = FileCache(self._folder.path, self._folder.name, options)
        self._report = SyncReport(folder=self._folder.path, name=self._folder.name, is_dry=options.dry_run)
        self._before: dict[str, Digest] = {}
        self._present: set[str] = set()
        self._expected: dict[str, Digest] = {}
        # Files whose rows were all refused have text, though no document is expected of them.
        self._refused: set[str] = set()
        # Files that cannot be read, or not all of their rows: none of their old passages is deleted.
        self._stale: set[str] = set()
        self._pending = _Pending()
        self._has_written = False

    def run(self) -> SyncReport:
        started = time.monotonic()
        files = list(self._folder.files())
        self._present = {file.file for file in files}
        self._before = self._read_index()
        self._refuse_empty_folder()
        for folder, reason in self._folder.unreadable.items():
            self._reject(folder, reason)
        for file in files:
            if self._must_stop():
                break
            self._sync_file(file)
        self._flush()
        if not self._report.stopped:
            self._delete_gone()
        self._cache.save(self._hooks.on_warning)
        self._report.left_out = self._folder.left_out
        self._report.in_folder = self._expected
        self._report.in_index = self._read_index() if self._has_written else self._before
        in_index = self._report.in_index
        self._report.stale = sorted(one for one in self._stale if self._expected.get(one) != in_index.get(one))
        self._report.seconds = time.monotonic() - started
        return self._report

    def _must_stop(self) -> bool:
        """Return whether to stop, also inside a file; the next run completes a file that was stored in part."""
        self._report.stopped = self._report.stopped or self._hooks.should_stop()
        return self._report.stopped

    def _read_index(self) -> dict[str, Digest]:
        """Return the passages of each file as the index has them now."""
        digests: dict[str, Digest] = {}
        if self._index is not None:
            self._index.refresh()
            add_to_digests(digests, self._checked(self._index.scan({"folder": self._folder.name})))
        return digests

    def _checked(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents; raise ConfigError for one of another folder of this name, unless the name was given."""
        for document in documents:
            path = document.metadata.get("folder_path")
            if self._options.name is None and path != self._folder.path:
                raise ConfigError(
                    f"{self._folder.path}: the index has documents of another folder named {self._folder.name!r}, "
                    f"{path}. If it was moved, give --name {self._folder.name}; else another --name"
                )
            yield document

    def _refuse_empty_folder(self) -> None:
        if self._before and not self._present & self._before.keys() and not self._options.force:
            raise ConfigError(
                f"{self._folder.path}: none of the {len(self._before):,} files that the index has of it is there; "
                "is it mounted? To delete their documents all the same, give --force"
            )

    def _sync_file(self, file: FolderFile) -> None:
        known = self._before.get(file.file)
        digest = self._cache.find(file)
        if digest is not None and digest == known:
            self._expected[file.file] = digest
            self._report.unchanged += 1
            self._hooks.on_progress(digest.passages, _size_bytes(file))
            return
        state, read_at = self._cache.state(file)
        reading = self._read(file)
        digest = reading.digest
        if self._report.stopped:
            return
        self._hooks.on_progress(0, _size_bytes(file))
        if reading.is_broken:
            return
        self._report.rejected_rows += reading.num_rejected
        if reading.has_bad_rows and known not in (None, digest):
            self._stale.add(file.file)
        if not digest.passages:
            return
        self._expected[file.file] = digest
        if not reading.num_rejected:
            self._cache.remember(file, state, read_at, digest)
        if digest == known:
            self._report.unchanged += 1
            self._hooks.on_progress(digest.passages, 0)
            return
        if known is None:
            self._report.added += 1
        else:
            self._report.changed += 1
        self._add(file, reading.documents or self._documents(file))

    def _read(self, file: FolderFile) -> _Reading:
        reading, ids = _Reading(), set[str]()
        corpus = Corpus([file], self._options.corpus, left_out=self._folder.left_out)
        corpus.on_warning = self._warn
        for row in corpus:
            if self._must_stop():
                break
            if isinstance(row, Row) and row.document.id in ids:
                reading.num_rejected += 1
                self._hooks.on_warning(
                    f"{row.location}: id {row.document.id!r} is that of an earlier row; row rejected"
                )
            elif isinstance(row, Row):
                ids.add(row.document.id)
                reading.digest.add(row.document)
                reading.documents.append(row.document)
                if reading.digest.passages > _HELD_DOCUMENTS:
                    reading.documents.clear()
            elif row.is_file:
                line = row.location.line
                self._reject(file.file, row.reason if line == 1 else f"line {line}: {row.reason}")
                reading.is_broken = True
            else:
                reading.num_rejected += 1
                reading.has_bad_rows = True
                self._hooks.on_warning(f"{row.location}: {row.reason}; row rejected")
        return reading

    def _documents(self, file: FolderFile) -> Iterator[Document]:
        corpus = Corpus([file], self._options.corpus)
        corpus.on_warning = lambda _: None  # as it was read before
        ids: set[str] = set()
        for row in corpus:
            if isinstance(row, Row):
                if row.document.id not in ids:
                    yield row.document
                ids.add(row.document.id)
            elif isinstance(row, Reject) and row.is_file:
                self._reject(file.file, row.reason)

    def _warn(self, message: str) -> None:
        self._report.warnings += 1
        self._hooks.on_warning(message)

    def _reject(self, file: str, reason: str) -> None:
        """Note a file, or a folder ending in "/", that cannot be read; documents of it stay."""
        self._hooks.on_warning(f"{file}: {reason}; rejected")
        self._report.rejected[file] = reason
        below = [file] if not file.endswith("/") else [one for one in self._before if one.startswith(file)]
        kept = [one for one in below if one in self._before]
        self._present.update(kept)
        self._stale.update(kept)

    def _add(self, file: FolderFile, documents: Iterable[Document]) -> None:
        rest = iter(documents)
        ids: set[str] = set()
        while not self._must_stop() and (part := list(islice(rest, CHUNK_DOCUMENTS))):
            ids.update(document.id for document in part)
            for document in part:
                self._put(document)
            if self._pending.is_full:
                self._flush()
        is_whole = not self._report.stopped and file.file not in self._stale
        if file.file in self._before and is_whole:
            self._pending.completed[file.file] = ids

    def _put(self, document: Document) -> None:
        first = self._pending.documents.get(document.id)
        if first is not None:
            self._refuse_id(document, f"{first.metadata['file']}")
            return
        self._pending.documents[document.id] = document
        self._pending.num_chars += len(document.text)

    def _refuse_id(self, document: Document, owner: str) -> None:
        """Reject a row whose id another document has; it is not expected in the index either."""
        file = str(document.metadata["file"])
        expected = self._expected.pop(file, Digest()).without(document)
        if expected.passages > 0:
            self._expected[file] = expected
        else:
            self._refused.add(file)
        self._report.rejected_rows += 1
        self._hooks.on_warning(f"{file}: id {document.id!r} is that of a document of {owner} already; row rejected")

    def _flush(self) -> None:
        """Add the pending documents, then delete what its files no longer have; or only count them."""
        pending, self._pending = self._pending, _Pending()
        if not (pending.documents or pending.completed):
            return
        before = {} if self._index is None else {one.id: one for one in self._index.get(list(pending.documents))}
        for known in before.values():
            owner = self._owner(known, pending.documents[known.id], pending.completed)
            if owner is not None:
                self._refuse_id(pending.documents.pop(known.id), owner)
        if self._index is None or not self._options.is_writing:
            self._count(pending.documents.values(), before)
        elif pending.documents:
            self._has_written = True
            hooks = IngestHooks(max_document_chars=self._options.max_document_chars)
            done = self._index.add(list(pending.documents.values()), hooks=hooks)
            self._report.encoded += done.added + done.replaced
            self._report.views_encoded += done.views_encoded
            self._report.views_reused += done.views_reused
            self._report.updated += done.updated
            self._hooks.on_progress(len(pending.documents), 0)
        for files in _slices(list(pending.completed)):
            self._delete_stale(files, pending.completed)

    def _count(self, documents: Iterable[Document], before: Mapping[str, Document]) -> None:
        """Count what would be encoded, and what would get other metadata only."""
        for document in documents:
            known = before.get(document.id)
            if known is None or (known.title, known.text) != (document.title, document.text):
                self._report.encoded += 1
            elif dump_metadata(known.metadata, known.id) != dump_metadata(document.metadata, document.id):
                self._report.updated += 1

    def _delete_stale(self, files: list[str], completed: Mapping[str, set[str]]) -> None:
        """Delete the documents of these files that they no longer have; or only count them."""
        if self._index is None:
            return
        found = self._index.scan({"folder": self._folder.name, "file": {"in": files}})
        stale = [one.id for one in found if one.id not in completed[str(one.metadata["file"])]]
        if stale and self._options.is_writing:
            self._has_written = True
            self._report.removed += self._index.delete(ids=stale)
        elif stale:
            self._report.removed += len(stale)

    def _owner(self, known: Document, new: Document, completed: Mapping[str, set[str]]) -> str | None:
        """Return what a document of this id belongs to; None where that is this file, or no file has it any more."""
        folder, file = known.metadata.get("folder"), known.metadata.get("file")
        if folder != self._folder.name:
            return "another folder" if folder else "no folder"
        is_gone = file not in self._present or known.id not in completed.get(str(file), {known.id})
        return None if file == new.metadata["file"] or is_gone else str(file)

    def _delete_gone(self) -> None:
        """Delete the documents of files that are not there, or have no text any more."""
        empty = self._present - self._expected.keys() - self._refused - self._stale
        gone = sorted(file for file in self._before if file not in self._present or file in empty)
        self._report.deleted = len(gone)
        self._note_renames(gone)
        if not self._options.is_writing:
            self._report.removed += sum(self._before[file].passages for file in gone)
        if self._index is None or not self._options.is_writing:
            return
        for files in _slices(gone):
            self._has_written = True
            self._report.removed += self._index.delete(filter={"folder": self._folder.name, "file": {"in": files}})

    def _note_renames(self, gone: list[str]) -> None:
        by_content = {self._before[file].content: file for file in gone}
        for file, digest in self._expected.items():
            if file not in self._before and digest.content in by_content:
                self._report.renamed[file] = by_content[digest.content]


def _slices(files: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(files), _FILES_PER_FILTER):
        yield files[first : first + _FILES_PER_FILTER]


def _size_bytes(file: FolderFile) -> int:
    with suppress(OSError):
        return os.stat(file.path).st_size
    return 0
