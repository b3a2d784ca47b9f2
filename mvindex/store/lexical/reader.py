"""The lexical index of one snapshot: which documents have a term, how often, and how many terms each has.

Postings that were decoded lately are kept in memory from one question to the next.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from mvindex.errors import DamagedIndex, StaleReader
from mvindex.kernels.copies import MEMORY, watch
from mvindex.kernels.threads import memory_bytes
from mvindex.store import schema
from mvindex.store.lexical.postings import LastBlocks, Segment, read_block, read_blocks, read_lengths, read_segments

if TYPE_CHECKING:
    from mvindex.store.reader import SnapshotReader

Lengths = npt.NDArray[np.uint32]

# Of all open generations of this process together: 4 GiB, but no more than this part of its memory. Where questions'
# terms take more, each question decodes again what the last ones displaced.
_MOST_BYTES, _MOST_PART = 4 << 30, 8
# Of an entry and its arrays.
_ENTRY_BYTES = 600
# Up to this part of the documents that have a term, deleted documents are looked up among them one by one.
_FEW_DELETED = 1 / 16
# Terms whose live documents are counted once a snapshot: some megabytes.
_MOST_COUNTS = 1 << 16


class Skips(NamedTuple):
    """Bounds of a term's f / (f + k1 (1 - b + b l / m)) for these k1, b and mean length m, for all and by windows.

    starts: (w + 1,) uint32, the first posting in each window of rows; bounds: (w,) float32. Empty for few documents.
    """

    k1: float
    b: float
    mean: float
    largest: float
    starts: npt.NDArray[np.uint32]
    bounds: npt.NDArray[np.float32]


class TermPostings:
    """The documents that have a term, live or not, among the document rows before `end`.

    rows: (p,) uint32, rising; counts: (p,), how often, of the smallest unsigned type.
    """

    __slots__ = ("counts", "counts_at", "end", "rows", "rows_at", "skips")

    def __init__(self, rows: npt.NDArray[np.uint32], counts: npt.NDArray[Any], end: int) -> None:
        self.rows, self.counts, self.end = rows, counts, end
        # Their addresses, for compiled loops.
        self.rows_at, self.counts_at = rows.ctypes.data, counts.ctypes.data
        self.skips: Skips | None = None

    @property
    def size_bytes(self) -> int:
        """The memory that the postings take."""
        skips = 0 if self.skips is None else self.skips.starts.nbytes + self.skips.bounds.nbytes
        return self.rows.nbytes + self.counts.nbytes + skips + _ENTRY_BYTES

    def size_in(self, num_rows: int) -> int:
        """Return how many of the documents are among the first num_rows rows."""
        if num_rows >= self.end:
            return len(self.rows)
        return int(np.searchsorted(self.rows, np.uint32(num_rows)))


class PostingsCache:
    """The postings of one generation, by term, and its documents' lengths; kind: how its texts are split into terms.

    Rows are only ever added, so that what was decoded stays valid for later snapshots, which read on where it ends.
    When there is no room left, terms give way that were not asked for for the longest time. Thread-safe.
    """

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        # Number of terms of each document row.
        self.lengths: Lengths = np.empty(0, dtype=np.uint32)
        self._terms: OrderedDict[int, TermPostings] = OrderedDict()
        self._size_bytes = 0
        self._lock = Lock()
        _OPEN.add(self)

    def find(self, term: int) -> TermPostings | None:
        """Return the postings of a term's hash; None where they are not here."""
        with self._lock:
            found = self._terms.get(term)
            if found is not None:
                self._terms.move_to_end(term)
            return found

    def add(self, term: int, postings: TermPostings) -> None:
        """Keep the postings of a term, unless they take more than the room or memory is short."""
        room = 0 if MEMORY.is_short() else room_bytes() // len(_OPEN)
        with self._lock:
            self._remove(term)
            if postings.size_bytes <= room:
                self._terms[term] = postings
                self._size_bytes += postings.size_bytes
            while self._size_bytes > room:
                self._remove(next(iter(self._terms)))
        watch(self)

    def set_skips(self, term: int, postings: TermPostings, skips: Skips) -> None:
        """Keep the bounds of a term's postings."""
        with self._lock:
            before = postings.size_bytes
            postings.skips = skips
            if self._terms.get(term) is postings:
                self._size_bytes += postings.size_bytes - before

    def lengths_of(self, num_rows: int, read: Callable[[int], Lengths]) -> Lengths:
        """Return the lengths of at least num_rows documents; read: returns those from a row on."""
        lengths = self.lengths
        if len(lengths) < num_rows:
            lengths = np.concatenate([lengths, read(len(lengths))])
            with self._lock:
                # Never shorter than before: postings are of no later rows.
                if len(self.lengths) < len(lengths):
                    self.lengths = lengths
        return lengths

    @property
    def size_bytes(self) -> int:
        """The memory that postings and lengths take."""
        return self._size_bytes + self.lengths.nbytes

    def copy_bytes(self) -> int:
        """Return the memory that can be given back: that of the postings."""
        return self._size_bytes

    def give_back(self) -> None:
        """Drop the postings; searches that use them finish with them."""
        with self._lock:
            self._terms.clear()
            self._size_bytes = 0

    def _remove(self, term: int) -> None:
        gone = self._terms.pop(term, None)
        if gone is not None:
            self._size_bytes -= gone.size_bytes


