"""Blocks of views in a narrower type, the products with them, and how far those may be from the truth.

A stored view v is copied as v' and a query q rounded to q'. |<q, v> - <q', v'>| <= |q||v - v'| + |q - q'||v'|
(Cauchy-Schwarz); |v - v'| and |v'| are measured per block and rounded up, so any rounding may be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from mvindex.engines.protocol import aggregate_error, rounding_slack, scaled_queries, sum_error, underflow_error
from mvindex.kernels.score import lipschitz_constant
from mvindex.records import Doubles, Floats, Ints
from mvindex.store.snapshot import Snapshot
from mvindex.store.views import row_norms

_INT8_MAX = 127
# Norms computed in float32 are rounded up by this factor.
_ROUND_UP = 1 + 1e-3


class Precision(Enum):
    """The type of the scan's copy of the views."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype of the copy."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}[self.value]

    @property
    def score_dtype(self) -> torch.dtype:
        """The torch dtype of the products; int8 products are summed exactly in int32."""
        return torch.int32 if self is Precision.INT8 else self.dtype

    @property
    def output_error(self) -> float:
        """The relative error of rounding a sum to score_dtype: the unit roundoff of bf16's 8 significant bits."""
        return 2.0**-8 if self is Precision.BF16 else 0.0


class Block(NamedTuple):
    """Views of a block, documents grouped by their number of views so that a max runs over a reshaped array.

    views: (r, d); rows: (n,) document rows in that order; groups: (view offset, documents, views each);
    norm, error: upper bounds of |v'| and |v - v'| in the block; scale: (d,) float32, v' is views times it (int8 only).
    """

    views: torch.Tensor
    rows: Ints
    groups: tuple[tuple[int, int, int], ...]
    norm: float
    error: float
    scale: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RoundedQueries:
    """A tile of queries, rounded for a block. columns: (d, q); steps: (q,), what a product of 1 is worth;
    errors: (q,), upper bounds of |q - q'|.
    """  # noqa: D205 - the fields are one list

    columns: torch.Tensor
    steps: Doubles
    errors: Doubles


class QueryTile:
    """A tile of queries, scaled by powers of two (see scaled_queries), rounded for each block's scale."""

    def __init__(self, queries: Floats, precision: Precision, device: torch.device) -> None:
        scaled, norms = scaled_queries(queries)
        self.norms = norms * _ROUND_UP
        self._slack = rounding_slack(queries)
        self._exact = torch.from_numpy(scaled)
        self.precision = precision
        self._device = device
        self._latest: tuple[torch.Tensor | None, RoundedQueries] | None = None

    def __len__(self) -> int:
        return len(self._exact)

    def rounded(self, block: Block) -> RoundedQueries:
        """Return the queries in the block's type and scale."""
        if self._latest is None or self._latest[0] is not block.scale:
            made = self._as_float() if block.scale is None else self._as_int8(block.scale)
            self._latest = (block.scale, made)
        return self._latest[1]

    def sizes(self, block: Block) -> Doubles:
        """Return the largest size of a product in the block, (q,)."""
        return (self.norms + self.rounded(block).errors) * block.norm

    def errors(self, block: Block) -> Doubles:
        """Return how far a score of the block may be from the truth, before rounding to score_dtype, (q,)."""
        queries = self.rounded(block)
        # Scores that round to the same float32 tie: 2^-23 of the largest score there can be, or the smallest step.
        ties = self.norms * block.norm * 2.0**-23 + self._slack
        error: Doubles = self.norms * block.error + queries.errors * block.norm + ties
        if self.precision is Precision.INT8:
            return error * _ROUND_UP  # sums are exact; steps, q' and the final product are float64
        dim = block.views.shape[1]
        relative = sum_error(dim)
        if self.precision is Precision.FP32 and not _has_plain_float32():
            relative += 2.0**-6  # the factors of float32 products may be rounded, down to bf16
        return error + (self.norms + queries.errors) * block.norm * relative + underflow_error(dim)

    def _as_float(self) -> RoundedQueries:
        rounded = self._exact.to(self.precision.dtype)
        lost = (self._exact - rounded.float()).norm(dim=1).double().numpy() * _ROUND_UP
        return RoundedQueries(_columns(rounded).to(self._device), np.ones(len(self)), lost)

    def _as_int8(self, scale: torch.Tensor) -> RoundedQueries:
        """Return q' with <q', v'> = step * sum of integer products: q' = step * integers / scale, step per query."""
        folded = self._exact.double() * scale.double()
        steps = folded.abs().amax(dim=1).clamp(min=2.0**-300) / _INT8_MAX
        integers = (folded / steps[:, None]).round()
        # Where a scale is zero every v' is zero: no q' there can add anything, so q' = q loses nothing.
        rounded = torch.where(scale > 0, integers * steps[:, None] / scale.double(), self._exact.double())
        lost = (self._exact.double() - rounded).norm(dim=1).numpy() * (1 + 1e-9)
        return RoundedQueries(_columns(integers.to(torch.int8)).to(self._device), steps.numpy(), lost)


