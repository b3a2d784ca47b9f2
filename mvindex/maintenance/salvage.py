"""Salvage: the sound documents of a damaged index, written to a new one (`mvindex verify --salvage`)."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.durable import DIRECTORY_MODE
from mvindex.errors import ConfigError, DamagedIndex, MvindexError
from mvindex.maintenance.read import CatalogRow, DeletedRows, Problem, StoredViews, each_row, find_generation
from mvindex.paths import user_path
from mvindex.records import CountCallback, Ints, no_progress
from mvindex.store import catalog, schema
from mvindex.store.connections import map_sqlite_errors
from mvindex.store.create import atomic_directory, start_generation
from mvindex.store.files import (
    KEPT_SETTINGS,
    Current,
    read_acknowledged,
    read_kept_settings,
    temporary_database,
    temporary_errors,
    write_current,
)
from mvindex.store.generation import Generation, generation_name, lock_generation
from mvindex.store.rows import FORMAT_VERSION, Rows
from mvindex.store.snapshot import check_kept, read_checked, read_snapshot, segment_names
from mvindex.store.views import ROW_DTYPE, ViewType
from mvindex.store.writer import GenerationWriter

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 1024
_WAY_OUT = "Restore a snapshot (`mvindex snapshot` makes them), or ingest again"


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """The outcome of a salvage.

    Attributes:
        path: The damaged index, which was only read.
        target: The new index.
        documents: How many documents were written to it.
        lost: What could not be saved: documents, each with what is wrong with it; and, with document None, whatever
            else is missing or in doubt (settings, later commits, which documents were deleted).

    """

    path: str
    target: str
    documents: int
    lost: tuple[Problem, ...]


def salvage(path: str | Path, target: str | Path, on_progress: CountCallback = no_progress) -> SalvageReport:
    """Write every sound document of the index at path to a new index, complete or not there at all.

    Rows are read through SQLite, range by range, past pages that it refuses; each must match its checksum. Documents
    keep ids, texts, metadata, views and ordinals. The damaged index is only read.

    Args:
        path: The damaged index.
        target: Where the new index is made.
        on_progress: Called with the number of document rows examined since the last call.

    Raises:
        ConfigError: The target exists.
        StoreError: There is no index, or SQLite cannot read its catalog at all.

    """
    index, new = user_path(path).absolute(), user_path(target)
    if os.path.lexists(new):
        raise ConfigError(f"{new} exists already; a salvage is written to a new directory")
    with closing(find_generation(index)) as source, closing(_Source(index, source)) as damaged:
        chosen = damaged.choose(on_progress)
        with atomic_directory(new) as building:
            directory = building / generation_name(1)
            directory.mkdir(DIRECTORY_MODE)
            index_id = secrets.token_hex(16)
            kept = (*KEPT_SETTINGS, schema.LEXICAL_KEY, schema.FILTER_FIELDS_KEY, catalog.FUSION_KEY)
            settings = {name: damaged.settings.get(name) for name in kept}
            start_generation(directory, {**settings, "version": 0, "next_ordinal": 0}, number=1, index_id=index_id)
            with closing(lock_generation(1, directory)) as fresh:
                GenerationWriter(fresh, read_snapshot(fresh)).copy(damaged.rows, chosen)
                fresh.catalog.checkpoint()
            write_current(building, Current(format_version=FORMAT_VERSION, generation=1, index_id=index_id), settings)
        return SalvageReport(path=str(index), target=str(new), documents=len(chosen), lost=tuple(damaged.lost))


class _Source:
    """A generation that may be damaged, inside one read transaction of its catalog."""

    def __init__(self, index: Path, source: Generation) -> None:
        self._index, self._source = index, source
        self._stack = ExitStack()
        self._deleted = DeletedRows()
        self.lost: list[Problem] = []
        try:
            with map_sqlite_errors(source.catalog.path):
                self._connection = self._stack.enter_context(source.catalog.reading())
                self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                self.settings = self._read_settings()
                self.num_rows = self._count_rows()
        except DamagedIndex as err:
            self.close()
            raise DamagedIndex(f"{err}. Nothing can be salvaged: {_WAY_OUT}") from err
        except BaseException:
            self.close()
            raise
        self.dtype = ViewType(self.settings["dtype"]).dtype
        self.views = StoredViews(self._segment_path(0), int(self.settings["dim"] or 1) * self.dtype.itemsize)

    def close(self) -> None:
        """End the transaction."""
        with suppress(MvindexError):  # SQLite may not even end it on a database that it cannot read
            self._stack.close()

    def rows(self, doc_rows: Ints) -> Rows:
        """Return the documents of these rows, each found sound, with their views; DamagedIndex as for row()."""
        rows = [self.row(doc_row) for doc_row in doc_rows.tolist()]
        documents = [row.document for row in rows]
        packed, starts = self.views.rows_of(documents, self.dtype)
        ordinals = np.array([document[2] for document in documents], dtype=np.int64)
        return Rows([row.stored for row in rows], ordinals, packed, starts)

    def row(self, doc_row: int) -> CatalogRow:
        """Return the rows of a document that were found sound; DamagedIndex where they are not any more."""
        begin = doc_row // _CHUNK_ROWS * _CHUNK_ROWS
        # SQLite may find a row of a damaged page among its neighbours, as choose() did, and not by its number.
        for doc_rows in (range(doc_row, doc_row + 1), range(begin, min(begin + _CHUNK_ROWS, self.num_rows))):
            for row in chain.from_iterable(each_row(self._connection, doc_rows)):
                if isinstance(row, CatalogRow) and row.document[0] == doc_row and not row.faults():
                    return row
        raise DamagedIndex(f"{self._source.catalog.path}: row {doc_row} changed while it was read; try again")

    def choose(self, on_progress: CountCallback) -> Ints:
        """Return the rows of the documents that are live and wholly sound, one per id, in the order of ordinals."""
        with temporary_errors(), closing(temporary_database()) as chosen:
            chosen.execute("CREATE TABLE chosen(id TEXT PRIMARY KEY, ordinal INTEGER, doc_row INTEGER)")
            for begin in range(0, self.num_rows, _CHUNK_ROWS):
                end = min(begin + _CHUNK_ROWS, self.num_rows)
                rows = self._sound_rows(range(begin, end))
                # Of two rows of one id the later one is the document: damage may have hidden that it was replaced.
                values = [(row.document[1], row.document[2], row.document[0]) for row in rows]
                chosen.executemany("INSERT OR REPLACE INTO chosen VALUES (?, ?, ?)", values)
                on_progress(end - begin)
            (count,) = chosen.execute("SELECT count(*) FROM chosen").fetchone()
            found = chosen.execute("SELECT doc_row FROM chosen ORDER BY ordinal, doc_row")
            rows_in_order = np.fromiter((doc_row for (doc_row,) in found), dtype=np.int64, count=count)
        self._check_deleted()
        return rows_in_order

    def _sound_rows(self, doc_rows: range) -> list[CatalogRow]:
        live = [row for row in self._readable(doc_rows) if row.alive]
        is_sound = self.views.are_sound([row.document for row in live]).tolist()
        for row, has_views in zip(live, is_sound, strict=True):
            if not has_views:
                name = f"{row.document[1]} (row {row.document[0]})"
                self._lose(self.views.path, name, "its views do not match their checksum")
        return [row for row, has_views in zip(live, is_sound, strict=True) if has_views]

    def _readable(self, doc_rows: range) -> Iterator[CatalogRow]:
        """Yield the documents whose catalog rows are sound, deleted ones included; note the others as lost."""
        for chunk in each_row(self._connection, doc_rows):
            for row in chunk:
                if not isinstance(row, CatalogRow):
                    self._lose(self._source.catalog.path, f"row {row}", "SQLite cannot read its rows")
                    continue
                faults = row.faults()
                if not row.alive:
                    self._deleted.add([row.document[0]])
                elif faults:
                    name = f"{row.document[1]!s} (row {row.document[0]})"
                    self._lose(self._source.catalog.path, name, "; ".join(faults))
                if not faults:
                    yield row

    def _lose(self, file: Path, document: str | None, what: str) -> None:
        self.lost.append(Problem(str(file), document, what))

    def _check_deleted(self) -> None:
        """Note where the set of deleted rows is not the committed one; an unreadable row leaves that open."""
        if any(problem.document for problem in self.lost) or "deleted" not in self.settings:
            return
        if not self._deleted.matches(self.settings["deleted"]):
            what = "the set of deleted documents does not match its checksum; some may be back, or missing"
            self._lose(self._source.catalog.path, None, what)

    def _read_settings(self) -> Mapping[str, Any]:
        """Return the settings of the catalog; where they are damaged, those kept in current.json."""
        path = self._source.catalog.path
        try:
            schema.check_application(self._connection, path)
            settings = read_checked(self._source, self._connection)
        except (MvindexError, sqlite3.Error, UnicodeDecodeError) as err:
            kept = read_kept_settings(self._index)
            if kept is None:
                raise DamagedIndex(f"{path}: its settings cannot be read, nor those in current.json: {err}") from err
            check_kept(kept, path)
            what = f"the settings in current.json were used, without lexical index and hybrid weights: {err}"
            self._lose(path, None, what)
            return {**kept, "dim": kept.get("dim") or self._guess_dim(ViewType(kept["dtype"]))}
        self._check_acknowledged(int(settings["version"]))
        return settings

    def _check_acknowledged(self, version: int) -> None:
        """Note commits that were acknowledged and that the catalog lacks; a damaged note is for verify to name."""
        with suppress(MvindexError):
            acknowledged = read_acknowledged(self._source.directory)
            if version < acknowledged:
                what = f"holds version {version}; version {acknowledged} was acknowledged: later commits are lost"
                self._lose(self._source.catalog.path, None, what)

    def _count_rows(self) -> int:
        """Return how many document rows were committed: by the settings; where they are damaged, by the tables."""
        if "ids" in self.settings:
            return int(self.settings["ids"]["live"][0]) + int(self.settings["ids"]["deleted"][0])
        last = self._single_number("SELECT max(doc_row) FROM documents")
        rows = self._segment_path(1)
        return last + 1 if last is not None else rows.stat().st_size // ROW_DTYPE.itemsize if rows.is_file() else 0

    def _guess_dim(self, view_type: ViewType) -> int | None:
        """Return the dimensions by the size of the file of views; wrong ones match no checksum."""
        num_views = self._single_number("SELECT max(view_start + num_views) FROM documents")
        path = self._source.directory / segment_names(self._names(view_type.value))[0]
        if not num_views or not path.is_file():
            return None
        return path.stat().st_size // (view_type.dtype.itemsize * num_views) or None

    def _single_number(self, query: str) -> int | None:
        """Return the one number that the query gives; None where there is none, or SQLite cannot read it."""
        with suppress(sqlite3.Error, UnicodeDecodeError):
            (number,) = self._connection.execute(query).fetchone()
            return number if isinstance(number, int) and 0 <= number < 1 << 44 else None
        return None

    def _segment_path(self, number: int) -> Path:
        return self._source.directory / segment_names(self._names(self.settings["dtype"]))[number]

    def _names(self, dtype: str) -> Mapping[str, Any]:
        return {"generation": self._source.number, "dtype": dtype}
