"""Inside compiled functions: fp16 decoded, memory called for in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from mvindex.kernels.compiled import intrinsic


@intrinsic
def _float_of_bits(context: Any, bits: Any) -> tuple[Any, Callable[..., Any]]:
    """The float32 of these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


def decoded(stored: Any) -> Any:
    """The float32 of a stored element: of the bits of a finite fp16, as int16, or of a float32."""
    raise NotImplementedError("for compiled functions only")


@overload(decoded, inline="always")
def _decoded(stored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - numba compares the two signatures
    if not isinstance(stored, types.Integer):
        return lambda stored: np.float32(stored)

    def of_bits(stored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
        # The bits in their place are off by the difference of the exponents' biases: see store.views.decode.
        return _float_of_bits(np.int32((np.int32(stored) << 13) & np.int32(-0x70002000))) * np.float32(2.0**112)

    return of_bits


@intrinsic
def prefetch(context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Nothing; the cache line at an address, which need not exist, is on its way."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate
