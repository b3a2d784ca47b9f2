"""Read DPR's pickles of embeddings, and run nothing that they name.

A pickle is a program that calls whatever it names. Before this one runs, its opcodes are checked: only those that a
list of pairs (id, vector) is written with, with lengths that the file has and a memo without gaps, since an Unpickler
makes room for both before it reads them. Each name that an array of NumPy needs leads to a constructor in this file;
every other name is refused. NumPy's own classes, given the state of a damaged file, end the process with SIGSEGV; here
vectors are made by np.frombuffer once dtype, shape and number of bytes are checked.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - run on checked opcodes only, and with no names but this file's
import pickletools
import stat
from collections.abc import Callable, Iterator
from mmap import ACCESS_READ, mmap
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast

import numpy as np

from mvindex.errors import CorpusError
from mvindex.io.staging import Array

BLOCK_VECTORS = 1024
_FLOATS: dict[str, np.dtype[Any]] = {"f2": np.dtype("f2"), "f4": np.dtype("f4"), "f8": np.dtype("f8")}
_INTEGERS = ("i4", "i8", "u4", "u8")
# Objects per byte of the file: DPR writes one for every 5 bytes with vectors of one dim, fewer else.
_BYTES_PER_OBJECT = 4
_FREE_OBJECTS = 4096
# The opcode and its length.
_FRAME_BYTES = 9

_PUTS = frozenset("BINPUT LONG_BINPUT MEMOIZE".split())
_OBJECTS = frozenset(
    "EMPTY_LIST TUPLE TUPLE1 TUPLE2 TUPLE3 REDUCE SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 SHORT_BINSTRING "
    "BINSTRING SHORT_BINUNICODE BINUNICODE BINUNICODE8".split()
)
_OTHERS = frozenset(
    "PROTO FRAME MARK APPEND APPENDS EMPTY_TUPLE NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 GLOBAL "
    "STACK_GLOBAL BUILD BINGET LONG_BINGET STOP".split()
)
_OPCODES = {
    each.code.encode("latin-1"): each for each in pickletools.opcodes if each.name in _PUTS | _OBJECTS | _OTHERS
}


class VectorBlock(NamedTuple):
    """Some vectors (m, d) of a file and their ids."""

    ids: list[str]
    vectors: Array


class RefusedPickle(Exception):
    """The file is no pickled list of pairs (id, vector); the message says why."""


def read_pickled_vectors(path: str) -> Iterator[VectorBlock]:
    """Yield the vectors of a pickled list of pairs (id, vector), in blocks, as DPR writes it.

    Memory: at most about 60 times the size of a hostile file, and that of a shard of 768 dims beside its mapped file.

    Raises:
        CorpusError: The file cannot be read or holds anything else; the message names file, item and reason.

    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CorpusError(f"{path}: expected a regular file, which can be read at any position")
            if not status.st_size:
                raise CorpusError(f"{path}: is cut short: it is empty")
            # Unlike a file's, its read() makes no room for more than there is.
            with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
                yield from read_blocks(cast(BinaryIO, mapped), status.st_size)
    except RefusedPickle as err:
        raise CorpusError(f"{path}: {err}") from err
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err


def read_blocks(file: BinaryIO, size_bytes: int) -> Iterator[VectorBlock]:
    """Yield the vectors of a file of this size, mapped or in memory; raise RefusedPickle at anything else."""
    pairs = _load(file, size_bytes)
    pairs.reverse()  # so that each is taken off the end
    ids: list[str] = []
    vectors: list[Array] = []
    first: Array | None = None
    for number in range(len(pairs)):
        try:
            doc_id, vector = _check_pair(pairs.pop())
        except RefusedPickle as err:
            raise RefusedPickle(f"item {number}: {err}") from err
        first = vector if first is None else first
        if vector.shape != first.shape or vector.dtype != first.dtype:
            raise RefusedPickle(
                f"item {number}: expected a vector of {first.shape[0]} {first.dtype} as the first, got one of "
                f"{vector.shape[0]} {vector.dtype}"
            )
        ids.append(doc_id)
        vectors.append(vector)
        if len(ids) == BLOCK_VECTORS or not pairs:
            yield VectorBlock(ids, np.stack(vectors))
            ids, vectors = [], []