def _columns(queries: torch.Tensor) -> torch.Tensor:
    """Return queries (q, d) as columns (d, q), in a fresh layout.

    `.T.contiguous()` will not do: of (q, 1) it is the same memory with strides (1, 1), which the int8 product misreads.
    """
    return torch.empty(queries.shape[::-1], dtype=queries.dtype).copy_(queries.T)


def _has_plain_float32() -> bool:
    """Return whether float32 products are exact: the user may have let torch round their factors."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has an older and a newer way to set it, and refuses to say when both were used
        return False


def view_products(block: Block, columns: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the product of each view, (r, q) score_dtype, in output: scratch of at least that size."""
    scratch = output[: len(block.views)]
    if block.scale is None:
        return torch.mm(block.views, columns, out=scratch)
    return torch._int_mm(block.views, columns, out=scratch)


def best_products(block: Block, products: torch.Tensor) -> torch.Tensor:
    """Return the best view's product of each document, (n, q); products: (r, q)."""
    best = [
        products[view : view + count * k].view(count, k, -1).amax(dim=1) if k > 1 else products[view : view + count]
        for view, count, k in block.groups
    ]
    return best[0] if len(best) == 1 else torch.cat(best)


class SoftMeans:
    """DRPQ's aggregate (eq. 4-6) of a block's products in float32, reduced before it leaves the device.

    temperatures: (q,) in the units of the scaled queries.
    """

    def __init__(self, temperatures: Doubles, device: torch.device) -> None:
        # Beyond 1e30 a gap of any size has weight zero, below 1e-30 none matters: float32 stays finite.
        self._rates = self._on(device, np.clip(1 / temperatures, 1e-30, 1e30))

    def bounds(
        self, block: Block, products: torch.Tensor, steps: Doubles, tile: QueryTile
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return bounds, (n, q) float32, of each document's aggregate. products: (r, q); steps: (q,)."""
        device = products.device
        sizes = tile.sizes(block)
        errors = tile.errors(block) + sizes * tile.precision.output_error
        worth = self._on(device, steps)
        lower, upper = [], []
        for view, count, k in block.groups:
            scores = products[view : view + count * k].view(count, k, -1).float() * worth
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


class BlockMaker:
    """Makes blocks of a snapshot in one precision; each int8 block has its own scale, which never changes."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.precision = precision
        self._device = device

    def make(self, snapshot: Snapshot, begin: int, end: int) -> Block:
        """Return the block of document rows [begin, end)."""
        packed, starts = snapshot.views.read_block(begin, end)
        counts = np.diff(starts)
        order = np.argsort(counts, kind="stable")
        stored = torch.from_numpy(packed.copy())
        if not np.array_equal(order, np.arange(len(order))):
            within = np.arange(len(packed)) - np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
            stored = stored[torch.from_numpy(np.repeat(starts[:-1][order], counts[order]) + within)]
        exact = stored.float()
        views, scale, held = self._rounded(exact)
        norm, error = float(row_norms(held.numpy()).max()), float(row_norms((exact - held).numpy()).max())
        if self.precision is Precision.FP32:
            error = 0.0
        elif self.precision is Precision.INT8:
            error += norm * 2.0**-23  # held is integers * scale rounded to float32
        return Block(views.to(self._device), begin + order, _groups(counts[order]), norm, error, scale)

    def _rounded(self, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Return the copy, its scale, and what the copy stands for in float32."""
        if self.precision is not Precision.INT8:
            views = exact.to(self.precision.dtype).contiguous()
            return views, None, views.float()
        scale = exact.abs().amax(dim=0) / _INT8_MAX
        # A dimension that is zero throughout has scale zero, and stays zero.
        integers = torch.where(scale > 0, exact / scale, torch.zeros(())).round_().clamp_(-_INT8_MAX, _INT8_MAX)
        return integers.to(torch.int8), scale, integers * scale


def best_precision(device: torch.device, dim: int, few_queries: bool) -> Precision:
    """Return the type that the hardware scans fastest in: int8 for few queries, where its products are exact."""
    if device.type == "cuda":
        return Precision.FP32  # bf16 sums on CUDA may be reduced in bf16, which the bound does not cover
    read = getattr(torch.cpu, "get_capabilities", dict)  # absent from older torch
    capabilities: dict[str, Any] = read()
    has_bf16 = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    has_int8 = bool(capabilities.get("avx512_vnni") or capabilities.get("amx_int8"))
    if has_int8 and (few_queries or not has_bf16) and has_exact_int8(dim):
        return Precision.INT8
    return Precision.BF16 if has_bf16 else Precision.FP32


def default_precision(device: str) -> Precision:
    """Return the type that batches are scanned in on the device."""
    return best_precision(torch.device(device), dim=384, few_queries=False)


@lru_cache
def has_exact_int8(dim: int) -> bool:
    """Return whether torch's private int8 product exists and is exact for this dim, largest factors included."""
    if not hasattr(torch, "_int_mm"):
        return False
    generator = torch.Generator().manual_seed(0)
    for num_queries in (1, 5, 64):
        views = torch.randint(-_INT8_MAX, _INT8_MAX + 1, (97, dim), dtype=torch.int8, generator=generator)
        queries = torch.randint(-_INT8_MAX, _INT8_MAX + 1, (dim, num_queries), dtype=torch.int8, generator=generator)
        views[0], queries[:, 0] = _INT8_MAX, _INT8_MAX
        try:
            product = torch._int_mm(views, queries)
        except RuntimeError:
            return False
        if not torch.equal(product.long(), views.long() @ queries.long()):
            return False
    return True


def rounded_down(values: Doubles, precision: Precision) -> torch.Tensor:
    """Return thresholds as score_dtype: scores of that type reach the value only if they reach the threshold."""
    if precision is Precision.INT8:
        limit = 2.0**31 - 1
        return torch.from_numpy(np.clip(np.ceil(values), -limit, limit).astype(np.int32))
    narrow = values.astype(np.float32)
    narrow = np.where(narrow > values, np.nextafter(narrow, np.float32(-np.inf)), narrow)
    if precision is Precision.FP32:
        return torch.from_numpy(narrow)
    bits = narrow.view(np.int32)
    # Cutting the low half rounds towards zero; below zero that is up, so step one bf16 number further.
    cut = (bits & -0x10000) + np.where((narrow < 0) & (bits & 0xFFFF != 0) & np.isfinite(narrow), 0x10000, 0)
    return torch.from_numpy(cut.astype(np.int32).view(np.float32)).to(torch.bfloat16)


def _groups(counts: Ints) -> tuple[tuple[int, int, int], ...]:
    """Return runs of equal view counts as (view offset, documents, views each); counts is rising."""
    sizes, lengths = np.unique(counts, return_counts=True)
    offsets = np.append(0, np.cumsum(sizes * lengths))[:-1]
    return tuple(zip(offsets.tolist(), lengths.tolist(), sizes.tolist(), strict=True))
