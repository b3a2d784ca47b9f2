"""What is sound of a damaged index, written to a new one: `mvindex verify --salvage`."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.errors import ConfigError, DamagedIndex, MvindexError
from mvindex.maintenance.read import CatalogRow, Problem, StoredViews, each_row, find_generation
from mvindex.maintenance.scanned import ScannedCatalog
from mvindex.records import Ints
from mvindex.store import catalog
from mvindex.store.embedded import built_aside, start_generation
from mvindex.store.files import KEPT_SETTINGS, Current, read_acknowledged, read_kept_settings, write_current
from mvindex.store.generation import Generation, generation_name, held
from mvindex.store.rows import LATEST, StoreFormat
from mvindex.store.settings import check_kept, read_checked
from mvindex.store.snapshot import read_snapshot, segment_names
from mvindex.store.temporary import temporary_database, temporary_errors
from mvindex.store.views import ROW_DTYPE, ViewType
from mvindex.store.writer import Change, GenerationWriter, Rows

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """What was saved: documents written to the target; lost: those that are damaged, with what is wrong.

    was_scanned: SQLite could not read the catalog whole; rows were found page by page. Of documents that were deleted
    or replaced, some may then be back, and of metadata an older state, where no trace of what came later was left; and
    a lexical side is to be built again.
    """

    path: str
    target: str
    documents: int
    lost: tuple[Problem, ...]
    was_scanned: bool


def salvage(
    path: str | Path, target: str | Path, on_progress: Callable[[int], None] = lambda count: None
) -> SalvageReport:
    """What was saved: a new index at target with every sound document of the one at path, complete or not there at all.

    Documents keep ids, texts, metadata, views and ordinals; the damaged index is only read. on_progress is told of
    documents looked at. ConfigError when the target exists; StoreError when there is nothing to be read.
    """
    index, new = Path(path).absolute(), Path(target)
    if os.path.lexists(new):
        raise ConfigError(f"{new} exists already; what is saved is written to a new directory")
    with closing(find_generation(index)) as source, closing(_Source(index, source)) as damaged:
        chosen = damaged.choose(on_progress)
        with built_aside(new) as building:
            directory = building / generation_name(1)
            directory.mkdir()
            index_id = secrets.token_hex(16)
            kept = (*KEPT_SETTINGS, catalog.LEXICAL_KEY, catalog.FUSION_KEY)
            settings = {name: damaged.settings.get(name) for name in kept}
            start_generation(directory, {**settings, "version": 0, "next_ordinal": 0}, (1, index_id))
            with closing(held(1, LATEST, directory)) as fresh:
                _write(damaged, chosen, GenerationWriter(fresh, read_snapshot(fresh)))
                fresh.catalog.checkpoint()
            write_current(building, Current(format_version=LATEST, generation=1, index_id=index_id), settings)
        return SalvageReport(
            path=str(index),
            target=str(new),
            documents=len(chosen),
            lost=tuple(damaged.lost),
            was_scanned=damaged.was_scanned,
        )


def _write(damaged: _Source, chosen: Ints, writer: GenerationWriter) -> None:
    """Nothing; the documents of these rows are committed, in this order."""
    for begin in range(0, len(chosen), _CHUNK_ROWS):
        found = [damaged.row(doc_row) for doc_row in chosen[begin : begin + _CHUNK_ROWS].tolist()]
        rows = [row for row in found if row is not None]
        documents = [row.document for row in rows]
        packed, starts = damaged.views.rows_of(documents, damaged.dtype)
        ordinals = np.array([document[2] for document in documents], dtype=np.int64)
        stored = [row.stored for row in rows]
        change = Rows(documents=stored, ordinals=ordinals, packed=packed, starts=starts)
        writer.commit(Change(rows=change, settings={"next_ordinal": int(ordinals.max()) + 1}))


class _Source:
    """A generation that may be damaged: read through SQLite where that can, else page by page."""

    def __init__(self, index: Path, source: Generation) -> None:
        self._index, self._source = index, source
        self._scan: ScannedCatalog | None = None
        self._stack = ExitStack()
        self.lost: list[Problem] = []
        self._is_log_cut = False
        self._connection = self._connected()
        self.settings, self.num_rows = self._described()
        self.dtype = ViewType(self.settings["dtype"]).dtype
        row_bytes = int(self.settings["dim"] or 1) * self.dtype.itemsize
        name = segment_names({"generation": source.number, "dtype": self.settings["dtype"]})[0]
        self.views = StoredViews(source.directory / name, row_bytes)

    @property
    def was_scanned(self) -> bool:
        """True when rows were looked for page by page."""
        return self._scan is not None

    def close(self) -> None:
        """Nothing; the connections are closed."""
        if self._scan is not None:
            self._scan.close()
        with suppress(MvindexError):  # SQLite may not even end the transaction on what it cannot read
            self._stack.close()

    def row(self, doc_row: int) -> CatalogRow | None:
        """The sound rows of a document; None when there are none."""
        if self._connection is not None:
            for [row] in each_row(self._connection, self._source.format, range(doc_row, doc_row + 1)):
                if isinstance(row, CatalogRow) and not row.faults(self._source.format):
                    return row
        return self._scanned.row(doc_row)

    def choose(self, on_progress: Callable[[int], None]) -> Ints:
        """The rows of the documents that are living and wholly sound, one an id, in the order of their ordinals."""
        with temporary_errors(), closing(temporary_database()) as chosen:
            chosen.execute("CREATE TABLE chosen(id TEXT PRIMARY KEY, ordinal INTEGER, doc_row INTEGER)")
            for begin in range(0, self.num_rows, _CHUNK_ROWS):
                end = min(begin + _CHUNK_ROWS, self.num_rows)
                rows = self._sound_rows(range(begin, end))
                # Where the end of the one it replaced is not known, the later row is the document.
                values = [(row.document[1], row.document[2], row.document[0]) for row in rows]
                chosen.executemany("INSERT OR REPLACE INTO chosen VALUES (?, ?, ?)", values)
                on_progress(end - begin)
            (count,) = chosen.execute("SELECT count(*) FROM chosen").fetchone()
            found = chosen.execute("SELECT doc_row FROM chosen ORDER BY ordinal, doc_row")
            return np.fromiter((doc_row for (doc_row,) in found), dtype=np.int64, count=count)

    def _sound_rows(self, doc_rows: range) -> list[CatalogRow]:
        living = [row for row in self._readable(doc_rows) if row.alive]
        is_sound = self.views.are_sound([row.document for row in living]).tolist()
        for row, has_views in zip(living, is_sound, strict=True):
            if not has_views:
                what = "its views do not match their checksum"
                self.lost.append(Problem(str(self.views.path), f"{row.document[1]} (row {row.document[0]})", what))
        return [row for row, has_views in zip(living, is_sound, strict=True) if has_views]

    def _readable(self, doc_rows: range) -> Iterator[CatalogRow]:
        """The documents whose catalog rows are sound; the others are noted as lost."""
        version = self._source.format
        chunks = [list(doc_rows)] if self._connection is None else each_row(self._connection, version, doc_rows)
        for chunk in chunks:
            for row in chunk:
                if isinstance(row, CatalogRow) and not row.faults(version):
                    yield row
                    continue
                doc_row = row.document[0] if isinstance(row, CatalogRow) else row
                found = self._scanned.row(doc_row)
                if found is not None:
                    yield found
                else:
                    self._note_lost(doc_row, row)

    def _note_lost(self, doc_row: int, row: CatalogRow | int) -> None:
        """Nothing; a row that says that its document was retired is no loss."""
        if isinstance(row, CatalogRow) and row.alive == 0:
            return
        name = f"{row.document[1]!s} (row {doc_row})" if isinstance(row, CatalogRow) else f"row {doc_row}"
        self.lost.append(Problem(str(self._source.catalog.path), name, "no sound copy of its rows was found"))

    @property
    def _scanned(self) -> ScannedCatalog:
        if self._scan is None:
            path, version = self._source.catalog.path, self._source.format
            self._scan = ScannedCatalog(path, version, is_log_cut=self._is_log_cut)
        return self._scan

    def _connected(self) -> sqlite3.Connection | None:
        try:
            connection = self._stack.enter_context(self._source.catalog.reading())
            catalog.check_application(connection, self._source.catalog.path)
            self._is_log_cut = self._lacks_acknowledged(int(catalog.read_settings(connection)["version"]))
        except (MvindexError, sqlite3.Error, KeyError, TypeError, ValueError):
            return None
        # Where the log was cut SQLite sees an older state; rows of the newer one may still be in the log.
        return None if self._is_log_cut else connection

    def _lacks_acknowledged(self, version: int) -> bool:
        """True when commits are missing that were acknowledged; or when that cannot be told and there is a log."""
        if self._source.format is StoreFormat.FLAT:
            return False
        try:
            return version < read_acknowledged(self._source.directory)
        except MvindexError:
            log = self._source.catalog.path.with_name(f"{catalog.FILE_NAME}-wal")
            return log.is_file() and log.stat().st_size > 0

    def _described(self) -> tuple[Mapping[str, Any], int]:
        """The settings, and how many document rows there are."""
        if self._connection is not None:
            try:
                settings = read_checked(self._source, self._connection)
                return settings, self._num_rows(settings)
            except (MvindexError, sqlite3.Error, UnicodeDecodeError) as err:
                logger.info("%s: %s; it is read page by page", self._source.catalog.path, err)
        settings = self._scanned.settings(read_kept_settings(self._index))
        if self._scanned.num_rows == 0:
            raise DamagedIndex(f"{self._source.catalog.path}: not one row of a document is left in it")
        check_kept(settings, self._source.catalog.path)
        if settings.get("dim") is None:
            settings["dim"] = self._dim(settings)
        return settings, self._scanned.num_rows

    def _num_rows(self, settings: Mapping[str, Any]) -> int:
        """How many document rows were committed: the settings, which have a checksum, count their ids."""
        if self._connection is None or self._source.format is not StoreFormat.FLAT:
            return int(settings["ids"]["alive"][0]) + int(settings["ids"]["dead"][0])
        committed = catalog.read_committed(self._connection, segment_names(settings)[1])
        return committed.size_bytes // ROW_DTYPE.itemsize

    def _dim(self, settings: Mapping[str, Any]) -> int | None:
        """The dimensions, from the size of the file of views; wrong ones match no checksum."""
        names = {"generation": self._source.number, "dtype": settings["dtype"]}
        path = self._source.directory / segment_names(names)[0]
        num_views = self._scanned.num_views
        if num_views == 0 or not path.is_file():
            return None
        return path.stat().st_size // (ViewType(settings["dtype"]).dtype.itemsize * num_views) or None
