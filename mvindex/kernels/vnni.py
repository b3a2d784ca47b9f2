"""Products of 8-bit integers by AVX-512 VNNI, as LLVM instructions that compiled functions call.

One vpdpbusd multiplies 64 unsigned by 64 signed bytes and adds the products, four by four, to sixteen int32: exact,
since sums of up to MAX_DIM products of 255 x 127 fit. Views are held unsigned (value + 128), queries signed;
the caller takes 128 times the sum of a query's integers off again.

Addresses are int64; what stands there must outlive the call. See ProductTile for the layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import intrinsic

VIEW_OFFSET = 128
MAX_DIM = 1 << 16
LANES = 16

_I8, _I32, _I64, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES, _INTS = ir.VectorType(_I8, 4 * LANES), ir.VectorType(_I32, LANES)
_MULTIPLY = ("llvm.x86.avx512.vpdpbusd.512", ir.FunctionType(_INTS, [_INTS, _BYTES, _BYTES]))
_ADD_LANES = ("llvm.vector.reduce.add.v16i32", ir.FunctionType(_I32, [_INTS]))
_PREFETCH = ("llvm.prefetch.p0", ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32]))
# Bytes ahead of the views being read: far enough to hide memory, measured on Zen 5 (bench/search.py, batch 1).
_AHEAD_BYTES = 4096
_TILE_AHEAD_BYTES = 16384


def _product_tile(num_rows: int, num_vectors: int) -> Any:
    """An intrinsic: the products of num_rows views with 16 x num_vectors queries, all sums kept in registers.

    tile(views, pitch, queries, steps, out): views at `views`, pitch bytes apart; queries as (steps, 16 num_vectors, 4)
    int8, 64-byte aligned, 4 steps dims of each; out (num_rows, 16 num_vectors) int32, 64-byte aligned.
    """

    @intrinsic
    def tile(
        context: Any, views: Any, pitch: Any, queries: Any, steps: Any, out: Any
    ) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            views_at, pitch, queries_at, steps, out_at = arguments
            loop = _Loop(builder, steps, num_rows * num_vectors)
            offset = builder.mul(loop.step, _I64(4 * LANES * num_vectors))
            asked = [_load(builder, queries_at, builder.add(offset, _I64(64 * n)), _BYTES) for n in range(num_vectors)]
            # A step's share of the views that come later: the processor does not foresee so many rows at once.
            ahead = builder.add(builder.mul(loop.step, _I64(4 * num_rows)), _I64(_TILE_AHEAD_BYTES))
            _call(builder, _PREFETCH, _pointer(builder, views_at, ahead, _I8), _I32(0), _I32(3), _I32(1))
            offset = builder.mul(loop.step, _I64(4))
            sums = []
            for row in range(num_rows):
                at = builder.add(offset, builder.mul(pitch, _I64(row)))
                four = _splat(builder, _load(builder, views_at, at, _I32, align=1))
                for vector in range(num_vectors):
                    before = loop.sums[row * num_vectors + vector]
                    sums.append(_call(builder, _MULTIPLY, before, four, asked[vector]))
            loop.close(sums)
            for number, total in enumerate(sums):
                builder.store(total, _pointer(builder, out_at, _I64(64 * number), _INTS), align=64)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return tile


@intrinsic
def dot(context: Any, view: Any, query: Any, chunks: Any) -> tuple[Any, Callable[..., Any]]:
    """The product of one view with one query, (64 chunks,) uint8 and int8 at 64-byte aligned addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view_at, query_at, chunks = arguments
        loop = _Loop(builder, chunks, 1)
        offset = builder.mul(loop.step, _I64(4 * LANES))
        ahead = builder.add(offset, _I64(_AHEAD_BYTES))
        _call(builder, _PREFETCH, _pointer(builder, view_at, ahead, _I8), _I32(0), _I32(3), _I32(1))
        four, asked = (_load(builder, at, offset, _BYTES) for at in (view_at, query_at))
        total = _call(builder, _MULTIPLY, loop.sums[0], four, asked)
        loop.close([total])
        return _call(builder, _ADD_LANES, total)

    return types.int32(*[types.int64] * 3), generate


