"""The torch scan: a blocked product in float32, on a CPU or a GPU, with the max over views fused in.

Its scores are only ever used to leave documents out, and only by a proven bound; what stays is rescored from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from mvindex.encoder.device import torch_threads
from mvindex.engines.protocol import (
    Candidates,
    ScanRequest,
    aggregate_error,
    cache_bytes,
    query_exponents,
    rounding_slack,
    scaled_queries,
    scaled_temperatures,
    sum_error,
    underflow_error,
)
from mvindex.engines.scan_numpy import allowed_blocks
from mvindex.kernels.copies import MEMORY, watch
from mvindex.kernels.score import Aggregate, Scoring, lipschitz_constant
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms

# Products of more queries at once are no faster (measured).
_QUERY_TILE = 256
# Norms computed in float32 are rounded up by this factor.
_ROUND_UP = 1 + 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    """Where to scan.

    cache_bytes: how much of its copies of the views may stay in memory; None for the default, divided by share.
    """

    device: str = "cpu"
    cache_bytes: int | None = None
    share: int = 1


class _Block(NamedTuple):
    """Views of a block, documents grouped by their number of views so that a max runs over a reshaped array.

    views: (r, d) float32; rows: (n,) document rows in that order; groups: (view offset, documents, views each);
    norm: the largest |v|.
    """

    views: torch.Tensor
    rows: Ints
    groups: tuple[tuple[int, int, int], ...]
    norm: float


# Generation, first and last document row of a block.
_Key: TypeAlias = tuple[int, int, int]


class TorchScan:
    """The exact scan for CPU and CUDA. Thread-safe; keeps copies of sealed blocks up to cache_bytes."""

    def __init__(self, config: ScanConfig | None = None) -> None:
        self._config = config or ScanConfig()
        self._device = torch.device(self._config.device)
        given = self._config.cache_bytes
        self._free_bytes = _room_bytes(self._device) // self._config.share if given is None else given
        self._blocks: dict[_Key, _Block] = {}
        # The last block grows with the next batch of documents: only the latest is kept.
        self._tail: tuple[_Key, _Block] | None = None
        self._generation = 0
        self._lock = Lock()

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine. What is left out provably scores below the top_k-th: see _Survivors."""
        with torch.inference_mode(), torch_threads().limited():
            parts = [
                self._scan(snapshot, queries[begin : begin + _QUERY_TILE], ScanRequest(top_k, allowed, scoring))
                for begin in range(0, len(queries), _QUERY_TILE)
            ]
        return Candidates.joined(parts)

    def copy_bytes(self) -> int:
        """See ScanEngine. On a GPU they are in its memory."""
        with self._lock:
            tail = [] if self._tail is None else [self._tail[1]]
            return sum(_size_bytes(block) for block in [*self._blocks.values(), *tail])

    def mapped_bytes(self) -> int:
        """See ScanEngine. The file has no copies in torch's layouts."""
        return 0

    def give_back(self) -> None:
        """Drop the copies; scans that use them finish with them."""
        with self._lock:
            self._forget()

    def _scan(self, snapshot: Snapshot, queries: Floats, request: ScanRequest) -> Candidates:
        top_k, allowed, scoring = request
        exponents = query_exponents(queries)
        tile = _QueryTile(queries, exponents, self._device)
        soft_means = None
        if scoring.aggregate is Aggregate.DRPQ:
            soft_means = _SoftMeans(scaled_temperatures(scoring, exponents), self._device)
        survivors = _Survivors(len(queries), top_k)
        output = torch.empty(0, len(queries), dtype=torch.float32, device=self._device)
        for begin, end in allowed_blocks(snapshot, allowed):
            block = self._block(snapshot, begin, end)
            if len(output) < len(block.views):
                output = torch.empty(len(block.views), len(queries), dtype=torch.float32, device=self._device)
            scores = torch.mm(block.views, tile.columns, out=output[: len(block.views)])
            refused = torch.from_numpy(~allowed[block.rows]).to(self._device)
            if soft_means is None:
                best = _best_products(block, scores)
                best[refused] = -torch.inf
                survivors.add(best, tile.errors(block), block.rows)
            else:
                lower, upper = soft_means.bounds(block, scores, tile)
                lower[refused], upper[refused] = -torch.inf, -torch.inf
                survivors.add_bounds(lower, upper, block.rows)
        return survivors.candidates(exponents)

    def _block(self, snapshot: Snapshot, begin: int, end: int) -> _Block:
        key = (snapshot.generation, begin, end)
        cached = self._blocks.get(key)
        if cached is not None:
            return cached
        tail = self._tail
        if tail is not None and tail[0] == key:
            return tail[1]
        block = _make_block(snapshot, begin, end, self._device)
        size_bytes = _size_bytes(block)
        with self._lock:
            self._forget_before(snapshot.generation)
            if not self._has_room(size_bytes):
                return block
            if end == snapshot.num_rows:
                self._tail = (key, block)
            elif size_bytes <= self._free_bytes and key not in self._blocks:
                self._blocks[key] = block
                self._free_bytes -= size_bytes
        if self._device.type == "cpu":
            watch(self)
        return block

    def _has_room(self, size_bytes: int) -> bool:
        """Return whether the machine has memory for so many bytes of copies more; a GPU's is its own."""
        return self._device.type != "cpu" or MEMORY.room_bytes(0, size_bytes) >= size_bytes

    def _forget_before(self, generation: int) -> None:
        """Drop blocks of an older generation: a compaction has renumbered their rows."""
        if generation <= self._generation:
            return
        self._forget()
        self._generation = generation

    def _forget(self) -> None:
        self._free_bytes += sum(map(_size_bytes, self._blocks.values()))
        self._blocks.clear()
        self._tail = None


