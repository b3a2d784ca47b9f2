"""The torch scan: a blocked product with the max over views fused in, in bf16 where the CPU has it, else float32.

Scores are only ever used to leave documents out, and only by a proven bound; what stays is rescored from the store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from mvindex.engines.base import Candidates, scaled_queries, sum_error, underflow_error
from mvindex.engines.exact import allowed_blocks
from mvindex.records import Bools, Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms

_QUERY_TILE = 256


class Precision(Enum):
    """The type of the scan's copy of the views, with the relative error of rounding a score to it."""

    FP32 = "fp32"
    BF16 = "bf16"

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        return torch.bfloat16 if self is Precision.BF16 else torch.float32

    @property
    def output_error(self) -> float:
        """Half a unit in the last place is 2^-9 for bf16; twice that also covers a kernel that truncates."""
        return 2.0**-8 if self is Precision.BF16 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    """Where and how to scan. cache_bytes: how much of its copy of the views may stay in memory."""

    device: str = "cpu"
    precision: Precision | None = None
    cache_bytes: int | None = None


class _Block(NamedTuple):
    """Views of a block, documents grouped by their number of views so that a max runs over a reshaped array.

    views: (r, d); rows: (n,) document rows in that order; groups: (view offset, document offset, n, k) each;
    norm, error: largest |v'| and |v - v'| of the block, v the stored view and v' its copy here.
    """

    views: torch.Tensor
    rows: Ints
    groups: tuple[tuple[int, int, int, int], ...]
    norm: float
    error: float


class _Queries(NamedTuple):
    """A tile of queries: columns (d, q) in the scan's type, norms |q| (q,) and what rounding took, |q - q'| (q,)."""

    columns: torch.Tensor
    norms: Doubles
    errors: Doubles


class TorchScan:
    """The exact scan for CPU and CUDA. Thread-safe; keeps copies of sealed blocks up to cache_bytes."""

    def __init__(self, config: ScanConfig | None = None) -> None:
        config = config or ScanConfig()
        self._device = torch.device(config.device)
        self._precision = config.precision or _best_precision(self._device)
        self._free_bytes = _default_cache_bytes() if config.cache_bytes is None else config.cache_bytes
        self._blocks: dict[tuple[int, int, int], _Block] = {}
        self._tail: dict[tuple[int, int, int], _Block] = {}
        self._lock = Lock()

    def candidates(self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools) -> Candidates:
        """See ScanEngine. What is left out provably scores below the top_k-th: see _Survivors."""
        with torch.inference_mode():
            parts = [
                self._scan(snapshot, queries[begin : begin + _QUERY_TILE], top_k, allowed)
                for begin in range(0, len(queries), _QUERY_TILE)
            ]
        counts = np.concatenate([part.counts() for part in parts])
        return Candidates(np.append(0, np.cumsum(counts)), np.concatenate([part.rows for part in parts]))

    def _scan(self, snapshot: Snapshot, queries: Floats, top_k: int, allowed: Bools) -> _Survivors:
        tile = self._tile(queries)
        survivors = _Survivors(len(queries), top_k, self._precision)
        output = torch.empty(0, dtype=self._precision.dtype, device=self._device)
        for begin, end in allowed_blocks(snapshot, allowed):
            block = self._block(snapshot, begin, end)
            if len(output) < len(block.views):
                output = torch.empty(len(block.views), len(queries), dtype=output.dtype, device=self._device)
            scores = _best_scores(block, tile, output)
            is_allowed = allowed[block.rows]
            if not is_allowed.all():
                scores[torch.from_numpy(~is_allowed).to(self._device)] = -torch.inf
            survivors.add(scores, _errors(tile, block), block.rows)
        survivors.compact()
        return survivors

    def _tile(self, queries: Floats) -> _Queries:
        scaled, norms = scaled_queries(queries)
        exact = torch.from_numpy(scaled)
        rounded = exact.to(self._precision.dtype)
        lost = (exact - rounded.float()).double().norm(dim=1).numpy()
        return _Queries(rounded.T.contiguous().to(self._device), norms * (1 + 1e-3), lost * (1 + 1e-3))

    def _block(self, snapshot: Snapshot, begin: int, end: int) -> _Block:
        key = (snapshot.generation, begin, end)
        cached = self._blocks.get(key) or self._tail.get(key)
        if cached is not None:
            return cached
        block = _make_block(snapshot, begin, end, self._precision)
        block = block._replace(views=block.views.to(self._device))
        size_bytes = block.views.numel() * block.views.element_size()
        with self._lock:
            if end == snapshot.num_rows:
                self._tail = {key: block}  # grows with the next batch: only the latest is worth keeping
            elif size_bytes <= self._free_bytes and key not in self._blocks:
                self._blocks[key] = block
                self._free_bytes -= size_bytes
        return block


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
        self.queries: Ints = np.empty(0, dtype=np.int64)
        self.rows: Ints = np.empty(0, dtype=np.int64)

    def counts(self) -> Ints:
        """How many documents are left for each query, (q,), after compact()."""
        return np.bincount(self.queries, minlength=self._num_queries)

    def add(self, scores: torch.Tensor, errors: Doubles, rows: Ints) -> None:
        """Nothing; documents (n, q) of a block are taken in, -inf for what is not allowed. errors: (q,)."""
        if not self._parts:
            self._raise_thresholds(scores, errors)
        lowest = torch.from_numpy(self._lowest_scores(errors)).to(scores)
        documents, queries = (scores >= lowest).nonzero(as_tuple=True)
        if not len(documents):
            return
        found = scores[documents, queries].double().cpu().numpy()
        at, queries_at = documents.cpu().numpy(), queries.cpu().numpy()
        finite = found > -np.inf
        self._append(queries_at[finite], rows[at[finite]], found[finite], errors)
        if self._size > 2 * self._num_queries * self._top_k + 4096:
            self.compact()

    def compact(self) -> None:
        """Nothing; thresholds are as high as what was seen allows, and what lies below them is gone."""
        queries, rows, lower, upper = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.lexsort((-lower, queries))
        starts = np.searchsorted(queries[order], np.arange(self._num_queries))
        counts = np.bincount(queries, minlength=self._num_queries)
        is_full = counts >= self._top_k
        kth = order[starts[is_full] + self._top_k - 1]
        self._thresholds[is_full] = np.maximum(self._thresholds[is_full], lower[kth])
        kept = np.sort(order[upper[order] >= self._thresholds[queries[order]]])
        kept = kept[np.argsort(queries[kept], kind="stable")]
        self.queries, self.rows = queries[kept], rows[kept]
        self._parts = [(queries[kept], rows[kept], lower[kept], upper[kept])]
        self._size = len(kept)

    def _append(self, queries: Ints, rows: Ints, scores: Doubles, errors: Doubles) -> None:
        slack = np.abs(scores) * self._precision.output_error + errors[queries]
        self._parts.append((queries, rows, scores - slack, scores + slack))
        self._size += len(queries)

    def _raise_thresholds(self, scores: torch.Tensor, errors: Doubles) -> None:
        """Nothing; thresholds start at the top_k-th lower bound of the first block, where it has that many."""
        if len(scores) >= self._top_k:
            kth = scores.topk(self._top_k, dim=0, sorted=True).values[-1].double().cpu().numpy()
            size = np.abs(np.where(np.isfinite(kth), kth, 0))
            self._thresholds = kth - size * self._precision.output_error - errors
        self._parts = [(self.queries, self.rows, np.empty(0), np.empty(0))]

    def _lowest_scores(self, errors: Doubles) -> Floats:
        """The lowest computed score, (q,), whose upper bound reaches the threshold, rounded down to the scan's type.

        s + e |s| >= t is s >= t / (1 + e) for t >= 0 and s >= t / (1 - e) below.
        """
        targets = self._thresholds - errors
        relative = self._precision.output_error
        lowest = targets / np.where(targets >= 0, 1 + relative, 1 - relative)
        return _rounded_down(lowest, self._precision)


