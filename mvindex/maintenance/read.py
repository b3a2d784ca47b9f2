"""Reading of an index that may be damaged: generation, catalog rows, views; nothing read here is trusted."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import MvindexError, StoreError
from mvindex.records import Bools, Ints
from mvindex.store import schema
from mvindex.store.files import check_regular, read_current
from mvindex.store.generation import Generation, check_format, generations_in, lock_generation, open_generation
from mvindex.store.reader import are_texts
from mvindex.store.rows import (
    DOCUMENT_COLUMNS,
    StoredRow,
    deleted_checksum,
    document_checksum,
    metadata_checksum,
    text_checksum,
)
from mvindex.store.views import range_checksums

logger = logging.getLogger(__name__)

_CHUNK_ROWS = 1024
# Beyond the views and ordinals of any index.
_MOST = 1 << 44


@dataclass(frozen=True, slots=True)
class Problem:
    """One damage.

    Attributes:
        file: The damaged file.
        document: The document that it concerns ("row N" where the id is unknown), or None.
        what: What is wrong.
        is_derived: Whether `mvindex build` makes it again; if not, `mvindex verify --salvage` saves the rest.
    """

    file: str
    document: str | None
    what: str
    is_derived: bool = False


class CatalogRow(NamedTuple):
    """One document's rows of the catalog, unchecked: any value may be damaged."""

    document: tuple[Any, ...]
    checksum: Any
    alive: Any
    text: tuple[Any, ...]
    metadata: tuple[Any, ...]

    def faults(self) -> list[str]:
        """Return what does not match its checksum; an empty list for sound rows."""
        doc_row, doc_id, num_views = self.document[0], self.document[1], self.document[4]
        (title, text, spans, checksum), (dumped, metadata_sum) = self.text, self.metadata
        is_sound = all(isinstance(number, int) and abs(number) < _MOST for number in (doc_row, *self.document[2:5]))
        is_sound &= isinstance(self.document[5], int)
        is_sound &= document_checksum(self.document) == self.checksum
        found = [] if is_sound else ["its row of documents does not match its checksum"]
        if text_checksum(doc_row, doc_id, title, text, spans) != checksum:
            found.append("its id or text does not match its checksum")
        if metadata_checksum(doc_row, dumped) != metadata_sum:
            found.append("its metadata does not match its checksum")
        if not found and not are_texts((doc_id, title, text, dumped), spans, num_views):
            found.append(f"its texts, or its spans for {num_views} views, are of other types or lengths")
        return found

    @property
    def stored(self) -> StoredRow:
        """The rows, which must have no faults, as they are written."""
        title, text, spans, _ = self.text
        return StoredRow(self.document[1], title, text, self.metadata[0], spans, self.document[6])


def find_generation(index: Path) -> Generation:
    """Return the active generation; where current.json does not name it, the one with the latest version.

    StoreError when there is none, or the index is of another format version.
    """
    try:
        return open_generation(index)
    except MvindexError:
        _refuse_other_format(index)
        found = [(_version_of(number, path), number, path) for number, path in generations_in(index)]
        readable = [entry for entry in found if entry[0] is not None] or found
        if not readable:
            raise
        _, number, path = max(readable, key=lambda entry: (entry[0] or -1, entry[1]))
        return lock_generation(number, path)


def _refuse_other_format(index: Path) -> None:
    try:
        current = read_current(index)
    except MvindexError:
        return  # damaged: it says nothing about the format
    if current is not None:
        check_format(index, current)


def _version_of(number: int, directory: Path) -> int | None:
    generation = lock_generation(number, directory)
    try:
        with generation.catalog.reading() as connection:
            return int(schema.read_settings(connection)["version"])
    except (MvindexError, KeyError, TypeError, ValueError, OverflowError):
        return None
    finally:
        generation.close()


