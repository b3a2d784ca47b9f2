"""DPR's pickles, read without unpickling anything: run by dpr.py in a process with limits.

A pickle is a program that calls whatever it names. Here the few names that an array of NumPy needs stand for inert
records of what was to be made; any other name is refused before it is looked up. No class of NumPy is ever given
the state that the file holds: vectors are made of plain bytes, once all of it is known.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - the one reader of pickles, with every global replaced or refused
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

import numpy as np

from mvindex.io.confined import Refused, in_frames, serve

_FLOATS: dict[str, np.dtype[Any]] = {"f2": np.dtype("f2"), "f4": np.dtype("f4"), "f8": np.dtype("f8")}
_INTEGERS = ("i4", "i8", "u4", "u8")
# More than any index takes: what is far beyond need not be told.
_MAX_ID_CHARS = 1 << 13


class _Dtype:
    """What the file calls a dtype: a code such as f4, and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 8 or not _is_written(self.code, state[2:]):
            raise Refused("a dtype with a state that NumPy does not write")
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise Refused(f"a dtype with the byte order {order!r:.20}")
        self.order = ">" if order == ">" else "<"


def _is_written(code: str, rest: tuple[Any, ...]) -> bool:
    """Whether NumPy writes these after the byte order: no fields; size, alignment and flags, which it would follow."""
    if code in _FLOATS or code in _INTEGERS:
        return rest == (None, None, None, -1, -1, 0)
    if code[:1] == "U":
        return rest in [(None, None, None, _string_bytes(code), 4, flags) for flags in (0, 8)]
    return True  # of a dtype that is refused wherever it is met


def _string_bytes(code: str) -> int:
    """Of a string of NumPy, such as U12."""
    if not code[1:].isdecimal():
        raise Refused(f"a dtype {code!r:.20}")
    return 4 * int(code[1:])


class _Array:
    """What the file calls an array: its shape, dtype and bytes."""

    __slots__ = ("dtype", "raw", "shape")

    def __init__(self) -> None:
        self.shape: Any = None
        self.dtype: Any = None
        self.raw: Any = b""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array with a state that NumPy does not write")
        _, self.shape, self.dtype, _, self.raw = state

    def vector(self) -> Any:
        """The vector that these bytes are."""
        if not isinstance(self.dtype, _Dtype) or self.dtype.code not in _FLOATS:
            code = self.dtype.code if isinstance(self.dtype, _Dtype) else type(self.dtype).__name__
            raise Refused(f"an array of dtype {code!r:.20}; wanted float16, float32 or float64")
        if not isinstance(self.shape, tuple) or len(self.shape) != 1 or type(self.shape[0]) is not int:
            shape = self.shape if isinstance(self.shape, tuple) and len(self.shape) < 9 else "of another kind"
            raise Refused(f"an array of shape {shape!s:.60}; wanted a vector (d,)")
        if not self.shape[0]:
            raise Refused("a vector without a number")
        kind = _FLOATS[self.dtype.code].newbyteorder(">" if self.dtype.order == ">" else "<")
        if not isinstance(self.raw, bytes | bytearray) or len(self.raw) != self.shape[0] * kind.itemsize:
            raise Refused("an array whose bytes are not as many as its shape says")
        return np.frombuffer(self.raw, dtype=kind)


class _Name:
    """Stands for a global that an array of NumPy names; it makes the inert record, and has no state to be changed."""

    __slots__ = ("_make",)
    _make: Callable[..., Any]

    def __init__(self, make: Any) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise Refused("a state for a global")

    def __setstate__(self, state: Any) -> None:
        raise Refused("a state for a global")


def _reconstruct(kind: Any, *shape_and_code: Any) -> _Array:
    if kind is not _NDARRAY:
        raise Refused("an array of a class that is not NumPy's")
    return _Array()


def _dtype(code: Any, *flags: Any) -> _Dtype:
    # Not to be aligned, and a copy; without a copy, NumPy would ignore the byte order that follows.
    if flags != (False, True):
        raise Refused("a dtype with flags that NumPy does not write")
    return _Dtype(_text(code))


def _from_buffer(raw: Any, dtype: Any, shape: Any, *order: Any) -> _Array:
    array = _Array()
    array.shape, array.dtype, array.raw = shape, dtype, raw
    return array


