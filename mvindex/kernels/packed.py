"""Views in two or four bits a dimension: small codes for walks.

A dimension of the rest of a view beside the mean of all is one of 4 or 16 levels a step apart, half a step beside zero;
the step is that which keeps the direction best. Products with codes are multiplied by what makes the view's own
product with its code right, as RaBitQ does (Gao and Long 2024), so that estimates lean to no side. What queries score
with the mean is the same for all views and is left out.

32 bytes of a code hold 256 / bits dimensions: byte j the dimensions j, 32 + j, 64 + j, ..., the first in its lowest
bits.
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

CHUNK_BYTES = 32
# The step of least error for normally distributed values of variance 1 (Max 1960, table II), by bits.
_STEPS = {2: np.float32(0.9957), 4: np.float32(0.3352)}
# Steps that are tried, times that one; the widest are for views of few large values.
_TRIED = np.array([0.75, 1, 1.33, 1.78, 2.4, 3.2], dtype=np.float32)


def encode_packed(views: Any, mean: Any, bits: int, codes: Any, factors: Any) -> None:
    """Write views, (r, d) float32, less the mean, (d,) float32, to codes, (r, pitch) uint8, and factors, (r,) float32.

    A factor is what products() of the code are multiplied by.
    """
    _encode(views, mean, np.int64(bits), _TRIED * _STEPS[bits], codes, factors)


@compiled_strict
def _encode(views: Any, mean: Any, bits: Any, steps: Any, codes: Any, factors: Any) -> None:
    dim, per_byte, top = views.shape[1], 8 // bits, (1 << bits) - 1
    rest, levels = np.zeros(dim, np.float32), np.zeros(codes.shape[1] * per_byte, np.uint8)
    for row in range(len(views)):
        square = 0.0
        for i in range(dim):
            rest[i] = views[row, i] - mean[i]
            square += np.float64(rest[i]) * np.float64(rest[i])
        deviation, best, chosen = np.sqrt(square / dim), -1.0, 0.0
        for step in steps:
            found = _levels(rest, deviation * step, top, levels)
            if found > best:
                best, chosen = found, deviation * step
        if best <= 0:  # all zeros
            factors[row] = 0
            codes[row, :] = 0
            continue
        _levels(rest, chosen, top, levels)
        total = 0.0
        for i in range(dim):
            total += np.float64(2 * np.int32(levels[i]) - top) * np.float64(rest[i])
        factors[row] = square / total
        for at in range(codes.shape[1]):
            value, first = np.int64(0), at // CHUNK_BYTES * CHUNK_BYTES * per_byte + at % CHUNK_BYTES
            for part in range(per_byte):
                value |= np.int64(levels[first + part * CHUNK_BYTES]) << (part * bits)
            codes[row, at] = value


@compiled_strict
def _levels(rest: Any, step: Any, top: Any, levels: Any) -> Any:
    """Write the level of each value, 0 to top; return the cosine of the values with their levels, times their norm."""
    if not step > 0:
        return -1.0
    total, square, half = 0.0, 0.0, (top + 1) // 2
    inverse = 1.0 / step
    for i in range(len(rest)):
        level = min(max(np.floor(rest[i] * inverse) + half, 0.0), np.float64(top))
        levels[i] = np.uint8(level)
        value = 2 * level - top
        total += value * rest[i]
        square += value * value
    return total / np.sqrt(square)


def _dot(bits: int) -> Any:
    """Return dot(code, query, chunks), the sum of a code's levels times a query's integers (an intrinsic).

    code, query: addresses, 32- and 64-byte aligned, of `chunks` times 32 bytes and 256 / bits int8.
    """
    doubled, words = ir.VectorType(I32, 2 * CHUNK_BYTES), ir.VectorType(I16, CHUNK_BYTES)
    half = ir.VectorType(I8, CHUNK_BYTES)

    @intrinsic
    def dot(context: Any, code: Any, query: Any, chunks: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            code_at, query_at, chunks = arguments
            loop = Loop(builder, chunks, [filled(INTS, 0)])
            at = pointer(builder, code_at, builder.mul(loop.step, I64(CHUNK_BYTES)), half)
            held = builder.load(at, align=CHUNK_BYTES)
            # Both halves of a vector hold the same bytes, of which each takes bits of its own.
            twice = builder.shuffle_vector(held, half(ir.Undefined), doubled(list(range(CHUNK_BYTES)) * 2))
            total = loop.carried[0]
            for number in range(4 // bits):
                shifts = [2 * number * bits] * 16 + [(2 * number + 1) * bits] * 16
                shifted = builder.lshr(builder.bitcast(twice, words), words(shifts))
                levels = builder.and_(builder.bitcast(shifted, BYTES), filled(BYTES, (1 << bits) - 1))
                offset = builder.add(builder.mul(loop.step, I64(256 // bits)), I64(64 * number))
                factors = builder.load(pointer(builder, query_at, offset, BYTES), align=64)
                total = call(builder, MULTIPLY, total, levels, factors)
            loop.close([total])
            return call(builder, ADD_LANES, total)

        return types.int32(*[types.int64] * 3), generate

    return dot


dot_2, dot_4 = _dot(2), _dot(4)


@compiled_strict
def plain_dot(code: Any, query: Any) -> Any:
    """Return the same without AVX-512. code: (pitch,) uint8; query: int8, as many as the code has levels."""
    per_byte = len(query) // len(code)
    bits, total = 8 // per_byte, np.int32(0)
    mask = (1 << bits) - 1
    for first in range(0, len(code), CHUNK_BYTES):
        for part in range(per_byte):
            begin, shift = first * per_byte + part * CHUNK_BYTES, part * bits
            for j in range(CHUNK_BYTES):
                total += np.int32((code[first + j] >> shift) & mask) * np.int32(query[begin + j])
    return total
