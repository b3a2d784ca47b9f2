"""ExampleStore: examples in a folder of a run, written once, read by row, with 32 bytes of index for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import CorpusError, DamagedIndex, StoreError
from mvindex.records import Ints
from mvindex_train.data.groups import Groups, group
from mvindex_train.data.records import Example, load_example
from mvindex_train.data.store_files import (
    FORMAT_VERSION,
    HEADER,
    INDEX_TYPE,
    file_name,
    fingerprint_of,
    question_hash,
    write_files,
)


class ExampleStore:
    """The examples of a folder: a sequence by row. Index and rows are mapped files, safe to read in any process.

    A store is one content for ever: its files are named by their fingerprint, and the header, renamed into place last,
    says which are the store's. A write that was interrupted leaves what was there before.
    """

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.folder = folder
        self.fingerprint: str = header["fingerprint"]
        self._rows_path, self._index_path = (folder / file_name(self.fingerprint, kind) for kind in ("jsonl", "index"))
        _check_size(self._rows_path, header["num_bytes"])
        _check_size(self._index_path, header["num_examples"] * INDEX_TYPE.itemsize)
        self._rows = np.memmap(self._rows_path, np.uint8, mode="r")
        self._index = np.memmap(self._index_path, INDEX_TYPE, mode="r")

    @classmethod
    def write(cls, folder: Path, examples: Iterable[Example]) -> ExampleStore:
        """A store of these examples in the folder, in place of the one there.

        CorpusError: there is none among them. StoreError: the files cannot be written.
        """
        try:
            write_files(folder, examples)
        except OSError as err:
            raise StoreError(f"{folder}: the examples cannot be written: {err.strerror}") from err
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> ExampleStore:
        """The store in a folder; StoreError when there is none, DamagedIndex when its files are not as written."""
        path = folder / HEADER
        try:
            header = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as err:
            raise StoreError(f"{path}: no such file; wanted a folder that examples were written to") from err
        except (OSError, ValueError) as err:
            raise DamagedIndex(f"{path}: cannot be read: {err}") from err
        if not isinstance(header, dict) or header.get("format_version") != FORMAT_VERSION:
            raise StoreError(f"{path}: is {str(header)[:80]}; wanted format_version {FORMAT_VERSION}")
        return cls(folder, header)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, row: int) -> Example:
        """The example of a row; IndexError past the last one, DamagedIndex where its bytes are no example."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} examples")
        begin = int(self._index["end"][row - 1]) if row else 0
        place = f"{self._rows_path}:{row + 1}"
        try:
            line = self._rows[begin : int(self._index["end"][row])].tobytes().decode()
            return load_example(line, place)
        except (UnicodeDecodeError, CorpusError) as err:
            raise DamagedIndex(f"{place}: is not the example that was written: {err}") from err

    @property
    def passages(self) -> npt.NDArray[np.uint64]:
        """(n,) the hash of each example's first positive, by title and text: equal for equal passages."""
        return self._index["passage"]

    @property
    def articles(self) -> npt.NDArray[np.uint64]:
        """(n,) the hash of the article of each example's first positive; its passage's hash where none is known."""
        return self._index["article"]

    @cached_property
    def groups(self) -> Groups:
        """The rows by passage, and the passages by article."""
        return group(self.passages, self.articles)

    def row_of(self, question_id: str, question: str) -> int | None:
        """The first row with this question, by id and text; None where there is none."""
        wanted = np.uint64(question_hash(question_id, question))
        hashes, order = self._index["question"], self._rows_by_question
        place = int(np.searchsorted(hashes, wanted, sorter=order))
        if place == len(order) or hashes[order[place]] != wanted:
            return None
        return int(order[place])

    def verify(self) -> None:
        """DamagedIndex when the bytes on disk are not those written; reads them all."""
        found = fingerprint_of(self._rows_path, self._index_path)
        if found != self.fingerprint:
            raise DamagedIndex(
                f"{self._rows_path}: the content is {found}; wanted {self.fingerprint}; write the examples again"
            )

    @cached_property
    def _rows_by_question(self) -> Ints:
        return np.argsort(self._index["question"], kind="stable")


def _check_size(path: Path, size: int) -> None:
    found = path.stat().st_size if path.exists() else None
    if found != size:
        raise DamagedIndex(f"{path}: has {found} bytes; wanted {size}; write the examples again")