def each_row(connection: sqlite3.Connection, doc_rows: range) -> Iterator[list[CatalogRow | int]]:
    """Yield the documents of these rows, in chunks; a number stands for a document row that cannot be read."""
    for begin in doc_rows[::_CHUNK_ROWS]:
        yield list(_read_range(connection, begin, min(begin + _CHUNK_ROWS, doc_rows.stop)))


def _read_range(connection: sqlite3.Connection, begin: int, end: int) -> Iterator[CatalogRow | int]:
    """Yield rows [begin, end): where a page is damaged, halves are read until it is known which rows are lost."""
    query = (
        f"SELECT {DOCUMENT_COLUMNS}, d.checksum, d.alive, t.title, t.text, t.spans, t.checksum, m.json, m.checksum "  # noqa: S608
        "FROM documents AS d "
        "JOIN texts AS t ON t.doc_row = d.doc_row JOIN metadata AS m ON m.doc_row = d.doc_row "
        "WHERE d.doc_row >= ? AND d.doc_row < ? ORDER BY d.doc_row"
    )
    try:
        found = {
            row[0]: CatalogRow(row[:7], row[7], row[8], row[9:13], row[13:15])
            for row in connection.execute(query, (begin, end))
        }
    except (sqlite3.Error, UnicodeDecodeError):
        if end - begin == 1:
            yield begin
            return
        middle = (begin + end) // 2
        yield from _read_range(connection, begin, middle)
        yield from _read_range(connection, middle, end)
        return
    yield from (found.get(doc_row, doc_row) for doc_row in range(begin, end))


class DeletedRows:
    """A set of deleted document rows: how many there are, and the checksum of their numbers."""

    def __init__(self) -> None:
        self.count = self.checksum = 0

    def add(self, doc_rows: list[int]) -> None:
        """Add rows that are not in the set yet."""
        self.count += len(doc_rows)
        self.checksum = (self.checksum + deleted_checksum(np.array(doc_rows, dtype=np.int64))) % (1 << 64)

    def matches(self, committed: Mapping[str, int]) -> bool:
        """Return whether the set is the one of the setting "deleted"."""
        return committed == {"count": self.count, "checksum": self.checksum}


class StoredViews:
    """The readable bytes of a views file, for documents whose rows say where their views are."""

    def __init__(self, path: Path, row_bytes: int) -> None:
        self.path = path
        self._row_bytes = row_bytes
        self.bytes: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        # Why there are none, where that is no damage, such as missing permission.
        self.refused: str | None = None
        try:
            check_regular(path)
            if path.stat().st_size:
                self.bytes = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        except (FileNotFoundError, StoreError) as err:
            logger.info("%s: %s", path, err)
        except OSError as err:
            self.refused = f"cannot be read: {err.strerror or err}"

    def are_sound(self, documents: Sequence[tuple[Any, ...]]) -> Bools:
        """Return whether the views of each document, a row of DOCUMENT_COLUMNS, match its checksum, (n,)."""
        places = np.array([(row[3], row[3] + row[4], row[5]) for row in documents], dtype=np.int64).reshape(-1, 3)
        begins, ends = places[:, 0] * self._row_bytes, places[:, 1] * self._row_bytes
        is_there: Bools = (0 <= begins) & (begins < ends) & (ends <= len(self.bytes))
        digests = range_checksums(self.bytes.data, begins[is_there], ends[is_there])
        is_sound = np.zeros(len(documents), dtype=bool)
        is_sound[is_there] = digests == places[is_there, 2].view(np.uint64)
        return is_sound

    def rows_of(self, documents: Sequence[tuple[Any, ...]], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Ints]:
        """Return the views of sound documents, (r, d) as stored, and starts (n + 1,)."""
        parts = [self.bytes[row[3] * self._row_bytes : (row[3] + row[4]) * self._row_bytes] for row in documents]
        starts = np.append(0, np.cumsum([row[4] for row in documents])).astype(np.int64)
        return np.concatenate(parts).view(dtype).reshape(-1, self._row_bytes // dtype.itemsize), starts
