"""8-bit copies of views in blocks: how they lie in memory and in a file, how they are made, and kept."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mvindex.errors import MvindexError
from mvindex.kernels.copies import ALIGNMENT, Memory, aligned_bytes, watch
from mvindex.kernels.llvm import LANES
from mvindex.kernels.quantize import round_block
from mvindex.kernels.scan import SPARE_ROWS, BlockTable, QueryTile, ScanOutput, Workspace, scan_blocks
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Floats, Ints, ProgressCallback
from mvindex.store.copies_file import BLOCK_DTYPE, CopiesFile, CopiesLayout, copies_path, write_copies
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import MappedViews, check_mapped

logger = logging.getLogger(__name__)

# Of what decides the bytes of a block: to be raised where round_block() or the parts of a block change.
_VERSION = 1
# From this many dims on, views are padded to whole vectors, which a single query is multiplied by.
_DIMS_OF_VECTORS = 192
# Blocks that are made at a time before they are written.
_WRITTEN_BLOCKS = 16


class BlockParts(NamedTuple):
    """The parts of a block's bytes, in this order, each a view of them.

    codes: (views + SPARE_ROWS, pitch) uint8; bounds: (documents, 2) float32, norm and error; scale: (d,) float32.
    """

    codes: npt.NDArray[np.uint8]
    bounds: Floats
    scale: Floats


def copies_layout(dim: int) -> CopiesLayout:
    """Return the layout of blocks: views take whole vectors of 64 bytes where that adds little, whole fours else."""
    unit = 4 * LANES if dim > _DIMS_OF_VECTORS or dim % (4 * LANES) == 0 else 4
    return CopiesLayout(_VERSION, dim, -(-dim // unit) * unit)


def block_bytes(num_views: int, num_documents: int, layout: CopiesLayout) -> int:
    """Return the bytes of a block, a multiple of ALIGNMENT."""
    size_bytes = (num_views + SPARE_ROWS) * layout.pitch + 8 * num_documents + 4 * layout.dim
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def block_parts(block: npt.NDArray[np.uint8], num_views: int, num_documents: int, layout: CopiesLayout) -> BlockParts:
    """Return the parts of a block's bytes, which must be ALIGNMENT-aligned."""
    bounds_at = (num_views + SPARE_ROWS) * layout.pitch
    scale_at = bounds_at + 8 * num_documents
    return BlockParts(
        codes=block[:bounds_at].reshape(-1, layout.pitch),
        bounds=block[bounds_at:scale_at].view(np.float32).reshape(-1, 2),
        scale=block[scale_at : scale_at + 4 * layout.dim].view(np.float32),
    )


def make_block(views: MappedViews, first: int, last: int, block: npt.NDArray[np.uint8], layout: CopiesLayout) -> None:
    """Write the block of document rows [first, last) to its bytes; DamagedIndex where stored views are damaged."""
    packed, starts = views.read_block(first, last)
    parts = block_parts(block, len(packed), last - first, layout)
    parts.codes[len(packed) :] = 0
    norms, errors = np.empty((2, last - first), dtype=np.float32)
    stored = packed.view(np.int16) if packed.dtype == np.float16 else packed
    round_block(stored, starts, parts.codes, parts.scale, norms, errors)
    parts.bounds[:] = np.stack([norms, errors], axis=1)
    used_bytes = parts.codes.nbytes + parts.bounds.nbytes + parts.scale.nbytes
    block[used_bytes:] = 0


