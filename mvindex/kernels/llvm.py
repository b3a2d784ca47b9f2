"""LLVM instructions that several kernels are written with: vectors of sixteen, loops that carry them, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

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
