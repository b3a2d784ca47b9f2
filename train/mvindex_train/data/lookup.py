"""Lookup of documents by id in a corpus on disk, with 16 bytes of memory a document."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable
from types import TracebackType

import numpy as np

from mvindex.corpus import CorpusOptions, read_documents
from mvindex.errors import CorpusError
from mvindex.records import Document
from mvindex_train.data.records import hash_text


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