def write_blocks(snapshot: Snapshot, on_progress: ProgressCallback) -> None:
    """Write the file of copies of all views of the snapshot. Call as the one writer.

    Args:
        snapshot: Of views, one at least.
        on_progress: Called with the step, the blocks done, and all blocks.

    Raises:
        DamagedIndex: A stored view is damaged.
        StoreError: The file cannot be written.

    """
    views = snapshot.views
    bounds, layout = views.block_bounds(), copies_layout(views.dim)
    blocks = np.zeros(len(bounds) - 1, dtype=BLOCK_DTYPE)
    blocks["first"], blocks["last"] = bounds[:-1], bounds[1:]
    for block in blocks:
        first, last = int(block["first"]), int(block["last"])
        block["size_bytes"] = block_bytes(views.view_start(last) - views.view_start(first), last - first, layout)
        block["key"] = views.rows_key(first, last)

    def contents() -> Iterator[npt.NDArray[np.uint8]]:
        for begin in range(0, len(blocks), _WRITTEN_BLOCKS):
            some = blocks[begin : begin + _WRITTEN_BLOCKS]
            made = [aligned_bytes(int(size_bytes)) for size_bytes in some["size_bytes"]]
            work = deque(zip(some["first"].tolist(), some["last"].tolist(), made, strict=True))

            def make(work: deque[tuple[int, int, npt.NDArray[np.uint8]]] = work) -> None:
                for first, last, block in taken_from(work):
                    make_block(views, first, last, block, layout)

            run_in_threads(make, min(default_threads(), len(made)))
            yield from made
            on_progress("copying views", begin + len(made), len(blocks))

    write_copies(copies_path(snapshot.directory, snapshot.generation), layout, blocks, contents())


# Blocks that a thread takes at a time, at most: so that a slow thread does not hold the others.
_BLOCKS_AT_ONCE = 16


