"""Read DPR's pickles of embeddings, and run nothing that they name.

A pickle is a program that calls whatever it names. This reader knows only the opcodes that a list of pairs
(id, vector) is written with, and only the names that an array of NumPy needs; these lead to constructors in this file.
Vectors are made by np.frombuffer once dtype, shape and number of bytes are checked.

Why not pickle.Unpickler with find_class: it makes room for a memo of 2^32 entries and for byte arrays before it reads
them, and holds a whole shard in memory; NumPy's own classes, given the state that a damaged file holds, end the
process with SIGSEGV. Here the bytes of vectors stay in the file until they are used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from mvindex.errors import CorpusError
from mvindex.io.staging import Array

BLOCK_VECTORS = 1024
_FLOATS: dict[str, np.dtype[Any]] = {"f2": np.dtype("f2"), "f4": np.dtype("f4"), "f8": np.dtype("f8")}
_INTEGERS = ("i4", "i8", "u4", "u8")
# Longer bytes and texts stay in the file. An id may have 1024 characters, of at most four bytes each.
_INLINE_BYTES = 128
_INLINE_TEXT_BYTES = 4096
_MAX_NAME_BYTES = 256
# Pickle writes a list in parts of 1000 items, and a pair nests six deep.
_MAX_STACK = 4096
_MAX_MARKS = 16
# Objects and memo entries per byte of the file: DPR writes one for every 5 bytes with vectors of one dim, fewer else.
_BYTES_PER_OBJECT = 4
_FREE_OBJECTS = 4096
_READ_BUFFER_BYTES = 1 << 20


class VectorBlock(NamedTuple):
    """Some vectors (m, d) of a file and their ids."""

    ids: list[str]
    vectors: Array


class RefusedPickle(Exception):
    """The file is no pickled list of pairs (id, vector); the message says why."""


def read_pickled_vectors(path: str) -> Iterator[VectorBlock]:
    """Yield the vectors of a pickled list of pairs (id, vector), in blocks, as DPR writes it.

    Memory: at most about 60 times the size of a hostile file, and a fifth of a shard of 768 dims.

    Raises:
        CorpusError: The file cannot be read or holds anything else; the message names file, item and reason.

    """
    try:
        with open(path, "rb", buffering=_READ_BUFFER_BYTES) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CorpusError(f"{path}: expected a regular file, which can be read at any position")
            yield from read_blocks(file, status.st_size)
    except RefusedPickle as err:
        raise CorpusError(f"{path}: {err}") from err
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err


def read_blocks(file: BinaryIO, size_bytes: int) -> Iterator[VectorBlock]:
    """Yield the vectors of an open file of this size; raise RefusedPickle at anything else."""
    ids: list[str] = []
    vectors: list[Array] = []
    first: Array | None = None
    for number, pair in enumerate(_Machine(file, size_bytes).pairs()):
        try:
            doc_id, vector = _check_pair(file, pair)
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
        if len(ids) == BLOCK_VECTORS:
            yield VectorBlock(ids, np.stack(vectors))
            ids, vectors = [], []
    if ids:
        yield VectorBlock(ids, np.stack(vectors))


class _Slice(NamedTuple):
    """Bytes of the file that are read when they are used; is_text: UTF-8 that stands for bytes in Latin-1."""

    offset: int
    size_bytes: int
    is_text: bool


class _Dtype:
    """A dtype that the file names: a code such as f4, and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "<"

    def set_state(self, state: Any) -> None:
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

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise RefusedPickle("an array with a state that NumPy does not write")
        _, self.shape, self.dtype, _, self.raw = state

    def to_vector(self, file: BinaryIO) -> Array:
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
        raw = _load_bytes(file, self.raw)
        if len(raw) != self.shape[0] * dtype.itemsize:
            raise RefusedPickle(f"an array of {len(raw):,} bytes, which are not as many as its shape says")
        return np.frombuffer(raw, dtype=dtype).astype(dtype.newbyteorder("<"), copy=False)


