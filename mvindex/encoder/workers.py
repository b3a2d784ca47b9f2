"""Processes that prepare or encode documents beside this one, which shares its interpreter's lock with nobody then.

They are started as programs of their own, not forked: a fork of a process that uses a GPU, or has threads, may hang,
and the start method "spawn" of multiprocessing runs the caller's main program once more.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeAlias, cast

from mvindex import errors
from mvindex.errors import EncoderError, MvindexError

# Takes what a process is set up with, and returns what answers each of its requests; both are JSON with bytes in it.
Handler: TypeAlias = Callable[[Mapping[str, Any]], Callable[[Any], Any]]

_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from mvindex.encoder.workers import serve; serve()"
_SIZE_BYTES = 8
# The key of an object that stands for bytes, which follow the JSON.
_BLOCK = "block"


class Workers:
    """Processes that answer requests by a handler, "module:function"; they end with this object."""

    def __init__(self, handler: str, setups: Sequence[Mapping[str, Any]], threads: int) -> None:
        """Start a process for each setup; threads: that each may take."""
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(handler, setup, threads) for setup in setups]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(setups))
        self._finalizer = weakref.finalize(self, _close_all, self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def map(self, requests: Iterable[Any]) -> Iterator[Any]:
        """Yield the answers in the order of the requests, of which two for each process are taken ahead.

        Raises the error of a request where it comes in that order; EncoderError for a process that ended.
        """
        waiting: deque[Future[Any]] = deque()
        for request in requests:
            waiting.append(self._threads.submit(self._answer, request))
            if len(waiting) > 2 * len(self):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def close(self) -> None:
        """End the processes."""
        self._finalizer()

    def _answer(self, request: Any) -> Any:
        worker = self._idle.get()
        try:
            return worker.answer(request)
        finally:
            self._idle.put(worker)


class _Worker:
    """One process; it is set up while this one goes on."""

    def __init__(self, handler: str, setup: Mapping[str, Any], threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for this process, which ends the others.
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)},
        )
        with contextlib.suppress(BrokenPipeError):
            _write(cast(BinaryIO, self._process.stdin), [handler, setup])

    def answer(self, request: Any) -> Any:
        try:
            _write(cast(BinaryIO, self._process.stdin), request)
            kind, *values = _read(cast(BinaryIO, self._process.stdout))
        except (BrokenPipeError, EOFError) as err:
            code = self._process.wait()
            raise EncoderError(
                f"a process that encodes or arranges has ended (exit {code}); its last words are above. Too "
                "little memory is the likely cause of exit -9: give fewer devices, or fewer threads"
            ) from err
        if kind == "error":
            name, message = values
            raise _error_class(name)(message)
        return values[0]

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                cast(BinaryIO, pipe).close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """Answer requests from stdin on stdout until there are no more: the program of a process."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    answer: Callable[[Any], Any] | None = None
    try:
        handler, setup = _read(requests)
        module, _, name = handler.partition(":")
        while True:
            request = _read(requests)
            try:
                # Set up with the first request, so that an error answers it.
                answer = answer or getattr(importlib.import_module(module), name)(setup)
                found = ["answer", answer(request)]
            except MvindexError as err:
                found = ["error", type(err).__name__, str(err)]
            _write(answers, found)
    except (EOFError, BrokenPipeError):
        return


def _error_class(name: str) -> type[MvindexError]:
    found = getattr(errors, name, EncoderError)
    return found if isinstance(found, type) and issubclass(found, MvindexError) else EncoderError


def _write(stream: BinaryIO, value: Any) -> None:
    blocks: list[bytes] = []

    def reference(data: bytes) -> dict[str, int]:
        blocks.append(data)
        return {_BLOCK: len(blocks) - 1}

    text = json.dumps(value, default=reference).encode()
    stream.write(len(blocks).to_bytes(_SIZE_BYTES, "little"))
    for data in (text, *blocks):
        stream.write(len(data).to_bytes(_SIZE_BYTES, "little"))
        stream.write(data)
    stream.flush()


def _read(stream: BinaryIO) -> Any:
    num_blocks = _read_number(stream)
    text, *blocks = (stream.read(_read_number(stream)) for _ in range(num_blocks + 1))
    return json.loads(text, object_hook=lambda found: blocks[found[_BLOCK]] if found.keys() == {_BLOCK} else found)


def _read_number(stream: BinaryIO) -> int:
    data = stream.read(_SIZE_BYTES)
    if len(data) < _SIZE_BYTES:
        raise EOFError
    return int.from_bytes(data, "little")


def _close_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.close()
