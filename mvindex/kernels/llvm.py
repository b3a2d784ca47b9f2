"""Instructions that numba has no function for: types and calls of LLVM, prefetches, and operations on whole numbers."""

from __future__ import annotations

import mmap
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import overload

from mvindex.kernels.compiled import compiled, intrinsic

LANES = 16
I8, I16, I32, I64, FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
BYTES, INTS, FLOATS = ir.VectorType(I8, 4 * LANES), ir.VectorType(I32, LANES), ir.VectorType(FLOAT, LANES)
_PREFETCH = ("llvm.prefetch.p0", ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32]))


class Loop:
    """A loop from 0 to count (at least 1) over values that are carried from step to step.

    first: what each of them is before the first step, a constant. Inside the loop `step` is its number, an int64, and
    `carried` are the values so far; close() ends it.
    """

    def __init__(self, builder: Any, count: Any, first: Sequence[Any]) -> None:
        self._builder, self._count = builder, count
        before = builder.block
        self._body, self._done = builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.branch(self._body)
        builder.position_at_end(self._body)
        self.step = builder.phi(I64)
        self.step.add_incoming(I64(0), before)
        self.carried = [builder.phi(value.type) for value in first]
        for phi, value in zip(self.carried, first, strict=True):
            phi.add_incoming(value, before)

    def close(self, carried: Sequence[Any]) -> None:
        """End the loop; the builder continues behind it."""
        following = self._builder.add(self.step, I64(1))
        self.step.add_incoming(following, self._body)
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, self._body)
        self._builder.cbranch(self._builder.icmp_signed("<", following, self._count), self._body, self._done)
        self._builder.position_at_end(self._done)


def filled(kind: Any, number: float) -> Any:
    """Return the constant vector of that kind with the number in every lane."""
    return kind([number] * kind.count)


def splat(builder: Any, value: Any) -> Any:
    """Return a vector of LANES times the value."""
    undefined = ir.VectorType(value.type, LANES)(ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, value, I32(0)), undefined, filled(INTS, 0))


def bits_of(builder: Any, lanes: Any) -> Any:
    """Return a vector of LANES truths as the lowest bits of an int64."""
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), I64)


def pointer(builder: Any, address: Any, offset: Any, pointed: Any) -> Any:
    """Return a pointer to something of the type `pointed`, `offset` bytes behind the address."""
    return builder.inttoptr(builder.add(address, offset), pointed.as_pointer())


def call(builder: Any, declared: tuple[str, Any], *arguments: Any) -> Any:
    """Call the function of that name and type, and declare it in the module if needed."""
    name, kind = declared
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def prefetch_line(builder: Any, address: Any, offset: Any) -> None:
    """Prefetch the cache line `offset` bytes behind the address, which need not exist, for reading."""
    call(builder, _PREFETCH, pointer(builder, address, offset, I8), I32(0), I32(3), I32(1))


_madvise: Any = types.ExternalFunction("madvise", types.intc(types.uintp, types.uintp, types.intc))
_mincore: Any = types.ExternalFunction("mincore", types.intc(types.uintp, types.uintp, types.uintp))
_WILL_NEED = getattr(mmap, "MADV_WILLNEED", 3)
_PAGE_BYTES = mmap.PAGESIZE
# The number of documents probed for being in memory: where all are, the others mostly are too. Each takes the kernel
# nearly a microsecond.
_PROBED = 4


@compiled
def call_for_documents(matrix: Any, begins: Any, ends: Any) -> bool:
    """Return whether rows begins[i] : ends[i] (m stretches) of the mapped matrix are now being read from disk.

    Without it each page that is not in memory is a fault that waits for the disk by itself. Where a sample is in
    memory, nothing is called for: a call for each document takes as long as its score.
    """
    if len(begins) == 0:
        return False
    row_bytes, base = matrix.shape[1] * matrix.itemsize, matrix.ctypes.data
    is_held = np.zeros(1, np.uint8)
    step = len(begins) // _PROBED + 1
    is_cold = False
    for place in range(0, len(begins), step):
        begin = base + begins[place] * row_bytes
        first = begin - begin % _PAGE_BYTES
        # The answer, in the lowest bit, is for the document's first page.
        if _mincore(first, _PAGE_BYTES, is_held.ctypes.data) == 0 and not is_held[0] & 1:
            is_cold = True
    if is_cold:
        for place in range(len(begins)):
            begin = base + begins[place] * row_bytes
            first = begin - begin % _PAGE_BYTES
            _madvise(first, base + ends[place] * row_bytes - first, _WILL_NEED)
    return is_cold


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
