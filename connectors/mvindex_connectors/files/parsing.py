"""Parsing in worker processes with limits of memory, CPU time and output: no file harms the reading of others."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from mvindex.corpus.inputs import Input
from mvindex.corpus.passages.documents import read_whole
from mvindex.corpus.rows import CorpusOptions
from mvindex.errors import CorpusError
from mvindex.plugins import require_installed
from mvindex_connectors.files.parsers import LARGEST_RATIO, LEAST_BYTES, PARSERS

# Isolated from the folder in which it runs and from variables of the environment, with the packages of this process.
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from mvindex_connectors.files.worker import main; main()"
_PIECE_BYTES = 2**16
# Ctrl-C does not reach the process. In a session of its own, its niceness would count for nothing where Linux divides
# the processor between sessions; Python 3.10 knows no other way.
_APART: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the parsing of one file.

    Attributes:
        cpu_s: CPU time of a small file.
        cpu_s_per_mb: CPU time for each megabyte of a larger one; an ordinary file takes a fifth of it.
        most_cpu_s: CPU time of the largest file.
        memory_bytes: Memory beyond that of the idle worker.
        output_ratio: Output, in sizes of the file; at least LEAST_BYTES are allowed.
        silence_s: Wall time until the next piece of output, the last resort.

    """

    cpu_s: int = 1
    cpu_s_per_mb: int = 10
    most_cpu_s: int = 60
    memory_bytes: int = 2**30
    output_ratio: int = LARGEST_RATIO
    silence_s: int = 600


LIMITS = Limits()
# A worker starts in a second or two, so that it waits a while for the next file.
_IDLE_S = 30.0
# Of a worker that runs only where no other process wants the processor, and how long its caller waits for a part.
LEFTOVERS, _PATIENCE_S = 20, 2


class SilentError(CorpusError):
    """A parser that has given nothing for too long."""


def parse_file(file: Input, options: CorpusOptions, form: str) -> Iterator[Any]:
    """Yield the parts of a file as its parser gives them; CorpusError where it cannot be read within the limits.

    Args:
        file: The file.
        options: The options of the corpus.
        form: The name of one of PARSERS.

    """
    require_installed(PARSERS[form].module.partition(".")[0], "files", f"reading {file.name}")
    data = read_whole(file, options)
    try:
        yield from parse_data(form, data)
    except CorpusError as err:
        raise CorpusError(f"{file.name}: {err}") from err


def parse_data(form: str, data: bytes, cpu_s: int | None = None, niceness: int = 0) -> Iterator[Any]:
    """Yield the parts of the bytes of a file; CorpusError, without its name, where they cannot be read.

    Args:
        form: The name of one of PARSERS.
        data: The bytes.
        cpu_s: The CPU time that it may take; by default what LIMITS say.
        niceness: How far the worker goes behind other processes; with LEFTOVERS it may find no time at all, and
            SilentError is raised after two seconds.

    """
    worker = _WORKERS.take(niceness)
    try:
        error = yield from worker.parse(form, data, cpu_s)
    except BaseException:  # the process is lost, or the caller reads no further
        worker.close()
        raise
    _WORKERS.give(worker)
    if error:
        raise CorpusError(error)


