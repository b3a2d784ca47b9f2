"""Views in four bits a dimension: small codes for walks.

A dimension of the rest of a view beside the mean of all is one of 16 levels a step apart, half a step beside zero;
the step is that which keeps the direction best. Products with codes are multiplied by what makes the view's own
product with its code right, as RaBitQ does (Gao and Long 2024), so that estimates lean to no side. What queries score
with the mean is the same for all views and is left out.

32 bytes of a code hold 64 dimensions: byte j the dimension j in its lower half, 32 + j in its upper one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mvindex.kernels.compiled import compiled_strict, intrinsic
from mvindex.kernels.llvm import BYTES, I8, I16, I32, I64, INTS, Loop, call, filled, pointer
from mvindex.kernels.vnni import ADD_LANES, MULTIPLY

CHUNK_BYTES, TOP_LEVEL = 32, 15
_BITS, _PER_BYTE = 4, 2
# The step of least error for normally distributed values of variance 1 (Max 1960, table II), times steps that are
# tried; the widest are for views of few large values.
_STEPS = np.float32(0.3352) * np.array([0.75, 1, 1.33, 1.78, 2.4, 3.2], dtype=np.float32)


@compiled_strict
def encode_packed(views: Any, mean: Any, codes: Any, factors: Any) -> None:
    """Write views, (r, d) float32, less the mean, (d,) float32, to codes, (r, pitch) uint8, and factors, (r, 2).

    The first factor is what products of the code are multiplied by, the second the square of the norm of the rest.
    """
    dim = views.shape[1]
    rest, levels = np.zeros(dim, np.float32), np.zeros(codes.shape[1] * _PER_BYTE, np.uint8)
    for row in range(len(views)):
        square = 0.0
        for i in range(dim):
            rest[i] = views[row, i] - mean[i]
            square += np.float64(rest[i]) * np.float64(rest[i])
        factors[row, 1] = square
        deviation, best, chosen = np.sqrt(square / dim), -1.0, 0.0
        for step in _STEPS:
            found = _levels(rest, deviation * step, levels)
            if found > best:
                best, chosen = found, deviation * step
        if best <= 0:  # all zeros
            factors[row, 0] = 0
            codes[row, :] = 0
            continue
        _levels(rest, chosen, levels)
        total = 0.0
        for i in range(dim):
            total += np.float64(2 * np.int32(levels[i]) - TOP_LEVEL) * np.float64(rest[i])
        factors[row, 0] = square / total
        for at in range(codes.shape[1]):
            first = at // CHUNK_BYTES * CHUNK_BYTES * _PER_BYTE + at % CHUNK_BYTES
            codes[row, at] = levels[first] | levels[first + CHUNK_BYTES] << _BITS


@compiled_strict
def decode_packed(codes: Any, row: Any, integers: Any, dim: Any) -> None:
    """Write the integers of a code, (dim,) int8, odd from -15 to 15, and zeros behind; see plain_dot() for the order.

    A view's rest is its factor times them.
    """
    integers[dim:] = 0
    for first in range(0, codes.shape[1], CHUNK_BYTES):
        lower = first * _PER_BYTE
        for j in range(min(CHUNK_BYTES, dim - lower)):
            integers[lower + j] = np.int8(2 * np.int32(codes[row, first + j] & TOP_LEVEL) - TOP_LEVEL)
        upper = lower + CHUNK_BYTES
        for j in range(min(CHUNK_BYTES, dim - upper)):
            integers[upper + j] = np.int8(2 * np.int32(codes[row, first + j] >> _BITS) - TOP_LEVEL)


@compiled_strict
def _levels(rest: Any, step: Any, levels: Any) -> Any:
    """Write the level of each value, and return the cosine of the values with their levels, times their norm."""
    if not step > 0:
        return -1.0
    total, square, half = 0.0, 0.0, (TOP_LEVEL + 1) // 2
    inverse = 1.0 / step
    for i in range(len(rest)):
        level = min(max(np.floor(rest[i] * inverse) + half, 0.0), np.float64(TOP_LEVEL))
        levels[i] = np.uint8(level)
        value = 2 * level - TOP_LEVEL
        total += value * rest[i]
        square += value * value
    return total / np.sqrt(square)


_WORDS, _HALF = ir.VectorType(I16, CHUNK_BYTES), ir.VectorType(I8, CHUNK_BYTES)
_TWICE = ir.VectorType(I32, 2 * CHUNK_BYTES)(list(range(CHUNK_BYTES)) * 2)
# Both halves of a vector hold the same bytes, of which each takes bits of its own.
_SHIFTS = _WORDS([0] * 16 + [_BITS] * 16)


@intrinsic
def packed_dot(context: Any, code: Any, query: Any, chunks: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the sum of a code's levels times a query's integers (an intrinsic).

    code, query: addresses, 32- and 64-byte aligned, of `chunks` times 32 bytes and 64 int8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code_at, query_at, chunks = arguments
        loop = Loop(builder, chunks, [filled(INTS, 0)])
        at = pointer(builder, code_at, builder.mul(loop.step, I64(CHUNK_BYTES)), _HALF)
        twice = builder.shuffle_vector(builder.load(at, align=CHUNK_BYTES), _HALF(ir.Undefined), _TWICE)
        shifted = builder.lshr(builder.bitcast(twice, _WORDS), _SHIFTS)
        levels = builder.and_(builder.bitcast(shifted, BYTES), filled(BYTES, TOP_LEVEL))
        offset = builder.mul(loop.step, I64(_PER_BYTE * CHUNK_BYTES))
        factors = builder.load(pointer(builder, query_at, offset, BYTES), align=64)
        total = call(builder, MULTIPLY, loop.carried[0], levels, factors)
        loop.close([total])
        return call(builder, ADD_LANES, total)

    return types.int32(*[types.int64] * 3), generate


@compiled_strict
def plain_dot(code: Any, query: Any) -> Any:
    """Return the same without AVX-512. code: (pitch,) uint8; query: int8, as many as the code has levels."""
    total = np.int32(0)
    for first in range(0, len(code), CHUNK_BYTES):
        lower = first * _PER_BYTE
        for j in range(CHUNK_BYTES):
            both, at = code[first + j], lower + j
            total += np.int32(both & TOP_LEVEL) * np.int32(query[at])
            total += np.int32(both >> _BITS) * np.int32(query[at + CHUNK_BYTES])
    return total
