"""The torch scan: a blocked product with the max over views fused in, in the narrowest type that pays.

Its scores are only ever used to leave documents out, and only by a proven bound; what stays is rescored from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

import numpy as np
import torch

from mvindex.encoder.device import torch_threads
from mvindex.engines.protocol import Candidates, ScanRequest, cache_bytes, query_exponents, scaled_temperatures
from mvindex.engines.scan_numpy import allowed_blocks
from mvindex.engines.torch_blocks import (
    Block,
    BlockMaker,
    Precision,
    QueryTile,
    SoftMeans,
    best_precision,
    best_products,
    rounded_down,
    view_products,
)
from mvindex.kernels.copies import MEMORY, watch
from mvindex.kernels.score import Aggregate, Scoring
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot

# int8 products halve their rate above 64 queries (measured); the others gain up to 256.
_QUERY_TILE = {Precision.INT8: 64, Precision.BF16: 256, Precision.FP32: 256}
# Few queries wait for memory, so the narrowest copy is read; for many the tighter bound of a wider one saves more
# rescoring than its product costs (measured: bench/search.py).
_FEW_QUERIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    """Where and how to scan. precision: None chooses by hardware and batch.

    cache_bytes: how much of its copies of the views may stay in memory; None for the default, divided by share.
    """

    device: str = "cpu"
    precision: Precision | None = None
    cache_bytes: int | None = None
    share: int = 1


# Precision, generation, first and last document row of a block.
_Key: TypeAlias = tuple[Precision, int, int, int]


class TorchScan:
    """The exact scan for CPU and CUDA. Thread-safe; keeps copies of sealed blocks up to cache_bytes."""

    def __init__(self, config: ScanConfig | None = None) -> None:
        self._config = config or ScanConfig()
        self._device = torch.device(self._config.device)
        given = self._config.cache_bytes
        self._free_bytes = _room_bytes(self._device) // self._config.share if given is None else given
        self._makers: dict[Precision, BlockMaker] = {}
        self._blocks: dict[_Key, Block] = {}
        self._tails: dict[Precision, tuple[_Key, Block]] = {}
        self._generation = 0
        self._lock = Lock()

    def candidates(
        self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools, scoring: Scoring
    ) -> Candidates:
        """See ScanEngine. What is left out provably scores below the top_k-th: see _Survivors."""
        maker = self._maker(snapshot.views.dim, len(queries))
        tile = _QUERY_TILE[maker.precision]
        with torch.inference_mode(), torch_threads().limited():
            parts = [
                self._scan(snapshot, maker, queries[begin : begin + tile], ScanRequest(top_k, allowed, scoring))
                for begin in range(0, len(queries), tile)
            ]
        return Candidates.joined(parts)

    def copy_bytes(self) -> int:
        """See ScanEngine. On a GPU they are in its memory."""
        with self._lock:
            tails = [block for _, block in self._tails.values()]
            return sum(_size_bytes(block) for block in [*self._blocks.values(), *tails])

    def mapped_bytes(self) -> int:
        """See ScanEngine. The file has no copies in torch's layouts."""
        return 0

    def give_back(self) -> None:
        """Drop the copies; scans that use them finish with them."""
        with self._lock:
            self._forget()

    def _maker(self, dim: int, num_queries: int) -> BlockMaker:
        """Return the maker of blocks for a batch of so many queries."""
        precision = self._config.precision
        with self._lock:
            if precision is None:
                precision = best_precision(self._device, dim, few_queries=num_queries <= _FEW_QUERIES)
            return self._makers.setdefault(precision, BlockMaker(precision, self._device))

    def _scan(self, snapshot: Snapshot, maker: BlockMaker, queries: Floats, request: ScanRequest) -> Candidates:
        top_k, allowed, scoring = request
        tile = QueryTile(queries, maker.precision, self._device)
        exponents = query_exponents(queries)
        soft_means = None
        if scoring.aggregate is Aggregate.DRPQ:
            soft_means = SoftMeans(scaled_temperatures(scoring, queries), self._device)
        survivors = _Survivors(len(queries), top_k, maker.precision)
        output = torch.empty(0, dtype=maker.precision.score_dtype, device=self._device)
        lowest = torch.iinfo(torch.int32).min if maker.precision is Precision.INT8 else -torch.inf
        for begin, end in allowed_blocks(snapshot, allowed):
            block = self._block(snapshot, maker, begin, end)
            if len(output) < len(block.views):
                output = torch.empty(len(block.views), len(queries), dtype=output.dtype, device=self._device)
            rounded = tile.rounded(block)
            scores = view_products(block, rounded.columns, output)
            refused = torch.from_numpy(~allowed[block.rows]).to(self._device)
            if soft_means is None:
                best = best_products(block, scores)
                best[refused] = lowest
                survivors.add(best, rounded.steps, tile.errors(block), block.rows)
            else:
                lower, upper = soft_means.bounds(block, scores, rounded.steps, tile)
                lower[refused], upper[refused] = -torch.inf, -torch.inf
                survivors.add_bounds(lower, upper, block.rows)
        return survivors.candidates(exponents)

    def _block(self, snapshot: Snapshot, maker: BlockMaker, begin: int, end: int) -> Block:
        key = (maker.precision, snapshot.generation, begin, end)
        cached = self._blocks.get(key)
        if cached is not None:
            return cached
        tail = self._tails.get(maker.precision)
        if tail is not None and tail[0] == key:
            return tail[1]
        block = maker.make(snapshot, begin, end)
        size_bytes = _size_bytes(block)
        with self._lock:
            self._forget_before(snapshot.generation)
            if not self._has_room(size_bytes):
                return block
            if end == snapshot.num_rows:
                self._tails[maker.precision] = (key, block)  # grows with the next batch: only the latest is kept
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
        self._tails.clear()