def _make_block(snapshot: Snapshot, begin: int, end: int, device: torch.device) -> _Block:
    """Return the block of document rows [begin, end)."""
    packed, starts = snapshot.views.read_block(begin, end)
    counts = np.diff(starts)
    order = np.argsort(counts, kind="stable")
    stored = torch.from_numpy(packed.copy())
    if not np.array_equal(order, np.arange(len(order))):
        within = np.arange(len(packed)) - np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
        stored = stored[torch.from_numpy(np.repeat(starts[:-1][order], counts[order]) + within)]
    views = stored.float()
    return _Block(views.to(device), begin + order, _groups(counts[order]), float(row_norms(views.numpy()).max()))


def _groups(counts: Ints) -> tuple[tuple[int, int, int], ...]:
    """Return runs of equal view counts as (view offset, documents, views each); counts is rising."""
    sizes, lengths = np.unique(counts, return_counts=True)
    offsets = np.append(0, np.cumsum(sizes * lengths))[:-1]
    return tuple(zip(offsets.tolist(), lengths.tolist(), sizes.tolist(), strict=True))


class _QueryTile:
    """A tile of queries, scaled by powers of two (see scaled_queries). columns: (d, q)."""

    def __init__(self, queries: Floats, exponents: Ints, device: torch.device) -> None:
        scaled, norms = scaled_queries(queries, exponents)
        self.columns = torch.from_numpy(scaled).T.contiguous().to(device)
        self._norms = norms * _ROUND_UP
        self._slack = rounding_slack(exponents)

    def sizes(self, block: _Block) -> Doubles:
        """Return the largest size of a product in the block, (q,)."""
        return self._norms * block.norm

    def errors(self, block: _Block) -> Doubles:
        """Return how far a score of the block may be from the truth, (q,)."""
        dim, sizes = len(self.columns), self.sizes(block)
        # Scores that round to the same float32 tie: 2^-23 of the largest score there can be, or the smallest step.
        ties = sizes * 2.0**-23 + self._slack
        # The user may have let torch round the factors of float32 products, down to bf16.
        relative = sum_error(dim) if _has_plain_float32() else sum_error(dim) + 2.0**-6
        error: Doubles = ties + sizes * relative + underflow_error(dim)
        return error


def _has_plain_float32() -> bool:
    """Return whether torch leaves the factors of float32 products as they are."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has an older and a newer way to set it, and refuses to say when both were used
        return False


def _best_products(block: _Block, products: torch.Tensor) -> torch.Tensor:
    """Return the best view's product of each document, (n, q); products: (r, q)."""
    best = [
        products[view : view + count * k].view(count, k, -1).amax(dim=1) if k > 1 else products[view : view + count]
        for view, count, k in block.groups
    ]
    return best[0] if len(best) == 1 else torch.cat(best)


class _SoftMeans:
    """DRPQ's aggregate (eq. 4-6) of a block's products, reduced before it leaves the device.

    temperatures: (q,) in the units of the scaled queries.
    """

    def __init__(self, temperatures: Doubles, device: torch.device) -> None:
        # Beyond 1e30 a gap of any size has weight zero, below 1e-30 none matters: float32 stays finite.
        self._rates = self._on(device, np.clip(1 / temperatures, 1e-30, 1e30))

    def bounds(self, block: _Block, products: torch.Tensor, tile: _QueryTile) -> tuple[torch.Tensor, torch.Tensor]:
        """Return bounds, (n, q) float32, of each document's aggregate. products: (r, q)."""
        device, sizes, errors = products.device, tile.sizes(block), tile.errors(block)
        lower, upper = [], []
        for view, count, k in block.groups:
            scores = products[view : view + count * k].view(count, k, -1)
            best = scores.amax(dim=1)
            gaps = best[:, None] - scores
            weights = torch.exp(-gaps * self._rates)
            values = best - (weights * gaps).sum(dim=1) / weights.sum(dim=1)
            slack = self._on(device, errors * lipschitz_constant(k) + aggregate_error(k, sizes))
            lower.append(values - slack)
            upper.append(torch.minimum(values + slack, best + self._on(device, errors + aggregate_error(1, sizes))))
        return torch.cat(lower), torch.cat(upper)

    @staticmethod
    def _on(device: torch.device, values: Doubles) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(device)


