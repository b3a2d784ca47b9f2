"""Inner products of stored views with queries in float64, straight from the mapped store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels import SUM_LANES
from mvindex.kernels.compiled import compiled_inline, compiled_strict, intrinsic
from mvindex.kernels.llvm import I32, I64, Loop, call, decoded, filled, pointer, prefetch

# Documents ahead of the one that is summed.
_AHEAD = 1
_WIDTH = 8  # of a vector; the order of the sums does not depend on it
_DOUBLES, _FLOATS = ir.VectorType(ir.DoubleType(), _WIDTH), ir.VectorType(ir.FloatType(), _WIDTH)
_FMULADD = ("llvm.fmuladd.v8f64", ir.FunctionType(_DOUBLES, [_DOUBLES] * 3))


@intrinsic
def _product(context: Any, view: Any, query: Any, blocks: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the inner product, in the order of aggregate.view_sums().

    view, query: addresses of SUM_LANES x blocks float32 and float64, padded with zeros; blocks >= 1.
    Products are exact, so that it does not matter whether the processor fuses them with the sums.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view, query, blocks = arguments
        loop = Loop(builder, blocks, [filled(_DOUBLES, 0.0)] * (SUM_LANES // _WIDTH))
        sums = []
        for number, total in enumerate(loop.carried):
            at = builder.add(builder.mul(loop.step, I64(SUM_LANES)), I64(number * _WIDTH))
            narrow = builder.load(pointer(builder, view, builder.mul(at, I64(4)), _FLOATS), align=4)
            factors = builder.load(pointer(builder, query, builder.mul(at, I64(8)), _DOUBLES), align=8)
            sums.append(call(builder, _FMULADD, builder.fpext(narrow, _DOUBLES), factors, total))
        loop.close(sums)
        # loop.carried are the sums before the last step: `sums` are those of the block that ends the loop.
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [builder.fadd(low, high) for low, high in zip(sums[:half], sums[half:], strict=True)]
        lanes = [builder.extract_element(sums[0], I32(lane)) for lane in range(_WIDTH)]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [builder.fadd(low, high) for low, high in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    return types.float64(types.int64, types.int64, types.int64), generate


@compiled_strict
def _widened(queries: Any) -> Any:
    """Return the queries, (q, d) float32, in float64, padded with zeros to the next multiple of SUM_LANES."""
    dim = queries.shape[1]
    wide = np.zeros((len(queries), (dim + SUM_LANES - 1) // SUM_LANES * SUM_LANES))
    for number in range(len(queries)):
        for i in range(dim):
            wide[number, i] = queries[number, i]
    return wide


@compiled_inline
def _sum(matrix: Any, view: Any, ahead: Any, row: Any, query_at: Any) -> Any:
    """Return the inner product of a view with the query at an address; row: (D,) float32, zeros from d on.

    Documents lie anywhere: the view `ahead` of the next one is prefetched meanwhile.
    """
    dim, row_bytes = matrix.shape[1], matrix.shape[1] * matrix.itemsize
    for line in range(0, row_bytes, 64):
        prefetch(matrix.ctypes.data + ahead * row_bytes + line)
    for i in range(dim):
        row[i] = decoded(matrix[view, i])
    return _product(row.ctypes.data, query_at, len(row) // SUM_LANES)


@compiled_strict
def sums_of_documents(matrix: Any, begins: Any, starts: Any, queries: Any, which: Any, sums: Any) -> None:
    """Write the inner product <q, v> of each view of each pair to sums, bit for bit those of aggregate.view_sums().

    matrix: (num_views, d) float32, or int16 with the bits of fp16. Pair i is the views begins[i], ... of a document,
    starts[i + 1] - starts[i] of them, with queries[which[i]], (q, d) float32; sums: (starts[-1],) float64.
    """
    wide = _widened(queries)
    row = np.zeros(wide.shape[1], dtype=np.float32)
    for pair in range(len(begins)):
        query_at = wide.ctypes.data + which[pair] * wide.shape[1] * wide.itemsize
        following = begins[min(pair + _AHEAD, len(begins) - 1)]
        for slot in range(starts[pair + 1] - starts[pair]):
            sums[starts[pair] + slot] = _sum(matrix, begins[pair] + slot, following + slot, row, query_at)


@compiled_strict
def best_of_documents(matrix: Any, begins: Any, ends: Any, queries: Any, which: Any, scores: Any, slots: Any) -> bool:
    """Write each pair's best view, bit for bit as score.best_views() finds it; return whether all sums are finite.

    Pair i is the views begins[i] to ends[i] of a document with queries[which[i]], else as for sums_of_documents();
    scores: (m,) float32; slots: (m,) int64.
    """
    wide = _widened(queries)
    row = np.zeros(wide.shape[1], dtype=np.float32)
    for pair in range(len(begins)):
        query_at = wide.ctypes.data + which[pair] * wide.shape[1] * wide.itemsize
        following = begins[min(pair + _AHEAD, len(begins) - 1)]
        best, best_slot = np.float32(-np.inf), 0
        for slot in range(ends[pair] - begins[pair]):
            total = _sum(matrix, begins[pair] + slot, following + slot, row, query_at)
            if not np.isfinite(total):
                return False
            score = np.float32(total)
            if score > best:
                best, best_slot = score, slot
        # Adding zero turns -0.0 into 0.0.
        scores[pair], slots[pair] = best + np.float32(0), best_slot
    return True