class _Survivors:
    """The documents of each query that can still be among its top_k.

    A document is out when even its upper bound lies below the top_k-th largest lower bound seen: then top_k
    documents truly score higher. The threshold is renewed when the buffer has filled (a "compaction").
    """

    def __init__(self, num_queries: int, top_k: int, precision: Precision) -> None:
        self._num_queries = num_queries
        self._top_k = top_k
        self._precision = precision
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

    def add(self, scores: torch.Tensor, steps: Doubles, errors: Doubles, rows: Ints) -> None:
        """Add the documents of a block.

        scores: (n, q), the type's lowest number (-inf or the least int) for what is not allowed; times steps (q,) they
        are off by at most errors (q,) and the type's own rounding.
        """
        if not self._parts:
            self._parts.append(_no_entries())
            self._raise_thresholds(scores, steps, errors)
        lowest = rounded_down(self._lowest_scores(errors) / steps, self._precision).to(scores.device)
        documents, queries = (scores >= lowest).nonzero(as_tuple=True)
        if not len(documents):
            return
        found = scores[documents, queries].double().cpu().numpy()
        at, queries_at = documents.cpu().numpy(), queries.cpu().numpy()
        is_allowed = self._is_allowed(found)
        queries_at, at = queries_at[is_allowed], at[is_allowed]
        self._append(queries_at, rows[at], found[is_allowed] * steps[queries_at], errors)
        if self._size > self._limit:
            self.compact()

    def add_bounds(self, lower: torch.Tensor, upper: torch.Tensor, rows: Ints) -> None:
        """Add documents with bounds (n, q) float32, except those whose upper bound is -inf."""
        if not self._parts:
            self._parts.append(_no_entries())
            if len(lower) >= self._top_k:
                kth = lower.topk(self._top_k, dim=0, sorted=True).values[-1].double().cpu().numpy()
                self._thresholds = np.maximum(self._thresholds, kth)
        lowest = rounded_down(self._thresholds, Precision.FP32).to(upper.device)
        documents, queries = ((upper >= lowest) & (upper > -torch.inf)).nonzero(as_tuple=True)
        bounds = (side[documents, queries].double().cpu().numpy() for side in (lower, upper))
        self._parts.append((queries.cpu().numpy(), rows[documents.cpu().numpy()], *bounds))
        self._size += len(documents)
        if self._size > self._limit:
            self.compact()

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

    def _append(self, queries: Ints, rows: Ints, scores: Doubles, errors: Doubles) -> None:
        slack = np.abs(scores) * self._precision.output_error + errors[queries]
        self._parts.append((queries, rows, scores - slack, scores + slack))
        self._size += len(queries)

    def _raise_thresholds(self, scores: torch.Tensor, steps: Doubles, errors: Doubles) -> None:
        """Start thresholds at the top_k-th lower bound of the first block, if it has that many."""
        if len(scores) >= self._top_k:
            kth = scores.topk(self._top_k, dim=0, sorted=True).values[-1].double().cpu().numpy()
            is_allowed = self._is_allowed(kth)
            true = np.where(is_allowed, kth, 0) * steps
            lower = true - np.abs(true) * self._precision.output_error - errors
            self._thresholds = np.where(is_allowed, lower, -np.inf)

    def _is_allowed(self, scores: Doubles) -> Bools:
        return scores > (torch.iinfo(torch.int32).min if self._precision is Precision.INT8 else -np.inf)

    def _lowest_scores(self, errors: Doubles) -> Doubles:
        """Return the lowest score, (q,), whose upper bound reaches the threshold.

        s + e |s| >= t is s >= t / (1 + e) for t >= 0 and s >= t / (1 - e) below.
        """
        targets = self._thresholds - errors
        relative = self._precision.output_error
        return targets / np.where(targets >= 0, 1 + relative, 1 - relative)


def _size_bytes(block: Block) -> int:
    return block.views.numel() * block.views.element_size()


def _room_bytes(device: torch.device) -> int:
    """Return half of a GPU's memory, a quarter of a CPU's."""
    return torch.cuda.mem_get_info(device)[1] // 2 if device.type == "cuda" else cache_bytes()


def _no_entries() -> tuple[Ints, Ints, Doubles, Doubles]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
