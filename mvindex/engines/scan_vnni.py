"""The int8 scan on CPUs with AVX-512 VNNI: compiled, fused with bound and top-k, in threads.

Its products only ever leave documents out, and only by a proven bound: see kernels.scan. Where the bound leaves too
many, the query is repeated on a wider scan.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from mvindex.engines.copy_cache import CopyCache
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
from mvindex.kernels.copies import MEMORY, Memory, aligned_bytes
from mvindex.kernels.llvm import LANES
from mvindex.kernels.scan import (
    CHUNK_VIEWS,
    HITS,
    SPARE_ROWS,
    QueryTile,
    ScanOutput,
    Workspace,
    finish_found,
    gather_found,
    merge_found,
)
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.kernels.threads import default_threads, run_in_threads, taken_from
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot

# Documents that one query may keep before it is repeated in a wider type: so many, and so many per document of top_k.
_ROOM = 24_576
_ROOM_PER_DOCUMENT = 16
# Entries of all queries together: bounds what one pass may hold to 24 bytes x 2^23.
_MAX_ENTRIES = 1 << 23
# Numbers of views that a thread must have to read: of one query, some .4 ms, where starting a thread takes .1. So many
# queries are multiplied in the time in which memory gives the views for one.
_WORK_PER_THREAD, _QUERIES_OF_ONE = 1 << 24, 8
# Arrays for which numpy asks for large pages.
_HUGE_BYTES = 1 << 22
_NO_HUGE_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", 15)
# Queries that are repeated in a wider type at once.
_WIDER_TILE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VnniConfig:
    """threads: None takes as many as default_threads() says. cache_bytes: how much of its copies may stay in memory."""

    threads: int | None = None
    cache_bytes: int | None = None


# Working memory of each thread.
_KEPT = threading.local()


class VnniScan:
    """The exact scan over int8 copies of the views. Thread-safe; maps the file of copies where there is one.

    Copies of other blocks are made, and kept up to cache_bytes. Where memory falls short, these are dropped, and blocks
    are copied for a moment at each scan.
    """

    at_once = 0

    def __init__(
        self, wider: Callable[[], ScanEngine], config: VnniConfig | None = None, memory: Memory = MEMORY
    ) -> None:
        config = config or VnniConfig()
        self._open_wider = wider
        self._wider: ScanEngine | None = None
        self._threads = config.threads
        self._copies = CopyCache(cache_bytes() if config.cache_bytes is None else config.cache_bytes, memory)

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

    def mapped_bytes(self) -> int:
        """See ScanEngine."""
        return self._copies.mapped_bytes()

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
        if self._threads is None:
            share = len(blocks) / max(1, len(copies.table.first))
            elements = int(snapshot.views.num_views * snapshot.views.dim * share)
            work = elements * max(1, len(queries) // _QUERIES_OF_ONE)
            num_threads = max(1, min(num_threads, work // _WORK_PER_THREAD))
        exponents, thresholds = query_exponents(queries), np.full(len(queries), -np.inf)
        tile = _query_tile(snapshot, queries, exponents, request)
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
        narrow = _gathered(output, exponents)
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


def _query_tile(snapshot: Snapshot, queries: Floats, exponents: Ints, request: ScanRequest) -> QueryTile:
    _, allowed, scoring = request
    scaled, norms = scaled_queries(queries, exponents)
    is_drpq = scoring.aggregate is Aggregate.DRPQ
    lipschitz_constants = lipschitz_constants_up_to(snapshot.views.max_views if is_drpq else -1)
    # By the best view there is no temperature.
    temperatures = scaled_temperatures(scoring, exponents) if is_drpq else norms
    return QueryTile(scaled, norms, rounding_slack(exponents), allowed, lipschitz_constants, temperatures)


def _empty_found(num_queries: int, top_k: int, room: int, thresholds: Doubles) -> ScanOutput:
    return ScanOutput(
        lower=_barely_written(num_queries, room).view(np.float64),
        upper=_barely_written(num_queries, room).view(np.float64),
        rows=_barely_written(num_queries, room),
        counts=np.zeros(num_queries, dtype=np.int64),
        heaps=np.full((num_queries, top_k), -np.inf),
        thresholds=thresholds,
        overflowed=np.zeros(num_queries, dtype=bool),
    )


def _barely_written(num_rows: int, room: int) -> Ints:
    """Return an array, (num_rows, room) int64, of whose rows only the beginnings will be written.

    numpy asks for pages of 2 MB where an array is large: the kernel would clear each of them, all of the array.
    """
    if 8 * num_rows * room < _HUGE_BYTES:
        return np.empty((num_rows, room), dtype=np.int64)
    memory = mmap.mmap(-1, 8 * num_rows * room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel without such pages refuses the advice.
    with suppress(OSError):
        memory.madvise(_NO_HUGE_PAGES)
    return np.frombuffer(memory, dtype=np.int64).reshape(num_rows, room)


def _workspace(tile: QueryTile, pitch: int, max_views: int) -> Workspace:
    """Return working memory for tiles of queries; a single query is multiplied by whole vectors.

    That of a single query is kept for the next one of its thread.
    """
    num_queries, rows = len(tile.queries), max(CHUNK_VIEWS, max_views) + SPARE_ROWS
    if num_queries == 1 and pitch % (4 * LANES) == 0 and not len(tile.lipschitz_constants):
        kept: tuple[tuple[int, int], Workspace] | None = getattr(_KEPT, "workspace", None)
        if kept is None or kept[0] != (pitch, rows):
            kept = _KEPT.workspace = ((pitch, rows), _new_workspace(1, rows, pitch))
        return kept[1]
    lanes = next(count for count in (16, 32, 64) if num_queries <= count or count == 64)
    return _new_workspace(lanes, rows, pitch)


def _new_workspace(lanes: int, rows: int, pitch: int) -> Workspace:
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


def _gathered(output: ScanOutput, exponents: Ints) -> Candidates:
    starts = np.append(0, np.cumsum(output.counts))
    rows, upper = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    gather_found(output, starts, rows, upper)
    return Candidates(starts, rows, np.ldexp(upper, -np.repeat(exponents, output.counts)))
