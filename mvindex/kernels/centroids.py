"""Scores of the centroids of inverted lists, read where Faiss holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import compiled_strict, intrinsic
from mvindex.kernels.fast_scan import AHEAD_BYTES, long_at
from mvindex.kernels.llvm import I64, Loop, call, filled, pointer
from mvindex.kernels.numbers import prefetch

# Numbers of a centroid that are multiplied at once.
LANES = 8
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_MULTIPLY_ADD = ("llvm.fma.v8f32", ir.FunctionType(_FLOATS, [_FLOATS] * 3))
_ADD_LANES = ("llvm.vector.reduce.fadd.v8f32", ir.FunctionType(ir.FloatType(), [ir.FloatType(), _FLOATS]))


@intrinsic
def _product(context: Any, row: Any, query: Any, steps: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the inner product of 8 x steps float32 at two addresses, added in one order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, query, steps = arguments
        loop = Loop(builder, steps, [filled(_FLOATS, 0.0)])
        offset = builder.mul(loop.step, I64(32))
        factors = [builder.load(pointer(builder, at, offset, _FLOATS), align=4) for at in (row, query)]
        total = call(builder, _MULTIPLY_ADD, *factors, loop.carried[0])
        loop.close([total])
        return call(builder, _ADD_LANES, ir.FloatType()(0.0), total)

    return types.float32(types.int64, types.int64, types.int64), generate


@compiled_strict
def score_groups(groups: Any, query: Any, scores: Any, lists: Any) -> None:
    """Write the inner product of each centroid of these groups with the query, and the number of its list.

    groups: (n, 4) int64: the address of each group's centroids, their number, where their scores are written, and the
    address of their lists' numbers. query: (d,) float32, d a multiple of 8.
    """
    query_at, steps, row_bytes = query.ctypes.data, len(query) // LANES, 4 * len(query)
    for number in range(len(groups)):
        at, count, place, lists_at = groups[number]
        for one in range(count):
            for line in range(0, row_bytes, 64):
                prefetch(at + AHEAD_BYTES + line)
            scores[place + one] = _product(at, query_at, steps)
            lists[place + one] = long_at(lists_at + 8 * one)
            at += row_bytes
