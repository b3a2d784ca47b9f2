"""The xxh3-64 of bytes inside compiled functions: what the library xxhash gives, without a Python call for each.

Of more than SHORT_BYTES only, as documents have but for the smallest dims: XXH3 has other rules for what is shorter.
The algorithm is that of the xxHash specification: eight sums of 64 bits run along the bytes in stripes of 64, are
scrambled after each KiB, and merge into one at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from mvindex.kernels.compiled import intrinsic
from mvindex.kernels.llvm import I8, I32, I64, filled, pointer

SHORT_BYTES = 240
_STRIPE, _BLOCK = 64, 1024
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
# Where in the secret the keys begin: of the scrambling, of the last stripe, of the merging.
_SCRAMBLE, _LAST, _MERGE = 128, 121, 11
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_AVALANCHE = 0x165667919E3779F9
_FIRST_SUMS = (_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0])

_SUMS = ir.VectorType(I64, 8)
_NEIGHBOURS = ir.VectorType(I32, 8)([1, 0, 3, 2, 5, 4, 7, 6])
# Numba's own functions have no types.
_variable: Callable[..., Any] = cgutils.alloca_once_value
_constant: Callable[..., Any] = cgutils.global_constant


@intrinsic
def xxh3_64(context: Any, address: Any, size: Any) -> tuple[Any, Callable[..., Any]]:
    """The xxh3-64 of so many bytes, more than SHORT_BYTES, at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, size = arguments
        digest = _Digest(builder)
        # A last block, and in it a last stripe, end with the bytes, whole or not: they are left for the end.
        before = builder.sub(size, I64(1))
        num_blocks = builder.udiv(before, I64(_BLOCK))
        with cgutils.for_range(builder, num_blocks) as block:
            digest.add(builder.add(address, builder.mul(block.index, I64(_BLOCK))), I64(_BLOCK // _STRIPE))
            digest.scramble()
        whole = builder.mul(num_blocks, I64(_BLOCK))
        digest.add(builder.add(address, whole), builder.udiv(builder.sub(before, whole), I64(_STRIPE)))
        digest.add_stripe(builder.sub(builder.add(address, size), I64(_STRIPE)), I64(_LAST))
        return digest.merged(size)

    return types.uint64(types.int64, types.int64), generate


class _Digest:
    """Writes the steps of one digest: stripes are added to the sums, the sums scrambled, and at the end merged."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._sums = _variable(builder, _SUMS(_FIRST_SUMS))
        secret = _constant(builder, "xxh3.secret", ir.ArrayType(I8, len(_SECRET))(bytearray(_SECRET)))
        self._secret_at = builder.ptrtoint(secret, I64)

    def add(self, address: Any, count: Any) -> None:
        """Nothing; so many stripes are added, the first with the first key, each other with one 8 bytes further on."""
        with cgutils.for_range(self._builder, count) as stripe:
            at = self._builder.add(address, self._builder.mul(stripe.index, I64(_STRIPE)))
            self.add_stripe(at, self._builder.mul(stripe.index, I64(8)))

    def add_stripe(self, address: Any, key: Any) -> None:
        """Nothing; of each number xor its key, the lower half times the upper is added; the number to its neighbour."""
        builder, numbers = self._builder, self._load(address, I64(0))
        mixed = builder.xor(numbers, self._load(self._secret_at, key))
        product = builder.mul(builder.and_(mixed, filled(_SUMS, 2**32 - 1)), builder.lshr(mixed, filled(_SUMS, 32)))
        exchanged = builder.shuffle_vector(numbers, _SUMS(ir.Undefined), _NEIGHBOURS)
        builder.store(builder.add(builder.add(builder.load(self._sums), exchanged), product), self._sums)

    def scramble(self) -> None:
        """Nothing; each sum is mixed with its key."""
        builder, sums = self._builder, self._builder.load(self._sums)
        mixed = builder.xor(sums, builder.lshr(sums, filled(_SUMS, 47)))
        mixed = builder.xor(mixed, self._load(self._secret_at, I64(_SCRAMBLE)))
        builder.store(builder.mul(mixed, filled(_SUMS, _PRIME32[0])), self._sums)

    def merged(self, size: Any) -> Any:
        """The digest: sums xor keys, multiplied two by two to 128 bits, folded and added up; then mixed."""
        builder, wide = self._builder, ir.IntType(128)
        keyed = builder.xor(builder.load(self._sums), self._load(self._secret_at, I64(_MERGE)))
        total = builder.mul(size, I64(_PRIME64[0]))
        for pair in range(0, 8, 2):
            halves = [builder.zext(builder.extract_element(keyed, I32(pair + side)), wide) for side in (0, 1)]
            product = builder.mul(*halves)
            folded = builder.xor(builder.trunc(product, I64), builder.trunc(builder.lshr(product, wide(64)), I64))
            total = builder.add(total, folded)
        total = builder.mul(builder.xor(total, builder.lshr(total, I64(37))), I64(_AVALANCHE))
        return builder.xor(total, builder.lshr(total, I64(32)))

    def _load(self, address: Any, offset: Any) -> Any:
        return self._builder.load(pointer(self._builder, address, offset, _SUMS), align=1)
