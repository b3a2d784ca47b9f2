"""Results as a TREC run file: `qid Q0 docid rank score tag`, one line per hit."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from mvindex.errors import ConfigError, QueryError
from mvindex.records import Hit, SearchResult

FLOAT32_MAX = float(np.finfo(np.float32).max)


class RunWriter:
    """Writes results, question by question, to an open text file; name is for messages."""

    def __init__(self, file: TextIO, name: str, tag: str) -> None:
        self._file, self._name, self._tag = file, name, _check_word(tag, "tag")
        self._written: set[str] = set()

    def add(self, question_id: str, hits: Sequence[Hit]) -> None:
        """Write a line for each hit, with ranks from 1.

        The score is the shortest decimal that float32 reads back as the same number. Equal scores stay in the order of
        the hits; trec_eval and tools built on it order them by descending document id instead, whatever their ranks.

        Raises:
            QueryError: An id holds white space, which TREC's columns cannot hold, a question or document occurs twice,
                or a score rises or is not finite. No line of this question is written.
            ConfigError: The file cannot be written.

        """
        if question_id in self._written:
            raise QueryError(f"question {question_id!r}: expected each question once in a run, got it twice")
        _check_word(question_id, "question id")
        _check_hits(question_id, hits)
        self._written.add(question_id)
        with _writing(self._name):
            self._file.writelines(
                f"{question_id} Q0 {hit.id} {rank} {np.float32(hit.score)!s} {self._tag}\n"
                for rank, hit in enumerate(hits, start=1)
            )


@contextlib.contextmanager
def open_run(path: str, tag: str = "mvindex", force: bool = False) -> Iterator[RunWriter]:
    """Open a RunWriter for a new file, which appears under its name if the block ends without an error; `-` is stdout.

    Raises:
        ConfigError: The file exists and force is False, it is not a plain file, or it cannot be written.

    """
    if path == "-":
        yield RunWriter(sys.stdout, "stdout", tag)
        return
    target = Path(path).resolve()
    _check_target(target, force)
    # Next to the target, so that the rename stays within one file system.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with _writing(path):
        file = unfinished.open("w", encoding="utf-8", newline="\n")
    try:
        with file:
            yield RunWriter(file, path, tag)
            with _writing(path):
                file.flush()
                os.fsync(file.fileno())
        _check_target(target, force)
        with _writing(path):
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def write_run(
    path: str, results: Iterable[tuple[str, SearchResult]], tag: str = "mvindex", force: bool = False
) -> None:
    """Write pairs of question id and result as a run file; see open_run and RunWriter.add."""
    with open_run(path, tag, force) as run:
        for question_id, result in results:
            run.add(question_id, result.hits)


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turn errors of the file system in the block, and no other errors of the caller, into ConfigErrors."""
    try:
        yield
    except OSError as err:
        raise ConfigError(f"{name}: cannot be written: {err.strerror or err}") from err


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target}: is not a plain file; name a new file for the run")
    if target.exists() and not force:
        raise ConfigError(f"{target}: exists; choose another name, or overwrite it with --force")


def _check_hits(question_id: str, hits: Sequence[Hit]) -> None:
    doc_ids: set[str] = set()
    score = math.inf
    for rank, hit in enumerate(hits, start=1):
        place = f"question {question_id!r}, rank {rank}"
        _check_word(hit.id, "document id")
        if hit.id in doc_ids:
            raise QueryError(f"{place}: expected each document once per question, got {hit.id!r} twice")
        if not (abs(hit.score) <= FLOAT32_MAX and hit.score <= score):
            raise QueryError(f"{place}: expected float32 scores in descending order, got {hit.score} after {score}")
        doc_ids.add(hit.id)
        score = hit.score


def _check_word(word: str, what: str) -> str:
    if word.split() != [word]:
        raise QueryError(f"{what}: expected one word without white space, which a TREC run needs, got {word!r}")
    return word
