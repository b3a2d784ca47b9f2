"""Import of a Faiss index: `mvindex import faiss`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

import numpy as np

from mvindex.corpus.paths import expand_local_paths
from mvindex.errors import CorpusError
from mvindex.io.array_rows import read_id_map, read_ids
from mvindex.io.import_ import ImportReport, Target, check_target, compute_mark, fill, spool_folder
from mvindex.io.staging import Array, Texts, VectorTable, join_texts
from mvindex.plugins import require_faiss
from mvindex.records import ProgressCallback, batched, no_progress, sliced
from mvindex.store.files import temporary_database, temporary_errors
from mvindex_connectors.io.faiss_reader import ReadOptions, read_faiss

_CHUNK = 4096


def import_faiss(  # noqa: PLR0913 - each argument is a choice of the caller
    file: str | os.PathLike[str],
    target: Target,
    texts: Texts | None = None,
    *,
    ids: str | None = None,
    accept_reconstructions: bool = False,
    accept_inner_product: bool = False,
    memory_bytes: int | None = None,
    on_progress: ProgressCallback = no_progress,
) -> ImportReport:
    """Make an index from the vectors of a Faiss index; several vectors of one id become its views, in order.

    Args:
        file: What faiss.write_index wrote.
        target: The new index.
        texts: The corpus that the vectors were made from; documents without texts by default.
        ids: A file of the id of each number that Faiss returns, in order, or a .json object of ids by these numbers.
            By default the numbers of an IndexIDMap are the ids.
        accept_reconstructions: Accept an index that keeps codes, and import what they decode to.
        accept_inner_product: Accept an index by another metric whose vectors are not of length 1.
        memory_bytes: Memory of the process that reads the file; by default 2 GiB and four times the file.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the import.

    Raises:
        CorpusError: Faiss cannot read the file within the limits, or holds what is not accepted.

    """
    require_faiss()
    texts = texts or Texts()
    check_target(target)
    path = expand_local_paths([os.fspath(file)])[0]
    accepted = {"accept_reconstructions": accept_reconstructions, "accept_inner_product": accept_inner_product}
    options = ReadOptions(has_ids=ids is not None, memory_bytes=memory_bytes, **accepted)
    folder = spool_folder(target) or Path(tempfile.gettempdir())
    with read_faiss(path, folder, options) as found, VectorTable() as table:
        for names in _read_names(path, ids, found.numbers):
            table.add_ids(names)
            on_progress("reading ids", table.num_rows, len(found.numbers))
        table.matrix = found.vectors
        source = join_texts(table, texts, on_progress)
        files = [path, *([ids] if ids else []), *(expand_local_paths(list(texts.files)) if texts.files else [])]
        mark = compute_mark(files, "faiss", target.dtype, texts.missing.value, texts.options, accepted)
        return fill(target, source, mark, on_progress)


def _read_names(path: str, ids: str | None, numbers: Array) -> Iterator[list[str]]:
    """Yield the ids of the vectors; raise CorpusError when one is missing, or one is left although all are in order."""
    chunks = (chunk.tolist() for chunk in sliced(numbers, _CHUNK))
    if ids is None:
        yield from (list(map(str, chunk)) for chunk in chunks)
        return
    with _Names(ids) as names:
        yield from (names.find(path, chunk) for chunk in chunks)
        if names.count != len(numbers) and np.array_equal(numbers, np.arange(len(numbers))):
            raise CorpusError(
                f"{ids}: expected {len(numbers):,} ids, one for each vector of {path}, got {names.count:,}"
            )


class _Names:
    """The ids of a file by their Faiss numbers, in a temporary database."""

    def __init__(self, path: str) -> None:
        self.count = 0
        self._path = path
        self._connection = temporary_database()
        self._connection.execute("CREATE TABLE names(number INTEGER PRIMARY KEY, id TEXT NOT NULL)")
        found = read_id_map(path)
        for chunk in batched(enumerate(read_ids(path)) if found is None else found.items(), _CHUNK):
            with temporary_errors():
                self._connection.execute("BEGIN")
                self._connection.executemany("INSERT INTO names VALUES (?, ?)", chunk)
                self._connection.execute("COMMIT")
            self.count += len(chunk)

    def __enter__(self) -> _Names:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def find(self, path: str, numbers: Sequence[int]) -> list[str]:
        """Return the ids of the numbers; raise CorpusError for the first that has none."""
        query = "SELECT number, id FROM names WHERE number IN (SELECT value FROM json_each(?))"
        with temporary_errors(), closing(self._connection.execute(query, (json.dumps(list(numbers)),))) as cursor:
            found = dict(cursor.fetchall())
        missing = next((number for number in numbers if number not in found), None)
        if missing is not None:
            raise CorpusError(f"{self._path}: {self.count:,} ids, and none for vector {missing} of {path}")
        return [found[number] for number in numbers]