class _Survivors:
    """The documents of each query that can still be among its top_k.

    A document is out when even its upper bound lies below the top_k-th largest lower bound seen: then top_k
    documents truly score higher. The threshold is renewed when the buffer has filled (a "compaction").
    """

    def __init__(self, num_queries: int, top_k: int) -> None:
        self._num_queries = num_queries
        self._top_k = top_k
        self._thresholds = np.full(num_queries, -np.inf)
        self._parts: list[tuple[Ints, Ints, Doubles, Doubles]] = []
        self._size = 0
        self._limit = 2 * num_queries * top_k + 4096

    def candidates(self, exponents: Ints) -> Candidates:
        """Return the remaining candidates of each query; bounds are divided by 2^exponents, (q,)."""
        self.compact()
        queries, rows, _, upper = self._parts[0]
        counts = np.bincount(queries, minlength=self._num_queries)
        return Candidates(np.append(0, np.cumsum(counts)), rows, np.ldexp(upper, -exponents[queries]))

    def add(self, scores: torch.Tensor, errors: Doubles, rows: Ints) -> None:
        """Add the documents of a block by scores (n, q), off by at most errors (q,); -inf for what is not allowed."""
        self._start(scores, errors)
        lowest = rounded_down(self._thresholds - errors).to(scores.device)
        documents, queries = (scores >= lowest).nonzero(as_tuple=True)
        if not len(documents):
            return
        found = scores[documents, queries].double().cpu().numpy()
        at, queries_at = documents.cpu().numpy(), queries.cpu().numpy()
        is_allowed = found > -np.inf
        found, at, queries_at = found[is_allowed], at[is_allowed], queries_at[is_allowed]
        self._append(queries_at, rows[at], found - errors[queries_at], found + errors[queries_at])

    def add_bounds(self, lower: torch.Tensor, upper: torch.Tensor, rows: Ints) -> None:
        """Add documents with bounds (n, q) float32, except those whose upper bound is -inf."""
        self._start(lower, np.zeros(self._num_queries))
        lowest = rounded_down(self._thresholds).to(upper.device)
        documents, queries = ((upper >= lowest) & (upper > -torch.inf)).nonzero(as_tuple=True)
        bounds = (side[documents, queries].double().cpu().numpy() for side in (lower, upper))
        self._append(queries.cpu().numpy(), rows[documents.cpu().numpy()], *bounds)

    def compact(self) -> None:
        """Raise thresholds as far as possible, and drop what lies below them."""
        queries, rows, lower, upper = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.lexsort((-lower, queries))
        starts = np.searchsorted(queries[order], np.arange(self._num_queries))
        counts = np.bincount(queries, minlength=self._num_queries)
        is_full = counts >= self._top_k
        kth = order[starts[is_full] + self._top_k - 1]
        self._thresholds[is_full] = np.maximum(self._thresholds[is_full], lower[kth])
        kept = order[upper[order] >= self._thresholds[queries[order]]]
        self._parts = [(queries[kept], rows[kept], lower[kept], upper[kept])]
        self._size = len(kept)
        self._limit = max(self._limit, 2 * len(kept))

    def _start(self, scores: torch.Tensor, errors: Doubles) -> None:
        """Start thresholds at the top_k-th lower bound of the first block, if it has that many."""
        if self._parts:
            return
        self._parts.append((np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)))
        if len(scores) >= self._top_k:
            kth = scores.topk(self._top_k, dim=0, sorted=True).values[-1].double().cpu().numpy()
            self._thresholds = kth - errors

    def _append(self, queries: Ints, rows: Ints, lower: Doubles, upper: Doubles) -> None:
        self._parts.append((queries, rows, lower, upper))
        self._size += len(queries)
        if self._size > self._limit:
            self.compact()


def rounded_down(values: Doubles) -> torch.Tensor:
    """Return thresholds as float32: scores of that type reach the value only if they reach the threshold."""
    narrow = values.astype(np.float32)
    return torch.from_numpy(np.where(narrow > values, np.nextafter(narrow, np.float32(-np.inf)), narrow))


def _size_bytes(block: _Block) -> int:
    return block.views.numel() * block.views.element_size()


def _room_bytes(device: torch.device) -> int:
    """Return half of a GPU's memory, a quarter of a CPU's."""
    return torch.cuda.mem_get_info(device)[1] // 2 if device.type == "cuda" else cache_bytes()
