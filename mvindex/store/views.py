"""Views in files: segments and their checksums, and views as stored and as decoded.

The catalog holds length and checksums; bytes past the committed length were left by a writer that was killed.

View row v of the store stands at bytes v * dim * itemsize; document row i owns view rows
view_start[i] .. view_start[i + 1]. Both files only ever grow within a generation.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.durable import audit_step, flush_to_disk, open_unshared
from mvindex.errors import DamagedIndex, StoreError
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.files import check_length, check_regular

BLOCK_BYTES = 1 << 20
# Blocks that are called for at once where they are verified: a disk has something to do meanwhile.
_BLOCKS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class CommittedSegment:
    """Committed state of a segment file: its length and (num_blocks,) uint64 checksums (the last block partial)."""

    name: str
    size_bytes: int
    checksums: npt.NDArray[np.uint64]


def append(directory: Path, before: CommittedSegment, data: npt.NDArray[np.generic]) -> CommittedSegment:
    """Append the data behind the committed bytes, with fsync, and return the state to commit.

    Bytes past the committed length are cut off first. OSError (such as a full disk) becomes StoreError; DamagedIndex
    when the last, partial block is not as committed: its new checksum would hide that.
    """
    path, sealed = directory / before.name, before.size_bytes // BLOCK_BYTES
    is_new = before.size_bytes == 0
    check_regular(path)
    try:
        with open(path, "w+b" if is_new else "r+b", opener=open_unshared if is_new else None) as file:
            check_length(path, file.seek(0, os.SEEK_END), before.size_bytes)
            file.seek(sealed * BLOCK_BYTES)
            last = file.read(before.size_bytes - sealed * BLOCK_BYTES)
            if last and xxhash.xxh3_64_intdigest(last) != int(before.checksums[-1]):
                raise _damaged(path, sealed * BLOCK_BYTES)
            file.truncate(before.size_bytes)
            with audit_step("write", path):
                if data.size:
                    file.write(np.ascontiguousarray(data).data.cast("B"))
                file.flush()
            with audit_step("fsync", path):
                os.fsync(file.fileno())
            size_bytes = file.tell()
            # Read back, from the old partial block on.
            file.seek(sealed * BLOCK_BYTES)
            fresh = list(map(xxhash.xxh3_64_intdigest, iter(lambda: file.read(BLOCK_BYTES), b"")))
        if is_new:
            flush_to_disk(directory)
    except OSError as err:
        if isinstance(err, FileNotFoundError) and not is_new:
            raise DamagedIndex(f"{path}: expected {before.size_bytes} committed bytes, got no file") from err
        raise StoreError(f"{path}: cannot append: {err.strerror or err}; nothing of this batch was stored") from err
    checksums = np.concatenate([before.checksums[:sealed], np.array(fresh, dtype=np.uint64)])
    return CommittedSegment(before.name, size_bytes, checksums)


def block_checksum(block: npt.NDArray[np.uint8]) -> int:
    """Return the xxh3-64 of a block's bytes."""
    return int(xxhash.xxh3_64_intdigest(block.data))