def _encode(text: Any, codec: Any = "utf-8") -> bytes:
    """The bytes that protocols before 3 write as a text."""
    if not isinstance(text, str) or _text(codec) not in ("latin1", "latin-1"):
        raise Refused("a call of _codecs.encode that NumPy does not write")
    return text.encode("latin-1")


def _scalar(dtype: Any, raw: Any = b"") -> int | str:
    """A number or string of NumPy, as ids may be."""
    code = dtype.code if isinstance(dtype, _Dtype) else ""
    if isinstance(raw, bytes) and code in _INTEGERS and len(raw) == int(code[1]):
        return int.from_bytes(raw, "big" if dtype.order == ">" else "little", signed=code[0] == "i")
    if isinstance(raw, bytes) and code[:1] == "U" and dtype.order == "<" and len(raw) == _string_bytes(code):
        return raw.decode("utf-32-le").rstrip("\0")
    raise Refused(f"a scalar of dtype {code!r:.20}; wanted a string or a whole number")


def _no_call(*arguments: Any) -> NoReturn:
    raise Refused("a call of numpy.ndarray")


_NDARRAY = _Name(_no_call)
_NAMES = {("numpy", "ndarray"): _NDARRAY, ("numpy", "dtype"): _Name(_dtype), ("_codecs", "encode"): _Name(_encode)}
for _core in ("numpy.core", "numpy._core"):
    _NAMES[(f"{_core}.multiarray", "_reconstruct")] = _Name(_reconstruct)
    _NAMES[(f"{_core}.multiarray", "scalar")] = _Name(_scalar)
    _NAMES[(f"{_core}.numeric", "_frombuffer")] = _Name(_from_buffer)


class _Reader(pickle.Unpickler):
    """Reads a pickle in which only the names of an array mean something."""

    def find_class(self, module: str, name: str) -> Any:
        found = _NAMES.get((module, name))
        if found is None:
            raise Refused(
                f"names the global {f'{module}.{name}'!r:.120}, which vectors do not need: such a file runs what it "
                "names wherever it is unpickled"
            )
        return found

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("refers to something outside the file (a persistent id)")


def read_pairs(file: BinaryIO, options: dict[str, Any]) -> Iterator[tuple[Sequence[str | int], Any]]:
    """Ids with their vectors, of a pickled list of pairs (id, vector)."""
    try:
        pairs = _Reader(file, encoding="bytes").load()
    except EOFError as err:
        raise Refused("is cut short") from err
    except (pickle.UnpicklingError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as err:
        if "truncated" in str(err):
            raise Refused("is cut short") from err
        raise Refused(f"is no pickle of vectors: {str(err)[:200]}") from err
    if file.read(1):
        raise Refused("has bytes after the end of its pickle")
    if not isinstance(pairs, list):
        raise Refused(f"holds {type(pairs).__name__}; wanted a list of pairs (id, vector)")
    yield from in_frames(*_split(pairs))


def _split(pairs: list[Any]) -> tuple[list[str], list[Any]]:
    ids: list[str] = []
    vectors: list[Any] = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], _Array):
            raise Refused(f"item {number} is no pair of an id and a vector")
        try:
            ids.append(_id(pair[0]))
            vectors.append(pair[1].vector())
        except Refused as err:
            raise Refused(f"item {number}: {err}") from err
        if vectors[-1].shape != vectors[0].shape or vectors[-1].dtype != vectors[0].dtype:
            raise Refused(
                f"item {number}: a vector of {vectors[-1].shape[0]} {vectors[-1].dtype}; the first has "
                f"{vectors[0].shape[0]} {vectors[0].dtype}"
            )
    return ids, vectors


def _id(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as err:
            raise Refused("an id that is not UTF-8") from err
    if isinstance(value, str):
        if len(value) > _MAX_ID_CHARS:
            raise Refused(f"an id of {len(value)} characters")
        return value
    if type(value) is int and abs(value) < 1 << 63:
        return str(value)
    raise Refused(f"an id of type {type(value).__name__}; wanted a string or a whole number")


def _text(value: Any) -> str:
    """A string, as Python 2 or 3 wrote it."""
    if isinstance(value, bytes) and len(value) < 64:
        return value.decode("latin-1")
    if isinstance(value, str) and len(value) < 64:
        return value
    raise Refused(f"a name of type {type(value).__name__} where NumPy writes a short string")


def main() -> None:
    """Nothing; standard input, a pickle, is read within limits."""
    serve(read_pairs)
