"""Inside compiled functions: fp16 decoded, memory read and called for in time."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import overload

from mvindex.kernels.compiled import intrinsic
from mvindex.kernels.llvm import I64, prefetch_line


@intrinsic
def _float_of_bits(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the float32 of these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _float_of_half(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the float32 of a finite fp16's bits, an int16, by the processor's instruction, which keeps denormals."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.int16), generate


def _converts_half() -> bool:
    """Return whether the processor has that instruction; elsewhere a library that may be missing would be called."""
    return bool(binding.get_host_cpu_features().get("f16c")) or platform.machine() in ("aarch64", "arm64")


def decoded(stored: Any) -> Any:
    """Return the float32 of a stored element: of the bits of a finite fp16, as int16, or of a float32."""
    raise NotImplementedError("for compiled functions only")


@overload(decoded, inline="always")
def _decoded(stored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - numba compares the two signatures
    if not isinstance(stored, types.Integer):
        return lambda stored: np.float32(stored)

    if _converts_half():
        return lambda stored: _float_of_half(np.int16(stored))

    def of_bits(stored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        # Exponent and mantissa in their place are off by the difference of the exponents' biases, 112; numbers below
        # fp16's normal range are taken as 2^-14 more than they are. So no float32 is below its own normal range, where
        # a thread may have been set to flush it to zero.
        magnitude = np.int32((np.int32(stored) & np.int32(0x7FFF)) << 13)
        if magnitude >= (1 << 23):
            value = _float_of_bits(np.int32(magnitude + (112 << 23)))
        else:
            value = _float_of_bits(np.int32(magnitude + (113 << 23))) - np.float32(2.0**-14)
        return -value if stored < 0 else value

    return of_bits


@intrinsic
def prefetch(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Prefetch the cache line at an address, which need not exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefetch_line(builder, arguments[0], I64(0))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def word_at(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the eight bytes at an address, the first lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], I64.as_pointer()), align=1)

    return types.uint64(types.int64), generate