def _best_tile(num_vectors: int) -> Any:
    """An intrinsic: which of the 16 x num_vectors queries have a best product that reaches their threshold, as bits.

    best(products, num_rows, thresholds, out): products (num_rows, 16 num_vectors) int32 of one document's views,
    num_rows >= 1; thresholds and out (16 num_vectors,) int32; out gets the best products. All 64-byte aligned.
    """

    @intrinsic
    def best(context: Any, products: Any, rows: Any, thresholds: Any, out: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            products_at, num_rows, thresholds_at, out_at = arguments
            loop = _Loop(builder, num_rows, num_vectors, first=-(2**31))
            offset = builder.mul(loop.step, _I64(64 * num_vectors))
            largest = []
            for vector in range(num_vectors):
                value = _load(builder, products_at, builder.add(offset, _I64(64 * vector)), _INTS)
                is_more = builder.icmp_signed(">", value, loop.sums[vector])
                largest.append(builder.select(is_more, value, loop.sums[vector]))
            loop.close(largest)
            mask: Any = _I64(0)
            for vector, value in enumerate(largest):
                builder.store(value, _pointer(builder, out_at, _I64(64 * vector), _INTS), align=64)
                reaches = builder.icmp_signed(">=", value, _load(builder, thresholds_at, _I64(64 * vector), _INTS))
                bits = builder.zext(builder.bitcast(reaches, ir.IntType(LANES)), _I64)
                mask = builder.or_(mask, builder.shl(bits, _I64(LANES * vector)))
            return mask

        return types.uint64(*[types.int64] * 4), generate

    return best


@intrinsic
def trailing_zeros(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """The number of zero bits below the lowest one bit of a uint64 other than 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@intrinsic
def float_at(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """The float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _FLOAT.as_pointer()))

    return types.float32(types.int64), generate


class _Loop:
    """A loop from 0 to count (at least 1) over vectors of sixteen int32 that are carried from step to step."""

    def __init__(self, builder: Any, count: Any, num_carried: int, first: int = 0) -> None:
        self._builder, self._count = builder, count
        before = builder.block
        self._body, self._done = builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.step = builder.phi(_I64)
        self.step.add_incoming(_I64(0), before)
        self.sums = [builder.phi(_INTS) for _ in range(num_carried)]
        for phi in self.sums:
            phi.add_incoming(_INTS([first] * LANES), before)

    def close(self, carried: list[Any]) -> None:
        """Nothing; the builder stands behind the loop."""
        following = self._builder.add(self.step, _I64(1))
        self.step.add_incoming(following, self._body)
        for phi, value in zip(self.sums, carried, strict=True):
            phi.add_incoming(value, self._body)
        self._builder.cbranch(self._builder.icmp_signed("<", following, self._count), self._body, self._done)
        self._builder.position_at_end(self._done)


def _pointer(builder: Any, address: Any, offset: Any, pointed: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), pointed.as_pointer())


def _load(builder: Any, address: Any, offset: Any, loaded: Any, align: int = 64) -> Any:
    return builder.load(_pointer(builder, address, offset, loaded), align=align)


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(_INTS(ir.Undefined), value, _I32(0))
    return builder.bitcast(builder.shuffle_vector(one, _INTS(ir.Undefined), _INTS([0] * LANES)), _BYTES)


def _call(builder: Any, declared: tuple[str, Any], *arguments: Any) -> Any:
    name, kind = declared
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


# As many views at once as leave registers for the queries: 6 x 4, 12 x 2 and 16 x 1 of the 32 vectors (measured).
products_6x64 = _product_tile(6, 4)
products_12x32 = _product_tile(12, 2)
products_16x16 = _product_tile(16, 1)
best_64 = _best_tile(4)
best_32 = _best_tile(2)
best_16 = _best_tile(1)
