"""Decoded postings of terms that were asked for lately, kept in memory from one question to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from mvindex.kernels.copies import MEMORY, watch
from mvindex.kernels.ram import memory_bytes

Lengths = npt.NDArray[np.uint32]

# Of all open generations of this process together: 1 GiB, but no more than this part of its memory.
_MOST_BYTES, _MOST_PART = 1 << 30, 16
# Of an entry and its arrays.
_ENTRY_BYTES = 600


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
