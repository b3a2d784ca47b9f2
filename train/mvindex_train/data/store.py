"""Examples in a folder of a run, written once, read by row, with an index of 32 bytes each; joined mined negatives.

Its files are rows of JSON, an index of fixed width, and a header that refers to both. Order of a write: rows and index
under temporary names, fsynced, renamed to names with their fingerprint; then the header, fsynced and renamed. Until
that last rename the header refers to the previous files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.durable import flush_to_disk
from mvindex.errors import CorpusError, DamagedIndex, StoreError
from mvindex.records import Ints, batched
from mvindex_train.data.records import (
    Example,
    article_of,
    content_hash,
    content_key,
    hash_text,
    load_example,
    unique_documents,
    write_example,
)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """n examples in p passages of some articles, each numbered in the order of its first example.

    rows: (n,) example rows; those of passage i are rows[starts[i]:starts[i + 1]], in order. starts: (p + 1,). articles:
    (p,) the number of each passage's article.
    """

    rows: Ints
    starts: Ints
    articles: Ints

    @property
    def num_passages(self) -> int:
        """Return the number of passages."""
        return len(self.articles)


def group_examples(passages: npt.NDArray[np.uint64], articles: npt.NDArray[np.uint64]) -> Groups:
    """Group n examples by the hashes of their passages and articles, both (n,)."""
    numbers, first_rows = _number(passages)
    starts = np.zeros(len(first_rows) + 1, np.int64)
    np.cumsum(np.bincount(numbers, minlength=len(first_rows)), out=starts[1:])
    return Groups(np.argsort(numbers, kind="stable"), starts, _number(articles[first_rows])[0])


def _number(hashes: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return a number for each hash in order of first appearance, (n,), and the first row of each number."""
    _, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    return number_of[inverse.reshape(-1)], first_rows[order].astype(np.int64)


FORMAT_VERSION = 1
HEADER = "examples.json"
# End of a row in its file, and 64-bit hashes of the first positive, of its article and of the question.
INDEX_TYPE = np.dtype([("end", "<i8"), ("passage", "<u8"), ("article", "<u8"), ("question", "<u8")])
_UNFINISHED = ".writing"
_INDEXED_AT_ONCE = 4096
_BLOCK_BYTES = 1 << 20


def write_files(folder: Path, examples: Iterable[Example]) -> None:
    """Write the files of the examples into the folder, then delete those of earlier examples.

    Raises CorpusError when there is no example, OSError when the disk is full or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows_path, index_path, header_path = (
        folder / f"examples.{kind}{_UNFINISHED}" for kind in ("jsonl", "index", "json")
    )
    with rows_path.open("wb") as rows, index_path.open("wb") as index:
        num_examples = _write_rows(rows, index, examples)
        num_bytes = rows.tell()
        _sync(rows)
        _sync(index)
    if not num_examples:
        raise CorpusError(f"{folder}: expected one example or more to write, got none")
    fingerprint = fingerprint_of(rows_path, index_path)
    header = {
        "format_version": FORMAT_VERSION,
        "num_examples": num_examples,
        "num_bytes": num_bytes,
        "fingerprint": fingerprint,
    }
    rows_path.replace(folder / file_name(fingerprint, "jsonl"))
    index_path.replace(folder / file_name(fingerprint, "index"))
    with header_path.open("wb") as file:
        file.write(json.dumps(header).encode())
        _sync(file)
    flush_to_disk(folder)
    header_path.replace(folder / HEADER)
    flush_to_disk(folder)
    for path in folder.glob("examples-*"):
        if fingerprint not in path.name:
            path.unlink()


def file_name(fingerprint: str, kind: str) -> str:
    """Return the name of the file of this kind (jsonl, index) with this fingerprint."""
    return f"examples-{fingerprint}.{kind}"


def fingerprint_of(rows_path: Path, index_path: Path) -> str:
    """Return a 128-bit hash of the content of both files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in (rows_path, index_path):
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def question_hash(question_id: str, question: str) -> int:
    """Return a 64-bit hash of a question's id and text."""
    return hash_text(f"{question_id}\0{question}")


def _write_rows(rows: BinaryIO, index: BinaryIO, examples: Iterable[Example]) -> int:
    num_examples = 0
    for chunk in batched(_index_rows(rows, examples), _INDEXED_AT_ONCE):
        index.write(np.array(chunk, INDEX_TYPE).tobytes())
        num_examples += len(chunk)
    return num_examples


def _index_rows(rows: BinaryIO, examples: Iterable[Example]) -> Iterator[tuple[int, int, int, int]]:
    """Write each example and yield its entry of the index."""
    end = 0
    for example in examples:
        end += write_example(example, rows)
        passage = content_hash(example.positives[0])
        article = article_of(example.positives[0])
        question = question_hash(example.question_id, example.question)
        yield end, passage, hash_text(article) if article else passage, question


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


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


@dataclass(slots=True)
class JoinReport:
    """Numbers of examples with and without a row of mined negatives."""

    joined: int = 0
    unmatched: int = 0


def join_negatives(examples: Iterable[Example], mined: ExampleStore, report: JoinReport) -> Iterator[Example]:
    """Yield the examples, with the negatives of the mined row of the same question (id and text) appended.

    mined: a store of the files of `mvindex mine`, which finds rows by question in bounded memory.
    """
    for example in examples:
        row = mined.row_of(example.question_id, example.question)
        report.joined += row is not None
        report.unmatched += row is None
        yield example if row is None else merge_negatives(example, mined[row])


def merge_negatives(example: Example, mined: Example) -> Example:
    """Append the mined negatives to the example's own.

    Documents of the example and positives of the mined row are left out. Teacher scores of both are used, the example's
    own first; NaN where neither has one.
    """
    known = {content_key(document) for document in (*example.documents, *mined.positives)}
    added = [document for content, document in unique_documents(mined.negatives).items() if content not in known]
    merged = replace(example, negatives=(*example.negatives, *added), teacher=None)
    scores = {**mined.scores(), **example.scores()}
    if not scores:
        return merged
    return replace(merged, teacher=tuple(scores.get(content_key(document), math.nan) for document in merged.documents))
