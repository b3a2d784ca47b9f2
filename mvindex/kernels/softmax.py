"""DRPQ's aggregate of one document for a tile of queries, as LLVM instructions that compiled functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from mvindex.kernels.compiled import intrinsic
from mvindex.kernels.llvm import FLOATS, I64, INTS, LANES, Loop, bits_of, filled, pointer, splat

# 2^f for |f| <= 1/2 as a polynomial, constant first: Chebyshev interpolation, off by less than float32's rounding.
_EXP2 = tuple(
    np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, [-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef.astype(np.float64)
    .tolist()
)


def _soft_tile(num_vectors: int) -> Any:
    """Return which of the 16 x num_vectors queries' thresholds an aggregate reaches, as bits (an intrinsic).

    soft(products, num_views, best, rates, offsets, values, slopes, thresholds, norm, error_norm,
    lipschitz_constant, own):
    addresses of (num_views, lanes) int32 products, 64-byte aligned, of the best of them and the offsets, (lanes,)
    int32, and of the rates, -log2(e) / T, (lanes,) float32; values, (lanes,) float32, gets
    M - offset - sum_j w_j g_j / sum_j w_j with g_j = M - s_j, w_j = exp(-g_j / T) (DRPQ eq. 4-6), all in steps. A query
    counts as reached when its value plus lipschitz_constant x (error_norm x slopes[0] + norm x slopes[1] + slopes[2])
    + own x norm x slopes[3] is at least its threshold; slopes (4, lanes), thresholds (lanes,), the rest: float32.
    It also counts as reached where that sum or the threshold is NaN.
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
        lipschitz_constant: Any,
        own: Any,
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            products_at, num_views, best_at, rates_at, offsets_at, values_at, slopes_at, thresholds_at = arguments[:8]
            norm, error_norm, lipschitz_constant, own = (splat(builder, argument) for argument in arguments[8:])
            read = [_Reader(builder, vector) for vector in range(num_vectors)]
            highest = [reader.ints(best_at) for reader in read]
            scaled = [reader.floats(rates_at) for reader in read]
            loop = Loop(builder, num_views, [filled(FLOATS, 0.0)] * (2 * num_vectors))
            view_at = builder.add(products_at, builder.mul(loop.step, I64(64 * num_vectors)))
            carried = []
            for vector, reader in enumerate(read):
                weights, losses = loop.carried[2 * vector : 2 * vector + 2]
                gap = builder.sitofp(builder.sub(highest[vector], reader.ints(view_at)), FLOATS)
                weight = _exp2_below_zero(builder, builder.fmul(gap, scaled[vector]))
                carried += [builder.fadd(weights, weight), builder.fadd(losses, builder.fmul(weight, gap))]
            loop.close(carried)
            mask: Any = I64(0)
            for vector, reader in enumerate(read):
                loss = builder.fdiv(carried[2 * vector + 1], carried[2 * vector])
                above = builder.sitofp(builder.sub(highest[vector], reader.ints(offsets_at)), FLOATS)
                value = builder.fsub(above, loss)
                reader.store(value, values_at)
                slope = [reader.floats(slopes_at, row * num_vectors) for row in range(4)]
                error = builder.fadd(builder.fmul(error_norm, slope[0]), builder.fmul(norm, slope[1]))
                error = builder.fmul(lipschitz_constant, builder.fadd(error, slope[2]))
                error = builder.fadd(error, builder.fmul(own, builder.fmul(norm, slope[3])))
                # Unordered: a bound that is no number says nothing, so that the document stays a candidate.
                reaches = builder.fcmp_unordered(">=", builder.fadd(value, error), reader.floats(thresholds_at))
                mask = builder.or_(mask, builder.shl(bits_of(builder, reaches), I64(LANES * vector)))
            return mask

        return types.uint64(*[types.int64] * 8, *[types.float32] * 4), generate

    return soft


class _Reader:
    """Reads and writes one vector of sixteen numbers of a tile."""

    def __init__(self, builder: Any, vector: int) -> None:
        self._builder, self._vector = builder, vector

    def ints(self, address: Any) -> Any:
        return self._builder.load(self._pointer(address, 0, INTS), align=64)

    def floats(self, address: Any, vectors_before: int = 0) -> Any:
        return self._builder.load(self._pointer(address, vectors_before, FLOATS), align=64)

    def store(self, value: Any, address: Any) -> None:
        self._builder.store(value, self._pointer(address, 0, FLOATS), align=64)

    def _pointer(self, address: Any, vectors_before: int, pointed: Any) -> Any:
        return pointer(self._builder, address, I64(64 * (self._vector + vectors_before)), pointed)


def _exp2_below_zero(builder: Any, exponents: Any) -> Any:
    """Return 2^x of float32 x <= 0, off by less than 2^-21 of itself; 2^-126 below -126."""
    lowest = filled(FLOATS, -126.0)
    clipped = builder.select(builder.fcmp_ordered("<", exponents, lowest), lowest, exponents)
    # Cut towards zero after stepping half down: to the nearest, as the exponent is never above zero.
    whole = builder.fptosi(builder.fsub(clipped, filled(FLOATS, 0.5)), INTS)
    fraction = builder.fsub(clipped, builder.sitofp(whole, FLOATS))
    value = filled(FLOATS, _EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        value = builder.fadd(builder.fmul(value, fraction), filled(FLOATS, coefficient))
    power = builder.shl(whole, filled(INTS, 23))
    return builder.bitcast(builder.add(builder.bitcast(value, INTS), power), FLOATS)


soft_64 = _soft_tile(4)
soft_32 = _soft_tile(2)
soft_16 = _soft_tile(1)