@cache
def room_bytes() -> int:
    """Return how many bytes the postings of all open generations may take."""
    return min(_MOST_BYTES, memory_bytes() // _MOST_PART)


_OPEN: WeakSet[PostingsCache] = WeakSet()


class TermMatches(NamedTuple):
    """The documents of a snapshot that have a term.

    postings: of this snapshot and maybe later ones. size: how many of them are of its rows, live or not. num_live: how
    many live documents have the term.
    """

    postings: TermPostings
    size: int
    num_live: int


class LexicalReader:
    """The lexical index as one snapshot sees it: terms of its live documents, none of later ones.

    Read inside the transaction of a SnapshotReader; every block is checked before it is used. What was read is kept for
    later questions, see PostingsCache.
    """

    def __init__(self, reader: SnapshotReader) -> None:
        """Open it.

        Raises:
            Unsupported: There is no lexical index.
            StaleReader: It was rebuilt meanwhile.
            StoreError: An older mvindex made its terms.

        """
        snapshot = reader.snapshot
        self.kind = snapshot.lexical.kind
        setting = snapshot.settings[schema.LEXICAL_KEY]
        if reader.settings.get(schema.LEXICAL_KEY) != setting:
            raise StaleReader(f"{snapshot.directory.parent}: its lexical index was rebuilt; refresh() or open it again")
        # Document rows, live or not, and live documents.
        self.num_rows, self.num_documents = snapshot.num_rows, snapshot.num_documents
        self._connection, self._snapshot = reader.connection, snapshot
        self.cache = snapshot.postings
        self._last_blocks: LastBlocks = {}
        # Number of terms of each document row, (num_rows,): 4 bytes a document, kept with the generation.
        self.lengths: Lengths = self.cache.lengths_of(self.num_rows, self._read_lengths)[: self.num_rows]

    @cached_property
    def _segments(self) -> list[Segment]:
        segments = read_segments(self._connection)
        if (segments[-1].end if segments else 0) < self._snapshot.num_rows:
            raise DamagedIndex(f"{self._snapshot.directory.parent}: its lexical index lacks documents")
        return segments

    @property
    def num_terms(self) -> int:
        """Number of terms of all live documents."""
        if self._snapshot.num_terms is None:
            self._snapshot.num_terms = int(self.lengths.sum(where=self._snapshot.alive, dtype=np.int64))
        return self._snapshot.num_terms

    def find(self, terms: Sequence[int]) -> list[TermMatches]:
        """Return the documents that have each term, given by its hash."""
        return [self._find(term) for term in terms]

    def _find(self, term: int) -> TermMatches:
        found = self.cache.find(term)
        if found is None or found.end < self.num_rows:
            found = self._read(term, found)
            self.cache.add(term, found)
        size = found.size_in(self.num_rows)
        are_all_live = not size or self.num_documents == self.num_rows
        return TermMatches(found, size, size if are_all_live else self._num_live(term, found, size))

    def _num_live(self, term: int, postings: TermPostings, size: int) -> int:
        """Return how many of the first `size` documents that have the term are live."""
        snapshot = self._snapshot
        count = snapshot.term_counts.get(term)
        if count is None:
            rows = postings.rows[:size]
            if len(snapshot.deleted) < size * _FEW_DELETED:
                places = np.minimum(np.searchsorted(rows, snapshot.deleted), size - 1)
                count = size - int(np.count_nonzero(rows[places] == snapshot.deleted))
            else:
                count = int(np.count_nonzero(snapshot.alive[rows]))
            if len(snapshot.term_counts) >= _MOST_COUNTS:
                snapshot.term_counts.clear()
            snapshot.term_counts[term] = count
        return count

    def check(self) -> None:
        """Check the lexical index of the last committed state; raise DamagedIndex when it is not as it was written."""
        query = "SELECT count(*) FROM documents"
        check_lexical(self._connection, int(self._connection.execute(query).fetchone()[0]))

    def _read(self, term: int, before: TermPostings | None) -> TermPostings:
        """Return the postings of the snapshot's rows; those that were read before are not read again."""
        begin, end = 0 if before is None else before.end, len(self.lengths)
        rows, counts = ([], []) if before is None else ([before.rows], [before.counts])
        segments = [segment for segment in self._segments if begin < segment.end and segment.first_row < end]
        for segment, block in read_blocks(self._connection, segments, term, self._last_blocks):
            inside, times = block.find(term)
            # Compiled loops go by them: by comparisons, since differences of any numbers may wrap around.
            if len(inside) and not (
                0 <= inside[0] and inside[-1] < segment.num_rows and (inside[1:] > inside[:-1]).all()
            ):
                raise DamagedIndex(f"{self._snapshot.directory.parent}: the document rows of a term are out of order")
            own = inside.astype(np.uint32) + np.uint32(segment.first_row)
            # A later commit may have merged what it added with what was there.
            kept = slice(*np.searchsorted(own, np.array([begin, end], dtype=np.uint32)).tolist())
            rows.append(own[kept])
            counts.append(times[kept])
        if not rows:
            return TermPostings(np.empty(0, np.uint32), np.empty(0, np.uint8), end)
        return TermPostings(np.concatenate(rows), np.concatenate(counts), end)

    def _read_lengths(self, begin: int) -> Lengths:
        """Return the lengths of the snapshot's document rows from a row on."""
        end = self._snapshot.num_rows
        parts = [
            read_lengths(self._connection, segment)[max(0, begin - segment.first_row) : end - segment.first_row]
            for segment in self._segments
            if begin < segment.end and segment.first_row < end
        ]
        return np.concatenate([np.empty(0, dtype=np.uint32), *parts])


def check_lexical(connection: sqlite3.Connection, num_rows: int) -> None:
    """Check the lexical index of num_rows document rows; raise DamagedIndex when it is not as it was written."""
    segments = read_segments(connection)
    if (segments[-1].end if segments else 0) != num_rows:
        raise DamagedIndex(f"the lexical index is not of {num_rows} document rows")
    for segment in segments:
        lengths = read_lengths(connection, segment).astype(np.int64)
        for number in range(segment.num_blocks):
            found = read_block(connection, segment, number).all()
            if len(found.rows) and not (found.rows.min() >= 0 and found.rows.max() < segment.num_rows):
                raise DamagedIndex(f"the lexical index of rows from {segment.first_row} on has other rows")
            lengths -= np.bincount(found.rows, found.counts, minlength=segment.num_rows).astype(np.int64)
        if lengths.any():
            raise DamagedIndex(f"the lexical index of rows from {segment.first_row} on does not add up")
    (count,) = connection.execute("SELECT count(*) FROM lexical_blocks").fetchone()
    if count != sum(segment.num_blocks for segment in segments):
        raise DamagedIndex(f"the lexical index has {count} blocks; {sum(s.num_blocks for s in segments)} belong to it")