class _Constructor:
    """A name that the file may call."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


def _reconstruct(kind: Any, shape: Any = None, code: Any = None) -> _Array:
    if kind is not _NDARRAY:
        raise RefusedPickle("an array of a class that is not NumPy's")
    return _Array()


def _make_dtype(code: Any, *flags: Any) -> _Dtype:
    # Not aligned, and a copy: without a copy, NumPy would ignore the byte order that follows.
    if flags not in ((False, True), (0, 1)):
        raise RefusedPickle("a dtype with flags that NumPy does not write")
    return _Dtype(_short_text(code))


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any = None) -> _Array:
    return _Array(shape, dtype, raw)


def _encode(text: Any, codec: Any = "utf-8") -> bytes | _Slice:
    """Return the bytes that protocols before 3 write as a text."""
    if _short_text(codec) not in ("latin1", "latin-1"):
        raise RefusedPickle("a call of _codecs.encode that NumPy does not write")
    if isinstance(text, _Slice) and text.is_text:
        return text
    if isinstance(text, str):
        return _latin1(text)
    raise RefusedPickle("a call of _codecs.encode that NumPy does not write")


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


def _refuse_call(*arguments: Any) -> NoReturn:
    raise RefusedPickle("a call of numpy.ndarray")


_NDARRAY = _Constructor(_refuse_call)
_NAMES = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Constructor(_make_dtype),
    ("_codecs", "encode"): _Constructor(_encode),
}
for _core in ("numpy.core", "numpy._core"):
    _NAMES[(f"{_core}.multiarray", "_reconstruct")] = _Constructor(_reconstruct)
    _NAMES[(f"{_core}.multiarray", "scalar")] = _Constructor(_make_scalar)
    _NAMES[(f"{_core}.numeric", "_frombuffer")] = _Constructor(_from_buffer)


class _Machine:
    """The stack, marks and memo of a pickle while it is read; pairs() reads it."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file, self._size = file, size_bytes
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._num_memoized = 0
        self._objects_left = _FREE_OBJECTS + size_bytes // _BYTES_PER_OBJECT
        self._root: list[Any] | None = None

    def pairs(self) -> Iterator[Any]:
        """Yield the items of the outermost list; raise RefusedPickle at whatever such a list does not need."""
        read, opcodes = self._file.read, _OPCODES
        try:
            while (code := read(1)) != b".":
                run = opcodes.get(code)
                if run is None:
                    raise RefusedPickle(_describe_opcode(code))
                run(self)
                if len(self._stack) > _MAX_STACK:
                    raise RefusedPickle(f"nests deeper, or has longer tuples, than vectors need ({_MAX_STACK} values)")
                if self._root and not self._marks and len(self._stack) == 1:
                    at = self._file.tell()
                    yield from self._root
                    self._root.clear()
                    self._file.seek(at)
        except IndexError as err:
            raise RefusedPickle("takes a value from an empty stack") from err
        if self._marks or len(self._stack) != 1 or self._stack[0] is not self._root:
            raise RefusedPickle("expected a list of pairs (id, vector), got something else")
        if read(1):
            raise RefusedPickle("has bytes after the end of its pickle")

    def find_class(self, module: str, name: str) -> Any:
        """Return our constructor for a name of NumPy; raise RefusedPickle for any other name."""
        found = _NAMES.get((module, name))
        if found is None:
            raise RefusedPickle(
                f"names the global {f'{module}.{name}'!r:.120}, which vectors do not need: such a file runs what it "
                "names wherever it is unpickled"
            )
        return found

    def call(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Return what one of our constructors makes."""
        if not isinstance(function, _Constructor) or not isinstance(arguments, tuple):
            raise RefusedPickle(f"calls {type(function).__name__}, which vectors do not need")
        try:
            return function.make(*arguments)
        except TypeError as err:
            raise RefusedPickle("calls a constructor with arguments that NumPy does not write") from err

    def global_(self) -> None:
        module, name = self._line(), self._line()
        self._stack.append(self.find_class(module, name))

    def stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise RefusedPickle("names a global by something else than strings")
        self._stack.append(self.find_class(module, name))

    def reduce(self) -> None:
        self._count_object()
        arguments = self._stack.pop()
        self._stack[-1] = self.call(self._stack[-1], arguments)

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if not isinstance(target, _Dtype | _Array):
            raise RefusedPickle(f"sets the state of {type(target).__name__}, which vectors do not need")
        target.set_state(state)

    def proto(self) -> None:
        if self._read(1) > b"\x05":
            raise RefusedPickle("is of a pickle protocol above 5")

    def frame(self) -> None:
        if int.from_bytes(self._read(8), "little") > self._size - self._file.tell():
            raise RefusedPickle("is cut short")

    def mark(self) -> None:
        if len(self._marks) == _MAX_MARKS:
            raise RefusedPickle(f"nests deeper than vectors need ({_MAX_MARKS} marks)")
        self._marks.append(self._stack)
        self._stack = []

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def empty_list(self) -> None:
        self._count_object()
        items: list[Any] = []
        if self._root is None:
            self._root = items
        self._stack.append(items)

    def append(self) -> None:
        value = self._stack.pop()
        self._items().append(value)

    def appends(self) -> None:
        values = self._pop_mark()
        self._items().extend(values)

    def tuple_(self) -> None:
        self._count_object()
        values = tuple(self._pop_mark())
        self._stack.append(values)

    def tuple_of(self, count: int) -> None:
        self._count_object()
        if len(self._stack) < count:
            raise RefusedPickle("takes a value from an empty stack")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def integer(self, width: int, is_signed: bool) -> None:
        self._stack.append(int.from_bytes(self._read(width), "little", signed=is_signed))

    def long(self) -> None:
        self._stack.append(int.from_bytes(self._read(self._read(1)[0]), "little", signed=True))

    def bytes_(self, width: int) -> None:
        self._count_object()
        size = int.from_bytes(self._read(width), "little")
        self._stack.append(self._read(size) if size <= _INLINE_BYTES else self._skip(size, is_text=False))

    def text(self, width: int) -> None:
        self._count_object()
        size = int.from_bytes(self._read(width), "little")
        if size > _INLINE_TEXT_BYTES:
            self._stack.append(self._skip(size, is_text=True))
            return
        self._stack.append(_decode(self._read(size)))

    def put(self, width: int) -> None:
        self._memoize(int.from_bytes(self._read(width), "little"))

    def memoize(self) -> None:
        self._memoize(self._num_memoized)

    def get(self, width: int) -> None:
        number = int.from_bytes(self._read(width), "little")
        if number not in self._memo:
            raise RefusedPickle(f"refers to memo entry {number}, which is no name, text or vector")
        self._stack.append(self._memo[number])

    def _memoize(self, number: int) -> None:
        value = self._stack[-1]
        self._num_memoized += 1
        # Tuples and the bytes of vectors are written once and never referred to again.
        if isinstance(value, list | tuple):
            self._memo.pop(number, None)
            return
        self._count_object()
        self._memo[number] = value

    def _count_object(self) -> None:
        self._objects_left -= 1
        if self._objects_left < 0:
            raise RefusedPickle("has more objects than vectors of its size need")

    def _items(self) -> list[Any]:
        items = self._stack[-1]
        if not isinstance(items, list):
            raise RefusedPickle(f"appends to {type(items).__name__}; expected a list")
        return items

    def _pop_mark(self) -> list[Any]:
        values = self._stack
        self._stack = self._marks.pop()
        return values

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise RefusedPickle("is cut short")
        return data

    def _skip(self, size: int, is_text: bool) -> _Slice:
        offset = self._file.tell()
        if size > self._size - offset:
            raise RefusedPickle("is cut short")
        self._file.seek(offset + size)
        return _Slice(offset, size, is_text)

    def _line(self) -> str:
        line = self._file.readline(_MAX_NAME_BYTES)
        if not line.endswith(b"\n"):
            raise RefusedPickle(f"names a global that has no end within {_MAX_NAME_BYTES} bytes")
        return _decode(line[:-1])


def _pushes(value: Any) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(value)


_OPCODES: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.proto,
    b"\x95": _Machine.frame,
    b"(": _Machine.mark,
    b"]": _Machine.empty_list,
    b"a": _Machine.append,
    b"e": _Machine.appends,
    b")": _pushes(()),
    b"t": _Machine.tuple_,
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"N": _pushes(None),
    b"\x88": _pushes(True),
    b"\x89": _pushes(False),
    b"J": lambda machine: machine.integer(4, is_signed=True),
    b"K": lambda machine: machine.integer(1, is_signed=False),
    b"M": lambda machine: machine.integer(2, is_signed=False),
    b"\x8a": _Machine.long,
    b"C": lambda machine: machine.bytes_(1),
    b"B": lambda machine: machine.bytes_(4),
    b"\x8e": lambda machine: machine.bytes_(8),
    b"\x96": lambda machine: machine.bytes_(8),
    b"U": lambda machine: machine.bytes_(1),  # str of Python 2
    b"T": lambda machine: machine.bytes_(4),
    b"\x8c": lambda machine: machine.text(1),
    b"X": lambda machine: machine.text(4),
    b"\x8d": lambda machine: machine.text(8),
    b"c": _Machine.global_,
    b"\x93": _Machine.stack_global,
    b"R": _Machine.reduce,
    b"b": _Machine.build,
    b"q": lambda machine: machine.put(1),
    b"r": lambda machine: machine.put(4),
    b"h": lambda machine: machine.get(1),
    b"j": lambda machine: machine.get(4),
    b"\x94": _Machine.memoize,
}


def _describe_opcode(code: bytes) -> str:
    if not code:
        return "is cut short"
    return f"has the opcode {code!r}, which a list of pairs (id, vector) does not need; expected protocol 2 to 5"


def _check_pair(file: BinaryIO, pair: Any) -> tuple[str, Array]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], _Array):
        raise RefusedPickle("expected a pair of an id and a vector, got something else")
    return _parse_id(pair[0]), pair[1].to_vector(file)


def _parse_id(value: Any) -> str:
    if isinstance(value, _Slice):
        raise RefusedPickle(f"an id of {value.size_bytes} bytes")
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


def _load_bytes(file: BinaryIO, raw: Any) -> bytes:
    if isinstance(raw, _Slice):
        file.seek(raw.offset)
        data = file.read(raw.size_bytes)
        if len(data) < raw.size_bytes:
            raise RefusedPickle("is cut short")
        return _latin1(_decode(data)) if raw.is_text else data
    if not isinstance(raw, bytes):
        raise RefusedPickle(f"expected the bytes of an array, got {type(raw).__name__}")
    return raw


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


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as err:
        raise RefusedPickle("a text that is not UTF-8") from err


def _latin1(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as err:
        raise RefusedPickle("bytes written as a text that is not Latin-1") from err
