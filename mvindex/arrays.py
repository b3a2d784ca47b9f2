"""Numbers as callers give them, as NumPy arrays: lists, arrays, and tensors of other libraries."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.records import short_repr

Numbers = npt.NDArray[Any]
_SCALARS = (float, int, np.floating, np.integer)
# More than any shape that is expected: deeper lists are not numbers.
_MAX_NESTING = 8


def as_numbers(value: object, kinds: str = "fiu") -> Numbers:
    """Return numbers of any shape as an array of integers or floats, or of these kinds of NumPy's.

    Tensors are detached from gradients, copied to the CPU, and expanded where they are sparse or quantised. Types that
    NumPy lacks, such as bfloat16, become float32.

    Raises:
        ValueError: For anything else; its message says what was given.

    """
    return _converted(value, kinds, 0)


def _converted(value: object, kinds: str, depth: int) -> Numbers:
    if isinstance(value, np.ndarray):
        return _checked(value, kinds, depth)
    if isinstance(value, list | tuple):
        return _stacked(value, kinds, depth)
    if isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.format in ("B", "b", "c")):
        raise ValueError(f"expected numbers, got {type(value).__name__}; np.frombuffer(..., dtype='<f4') reads them")
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            array = _of_tensor(value, torch)
        elif hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            array = np.from_dlpack(value)
        else:
            array = np.asarray(value)
    except Exception as err:  # noqa: BLE001 - whatever another library raises
        raise ValueError(f"expected numbers that NumPy reads, got {_named(value)}: {err}") from err
    return _checked(array, kinds, depth)


def _stacked(values: list[Any] | tuple[Any, ...], kinds: str, depth: int) -> Numbers:
    if values and all(issubclass(kind, _SCALARS) and kind is not bool for kind in set(map(type, values))):
        array = np.asarray(values)
        if array.dtype.kind in "fiu":
            return array
    if depth > _MAX_NESTING:
        raise ValueError(f"expected numbers, got lists nested more than {_MAX_NESTING} deep")
    parts = [_converted(one, kinds, depth + 1) for one in values]
    shapes = dict.fromkeys(part.shape for part in parts)
    if len(shapes) > 1:
        raise ValueError(f"expected numbers of one shape, got shapes {', '.join(map(str, list(shapes)[:3]))}")
    return np.array(parts)


def _checked(array: Numbers, kinds: str, depth: int) -> Numbers:
    # A plain array is not masked; to ask imports numpy.ma.
    if type(array) is not np.ndarray and np.ma.is_masked(array):
        raise ValueError(f"expected numbers, got a masked array that lacks {np.ma.getmaskarray(array).sum()} of them")
    if array.dtype.kind in kinds:
        return np.asarray(array)
    if array.dtype.kind == "V" and array.dtype.type is not np.void:
        return array.astype(np.float32)  # bfloat16 and float8 of ml_dtypes
    if array.dtype.kind != "O":
        raise ValueError(f"expected numbers, got {array.dtype} values")
    if array.ndim:
        return _stacked(array.tolist(), kinds, depth)
    item = array.item()
    if isinstance(item, int | Decimal | Fraction):
        return np.array(_rounded(item))
    raise ValueError(f"expected numbers, got {_named(item)}")


def _rounded(number: int | Decimal | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf


def _of_tensor(tensor: Any, torch: Any) -> Numbers:
    """Return a tensor of torch as an array; errors of torch where it has none."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    array: Numbers = tensor.numpy(force=True)
    return array


def _named(value: object) -> str:
    """Return the type of a value, and what is there of it."""
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return "None" if value is None else f"{module}{kind.__qualname__} {' '.join(short_repr(value).split()):.40}"