def _load(file: BinaryIO, size_bytes: int) -> list[Any]:
    """Return the list that the file holds."""
    try:
        _check_opcodes(file, size_bytes)
        file.seek(0)
        pairs = _Unpickler(file, encoding="bytes").load()
    except (pickle.UnpicklingError, TypeError, ValueError, LookupError, AttributeError, EOFError, OverflowError) as err:
        raise RefusedPickle(f"is cut short, or no pickle of vectors: {err}") from err
    if type(pairs) is not list:
        raise RefusedPickle("expected a list of pairs (id, vector), got something else")
    return pairs


def _check_opcodes(file: BinaryIO, size_bytes: int) -> None:
    """Raise RefusedPickle or ValueError for opcodes, lengths or numbers that vectors do not need."""
    objects_left = _FREE_OBJECTS + size_bytes // _BYTES_PER_OBJECT
    num_memoized = frame_end = 0
    name = ""
    while name != "STOP":
        at = file.tell()
        code = file.read(1)
        if code not in _OPCODES:
            raise RefusedPickle(_describe_opcode(code) if at else _describe_begin(code + file.read(20)))
        name, argument = _OPCODES[code].name, _OPCODES[code].arg
        # Fewer bytes than the opcode says are a ValueError.
        number = argument.reader(file) if argument else 0
        objects_left -= name in _OBJECTS
        if objects_left < 0:
            raise RefusedPickle("has more objects than vectors of its size need")
        # An Unpickler drops the end of a frame that ends inside of an opcode, and would read others than these.
        if at > frame_end > 0 or (name == "FRAME" and at < frame_end):
            raise RefusedPickle("has a frame that ends inside of something else")
        if name == "FRAME":
            frame_end = at + _FRAME_BYTES + number
        elif at == frame_end:
            frame_end = 0
        if name in _PUTS:
            # Python 2 counts from 1.
            if number > num_memoized + 1:
                raise RefusedPickle(f"sets memo entry {number:,}, after {num_memoized:,} of them")
            num_memoized += 1
    if file.read(1):
        raise RefusedPickle("has bytes after the end of its pickle")


def _describe_begin(begin: bytes) -> str:
    return f"expected a pickle of protocol 2 to 5, got a file that begins with {begin!r}" if begin else "is cut short"


def _describe_opcode(code: bytes) -> str:
    if not code:
        return "is cut short"
    return f"has the opcode {code!r}, which a list of pairs (id, vector) does not need; expected protocol 2 to 5"


