"""DRPQ's aggregate of one document for a tile of queries, as LLVM instructions that compiled functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import intrinsic

LANES = 16

_I64, _FLOAT, _INTS = ir.IntType(64), ir.FloatType(), ir.VectorType(ir.IntType(32), LANES)
_FLOATS = ir.VectorType(_FLOAT, LANES)
# 2^f for |f| <= 1/2 as a polynomial, constant first: Chebyshev interpolation, off by less than float32's rounding.
_EXP2 = tuple(
    np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, [-0.5, 0.5]).convert(kind=np.polynomial.Polynomial).coef
)


def _soft_tile(num_vectors: int) -> Any:
    """An intrinsic: which of the 16 x num_vectors queries' thresholds a document's aggregate reaches, as bits.

    soft(products, num_views, best, rates, offsets, values, slopes, thresholds, norm, error_norm, sensitivity, own):
    addresses of (num_views, lanes) int32 products, 64-byte aligned, of the best of them, (lanes,) int32, of the rates,
    -log2(e) / T, and the offsets, (lanes,) float32; values, (lanes,) float32, gets
    M - offset - sum_j w_j g_j / sum_j w_j with g_j = M - s_j, w_j = exp(-g_j / T) (DRPQ eq. 4-6), all in steps. A query
    counts as reached when its value plus sensitivity x (error_norm x slopes[0] + norm x slopes[1] + slopes[2])
    + own x norm x slopes[3] is at least its threshold; slopes (4, lanes), thresholds (lanes,), the rest: float32.
    """

    @intrinsic
    def soft(  # noqa: PLR0913 - addresses, which have no record to stand in
        context: Any,
        products: Any,
        num_views: Any,
        best: Any,
        rates: Any,
        offsets: Any,
        values: Any,
        slopes: Any,
        thresholds: Any,
        norm: Any,
        error_norm: Any,
        sensitivity: Any,
        own: Any,
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            products_at, num_views, best_at, rates_at, offsets_at, values_at, slopes_at, thresholds_at = arguments[:8]
            norm, error_norm, sensitivity, own = (_splat(builder, argument) for argument in arguments[8:])
            read = [_Reader(builder, vector) for vector in range(num_vectors)]
            highest = [reader.ints(best_at) for reader in read]
            scaled = [reader.floats(rates_at) for reader in read]
            loop = _Loop(builder, num_views, 2 * num_vectors)
            view_at = builder.add(products_at, builder.mul(loop.step, _I64(64 * num_vectors)))
            carried = []
            for vector, reader in enumerate(read):
                weights, losses = loop.carried[2 * vector : 2 * vector + 2]
                gap = builder.sitofp(builder.sub(highest[vector], reader.ints(view_at)), _FLOATS)
                weight = _exp2_below_zero(builder, builder.fmul(gap, scaled[vector]))
                carried += [builder.fadd(weights, weight), builder.fadd(losses, builder.fmul(weight, gap))]
            loop.close(carried)
            mask: Any = _I64(0)
            for vector, reader in enumerate(read):
                loss = builder.fdiv(carried[2 * vector + 1], carried[2 * vector])
                above = builder.sitofp(builder.sub(highest[vector], reader.ints(offsets_at)), _FLOATS)
                value = builder.fsub(above, loss)
                reader.store(value, values_at)
                slope = [reader.floats(slopes_at, row * num_vectors) for row in range(4)]
                error = builder.fadd(builder.fmul(error_norm, slope[0]), builder.fmul(norm, slope[1]))
                error = builder.fmul(sensitivity, builder.fadd(error, slope[2]))
                error = builder.fadd(error, builder.fmul(own, builder.fmul(norm, slope[3])))
                reaches = builder.fcmp_ordered(">=", builder.fadd(value, error), reader.floats(thresholds_at))
                bits = builder.zext(builder.bitcast(reaches, ir.IntType(LANES)), _I64)
                mask = builder.or_(mask, builder.shl(bits, _I64(LANES * vector)))
            return mask

        return types.uint64(*[types.int64] * 8, *[types.float32] * 4), generate

    return soft


class _Reader:
    """Reads and writes one vector of sixteen numbers of a tile."""

    def __init__(self, builder: Any, vector: int) -> None:
        self._builder, self._vector = builder, vector

    def ints(self, address: Any) -> Any:
        return self._builder.load(self._pointer(address, 0, _INTS), align=64)

    def floats(self, address: Any, vectors_before: int = 0) -> Any:
        return self._builder.load(self._pointer(address, vectors_before, _FLOATS), align=64)

    def store(self, value: Any, address: Any) -> None:
        self._builder.store(value, self._pointer(address, 0, _FLOATS), align=64)

    def _pointer(self, address: Any, vectors_before: int, pointed: Any) -> Any:
        offset = _I64(64 * (self._vector + vectors_before))
        return self._builder.inttoptr(self._builder.add(address, offset), pointed.as_pointer())


class _Loop:
    """A loop from 0 to count (at least 1) over vectors of float32 that start at zero and are carried on."""

    def __init__(self, builder: Any, count: Any, num_carried: int) -> None:
        self._builder, self._count = builder, count
        before = builder.block
        self._body, self._done = builder.append_basic_block("views"), builder.append_basic_block("done")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.step = builder.phi(_I64)
        self.step.add_incoming(_I64(0), before)
        self.carried = [builder.phi(_FLOATS) for _ in range(num_carried)]
        for phi in self.carried:
            phi.add_incoming(_FLOATS([0.0] * LANES), before)

    def close(self, carried: list[Any]) -> None:
        """Nothing; the builder stands behind the loop."""
        following = self._builder.add(self.step, _I64(1))
        self.step.add_incoming(following, self._body)
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, self._body)
        self._builder.cbranch(self._builder.icmp_signed("<", following, self._count), self._body, self._done)
        self._builder.position_at_end(self._done)


def _exp2_below_zero(builder: Any, exponents: Any) -> Any:
    """2^x of float32 x <= 0, off by less than 2^-21 of itself; below -126 it is 2^-126."""
    lowest = _FLOATS([-126.0] * LANES)
    clipped = builder.select(builder.fcmp_ordered("<", exponents, lowest), lowest, exponents)
    # Cut towards zero after stepping half down: to the nearest, as the exponent is never above zero.
    whole = builder.fptosi(builder.fsub(clipped, _FLOATS([0.5] * LANES)), _INTS)
    fraction = builder.fsub(clipped, builder.sitofp(whole, _FLOATS))
    value = _FLOATS([_EXP2[-1]] * LANES)
    for coefficient in _EXP2[-2::-1]:
        value = builder.fadd(builder.fmul(value, fraction), _FLOATS([coefficient] * LANES))
    power = builder.shl(whole, _INTS([23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(value, _INTS), power), _FLOATS)


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(_FLOATS(ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, _FLOATS(ir.Undefined), _INTS([0] * LANES))


soft_64 = _soft_tile(4)
soft_32 = _soft_tile(2)
soft_16 = _soft_tile(1)
