"""Products of 8-bit integers by AVX-512 VNNI, as LLVM instructions that compiled functions call.

One vpdpbusd multiplies 64 unsigned by 64 signed bytes and adds the products, four by four, to sixteen int32: exact,
since sums of up to MAX_DIM products of 255 x 127 fit. Views are held unsigned (value + 128), queries signed;
the caller takes 128 times the sum of a query's integers off again.

Addresses are int64; what stands there must outlive the call. See `_product_tile` for the layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import intrinsic
from mvindex.kernels.llvm import (
    BYTES,
    FLOAT,
    I32,
    I64,
    INTS,
    LANES,
    Loop,
    bits_of,
    call,
    filled,
    pointer,
    prefetch_line,
    splat,
)

VIEW_OFFSET = 128
MAX_DIM = 1 << 16
MULTIPLY = ("llvm.x86.avx512.vpdpbusd.512", ir.FunctionType(INTS, [INTS, BYTES, BYTES]))
ADD_LANES = ("llvm.vector.reduce.add.v16i32", ir.FunctionType(I32, [INTS]))
# Bytes ahead of the views being read: far enough to hide memory, measured on Zen 5 (bench/search.py, batch 1).
_AHEAD_BYTES = 4096
_TILE_AHEAD_BYTES = 16384


def _product_tile(num_rows: int, num_vectors: int) -> Any:
    """Compute the products of num_rows views with 16 x num_vectors queries, with sums in registers (an intrinsic).

    tile(views, pitch, queries, steps, out): views at `views`, pitch bytes apart; queries as (steps, 16 num_vectors, 4)
    int8, 64-byte aligned, 4 steps dims of each; out (num_rows, 16 num_vectors) int32, 64-byte aligned.
    """

    @intrinsic
    def tile(
        context: Any, views: Any, pitch: Any, queries: Any, steps: Any, out: Any
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            views_at, pitch, queries_at, steps, out_at = arguments
            loop = Loop(builder, steps, [filled(INTS, 0)] * (num_rows * num_vectors))
            offset = builder.mul(loop.step, I64(4 * LANES * num_vectors))
            factors = [_load(builder, queries_at, builder.add(offset, I64(64 * n)), BYTES) for n in range(num_vectors)]
            # A step's share of the views that come later: the processor does not foresee so many rows at once.
            ahead = builder.add(builder.mul(loop.step, I64(4 * num_rows)), I64(_TILE_AHEAD_BYTES))
            prefetch_line(builder, views_at, ahead)
            offset = builder.mul(loop.step, I64(4))
            sums = []
            for row in range(num_rows):
                at = builder.add(offset, builder.mul(pitch, I64(row)))
                four = builder.bitcast(splat(builder, _load(builder, views_at, at, I32, align=1)), BYTES)
                for vector in range(num_vectors):
                    before = loop.carried[row * num_vectors + vector]
                    sums.append(call(builder, MULTIPLY, before, four, factors[vector]))
            loop.close(sums)
            for number, total in enumerate(sums):
                builder.store(total, pointer(builder, out_at, I64(64 * number), INTS), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return tile


@intrinsic
def dot(context: Any, view: Any, query: Any, chunks: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the product of one view with one query (an intrinsic), of views one after the other.

    view, query: 64-byte aligned addresses of 64 chunks uint8 and int8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view_at, query_at, chunks = arguments
        loop = Loop(builder, chunks, [filled(INTS, 0)])
        offset = builder.mul(loop.step, I64(4 * LANES))
        prefetch_line(builder, view_at, builder.add(offset, I64(_AHEAD_BYTES)))
        four, factors = (_load(builder, at, offset, BYTES) for at in (view_at, query_at))
        total = call(builder, MULTIPLY, loop.carried[0], four, factors)
        loop.close([total])
        return call(builder, ADD_LANES, total)

    return types.int32(*[types.int64] * 3), generate


def _best_tile(num_vectors: int) -> Any:
    """Return which of the 16 x num_vectors queries' best products reach their thresholds, as bits (an intrinsic).

    best(products, num_rows, thresholds, out): products (num_rows, 16 num_vectors) int32 of one document's views,
    num_rows >= 1; thresholds and out (16 num_vectors,) int32; out gets the best products. All 64-byte aligned.
    """

    @intrinsic
    def best(context: Any, products: Any, rows: Any, thresholds: Any, out: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            products_at, num_rows, thresholds_at, out_at = arguments
            loop = Loop(builder, num_rows, [filled(INTS, -(2**31))] * num_vectors)
            offset = builder.mul(loop.step, I64(64 * num_vectors))
            largest = []
            for vector in range(num_vectors):
                value = _load(builder, products_at, builder.add(offset, I64(64 * vector)), INTS)
                is_more = builder.icmp_signed(">", value, loop.carried[vector])
                largest.append(builder.select(is_more, value, loop.carried[vector]))
            loop.close(largest)
            mask: Any = I64(0)
            for vector, value in enumerate(largest):
                builder.store(value, pointer(builder, out_at, I64(64 * vector), INTS), align=64)
                reaches = builder.icmp_signed(">=", value, _load(builder, thresholds_at, I64(64 * vector), INTS))
                mask = builder.or_(mask, builder.shl(bits_of(builder, reaches), I64(LANES * vector)))
            return mask

        return types.uint64(*[types.int64] * 4), generate

    return best


@intrinsic
def trailing_zeros(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the number of zero bits below the lowest one bit of a uint64 other than 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@intrinsic
def float_at(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], FLOAT.as_pointer()))

    return types.float32(types.int64), generate


def _load(builder: Any, address: Any, offset: Any, loaded: Any, align: int = 64) -> Any:
    return builder.load(pointer(builder, address, offset, loaded), align=align)


# As many views at once as leave registers for the queries: 6 x 4, 12 x 2 and 16 x 1 of the 32 vectors (measured).
products_6x64 = _product_tile(6, 4)
products_12x32 = _product_tile(12, 2)
products_16x16 = _product_tile(16, 1)
best_64 = _best_tile(4)
best_32 = _best_tile(2)
best_16 = _best_tile(1)
