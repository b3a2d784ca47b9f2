"""The int8 scan on CPUs with AVX-512 VNNI: compiled, fused with bound and top-k, in threads.

Its products only ever leave documents out, and only by a proven bound: see kernels.scan. Where the bound leaves too
many, the query is repeated on a wider scan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from mvindex.engines.copies import MEMORY, Memory, watch
from mvindex.engines.protocol import (
    Candidates,
    ScanEngine,
    ScanRequest,
    cache_bytes,
    lipschitz_constants_up_to,
    query_exponents,
    rounding_slack,
    scaled_queries,
    scaled_temperatures,
)
from mvindex.engines.scan_numpy import blocks_with
from mvindex.kernels.aligned import ALIGNMENT, aligned_bytes
from mvindex.kernels.llvm import LANES
from mvindex.kernels.quantize import round_block
from mvindex.kernels.scan import (
    CHUNK_VIEWS,
    HITS,
    SPARE_ROWS,
    BlockTable,
    QueryTile,
    ScanOutput,
    Workspace,
    finish_found,
    gather_found,
    merge_found,
    scan_blocks,
)
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.scoring.aggregate import Aggregate, Scoring
from mvindex.store.snapshot import Snapshot

# From this many dims on, views are padded to whole vectors, which a single query is multiplied by.
_DIMS_OF_VECTORS = 192
# Documents that one query may keep before it is repeated in a wider type: so many, and so many per document of top_k.
_ROOM = 24_576
_ROOM_PER_DOCUMENT = 16
# Entries of all queries together: bounds what one pass may hold to 24 bytes x 2^23.
_MAX_ENTRIES = 1 << 23
# Queries that are repeated in a wider type at once.
_WIDER_TILE = 16
# Blocks that a thread takes at a time, at most: so that a slow thread does not hold the others.
_BLOCKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VnniConfig:
    """threads: None takes as many as default_threads() says. cache_bytes: how much of its copies may stay in memory."""

    threads: int | None = None
    cache_bytes: int | None = None


class VnniScan:
    """The exact scan over int8 copies of the views. Thread-safe; keeps the copies of blocks up to cache_bytes.

    Where memory falls short, the copies are dropped, and blocks are copied for a moment at each scan.
    """

    def __init__(
        self, wider: Callable[[], ScanEngine], config: VnniConfig | None = None, memory: Memory = MEMORY
    ) -> None:
        config = config or VnniConfig()
        self._open_wider = wider
        self._wider: ScanEngine | None = None
        self._threads = config.threads
        self._copies = _CopyCache(cache_bytes() if config.cache_bytes is None else config.cache_bytes, memory)

    def load_loops(self, snapshot: Snapshot) -> None:
        """Run every loop once, over one document of the snapshot, which loads or compiles them."""
        allowed = np.zeros(len(snapshot.alive), dtype=bool)
        allowed[np.flatnonzero(snapshot.alive)[:1]] = True
        query = np.ones((1, snapshot.views.dim), dtype=np.float32)
        for aggregate in Aggregate:
            self.candidates(snapshot, query, 1, allowed, Scoring(aggregate))
        outputs = [_empty_found(1, 1, 1, np.full(1, -np.inf)) for _ in range(2)]
        merge_found(*outputs)

    def copy_bytes(self) -> int:
        """See ScanEngine."""
        return self._copies.copy_bytes() + (self._wider.copy_bytes() if self._wider is not None else 0)

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine. What is left out provably scores below the top_k-th: see kernels.scan."""
        room = min(_ROOM + _ROOM_PER_DOCUMENT * top_k, int(np.count_nonzero(allowed)) + 1)
        at_once = max(1, _MAX_ENTRIES // room)
        parts = [
            self._scan(snapshot, queries[begin : begin + at_once], ScanRequest(top_k, allowed, scoring), room)
            for begin in range(0, len(queries), at_once)
        ]
        return Candidates.joined(parts)

    def _scan(self, snapshot: Snapshot, queries: Floats, request: ScanRequest, room: int) -> Candidates:
        blocks = blocks_with(snapshot, request.allowed)
        num_threads = max(1, min(self._threads or default_threads(), len(blocks)))
        copies = self._copies.of(snapshot, blocks, num_threads)
        tile, thresholds = _query_tile(snapshot, queries, request), np.full(len(queries), -np.inf)
        parts = copies.parts(blocks, num_threads)

        def scan() -> ScanOutput:
            output = _empty_found(len(queries), request.top_k, room, thresholds)
            workspace = _workspace(tile, copies.table.pitch, snapshot.views.max_views)
            for part in taken_from(parts):
                copies.scan(part, tile, output, workspace)
            return output

        output, *others = run_in_threads(scan, num_threads)
        for other in others:
            merge_found(output, other)
        finish_found(output)
        narrow = _gathered(output, queries)
        return self._search_wider(snapshot, queries, request, narrow, output.overflowed)

    def _search_wider(
        self,
        snapshot: Snapshot,
        queries: Floats,
        request: ScanRequest,
        narrow: Candidates,
        overflowed: Bools,
    ) -> Candidates:
        """Return the candidates, with those of overflowed queries from the wider scan."""
        again = np.flatnonzero(overflowed)
        if not len(again):
            return narrow
        parts = list(narrow.each())
        for begin in range(0, len(again), _WIDER_TILE):
            tile = again[begin : begin + _WIDER_TILE]
            for query, part in zip(
                tile, self._plain().candidates(snapshot, queries[tile], *request).each(), strict=True
            ):
                parts[query] = part
        return Candidates.joined(parts)

    def _plain(self) -> ScanEngine:
        """Return the wider scan, opened when it is first needed."""
        if self._wider is None:
            self._wider = self._open_wider()
        return self._wider


class _Copies:
    """The copies of one snapshot's blocks, as far as they were made; a block is copied when it is first needed."""

    def __init__(self, snapshot: Snapshot, previous: _Copies | None) -> None:
        self.snapshot = snapshot
        bounds = snapshot.views.block_bounds()
        count, dim = len(bounds) - 1, snapshot.views.dim
        self.buffers: list[npt.NDArray[np.uint8] | None] = [None] * count
        self.table = BlockTable(
            first=bounds[:-1].copy(),
            last=bounds[1:].copy(),
            views_at=np.zeros(count, dtype=np.int64),
            bounds_at=np.zeros(count, dtype=np.int64),
            scales=np.zeros((count, dim), dtype=np.float32),
            norms=np.zeros(count),
            errors=np.zeros(count),
            view_starts=snapshot.views.starts,
            pitch=_pitch(dim),
        )
        if previous is not None and previous.snapshot.generation == snapshot.generation:
            self._take_over(previous)

    def held_bytes(self) -> int:
        """Return the bytes of the copies that were made."""
        return sum(buffer.nbytes for buffer in self.buffers if buffer is not None)

    def size_bytes(self, block: int) -> int:
        """Return the bytes of the block's copy."""
        first, last = self.table.first[block], self.table.last[block]
        num_views = int(self.table.view_starts[last] - self.table.view_starts[first])
        size_bytes = (num_views + SPARE_ROWS) * self.table.pitch + 8 * int(last - first)
        return -(-size_bytes // ALIGNMENT) * ALIGNMENT

    def make(self, block: int, buffer: npt.NDArray[np.uint8], into: BlockTable, at: int) -> None:
        """Write the block's copy to the buffer, 64-byte aligned, and its bounds to row `at` of the table."""
        first, last = int(self.table.first[block]), int(self.table.last[block])
        packed, starts = self.snapshot.views.read_block(first, last)
        num_bytes = (len(packed) + SPARE_ROWS) * into.pitch
        copy = buffer[:num_bytes].reshape(-1, into.pitch)
        copy[len(packed) :] = 0
        norms, errors = np.empty((2, last - first), dtype=np.float32)
        stored = packed.view(np.int16) if packed.dtype == np.float16 else packed
        round_block(stored, starts, copy, into.scales[at], norms, errors)
        bounds = buffer[num_bytes : num_bytes + 8 * (last - first)].view(np.float32).reshape(-1, 2)
        bounds[:] = np.stack([norms, errors], axis=1)
        into.norms[at], into.errors[at] = norms.max(), errors.max()
        into.bounds_at[at] = buffer.ctypes.data + num_bytes
        into.views_at[at] = buffer.ctypes.data  # last: other threads take it for a sign that the rest is there

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

    def _take_over(self, previous: _Copies) -> None:
        """Take over the copies of blocks that are the same in both snapshots."""
        count = min(len(self.buffers), len(previous.buffers))
        mine, its = self.table, previous.table
        is_same = (mine.first[:count] == its.first[:count]) & (mine.last[:count] == its.last[:count])
        for block in np.flatnonzero(is_same & (its.views_at[:count] != 0)).tolist():
            self.buffers[block] = previous.buffers[block]
        for column, its_column in zip(mine[2:7], its[2:7], strict=True):
            column[:count][is_same] = its_column[:count][is_same]


class _CopyCache:
    """The copies of the latest snapshot, up to a number of bytes, while there is memory for them."""

    def __init__(self, max_bytes: int, memory: Memory) -> None:
        self._max_bytes, self._memory = max_bytes, memory
        self._latest: _Copies | None = None
        self._lock = Lock()

    def of(self, snapshot: Snapshot, blocks: Ints, num_threads: int) -> _Copies:
        """Return the copies of the snapshot, with those of the given blocks made as far as there is room."""
        with self._lock:
            if self._memory.is_short():
                self._latest = None
            copies = self._latest
            if copies is None or copies.snapshot is not snapshot:
                copies = _Copies(snapshot, copies)
                self._latest = copies
            chosen = []
            missing = blocks[copies.table.views_at[blocks] == 0].tolist()
            used_bytes = copies.held_bytes() if missing else 0
            room_bytes = self._memory.room_bytes(used_bytes, self._max_bytes) if missing else 0
            for block in missing:
                used_bytes += copies.size_bytes(block)
                if used_bytes > room_bytes:
                    break
                chosen.append(block)

            work = deque(zip(chosen, _buffers([copies.size_bytes(block) for block in chosen]), strict=True))

            def make() -> None:
                for block, buffer in taken_from(work):
                    copies.make(block, buffer, copies.table, block)
                    copies.buffers[block] = buffer

            run_in_threads(make, min(num_threads, len(chosen)))
        if chosen:
            watch(self)
        return copies

    def copy_bytes(self) -> int:
        """Return the bytes of the copies in memory."""
        copies = self._latest
        return 0 if copies is None else copies.held_bytes()

    def give_back(self) -> None:
        """Drop the copies; scans that use them finish with them."""
        with self._lock:
            self._latest = None


def _pitch(dim: int) -> int:
    """Return the bytes of a copied view: whole vectors of 64 where that adds little, whole fours else."""
    unit = 4 * LANES if dim > _DIMS_OF_VECTORS or dim % (4 * LANES) == 0 else 4
    return -(-dim // unit) * unit


def _buffers(sizes_bytes: list[int]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield buffers of these sizes, parts of larger ones: NumPy asks for huge pages from 4 MiB on."""
    for at in range(0, len(sizes_bytes), _BLOCKS_AT_ONCE):
        sizes = sizes_bytes[at : at + _BLOCKS_AT_ONCE]
        ends = np.cumsum(sizes).tolist()
        whole = aligned_bytes(ends[-1])
        for size, end in zip(sizes, ends, strict=True):
            yield whole[end - size : end]


def _query_tile(snapshot: Snapshot, queries: Floats, request: ScanRequest) -> QueryTile:
    _, allowed, scoring = request
    scaled, norms = scaled_queries(queries)
    is_drpq = scoring.aggregate is Aggregate.DRPQ
    lipschitz_constants = lipschitz_constants_up_to(snapshot.views.max_views if is_drpq else -1)
    temperatures = scaled_temperatures(scoring, queries)
    return QueryTile(scaled, norms, rounding_slack(queries), allowed, lipschitz_constants, temperatures)


def _empty_found(num_queries: int, top_k: int, room: int, thresholds: Doubles) -> ScanOutput:
    return ScanOutput(
        lower=np.empty((num_queries, room)),
        upper=np.empty((num_queries, room)),
        rows=np.empty((num_queries, room), dtype=np.int64),
        counts=np.zeros(num_queries, dtype=np.int64),
        heaps=np.full((num_queries, top_k), -np.inf),
        thresholds=thresholds,
        overflowed=np.zeros(num_queries, dtype=bool),
    )


def _workspace(tile: QueryTile, pitch: int, max_views: int) -> Workspace:
    """Return working memory for tiles of queries; a single query is multiplied by whole vectors."""
    num_queries = len(tile.queries)
    if num_queries == 1 and pitch % (4 * LANES) == 0 and not len(tile.lipschitz_constants):
        lanes = 1
    else:
        lanes = next(count for count in (16, 32, 64) if num_queries <= count or count == 64)
    rows = max(CHUNK_VIEWS, max_views) + SPARE_ROWS
    integers = aligned_bytes(pitch)
    return Workspace(
        packed=aligned_bytes(pitch * lanes).view(np.int32),
        integers=integers.view(np.int8),
        fours=integers.view(np.int32),
        products=aligned_bytes(rows * lanes * 4).view(np.int32).reshape(rows, lanes),
        least=aligned_bytes(lanes * 4).view(np.int32),
        steps=np.ones(lanes),
        lost=np.zeros(lanes),
        offsets=aligned_bytes(lanes * 4).view(np.int32),
        rates=aligned_bytes(lanes * 4).view(np.float32),
        values=aligned_bytes(lanes * 4).view(np.float32),
        thresholds=aligned_bytes(lanes * 4).view(np.float32),
        slopes=aligned_bytes(4 * lanes * 4).view(np.float32).reshape(4, lanes),
        hit_rows=np.zeros(HITS, dtype=np.int64),
        hit_queries=np.zeros(HITS, dtype=np.uint64),
        hit_at=np.zeros(HITS, dtype=np.int64),
        best=aligned_bytes(HITS * lanes * 4).view(np.int32).reshape(HITS, lanes),
    )


def _gathered(output: ScanOutput, queries: Floats) -> Candidates:
    starts = np.append(0, np.cumsum(output.counts))
    rows, upper = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    gather_found(output, starts, rows, upper)
    return Candidates(starts, rows, np.ldexp(upper, -np.repeat(query_exponents(queries), output.counts)))