class _Worker:
    """A process of worker.py."""

    def __init__(self, niceness: int) -> None:
        self.niceness = niceness
        command = [sys.executable, "-I", "-c", _BOOT, *filter(None, sys.path)]
        # Without our environment, which may hold secrets. What swells ends by limits of the process: openpyxl need not
        # read by defusedxml, which takes half as long more.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", "OPENPYXL_DEFUSEDXML": "False"},
            **_APART,
        )
        self._timer: threading.Timer | None = None
        self.may_go_on = True

    def parse(self, form: str, data: bytes, cpu_s: int | None) -> Generator[Any, None, str | None]:
        """Yield the parts of a file; return why it cannot be read, or None. CorpusError where the process is lost."""
        limits = LIMITS
        if cpu_s is None:
            cpu_s = min(limits.most_cpu_s, max(limits.cpu_s, limits.cpu_s_per_mb * len(data) // 10**6))
        allowed = {"cpu_s": cpu_s, "memory_bytes": limits.memory_bytes, "niceness": self.niceness}
        silence_s = _PATIENCE_S if self.niceness == LEFTOVERS else limits.silence_s
        self._send({"format": form, **allowed}, data)
        for line in self._lines(max(LEAST_BYTES, limits.output_ratio * len(data)), silence_s):
            kind, *values = json.loads(line)
            if kind == "part":
                yield values[0]
                continue
            self.may_go_on = values[-1]
            return values[0] if kind == "error" else None
        raise CorpusError(_describe_end(self._process.wait(), cpu_s, limits.memory_bytes))

    def _send(self, request: dict[str, Any], data: bytes) -> None:
        # Where the process is gone, the end of its output says so.
        with contextlib.suppress(BrokenPipeError):
            stdin = cast(BinaryIO, self._process.stdin)
            stdin.write(json.dumps({**request, "size_bytes": len(data)}).encode() + b"\n")
            stdin.write(data)
            stdin.flush()

    def _lines(self, most_bytes: int, silence_s: int) -> Iterator[bytearray]:
        """Yield the lines of the output; CorpusError where there are too many bytes, or none for too long."""
        fd, rest, num_bytes = cast(BinaryIO, self._process.stdout).fileno(), bytearray(), 0
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while poll.poll(silence_s * 1000):
            piece = os.read(fd, _PIECE_BYTES)
            if not piece:
                return
            num_bytes += len(piece)
            if num_bytes > most_bytes:
                raise CorpusError(f"gives over {most_bytes:,} bytes of text; split it, or save its text as a file")
            rest += piece
            if b"\n" in piece:
                *lines, rest = rest.split(b"\n")
                yield from lines
        raise SilentError(f"its parser gave nothing for {silence_s} seconds")

    def close_later(self) -> None:
        """End the process in a while, unless keep() is called before."""
        self._timer = threading.Timer(_IDLE_S, _WORKERS.end, [self])
        self._timer.daemon = True
        self._timer.start()

    def keep(self) -> None:
        """Leave the process as it is."""
        if self._timer:
            self._timer.cancel()

    @property
    def is_alive(self) -> bool:
        """Return whether the process can read a file."""
        return self.may_go_on and self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        self.keep()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent
                cast(BinaryIO, pipe).close()


class _Workers:
    """The workers that wait for a file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def take(self, niceness: int) -> _Worker:
        """Return a worker that nobody else has; a new one where none of this niceness waits."""
        with self._lock:
            while found := next((worker for worker in self._idle[::-1] if worker.niceness == niceness), None):
                self._idle.remove(found)
                found.keep()
                if found.is_alive:
                    return found
                found.close()
        return _Worker(niceness)

    def give(self, worker: _Worker) -> None:
        """Take back a worker whose file is read."""
        if not worker.may_go_on:
            worker.close()
            return
        with self._lock:
            worker.close_later()
            self._idle.append(worker)

    def end(self, worker: _Worker) -> None:
        """End a worker, if it still waits."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                worker.close()

    def close(self) -> None:
        """End all workers that wait."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def forget(self) -> None:
        """Leave all workers to the process from which this one was forked."""
        self.__init__()  # type: ignore[misc]  # the lock may be held by a thread that was not forked


_WORKERS = _Workers()
atexit.register(_WORKERS.close)
os.register_at_fork(after_in_child=_WORKERS.forget)


def _describe_end(status: int, cpu_s: int, memory_bytes: int) -> str:
    if status == -signal.SIGXCPU:
        return f"took over {cpu_s} CPU seconds; split it, or save its text as a file"
    known = -status in set(signal.Signals)
    end = f"was ended by {signal.Signals(-status).name}" if known else f"ended with status {status}"
    return f"its parser crashed, or needs more than {memory_bytes / 2**30:g} GiB of memory: the process {end}"
