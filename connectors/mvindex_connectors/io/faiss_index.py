"""An index of Faiss becomes an index of mvindex: `mvindex import faiss`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import TracebackType

import mvindex_connectors
from mvindex.corpus.paths import expand_paths
from mvindex.errors import CorpusError
from mvindex.io.array_rows import read_id_map, read_ids
from mvindex.io.import_ import ImportReport, Target, check_target, fill, mark_of, spool_folder
from mvindex.io.join import Texts, joined
from mvindex.io.limited import Frame, Reading, read_limited
from mvindex.io.staging_table import Spool, VectorTable
from mvindex.io.validation import Told
from mvindex.plugins import require_faiss
from mvindex.store.temporary import temporary_database, temporary_errors

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
    on_progress: Told = lambda what, done, total: None,
) -> ImportReport:
    """What was done: the index holds the vectors of the file, several of one id as its views, in their order.

    ids: a file of the id of each number that Faiss answers with, in order, or a .json object of ids by these numbers;
    an IndexIDMap may do without, and its numbers are the ids. accept_reconstructions: of an index that keeps codes.
    accept_inner_product: of one by another metric, whose vectors are not of length 1. CorpusError otherwise, and for
    a file that Faiss cannot read within the limits (see import_dpr).
    """
    require_faiss()
    texts = texts or Texts()
    check_target(target)
    path = expand_paths([os.fspath(file)])[0]
    accepted = {"accept_reconstructions": accept_reconstructions, "accept_inner_product": accept_inner_product}
    reading = Reading(
        module="mvindex_connectors.io.faiss_reader",
        paths=(str(Path(mvindex_connectors.__file__).parents[1]),),
        options={**accepted, "has_ids": ids is not None},
        memory_bytes=memory_bytes,
    )
    folder = spool_folder(target) or Path(tempfile.gettempdir())
    with Spool(folder) as spool, VectorTable() as table:
        for frame, names in _named(path, ids, read_limited(path, reading)):
            spool.add(path, frame.vectors)
            table.add_ids(names)
            on_progress("reading vectors", table.num_rows, None)
        table.matrix = spool.matrix()
        source = joined(table, texts, on_progress)
        files = [path, *([ids] if ids else []), *(expand_paths(list(texts.files)) if texts.files else [])]
        mark = mark_of(files, "faiss", target.dtype, texts.missing.value, texts.options, accepted)
        return fill(target, source, mark, on_progress)


def _named(path: str, ids: str | None, frames: Iterable[Frame]) -> Iterator[tuple[Frame, list[str]]]:
    """The vectors with their ids; CorpusError when an id is missing, or one is left although all stand in order."""
    if ids is None:
        yield from ((frame, [str(number) for number in frame.ids]) for frame in frames)
        return
    count, are_in_order = 0, True
    with _Names(ids) as names:
        for frame in frames:
            are_in_order = are_in_order and list(frame.ids) == list(range(count, count + len(frame.ids)))
            count += len(frame.ids)
            yield frame, names.of(path, [int(number) for number in frame.ids])
        if are_in_order and names.count != count:
            raise CorpusError(f"{ids}: {names.count:,} ids; {path} holds {count:,} vectors: wanted one for each")


class _Names:
    """The ids of a file, by the numbers that Faiss has for them, in a temporary database."""

    def __init__(self, path: str) -> None:
        self.count = 0
        self._path = path
        self._connection = temporary_database()
        self._connection.execute("CREATE TABLE names(number INTEGER PRIMARY KEY, id TEXT NOT NULL)")
        found = read_id_map(path)
        names = enumerate(read_ids(path)) if found is None else iter(found.items())
        while chunk := list(islice(names, _CHUNK)):
            with temporary_errors():
                self._connection.execute("BEGIN")
                self._connection.executemany("INSERT INTO names VALUES (?, ?)", chunk)
                self._connection.execute("COMMIT")
            self.count += len(chunk)

    def __enter__(self) -> _Names:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def of(self, path: str, numbers: Sequence[int]) -> list[str]:
        """The ids of the numbers; CorpusError names the first that has none."""
        query = "SELECT number, id FROM names WHERE number IN (SELECT value FROM json_each(?))"
        with temporary_errors(), closing(self._connection.execute(query, (json.dumps(list(numbers)),))) as cursor:
            found = dict(cursor.fetchall())
        missing = next((number for number in numbers if number not in found), None)
        if missing is not None:
            raise CorpusError(f"{self._path}: {self.count:,} ids, and none for vector {missing} of {path}")
        return [found[number] for number in numbers]
