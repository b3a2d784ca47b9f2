"""Documents on disk by row: written as a stream, read one by one."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from mvindex.records import Document

_TEXTS, _STARTS = "documents.jsonl", "documents.starts.npy"


def write_documents(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Yield the documents, each after it is written to the folder; complete when the iterator is exhausted."""
    starts = array("q", [0])
    with (folder / _TEXTS).open("wb") as file:
        for document in documents:
            line = json.dumps([document.id, document.text, document.title], ensure_ascii=False).encode() + b"\n"
            file.write(line)
            starts.append(starts[-1] + len(line))
            yield document
    np.save(folder / _STARTS, np.frombuffer(starts, dtype=np.int64))


class StoredDocuments:
    """The documents of write_documents() by row, without metadata; close it after use."""

    def __init__(self, folder: Path) -> None:
        self._starts = np.load(folder / _STARTS, mmap_mode="r", allow_pickle=False)
        self._handle = os.open(folder / _TEXTS, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> Document:
        begin, end = int(self._starts[row]), int(self._starts[row + 1])
        doc_id, text, title = json.loads(os.pread(self._handle, end - begin, begin))
        return Document(doc_id, text, title)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)
