"""The state that all readers of one run share: its options, its report, and the documents of a corpus on disk by id."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from mvindex.corpus import CorpusOptions, read_documents
from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document, has_visible
from mvindex_train.data.entries import Entry
from mvindex_train.data.options import ReadCount, ReadOptions, ReadReport
from mvindex_train.data.records import content_id, hash_text


class DocumentLookup:
    """Documents by id, in a temporary file that is deleted on close(); a context manager.

    name: the corpus in messages. Raises CorpusError when two different documents have one id, or the disk is full.
    """

    def __init__(self, documents: Iterable[Document], name: str) -> None:
        self.name = name
        self._last: Document | None = None
        self._file = tempfile.TemporaryFile(prefix="mvindex-documents-")
        try:
            self._write(documents)
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self._hashes)

    def __enter__(self) -> DocumentLookup:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the temporary file, which deletes it."""
        self._file.close()

    def find(self, doc_id: str) -> Document | None:
        """Return the document with this id, without its metadata; None where there is none."""
        # Questions on the same passage are mostly consecutive.
        if self._last is None or self._last.id != doc_id:
            self._last = self._search(doc_id)
        return self._last

    def get(self, doc_id: str, place: str) -> Document:
        """Return the document with this id; raise CorpusError, which begins with the place, where there is none."""
        document = self.find(doc_id)
        if document is None:
            raise CorpusError(f"{place}: expected the id of a row of {self.name}, got {doc_id!r}")
        return document

    def _search(self, doc_id: str) -> Document | None:
        key = np.uint64(hash_text(doc_id))
        begin = int(np.searchsorted(self._hashes, key))
        end = int(np.searchsorted(self._hashes, key, side="right"))
        candidates = (self._read(offset) for offset in self._offsets[begin:end])
        return next((document for document in candidates if document.id == doc_id), None)

    def _write(self, documents: Iterable[Document]) -> None:
        hashes, offsets, end = array("Q"), array("q"), 0
        try:
            for document in documents:
                hashes.append(hash_text(document.id))
                offsets.append(end)
                end += self._file.write(json.dumps([document.id, document.text, document.title]).encode() + b"\n")
            self._file.flush()
        except OSError as err:
            raise CorpusError(f"{self.name}: cannot be copied to {tempfile.gettempdir()}: {err.strerror}") from err
        unsorted = np.frombuffer(hashes, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._hashes, self._offsets = unsorted[order], np.frombuffer(offsets, np.int64)[order]
        self._check_unique_ids()

    def _check_unique_ids(self) -> None:
        for row in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]):
            first, second = self._read(self._offsets[row]), self._read(self._offsets[row + 1])
            if first.id == second.id and first != second:
                raise CorpusError(
                    f"{self.name}: two different rows have the id {first.id!r}. Every row needs its own id"
                )

    def _read(self, offset: int) -> Document:
        self._file.seek(offset)
        return Document(*json.loads(self._file.readline()))


def open_documents(paths: list[str]) -> DocumentLookup:
    """Open corpus files in any format that mvindex reads; raise CorpusError at the first bad row."""
    return DocumentLookup(read_documents(paths, CorpusOptions()), ", ".join(paths))


COMPRESSIONS = ("", ".gz", ".zst")


@dataclass(slots=True)
class ReadContext:
    """State of one run over the files: options, counts, and the open corpora, each opened once."""

    options: ReadOptions
    report: ReadReport
    resources: ExitStack
    _corpora: dict[str, DocumentLookup] = field(default_factory=dict)
    _num_unnamed: int = 0

    def corpus(self, path: str) -> DocumentLookup:
        """Return the documents of a corpus file by id; opened at the first call, closed with the run."""
        if path not in self._corpora:
            self._corpora[path] = self.resources.enter_context(open_documents([path]))
        return self._corpora[path]

    def passages(self, path: str) -> DocumentLookup:
        """Return the corpus that the ids of a file refer to; raise ConfigError when no passages are given."""
        if self.options.passages is None:
            raise ConfigError(
                f"{path}: contains ids of passages without their texts. Name the corpus with --passages (passages= in "
                "Python)"
            )
        return self.corpus(self.options.passages)

    def question_id(self, own_id: str | None) -> str:
        """Return the question's own id, else its number, from 1, among all questions without one."""
        if own_id is not None:
            return own_id
        self._num_unnamed += 1
        return str(self._num_unnamed)

    def documents(self, entries: Iterable[Entry], *id_fields: str) -> tuple[Document, ...]:
        """Return the documents of these objects with visible text; id_fields: names of the id, the first match wins."""
        return self.visible(read_passage(entry, *id_fields) for entry in entries)

    def visible(self, documents: Iterable[Document]) -> tuple[Document, ...]:
        """Return the documents whose text or title is visible; count the others."""
        visible = []
        for document in documents:
            if has_visible(document.text) or has_visible(document.title):
                visible.append(document)
            else:
                self.report.add(ReadCount.EMPTY_DOCUMENT)
        return tuple(visible)

    def has_positive(self, positives: tuple[Document, ...]) -> bool:
        """Return whether there is a positive; count the question where there is none."""
        if not positives:
            self.report.add(ReadCount.NO_POSITIVE)
        return bool(positives)


def read_passage(entry: Entry, *id_fields: str) -> Document:
    """Return the document of an object with text and title; without an id it takes the hash of its content."""
    title, text = entry.text("title"), entry.text("text")
    with entry.prefix_errors():
        # Validated before it is hashed: a lone surrogate cannot be encoded as UTF-8.
        unnamed = Document("-", text, title)
        return Document(entry.optional_id(*id_fields) or content_id(title, text), unnamed.text, unnamed.title)


def find_file(folder: str | os.PathLike[str], *names: str) -> str:
    """Return the path of the first of the names in a folder, plain or compressed; raise CorpusError without one."""
    for name in names:
        for ending in COMPRESSIONS:
            if (path := Path(folder, name + ending)).is_file():
                return str(path)
    raise CorpusError(f"{folder}: expected {' or '.join(names)}, plain, .gz or .zst; got none")


def has_file(folder: str | os.PathLike[str], name: str) -> bool:
    """Return whether a folder contains the file, plain or compressed."""
    return any(Path(folder, name + ending).is_file() for ending in COMPRESSIONS)