class MappedFile(NamedTuple):
    """A file of which the first size_bytes are mapped."""

    path: Path
    memory: mmap.mmap
    size_bytes: int


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Check that no file was cut since it was mapped; raise DamagedIndex, where reading would end the process.

    A mapping knows its file, also where that was removed or replaced.
    """
    for path, memory, size_bytes in files:
        if (found_bytes := memory.size()) < size_bytes:
            check_length(path, found_bytes, size_bytes)


class MappedSegment:
    """The committed bytes of a segment file, memory-mapped; each block is verified when it is first read."""

    def __init__(self, directory: Path, committed: CommittedSegment, previous: MappedSegment | None = None) -> None:
        self.path = directory / committed.name
        self.committed = committed
        self.file: MappedFile | None = None
        self.bytes: npt.NDArray[np.uint8] = self._map()
        self._is_checked = np.zeros(len(committed.checksums), dtype=bool)
        if previous is not None and previous.committed.name == committed.name:
            sealed = previous.committed.size_bytes // BLOCK_BYTES
            self._is_checked[:sealed] = previous._is_checked[:sealed]

    def read_at_random(self) -> None:
        """Turn off read-ahead: pages that are not in memory are read singly, or where expect() asks for them."""
        if self.file is not None:
            self.file.memory.madvise(mmap.MADV_RANDOM)

    def expect(self, begin: int, end: int) -> None:
        """Start reading these bytes, and as many behind them, where they are not in memory yet."""
        self._call_for(begin, end + (end - begin))

    def check(self, begin: int, end: int) -> None:
        """Verify the blocks of bytes [begin, end) that are read for the first time; DamagedIndex on a mismatch."""
        first, last = begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        for block in first + np.flatnonzero(~self._is_checked[first:last]):
            self._check_block(int(block))

    def _call_for(self, begin: int, end: int) -> None:
        """Start reading these bytes, as far as the file goes, where they are not in memory yet."""
        first, last = begin - begin % mmap.PAGESIZE, min(end, len(self.bytes))
        if self.file is not None and first < last:
            self.file.memory.madvise(mmap.MADV_WILLNEED, first, last - first)

    def _check_block(self, block: int) -> None:
        if self._block_checksum(block) != int(self.committed.checksums[block]):
            raise _damaged(self.path, block * BLOCK_BYTES)
        self._is_checked[block] = True

    def _block_checksum(self, block: int) -> int:
        # Else each page that is not in memory is a read by itself where read_at_random() was called.
        self._call_for(block * BLOCK_BYTES, (block + _BLOCKS_AHEAD) * BLOCK_BYTES)
        return block_checksum(self.bytes[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])

    def _map(self) -> npt.NDArray[np.uint8]:
        size_bytes = self.committed.size_bytes
        if size_bytes == 0:
            return np.empty(0, dtype=np.uint8)
        check_regular(self.path)
        try:
            check_length(self.path, self.path.stat().st_size, size_bytes)
            with open(self.path, "rb") as file:
                memory = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
            self.file = MappedFile(self.path, memory, size_bytes)
            return np.frombuffer(memory, dtype=np.uint8)
        except FileNotFoundError as err:
            raise DamagedIndex(f"{self.path}: expected {size_bytes} committed bytes, got no file") from err
        except OSError as err:
            raise StoreError(f"{self.path}: cannot be read: {err.strerror or err}") from err


def _damaged(path: Path, begin: int) -> DamagedIndex:
    return DamagedIndex(
        f"{path}: the MiB from byte {begin} on does not match its checksum; no answer is given from damaged data"
    )


# One record per document row outside the catalog, so that opening 21 million rows needs no query.
ROW_DTYPE = np.dtype([("view_start", "<i8"), ("ordinal", "<i8"), ("checksum", "<u8")])
# Scores are accumulated in float32: the product of two norms up to this stays finite.
MAX_NORM = 1e18
_BLOCK_ELEMENTS = 1 << 22
# Document rows processed at a time where all are read, so that no array of all documents is made.
_PIECE_ROWS = 1 << 16


class ViewType(Enum):
    """How views are stored."""

    FP16 = "fp16"
    FP32 = "fp32"

    def __init__(self, name: str) -> None:
        # The end of the file's name, and the little-endian NumPy dtype on disk.
        self.suffix = name.replace("p", "")
        self.dtype: np.dtype[Any] = np.dtype({"f16": "<f2", "f32": "<f4"}[self.suffix])


class MappedViews:
    """The committed views of a snapshot, read from memory-mapped files and checked when they are first read.

    matrix: (num_views, d) as stored; words: the same, fp16 as int16 of the same bits; starts: (num_rows + 1,) int64,
    document row i owns view rows starts[i]:starts[i + 1].
    """

    def __init__(
        self,
        views: MappedSegment,
        rows: MappedSegment,
        dtype: np.dtype[Any],
        dim: int,
        previous: MappedViews | None = None,
    ) -> None:
        """Map the views. previous: of an older snapshot of the same generation; what it verified is trusted."""
        self._views = views
        self._rows = rows
        self.dim = dim
        self.row_bytes = dim * dtype.itemsize
        self.matrix: npt.NDArray[Any] = views.bytes.view(dtype).reshape(-1, dim)
        # For compiled loops, which know no fp16.
        self.words: npt.NDArray[Any] = self.matrix.view(np.int16) if dtype == np.float16 else self.matrix
        rows.check(0, len(rows.bytes))
        views.read_at_random()
        self._records: npt.NDArray[Any] = rows.bytes.view(ROW_DTYPE)
        # Of document rows and of view rows, deleted ones included.
        self.num_rows, self.num_views = len(self._records), len(self.matrix)
        # Which documents' views matched their checksum. Threads write only True into it, so that a race costs no more
        # than checking a document twice.
        self._is_verified: Bools = np.zeros(len(self._records), dtype=bool)
        # Rows whose order an older snapshot has checked, and where their views begin, if it has needed that.
        self._ordered_rows, self._known_starts = 0, np.zeros(0, dtype=np.int64)
        if previous is not None:
            self._is_verified[: previous.num_rows] = previous._is_verified
            self._ordered_rows = previous.num_rows
            self._known_starts = previous.__dict__.get("starts", self._known_starts)

    @cached_property
    def starts(self) -> Ints:
        """Where each document's views begin, (num_rows + 1,) int64; the last is where they all end.

        In memory from the first use on, 8 bytes a document: searchsorted would copy a strided column at every call.
        Code that only writes, checks or counts does without it.
        """
        known, self._known_starts = self._known_starts, np.zeros(0, dtype=np.int64)
        if len(known) == self.num_rows + 1:
            # Rows are only added, each with a view at least: nothing was.
            return known
        starts: Ints = np.empty(self.num_rows + 1, dtype=np.int64)
        starts[: len(known)] = known
        starts[len(known) : -1] = self._records["view_start"][len(known) :]
        starts[-1] = self.num_views
        return starts

    @property
    def are_in_order(self) -> bool:
        """Whether the documents' views follow each other without a gap, and every document has one.

        Rows of an older snapshot were checked with it, but for the end of the last one.
        """
        if not self.num_rows:
            return self.num_views == 0
        starts = self._records["view_start"]
        if starts[0] != 0 or starts[self.num_rows - 1] >= self.num_views:
            return False
        # Not by differences, which wrap around between numbers that are far apart.
        pieces = range(max(self._ordered_rows - 1, 0), self.num_rows, _PIECE_ROWS)
        each = (starts[begin : min(begin + _PIECE_ROWS + 1, self.num_rows)] for begin in pieces)
        return all(bool((piece[1:] > piece[:-1]).all()) for piece in each)

    @cached_property
    def max_views(self) -> int:
        """The largest number of views that a document has."""
        return max([1, *(int(counts.max()) for _, counts in self.each_counts())])

    def count_of(self, documents: Bools) -> int:
        """Return how many views the documents (num_rows,) bool have together."""
        return sum(int(counts[documents[at : at + len(counts)]].sum()) for at, counts in self.each_counts())

    def each_counts(self, first: int = 0) -> Iterator[tuple[int, Ints]]:
        """Yield the number of views of each document from the first, piece by piece, with the piece's first row."""
        for begin in range(first, self.num_rows, _PIECE_ROWS):
            starts = self._records["view_start"][begin : begin + _PIECE_ROWS + 1]
            is_last = begin + _PIECE_ROWS >= self.num_rows
            yield begin, np.diff(starts, append=self.num_views) if is_last else np.diff(starts)

    def view_start(self, doc_row: int) -> int:
        """Return the first view row of a document row; num_views for the row past the last."""
        return int(self._records["view_start"][doc_row]) if doc_row < self.num_rows else self.num_views

    def counts(self, begin: int, end: int) -> Ints:
        """Return the number of views of each of the document rows [begin, end)."""
        return np.diff(self.starts[begin : end + 1])

    def block_bounds(self) -> Ints:
        """Return the document rows at which scan blocks begin, and num_rows: block b is [bounds[b], bounds[b + 1]).

        A block holds the documents whose first view lies in one stretch of view rows, so that all blocks but the
        last stay the same whatever is added later.
        """
        stretch = min(max(_BLOCK_ELEMENTS // self.dim, 256), 8192)
        firsts = np.searchsorted(self.starts, np.arange(0, self.num_views, stretch))
        # A stretch may begin inside the last document; then no document begins in it.
        return _distinct(np.append(firsts, self.num_rows))

    def rows_key(self, begin: int, end: int) -> int:
        """Return a checksum of the records of document rows [begin, end), checksums of their views among them.

        Records never change: equal keys of the same rows mean equal views.
        """
        return block_checksum(self._rows.bytes[begin * ROW_DTYPE.itemsize : end * ROW_DTYPE.itemsize])

    def ordinals(self, doc_rows: Ints) -> Ints:
        """Return the ordinal of each document row."""
        return self._records["ordinal"][doc_rows].astype(np.int64, copy=False)

    def document_rows(self, view_rows: Ints) -> Ints:
        """Return the document row that owns each view row."""
        # Right wherever all documents have the same number of views; a search in 21 million takes a microsecond each.
        found = view_rows.astype(np.int64, copy=False) * self.num_rows // max(self.num_views, 1)
        is_wrong = (self.starts[found] > view_rows) | (self.starts[found + 1] <= view_rows)
        found[is_wrong] = np.searchsorted(self.starts, view_rows[is_wrong], side="right") - 1
        return found

    def fetch(self, doc_rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """Return all views of these documents: rows (r, d) as stored, a copy, and starts (m + 1,).

        DamagedIndex when a document's bytes do not match its checksum at their first read.
        """
        self.check_documents(doc_rows)
        return self.gather(doc_rows)

    def gather(self, doc_rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """Return the same as fetch(), of documents that were verified."""
        begins = self.starts[doc_rows]
        counts = self.starts[doc_rows + 1] - begins
        starts = np.concatenate([[0], np.cumsum(counts)])
        return self.matrix[np.arange(starts[-1]) + np.repeat(begins - starts[:-1], counts)], starts

    def check_documents(self, doc_rows: Ints) -> None:
        """Verify the views of documents that are read for the first time; DamagedIndex names one that is damaged."""
        is_verified = self._is_verified[doc_rows]
        if np.count_nonzero(is_verified) == len(doc_rows):  # all() takes three times as long for a few
            return
        fresh = _distinct(np.sort(doc_rows[~is_verified]))
        begins, ends = self.starts[fresh] * self.row_bytes, self.starts[fresh + 1] * self.row_bytes
        is_sound = range_checksums(self._views.bytes.data, begins, ends) == self._records["checksum"][fresh]
        self._is_verified[fresh[is_sound]] = True
        if not is_sound.all():
            row = int(fresh[~is_sound][0])
            raise DamagedIndex(f"{self._views.path}: the views of document row {row} do not match their checksum")

    def read_block(self, begin: int, end: int) -> tuple[npt.NDArray[Any], Ints]:
        """Return the views of document rows [begin, end): rows as stored, no copy, and starts; verified first."""
        starts = self.starts[begin : end + 1]
        self._views.expect(int(starts[0]) * self.row_bytes, int(starts[-1]) * self.row_bytes)
        self._views.check(int(starts[0]) * self.row_bytes, int(starts[-1]) * self.row_bytes)
        return self.matrix[starts[0] : starts[-1]], starts - starts[0]

    def read_views(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return view rows [begin, end) as stored, not copied; verified at first read."""
        self._views.expect(begin * self.row_bytes, end * self.row_bytes)
        self._views.check(begin * self.row_bytes, end * self.row_bytes)
        return self.matrix[begin:end]


def row_norms(rows: Floats) -> Doubles:
    """Return an upper bound, tight to d * 2^-22, of each row's norm, (r,); rows: (r, d) float32, norms to MAX_NORM."""
    squares = np.einsum("ij,ij->i", rows, rows).astype(np.float64)
    dim = rows.shape[1]
    # The float32 sum is off by at most d u; squares below float32's range vanish, each is less than 2^-126.
    norms: Doubles = np.sqrt(squares * (1 + dim * 2.0**-23) + dim * 2.0**-126)
    return norms


def range_checksums(data: memoryview, begins: Ints, ends: Ints) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of each of the ranges of bytes, (n,)."""
    digests = map(xxhash.xxh3_64_intdigest, map(data.__getitem__, map(slice, begins.tolist(), ends.tolist())))
    return np.fromiter(digests, dtype=np.uint64, count=len(begins))


def _distinct(ascending: Ints) -> Ints:
    """Return the values, (m,) with m > 0, without repetitions.

    np.unique() would import numpy.ma, which takes a process that answers one query as long as its search.
    """
    distinct: Ints = ascending[np.append(True, ascending[1:] != ascending[:-1])]
    return distinct