class SnapshotCopies:
    """The copies of one snapshot's blocks, as far as they are there; a block is mapped or copied when it is needed."""

    def __init__(self, snapshot: Snapshot, file: CopiesFile | None) -> None:
        """Begin with no copies; file: has some, in the layout of copies_layout()."""
        self.snapshot, self.file = snapshot, file
        # Blocks that the file has wrongly.
        self._refused: set[int] = set()
        bounds = snapshot.views.block_bounds()
        count, dim = len(bounds) - 1, snapshot.views.dim
        self.layout = copies_layout(dim)
        self.buffers: list[npt.NDArray[np.uint8] | None] = [None] * count
        # Which of the buffers are parts of the file.
        self.is_mapped: Bools = np.zeros(count, dtype=bool)
        self.table = BlockTable(
            first=bounds[:-1].copy(),
            last=bounds[1:].copy(),
            views_at=np.zeros(count, dtype=np.int64),
            bounds_at=np.zeros(count, dtype=np.int64),
            scales=np.zeros((count, dim), dtype=np.float32),
            norms=np.zeros(count),
            errors=np.zeros(count),
            view_starts=snapshot.views.starts,
            pitch=self.layout.pitch,
        )

    @classmethod
    def of(cls, snapshot: Snapshot, previous: SnapshotCopies | None) -> SnapshotCopies:
        """Return the copies of a snapshot, with those of blocks that are the same in the previous one."""
        if previous is None or previous.snapshot.generation != snapshot.generation:
            return cls(snapshot, _opened_file(snapshot, None))
        found = cls(snapshot, _opened_file(snapshot, previous.file))
        found._take_over(previous)
        return found

    def only_mapped(self) -> SnapshotCopies | None:
        """Return the copies without those in memory of this process; None where none are mapped."""
        if not self.is_mapped.any():
            return None
        found = SnapshotCopies(self.snapshot, self.file)
        found._take(self, np.flatnonzero(self.is_mapped))
        return found

    def held_bytes(self) -> int:
        """Return the bytes of the copies that are in memory of this process."""
        return self._bytes_of(is_mapped=False)

    def mapped_bytes(self) -> int:
        """Return the bytes of the copies that are parts of the file."""
        return self._bytes_of(is_mapped=True)

    def missing(self, blocks: Ints) -> list[int]:
        """Return those of the blocks of which there is no copy."""
        missing: list[int] = blocks[self.table.views_at[blocks] == 0].tolist()
        return missing

    def size_bytes(self, block: int) -> int:
        """Return the bytes of the block's copy."""
        return block_bytes(*self._counts(block), self.layout)

    def map(self, block: int) -> None:
        """Take the block's copy from the file, if that has a sound one of the same views."""
        file, place = self.file, self._place(block)
        if file is None or place is None or block in self._refused:
            return
        copy = file.content(place)
        if len(copy) != self.size_bytes(block) or not file.is_of(place, self.snapshot.views):
            self._refused.add(block)
        elif not file.is_sound(place):
            self._refused.add(block)
            logger.warning("%s: a block does not match its checksum; its copy is made in memory", file.path)
        else:
            self.is_mapped[block] = True
            self.keep(block, copy)

    def make(self, block: int, buffer: npt.NDArray[np.uint8], into: BlockTable, at: int) -> None:
        """Write the block's copy to the buffer, 64-byte aligned, and its bounds to row `at` of the table."""
        make_block(self.snapshot.views, int(self.table.first[block]), int(self.table.last[block]), buffer, self.layout)
        self._enter(block, buffer, into, at)

    def keep(self, block: int, buffer: npt.NDArray[np.uint8]) -> None:
        """Keep the block's copy for later scans."""
        self.buffers[block] = buffer
        self._enter(block, buffer, self.table, block)

    def parts(self, blocks: Ints, num_threads: int) -> deque[Ints]:
        """Return portions of blocks for threads: those with a copy a few at a time, the others one by one."""
        has_copy = self.table.views_at[blocks] != 0
        kept, missing = blocks[has_copy], blocks[~has_copy]
        size = min(_BLOCKS_AT_ONCE, max(1, len(kept) // (4 * num_threads)))
        return deque([*(kept[at : at + size] for at in range(0, len(kept), size)), *missing[:, None]])

    def scan(self, part: Ints, tile: QueryTile, output: ScanOutput, workspace: Workspace) -> None:
        """Scan a portion, and add its candidates to output. A block without a copy is copied temporarily."""
        if self.table.views_at[part[0]] != 0:
            scan_blocks(part, self.table, tile, output, workspace)
            return
        columns = [column[part].copy() for column in self.table[:-2]]
        table = BlockTable._make([*columns, self.table.view_starts, self.table.pitch])
        buffer = aligned_bytes(self.size_bytes(int(part[0])))
        self.make(int(part[0]), buffer, table, 0)
        scan_blocks(np.zeros(1, dtype=np.int64), table, tile, output, workspace)
        del buffer  # the table points into it until here

    def _place(self, block: int) -> int | None:
        """Return the block's place in the file; None where it is not in one."""
        first, last = int(self.table.first[block]), int(self.table.last[block])
        return None if self.file is None else self.file.find(first, last)

    def _counts(self, block: int) -> tuple[int, int]:
        """Return how many views and documents the block has."""
        first, last = self.table.first[block], self.table.last[block]
        return int(self.table.view_starts[last] - self.table.view_starts[first]), int(last - first)

    def _bytes_of(self, *, is_mapped: bool) -> int:
        pairs = zip(self.buffers, self.is_mapped.tolist(), strict=True)
        return sum(buffer.nbytes for buffer, is_so in pairs if buffer is not None and is_so == is_mapped)

    def _enter(self, block: int, buffer: npt.NDArray[np.uint8], into: BlockTable, at: int) -> None:
        """Write addresses, scale and largest bounds of the block's copy to row `at` of the table."""
        parts = block_parts(buffer, *self._counts(block), self.layout)
        into.scales[at] = parts.scale
        into.norms[at], into.errors[at] = parts.bounds.max(axis=0)
        into.bounds_at[at] = parts.bounds.ctypes.data
        into.views_at[at] = buffer.ctypes.data  # last: other threads take it for a sign that the rest is there

    def _take_over(self, previous: SnapshotCopies) -> None:
        """Take over the copies of blocks that are the same in both snapshots, unless a newer file has them."""
        count = min(len(self.buffers), len(previous.buffers))
        mine, its = self.table, previous.table
        is_same = (mine.first[:count] == its.first[:count]) & (mine.last[:count] == its.last[:count])
        is_same &= its.views_at[:count] != 0
        if self.file is not previous.file:
            # What is mapped of the older file would hold its place on the disk.
            is_same &= ~previous.is_mapped[:count]
            for block in np.flatnonzero(is_same).tolist():
                is_same[block] = self._place(block) is None
        self._take(previous, np.flatnonzero(is_same))

    def _take(self, previous: SnapshotCopies, blocks: Ints) -> None:
        for block in blocks.tolist():
            self.buffers[block] = previous.buffers[block]
        self.is_mapped[blocks] = previous.is_mapped[blocks]
        for column, its_column in zip(self.table[2:7], previous.table[2:7], strict=True):
            column[blocks] = its_column[blocks]


class CopyCache:
    """The copies of the latest snapshot.

    Those in the file are mapped; others are made, and kept up to a number of bytes while there is memory for them.
    """

    def __init__(self, max_bytes: int, memory: Memory) -> None:
        self._max_bytes, self._memory = max_bytes, memory
        self._latest: SnapshotCopies | None = None
        self._lock = Lock()

    def of(self, snapshot: Snapshot, blocks: Ints, num_threads: int) -> SnapshotCopies:
        """Return the copies of the snapshot, with those of the given blocks mapped, or made as far as there is room."""
        with self._lock:
            if self._memory.is_short():
                self._drop_held()
            copies = self._latest
            if copies is None or copies.snapshot is not snapshot:
                copies = self._latest = SnapshotCopies.of(snapshot, copies)
            if copies.file is not None:
                check_mapped([copies.file.mapped])
            _map_each(copies, copies.missing(blocks), num_threads)
            chosen = self._chosen(copies, copies.missing(blocks))
            _make_each(copies, chosen, num_threads)
        if chosen:
            watch(self)
        return copies

    def copy_bytes(self) -> int:
        """Return the bytes of the copies in memory of this process."""
        copies = self._latest
        return 0 if copies is None else copies.held_bytes()

    def mapped_bytes(self) -> int:
        """Return the bytes of the copies that are mapped from the file."""
        copies = self._latest
        return 0 if copies is None else copies.mapped_bytes()

    def give_back(self) -> None:
        """Drop the copies in memory of this process; scans that use them finish with them.

        What is mapped stays: the kernel takes such pages back by itself.
        """
        with self._lock:
            self._drop_held()

    def _drop_held(self) -> None:
        if self._latest is not None and self._latest.held_bytes():
            self._latest = self._latest.only_mapped()

    def _chosen(self, copies: SnapshotCopies, missing: Sequence[int]) -> list[int]:
        """Return the blocks whose copies there is room for."""
        if not missing:
            return []
        used_bytes = copies.held_bytes()
        totals = used_bytes + np.cumsum([copies.size_bytes(block) for block in missing])
        room_bytes = self._memory.room_bytes(used_bytes, self._max_bytes, int(totals[-1]) - used_bytes)
        return list(missing[: int(np.searchsorted(totals, room_bytes, side="right"))])


def _opened_file(snapshot: Snapshot, previous: CopiesFile | None) -> CopiesFile | None:
    """Return the file of copies of the snapshot's generation; None without one of this layout that can be read."""
    path = copies_path(snapshot.directory, snapshot.generation)
    if previous is not None and previous.is_at(path):
        return previous
    try:
        file = CopiesFile(path)
    except FileNotFoundError:
        return None
    except MvindexError as err:
        logger.warning("%s; copies are made in memory", err)
        return None
    return file if file.layout == copies_layout(snapshot.views.dim) else None


def _map_each(copies: SnapshotCopies, blocks: Sequence[int], num_threads: int) -> None:
    """Map the blocks' copies that are in the file."""
    if copies.file is None:
        return
    work = deque(blocks)

    def map_some() -> None:
        for block in taken_from(work):
            copies.map(block)

    run_in_threads(map_some, min(num_threads, len(blocks)))


def _make_each(copies: SnapshotCopies, blocks: Sequence[int], num_threads: int) -> None:
    """Make the blocks' copies, to be kept."""
    work = deque(zip(blocks, _buffers([copies.size_bytes(block) for block in blocks]), strict=True))

    def make_some() -> None:
        for block, buffer in taken_from(work):
            copies.buffers[block] = buffer
            copies.make(block, buffer, copies.table, block)

    run_in_threads(make_some, min(num_threads, len(blocks)))


def _buffers(sizes_bytes: list[int]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield buffers of these sizes, parts of larger ones: NumPy asks for huge pages from 4 MiB on."""
    for at in range(0, len(sizes_bytes), _BLOCKS_AT_ONCE):
        sizes = sizes_bytes[at : at + _BLOCKS_AT_ONCE]
        ends = np.cumsum(sizes).tolist()
        whole = aligned_bytes(ends[-1])
        for size, end in zip(sizes, ends, strict=True):
            yield whole[end - size : end]
