"""Inner products of stored views with queries in float64, straight from the mapped store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels import SUM_LANES
from mvindex.kernels.compiled import compiled_strict, intrinsic
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
def sums_of_documents(
    matrix: Any,
    begins: Any,
    starts: Any,
    queries: Any,
    which: Any,
    sums: Any,
) -> None:
    """Write the inner product <q, v> of each view of each pair to sums, bit for bit those of aggregate.view_sums().

    matrix: (num_views, d) float32, or int16 with the bits of fp16. Pair i is the views begins[i], ... of a document,
    starts[i + 1] - starts[i] of them, with queries[which[i]], (q, D) float64, D the next multiple of SUM_LANES,
    padded with zeros; sums: (starts[-1],) float64.
    """
    dim, row_bytes, matrix_at = matrix.shape[1], matrix.shape[1] * matrix.itemsize, matrix.ctypes.data
    padded = queries.shape[1]
    row = np.zeros(padded, dtype=np.float32)
    row_at, queries_at = row.ctypes.data, queries.ctypes.data
    for pair in range(len(begins)):
        query_at = queries_at + which[pair] * padded * 8
        for at in range(starts[pair], starts[pair + 1]):
            slot = at - starts[pair]
            # Documents lie anywhere: the next one is prefetched while this one is summed.
            ahead = begins[min(pair + _AHEAD, len(begins) - 1)] + slot
            for line in range(0, row_bytes, 64):
                prefetch(matrix_at + ahead * row_bytes + line)
            view = matrix[begins[pair] + slot]
            for i in range(dim):
                row[i] = decoded(view[i])
            sums[at] = _product(row_at, query_at, padded // SUM_LANES)


@compiled_strict
def best_of_documents(sums: Any, starts: Any, scores: Any, slots: Any) -> bool:
    """Write each document's best view, bit for bit as score.best_views() finds it; return whether all sums are finite.

    sums: (starts[-1],) float64; starts: (m + 1,) int64; scores: (m,) float32; slots: (m,) int64.
    """
    for row in range(len(scores)):
        best, slot = np.float32(-np.inf), 0
        for at in range(starts[row], starts[row + 1]):
            if not np.isfinite(sums[at]):
                return False
            score = np.float32(sums[at])
            if score > best:
                best, slot = score, at - starts[row]
        # Adding zero turns -0.0 into 0.0.
        scores[row], slots[row] = best + np.float32(0), slot
    return True
