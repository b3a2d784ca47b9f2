"""The files of an example store: rows of JSON, an index of fixed width, and a header that refers to both.

Order of a write: rows and index under temporary names, fsynced, renamed to names with their fingerprint; then the
header, fsynced and renamed. Until that last rename the header refers to the previous files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash

from mvindex.durable import flush_to_disk
from mvindex.errors import CorpusError
from mvindex.records import batched
from mvindex_train.data.records import Example, article_of, content_hash, hash_text, write_example

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