class _Dtype:
    """A dtype that the file names: a code such as f4, and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *flags: Any) -> None:
        # Not aligned, and a copy: without a copy, NumPy would ignore the byte order that follows.
        if flags not in ((False, True), (0, 1)):
            raise RefusedPickle("a dtype with flags that NumPy does not write")
        self.code, self.order = _short_text(code), "<"

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 8 or not _is_numpy_state(self.code, state[2:]):
            raise RefusedPickle("a dtype with a state that NumPy does not write")
        order = _short_text(state[1])
        if order not in ("<", ">", "|", "="):
            raise RefusedPickle(f"a dtype with the byte order {order!r:.20}")
        self.order = ">" if order == ">" else "<"


class _Array:
    """An array that the file describes by shape, dtype and bytes."""

    __slots__ = ("dtype", "raw", "shape")

    def __init__(self, shape: Any = None, dtype: Any = None, raw: Any = b"") -> None:
        self.shape, self.dtype, self.raw = shape, dtype, raw

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise RefusedPickle("an array with a state that NumPy does not write")
        _, self.shape, self.dtype, _, self.raw = state

    def to_vector(self) -> Array:
        """Return the vector; raise RefusedPickle when dtype, shape and bytes do not describe one."""
        if not isinstance(self.dtype, _Dtype) or self.dtype.code not in _FLOATS:
            code = self.dtype.code if isinstance(self.dtype, _Dtype) else type(self.dtype).__name__
            raise RefusedPickle(f"expected float16, float32 or float64, got an array of dtype {code!r:.20}")
        if not isinstance(self.shape, tuple) or not all(type(one) is int for one in self.shape):
            raise RefusedPickle("an array whose shape is no tuple of integers")
        if len(self.shape) != 1:
            raise RefusedPickle(f"expected a vector of shape (d,), got an array of {len(self.shape)} dimensions")
        if not self.shape[0]:
            raise RefusedPickle("expected a vector of one dim or more, got an empty one")
        dtype = _FLOATS[self.dtype.code].newbyteorder(">" if self.dtype.order == ">" else "<")
        raw = self.raw
        if not isinstance(raw, bytes | bytearray):
            raise RefusedPickle(f"expected the bytes of an array, got {type(raw).__name__}")
        if len(raw) != self.shape[0] * dtype.itemsize:
            raise RefusedPickle(f"an array of {len(raw):,} bytes, which are not as many as its shape says")
        return np.frombuffer(raw, dtype=dtype).astype(dtype.newbyteorder("<"), copy=False)


def _ndarray(*arguments: Any) -> NoReturn:
    raise RefusedPickle("a call of numpy.ndarray")


def _reconstruct(kind: Any, shape: Any = None, code: Any = None) -> _Array:
    if kind is not _ndarray:
        raise RefusedPickle("an array of a class that is not NumPy's")
    return _Array()


def _encode(text: Any, codec: Any = "utf-8") -> bytes:
    """Return the bytes that protocols before 3 write as a text."""
    if not isinstance(text, str) or _short_text(codec) not in ("latin1", "latin-1"):
        raise RefusedPickle("a call of _codecs.encode that NumPy does not write")
    return text.encode("latin-1")


def _make_scalar(dtype: Any, raw: Any = b"") -> int | str:
    """Return the value of a NumPy scalar, as ids may be."""
    code = dtype.code if isinstance(dtype, _Dtype) else ""
    if isinstance(raw, bytes) and code in _INTEGERS and len(raw) == int(code[1]):
        return int.from_bytes(raw, "big" if dtype.order == ">" else "little", signed=code[0] == "i")
    if isinstance(raw, bytes) and code[:1] == "U" and dtype.order == "<" and len(raw) == _string_bytes(code):
        try:
            return raw.decode("utf-32-le").rstrip("\0")
        except UnicodeDecodeError as err:
            raise RefusedPickle("a string of NumPy that is no text") from err
    raise RefusedPickle(f"expected a string or an integer, got a scalar of dtype {code!r:.20}")


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}
for _core in ("numpy.core", "numpy._core"):
    _NAMES[(f"{_core}.multiarray", "_reconstruct")] = _reconstruct
    _NAMES[(f"{_core}.multiarray", "scalar")] = _make_scalar
    _NAMES[(f"{_core}.numeric", "_frombuffer")] = lambda raw, dtype, shape, order=None: _Array(shape, dtype, raw)


class _Unpickler(pickle.Unpickler):
    """Runs a pickle with these names."""

    def find_class(self, module: str, name: str) -> Any:
        """Return our constructor for a name of NumPy; raise RefusedPickle for any other name."""
        found = _NAMES.get((module, name))
        if found is None:
            raise RefusedPickle(
                f"names the global {f'{module}.{name}'!r:.120}, which vectors do not need: such a file runs what it "
                "names wherever it is unpickled"
            )
        return found

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse what lies outside of the file."""
        raise RefusedPickle("refers to something outside of the file")


def _check_pair(pair: Any) -> tuple[str, Array]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], _Array):
        raise RefusedPickle("expected a pair of an id and a vector, got something else")
    return _parse_id(pair[0]), pair[1].to_vector()


def _parse_id(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as err:
            raise RefusedPickle("an id that is not UTF-8") from err
    if isinstance(value, str):
        return value
    if type(value) is int and abs(value) < 1 << 63:
        return str(value)
    raise RefusedPickle(f"expected a string or an integer as id, got {type(value).__name__}")


def _is_numpy_state(code: str, rest: tuple[Any, ...]) -> bool:
    """Return whether NumPy writes these after the byte order: no fields; size, alignment and flags."""
    if code in _FLOATS or code in _INTEGERS:
        return rest == (None, None, None, -1, -1, 0)
    if code[:1] == "U":
        return rest in [(None, None, None, _string_bytes(code), 4, flags) for flags in (0, 8)]
    return True  # of a dtype that is refused wherever it is used


def _string_bytes(code: str) -> int:
    """Return the bytes of a string of NumPy, such as U12."""
    if not (code[1:].isascii() and code[1:].isdecimal()):
        raise RefusedPickle(f"a dtype {code!r:.20}")
    return 4 * int(code[1:])


def _short_text(value: Any) -> str:
    """Return a short string, as Python 2 or 3 wrote it."""
    if isinstance(value, bytes) and len(value) < 64:
        return value.decode("latin-1")
    if isinstance(value, str) and len(value) < 64:
        return value
    raise RefusedPickle(f"expected the short string that NumPy writes, got {type(value).__name__}")
