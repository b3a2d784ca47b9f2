"""Lexical index of one snapshot: which documents have a term, how often, and how many terms each has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, StaleReader, Unsupported
from mvindex.lexical.postings import Block, Segment, read_block, read_lengths, read_segments
from mvindex.lexical.tokenizer import Lexical
from mvindex.store import catalog

if TYPE_CHECKING:
    from mvindex.store.snapshot import Snapshot

# Bytes of blocks kept for the queries of one call that share terms.
_KEPT_BYTES = 1 << 26


class Chunk(NamedTuple):
    """The documents of one segment that have a term: rows, (p,), counted from first_row and rising, and how often.

    lengths: of all num_rows documents, in terms.
    """

    first_row: int
    num_rows: int
    rows: npt.NDArray[np.uint16]
    counts: npt.NDArray[Any]
    lengths: npt.NDArray[np.uint32]


class LexicalReader:
    """The lexical index as one snapshot sees it: terms of its live documents, none of later ones.

    Read inside the transaction of a SnapshotReader; every block is checked before it is used.
    """

    def __init__(self, connection: sqlite3.Connection, snapshot: Snapshot) -> None:
        """Raise Unsupported for an index without a lexical index; StaleReader where it was rebuilt meanwhile."""
        kind = snapshot.settings.get(catalog.LEXICAL_KEY)
        if kind is None:
            raise Unsupported(
                f"{snapshot.directory.parent}: has no lexical index; `mvindex build --lexical unicode` makes one "
                "(english: terms by their stems)"
            )
        if catalog.read_settings(connection).get(catalog.LEXICAL_KEY) != kind:
            raise StaleReader(f"{snapshot.directory.parent}: its lexical index was rebuilt; refresh() or open it again")
        self.kind = Lexical(kind)
        self._connection, self._snapshot = connection, snapshot
        self._blocks: dict[tuple[int, int], Block] = {}
        self._kept_bytes = 0

    @cached_property
    def _segments(self) -> list[Segment]:
        segments = read_segments(self._connection)
        if (segments[-1].end if segments else 0) < self._snapshot.num_rows:
            raise DamagedIndex(f"{self._snapshot.directory.parent}: its lexical index lacks documents")
        return [segment for segment in segments if segment.first_row < self._snapshot.num_rows]

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """Number of terms of each document row, (num_rows,): 4 bytes a document, kept with the snapshot."""
        if self._snapshot.lengths is None:
            parts = [read_lengths(self._connection, segment) for segment in self._segments]
            joined = np.concatenate([np.empty(0, dtype=np.uint32), *parts])
            self._snapshot.lengths = joined[: self._snapshot.num_rows]
        return self._snapshot.lengths

    @property
    def num_rows(self) -> int:
        """Number of document rows, live or not."""
        return self._snapshot.num_rows

    @property
    def num_documents(self) -> int:
        """Number of live documents."""
        return self._snapshot.num_documents

    @cached_property
    def num_terms(self) -> int:
        """Number of terms of all live documents."""
        return int(self.lengths.sum(where=self._snapshot.alive, dtype=np.int64))

    def chunks(self, term: int) -> Iterator[Chunk]:
        """Yield the live documents that have the term of this hash, a chunk for each segment that has some."""
        are_all_alive = self.num_documents == self._snapshot.num_rows
        for segment in self._segments:
            rows, counts = self._block(segment, segment.block_of(term)).find(term)
            # A later commit may have merged what it added with what was there.
            end = min(segment.end, self._snapshot.num_rows) - segment.first_row
            if end < segment.num_rows:
                kept = int(np.searchsorted(rows, end))
                rows, counts = rows[:kept], counts[:kept]
            own = slice(segment.first_row, segment.first_row + end)
            if not are_all_alive:
                is_live = self._snapshot.alive[own][rows]
                rows, counts = rows[is_live], counts[is_live]
            if len(rows):
                yield Chunk(segment.first_row, end, rows, counts, self.lengths[own])

    def check(self) -> None:
        """Check the lexical index of the last committed state; raise DamagedIndex when it is not as it was written."""
        query = "SELECT count(*) FROM documents"
        check_lexical(self._connection, int(self._connection.execute(query).fetchone()[0]))

    def _block(self, segment: Segment, number: int) -> Block:
        key = (segment.first_row, number)
        found = self._blocks.get(key)
        if found is None:
            found = read_block(self._connection, segment, number)
            if self._kept_bytes > _KEPT_BYTES:
                self._blocks.clear()
                self._kept_bytes = 0
            self._blocks[key] = found
            self._kept_bytes += found.size_bytes
        return found


def check_lexical(connection: sqlite3.Connection, num_rows: int) -> None:
    """Check the lexical index of num_rows document rows; raise DamagedIndex when it is not as it was written."""
    segments = read_segments(connection)
    if (segments[-1].end if segments else 0) != num_rows:
        raise DamagedIndex(f"the lexical index is not of {num_rows} document rows")
    for segment in segments:
        lengths = read_lengths(connection, segment).astype(np.int64)
        for number in range(segment.num_blocks):
            found = read_block(connection, segment, number).all(0)
            lengths -= np.bincount(found.rows, found.counts, minlength=segment.num_rows).astype(np.int64)
        if lengths.any():
            raise DamagedIndex(f"the lexical index of rows from {segment.first_row} on does not add up")
    (count,) = connection.execute("SELECT count(*) FROM lexical_blocks").fetchone()
    if count != sum(segment.num_blocks for segment in segments):
        raise DamagedIndex(f"the lexical index has {count} blocks; {sum(s.num_blocks for s in segments)} belong to it")
