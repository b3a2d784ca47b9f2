"""Examples in a folder of a run, written once, read by row, with an index of 32 bytes each."""

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
from mvindex_train.data.groups import Groups, group_examples
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
    """The examples of a folder, a sequence by row. Index and rows are memory-mapped, safe to read in any process.

    A store is immutable: its files are named by their fingerprint, and the header, renamed into place last, refers to
    them. An interrupted write leaves the previous store.
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
        """Write the examples to the folder, in place of the store there.

        Raises:
            CorpusError: There is no example.
            StoreError: The files cannot be written.

        """
        try:
            write_files(folder, examples)
        except OSError as err:
            raise StoreError(f"{folder}: the examples cannot be written: {err.strerror}") from err
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> ExampleStore:
        """Open the store of a folder; raise StoreError when there is none, DamagedIndex when its files were changed."""
        path = folder / HEADER
        try:
            header = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as err:
            raise StoreError(f"{path}: no such file. Name a folder that examples were written to") from err
        except (OSError, ValueError) as err:
            raise DamagedIndex(f"{path}: cannot be read: {err}") from err
        if not isinstance(header, dict) or header.get("format_version") != FORMAT_VERSION:
            raise StoreError(f"{path}: expected format_version {FORMAT_VERSION}, got {str(header)[:80]}")
        return cls(folder, header)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, row: int) -> Example:
        """Return the example of a row; raise IndexError past the last row, DamagedIndex where its bytes are invalid."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} examples")
        begin = int(self._index["end"][row - 1]) if row else 0
        place = f"{self._rows_path}:{row + 1}"
        try:
            line = self._rows[begin : int(self._index["end"][row])].tobytes().decode()
            return load_example(line, place)
        except (UnicodeDecodeError, CorpusError) as err:
            raise DamagedIndex(f"{place}: the example was changed since it was written: {err}") from err

    @property
    def passages(self) -> npt.NDArray[np.uint64]:
        """(n,) hashes of title and text of each example's first positive: equal for equal passages."""
        return self._index["passage"]

    @property
    def articles(self) -> npt.NDArray[np.uint64]:
        """(n,) hashes of the article of each example's first positive; the passage's hash where none is known."""
        return self._index["article"]

    @cached_property
    def groups(self) -> Groups:
        """Rows by passage, and passages by article."""
        return group_examples(self.passages, self.articles)

    def row_of(self, question_id: str, question: str) -> int | None:
        """Return the first row with this question, by id and text; None where there is none."""
        key = np.uint64(question_hash(question_id, question))
        hashes, order = self._index["question"], self._rows_by_question
        place = int(np.searchsorted(hashes, key, sorter=order))
        if place == len(order) or hashes[order[place]] != key:
            return None
        return int(order[place])

    def verify(self) -> None:
        """Read all bytes on disk; raise DamagedIndex when they are not those written."""
        fingerprint = fingerprint_of(self._rows_path, self._index_path)
        if fingerprint != self.fingerprint:
            raise DamagedIndex(
                f"{self._rows_path}: expected the content {self.fingerprint}, got {fingerprint}. Write the "
                f"examples again"
            )

    @cached_property
    def _rows_by_question(self) -> Ints:
        return np.argsort(self._index["question"], kind="stable")


def _check_size(path: Path, expected: int) -> None:
    size_bytes = path.stat().st_size if path.exists() else None
    if size_bytes != expected:
        raise DamagedIndex(f"{path}: expected {expected} bytes, got {size_bytes}. Write the examples again")
