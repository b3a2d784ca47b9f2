"""Inside a process that reads a file nobody should trust: its limits, and how it tells what it read.

It reads standard input and writes standard output, and can do nothing else: no memory beyond its limit, no CPU time
beyond its limit, no new file, socket or process. What it writes are frames: a line of JSON, and the bytes of an array.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

import numpy as np

FRAME_VECTORS = 4096
# What reads may need, and a confined process could no longer load.
CODECS = ("ascii", "latin-1", "utf-8", "utf-32-le")
# Python's own bookkeeping; everything else is refused.
_HARMLESS_EVENTS = frozenset({"pickle.find_class", "object.__getattr__", "sys._getframe"})


class Refused(Exception):
    """What was read is not what was wanted; the message says why."""


def serve(read: Callable[[BinaryIO, dict[str, Any]], Iterator[tuple[Sequence[str | int], Any]]]) -> None:
    """Nothing; what read() gives of standard input went to standard output, or why it could not be read.

    read: gives ids with their vectors (m, d); it runs with the limits of the first argument of the process.
    """
    options = json.loads(sys.argv[1])
    file, out = sys.stdin.buffer, sys.stdout.buffer
    _confine(int(options["memory_bytes"]), int(options["cpu_s"]))
    count = 0
    try:
        for ids, vectors in read(file, options):
            _write_frame(out, ids, vectors)
            count += len(ids)
        _write_line(out, {"end": count})
    except Refused as err:
        _refuse(out, str(err))
    except MemoryError:
        _refuse(out, "takes more memory than the limit")
    except Exception as err:  # noqa: BLE001 - whatever a hostile file brings about is told, not shown as a traceback
        _refuse(out, f"{type(err).__name__}: {str(err)[:300]}")


def in_frames(ids: Sequence[str | int], vectors: Sequence[Any]) -> Iterator[tuple[Sequence[str | int], Any]]:
    """Ids and vectors, stacked, a frame at a time."""
    for begin in range(0, len(ids), FRAME_VECTORS):
        yield ids[begin : begin + FRAME_VECTORS], np.stack(vectors[begin : begin + FRAME_VECTORS])


def _confine(memory_bytes: int, cpu_s: int) -> None:
    """Nothing; from now on this process can only compute, and write what it has open."""
    for codec in CODECS:
        codecs.lookup(codec)
    with contextlib.suppress(ValueError, OSError):  # macOS knows the limit and takes none
        _limit(resource.RLIMIT_AS, _used_bytes() + memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_s)
    for nothing in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        _limit(nothing, 0)
    _limit(resource.RLIMIT_NOFILE, 3)
    sys.addaudithook(_refuse_event)


def _limit(what: int, value: int) -> None:
    _, most = resource.getrlimit(what)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (value, value))


def _used_bytes() -> int:
    """Address space in use."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _refuse_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _HARMLESS_EVENTS:
        raise Refused(f"tries {event}, which nothing that only reads vectors does")


def _write_frame(out: BinaryIO, ids: Iterable[str | int], vectors: Any) -> None:
    rows = np.ascontiguousarray(vectors, dtype=vectors.dtype.newbyteorder("<"))
    _write_line(out, {"ids": list(ids), "shape": list(rows.shape), "dtype": rows.dtype.str})
    out.write(rows.data)


def _write_line(out: BinaryIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value).encode() + b"\n")
    out.flush()


def _refuse(out: BinaryIO, why: str) -> NoReturn:
    _write_line(out, {"refused": why})
    os._exit(1)  # a hostile heap is not tidied up
