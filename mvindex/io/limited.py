"""Vectors from a file that is read in a process of its own, with limits (confined.py says which)."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

import mvindex
from mvindex.errors import CorpusError, StoreError
from mvindex.io.validation import Array
from mvindex.planning.units import shown_bytes

# The paths come first, so that the process reads by the code that started it, and not by another version's.
_BOOT = "import sys, importlib; sys.path[:0] = sys.argv[3:]; importlib.import_module(sys.argv[2]).main()"
_MAX_LINE_BYTES = 64 << 20
_MAX_ERROR_BYTES = 2000
# Numbers in a frame: 4,096 vectors of the most dims that an index takes.
_MAX_FRAME = 1 << 28
_DTYPES = {"<f2", "<f4", "<f8"}
_BASE_BYTES = 2 << 30
_TIMES_FILE = 4
_BASE_S = 60
_BYTES_A_SECOND = 10_000_000


class Frame(NamedTuple):
    """Some vectors (m, d) of a file, and what the file calls them."""

    ids: Sequence[str | int]
    vectors: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read: the module whose main() does it, its options, memory (None: by the file's size)."""

    module: str
    paths: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None
    memory_bytes: int | None = None


def read_limited(path: str, reading: Reading) -> Iterator[Frame]:
    """What the file holds; CorpusError, with the path and the reason, when it is not what it must be."""
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CorpusError(f"{path}: is no plain file; it is read in a process of its own, so name the file")
            memory = reading.memory_bytes or _BASE_BYTES + _TIMES_FILE * status.st_size
            cpu_s = _BASE_S + status.st_size // _BYTES_A_SECOND
            yield from _frames(path, file, reading, {"memory_bytes": memory, "cpu_s": cpu_s})
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err


def _frames(path: str, file: Any, reading: Reading, limits: dict[str, int]) -> Iterator[Frame]:
    options = json.dumps({**(reading.options or {}), **limits})
    roots = [str(Path(mvindex.__file__).parents[1]), *reading.paths]
    command = [sys.executable, "-I", "-c", _BOOT, options, reading.module, *roots]
    # No variable of ours is of use to it, and threads would be processes.
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd="/")
        if child.stdout is None:
            raise StoreError(f"{path}: the process that reads it has no output")
        try:
            with closing(child.stdout):
                if (yield from _parsed(path, child.stdout)):
                    return
            raise CorpusError(f"{path}: {_why_ended(child, errors, limits)}")
        finally:
            child.kill()
            child.wait()


def _parsed(path: str, stream: Any) -> Generator[Frame, None, bool]:
    """The frames of the process, whose word is checked too; True at its end, False when it ended without one."""
    dim, count = None, 0
    while line := stream.readline(_MAX_LINE_BYTES):
        try:
            told = json.loads(line)
            if "refused" in told:
                raise CorpusError(f"{path}: {_printable(told['refused'])}")
            if "end" in told:
                _check(told["end"] == count, "its count")
                return True
            num, width = told["shape"]
            dtype = told["dtype"]
            _check(dtype in _DTYPES and type(num) is type(width) is int and 0 < num < 1 << 20, "a shape")
            _check(0 < width < 1 << 20 and width == (dim or width) and len(told["ids"]) == num, "a shape")
            _check(num * width <= _MAX_FRAME, "a shape")
            _check(all(isinstance(one, str | int) for one in told["ids"]), "ids")
        except (ValueError, KeyError, TypeError, RecursionError) as err:
            raise CorpusError(f"{path}: the process that reads it gave back what it must not: {err}") from err
        raw = _exactly(stream, num * width * np.dtype(dtype).itemsize)
        if raw is None:
            return False
        dim, count = width, count + num
        yield Frame(told["ids"], np.frombuffer(raw, dtype=dtype).reshape(num, width))
    return False


def _printable(told: object) -> str:
    """What a file brought the process to say, as one line that does nothing to a terminal."""
    return "".join(char if char.isprintable() else " " for char in str(told)[:_MAX_ERROR_BYTES])


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(f"{what} that cannot be")


def _exactly(stream: Any, size: int) -> bytearray | None:
    """So many bytes of the stream; None where it ends before."""
    raw = bytearray(size)
    view, done = memoryview(raw), 0
    while done < size:
        got = stream.readinto(view[done:])
        if not got:
            return None
        done += got
    return raw


def _why_ended(child: subprocess.Popen[bytes], errors: BinaryIO, limits: Mapping[str, int]) -> str:
    """Why the process that read the file ended without saying so."""
    code = child.wait()
    kept = f"its limits were {shown_bytes(limits['memory_bytes'])} of memory and {limits['cpu_s']} s"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"the process that read it was ended by {name}; {kept}"
    errors.seek(0)
    said = _printable(errors.read()[-_MAX_ERROR_BYTES:].decode("utf-8", "replace").strip().rpartition("\n")[2])
    return f"the process that read it ended with status {code}{f': {said}' if said else ''}; {kept}"