def _best_scores(block: _Block, tile: _Queries, output: torch.Tensor) -> torch.Tensor:
    """The best view's score of each document, (n, q), in the scan's type; output is scratch of at least (r, q)."""
    scores = torch.mm(block.views, tile.columns, out=output[: len(block.views)])
    best = [
        scores[view : view + count * k].view(count, k, -1).amax(dim=1) if k > 1 else scores[view : view + count]
        for view, _, count, k in block.groups
    ]
    return best[0] if len(best) == 1 else torch.cat(best)


def _errors(tile: _Queries, block: _Block) -> Doubles:
    """How far a score of the block may be off before the output's rounding, (q,).

    |<q, v> - <q', v'>| <= |q||v - v'| + |q - q'||v'| (Cauchy-Schwarz), plus the float32 sum of the products.
    """
    dim = block.views.shape[1]
    summed = (tile.norms + tile.errors) * block.norm * sum_error(dim) + underflow_error(dim)
    return tile.norms * block.error + tile.errors * block.norm + summed


def _make_block(snapshot: Snapshot, begin: int, end: int, precision: Precision) -> _Block:
    packed, starts = snapshot.views.read_block(begin, end)
    counts = np.diff(starts)
    order = np.argsort(counts, kind="stable")
    stored = torch.from_numpy(packed.copy() if packed.flags.writeable is False else packed)
    if not np.array_equal(order, np.arange(len(order))):
        within = np.arange(len(packed)) - np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
        stored = stored[torch.from_numpy(np.repeat(starts[:-1][order], counts[order]) + within)]
    exact = stored.float()
    views = exact.to(precision.dtype).contiguous()
    norm = float(row_norms(views.float().numpy()).max())
    error = 0.0 if precision is Precision.FP32 else float(row_norms((exact - views.float()).numpy()).max())
    return _Block(views, begin + order, _groups(counts[order]), norm, error)


def _groups(counts: Ints) -> tuple[tuple[int, int, int, int], ...]:
    """Runs of equal view counts as (view offset, document offset, documents, views each); counts is rising."""
    sizes, first, lengths = np.unique(counts, return_index=True, return_counts=True)
    offsets = np.append(0, np.cumsum(sizes * lengths))[:-1]
    columns = (offsets.tolist(), first.tolist(), lengths.tolist(), sizes.tolist())
    return tuple(zip(*columns, strict=True))


def _rounded_down(values: Doubles, precision: Precision) -> Floats:
    """The largest float32 or bf16 numbers (as float32) that are at most the values."""
    narrow = values.astype(np.float32)
    narrow = np.where(narrow > values, np.nextafter(narrow, np.float32(-np.inf)), narrow)
    if precision is Precision.FP32:
        return narrow
    bits = narrow.view(np.int32)
    # Cutting the low half rounds towards zero; below zero that is up, so step one bf16 number further.
    cut = (bits & -0x10000) + np.where((narrow < 0) & (bits & 0xFFFF != 0) & np.isfinite(narrow), 0x10000, 0)
    return cut.astype(np.int32).view(np.float32)


def _best_precision(device: torch.device) -> Precision:
    """bf16 where the hardware multiplies it, else float32."""
    if device.type == "cuda":
        return Precision.BF16
    read = getattr(torch.cpu, "get_capabilities", dict)  # absent from older torch
    capabilities: dict[str, Any] = read()
    return Precision.BF16 if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else Precision.FP32


def _default_cache_bytes() -> int:
    """A quarter of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
