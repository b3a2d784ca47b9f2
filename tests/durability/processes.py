"""Child processes made by fork, which report in lines of JSON and can kill themselves at a named step.

The process that forks them opens no index and runs one thread, so that its children share nothing but loaded modules.
`call` starts such a process once and runs a function in a fresh child of it: no run pays for imports.
"""

import atexit
import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from mvindex.durable import EVENT
from tests.durability.mounts import own_mounts

ROOT = Path(__file__).parents[2]
# A command that loads a model, on a busy machine.
LIMIT_S = 900.0
CALL_LIMIT_S = 3600.0
KILLED = -signal.SIGKILL
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


@contextlib.contextmanager
def copied(start: Path, folder: Path) -> Iterator[None]:
    """Copy a starting folder to `folder` for the duration of the context."""
    shutil.copytree(start, folder)
    try:
        yield
    finally:
        shutil.rmtree(folder)


class Child:
    """A forked process that runs `work`, the lines that it reports, and its end."""

    def __init__(self, work: Callable[["Parent"], None]) -> None:
        (self._lines, theirs), (mine, self._go_on) = os.pipe(), os.pipe()
        self._partial, self._complete = b"", deque[bytes]()
        self.reported: list[dict[str, Any]] = []
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._lines)
            os.close(self._go_on)
            _work(work, Parent(theirs, mine))
        os.close(theirs)
        os.close(mine)
        self._status: int | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the child if it has not ended."""
        if self._status is None:
            self.kill()
            self.end()

    def go_on(self) -> None:
        """Let a child that polls `Parent.is_waiting` go on."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go_on, b"\n")

    def lines(self, limit_s: float = LIMIT_S) -> Iterator[dict[str, Any]]:
        """Yield the reports of the child until it ends; raise TimeoutError after `limit_s` seconds of silence."""
        while True:
            while self._complete:
                self.reported.append(json.loads(self._complete.popleft()))
                yield self.reported[-1]
            if not select.select([self._lines], [], [], limit_s)[0]:
                raise TimeoutError(f"process {self.pid}: expected a report, got none in {limit_s} s")
            more = os.read(self._lines, 1 << 16)
            if not more:
                return
            *complete, self._partial = (self._partial + more).split(b"\n")
            self._complete.extend(complete)

    def wait_for(self, key: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Return the first report with the key; raise RuntimeError with the child's traceback when it fails."""
        for line in self.lines(limit_s):
            if "error" in line:
                raise RuntimeError(line["error"])
            if key in line:
                return line
        raise RuntimeError(f"process {self.pid}: expected a report of {key!r}, got the end of the process")

    def kill(self) -> None:
        """Send SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Return whether the child has ended; `end` must still be called."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Wait for the child and return its exit status, or minus the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        for handle in (self._lines, self._go_on):
            os.close(handle)
        self._status = os.waitstatus_to_exitcode(status)
        return self._status


class Parent:
    """A child's connection to its parent."""

    def __init__(self, lines: int, go_on: int) -> None:
        self._lines, self._go_on = lines, go_on

    def report(self, **line: Any) -> None:
        """Send a line to the parent; it arrives whatever becomes of this process."""
        # Not by write(), which a test may have fail.
        os.writev(self._lines, [json.dumps(line).encode() + b"\n"])

    def is_waiting(self) -> bool:
        """Return whether the parent has called `Child.go_on`."""
        return bool(select.select([self._go_on], [], [], 0)[0])


class Steps:
    """Count the named steps of this process, announced ones and acknowledgements, and stop at one of them.

    is_sudden: the process kills itself there; otherwise it reports `there` and goes on until its parent kills it.
    """

    def __init__(self, parent: Parent, end_at: int | None, is_sudden: bool) -> None:
        self._parent, self._end_at, self._is_sudden = parent, end_at, is_sudden
        self.taken: list[tuple[str, float]] = []

    def watch(self) -> None:
        """Count announced steps from now on."""
        sys.addaudithook(self._hear)

    def acknowledge(self, state: int) -> None:
        """Report that the state was acknowledged; this is a step too."""
        self._parent.report(acknowledged=state)
        self._count(f"after acknowledging {state}")

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == EVENT:
            moment, step, path = arguments
            self._count(f"{moment} {step} {os.path.basename(path)}")

    def _count(self, name: str) -> None:
        self.taken.append((name, time.monotonic()))
        if len(self.taken) - 1 != self._end_at:
            return
        if self._is_sudden:
            os.kill(os.getpid(), signal.SIGKILL)
        self._parent.report(there=True)


def in_child(work: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Return the JSON result of work done in a child; raise RuntimeError with its traceback when it fails."""
    with Child(lambda parent: parent.report(result=work())) as child:
        return child.wait_for("result", limit_s)["result"]


def _work(work: Callable[[Parent], None], parent: Parent) -> NoReturn:
    status = 1
    try:
        work(parent)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever went wrong is reported
        parent.report(error=traceback.format_exc())
    finally:
        os._exit(status)


def call(function: str, *arguments: Any, prepared_by: str, is_mounting: bool = False, **options: Any) -> Any:
    """Return the JSON result of `package.module:function` in a new child of a prepared process.

    Args:
        function: What to call.
        *arguments: Its arguments, as JSON.
        prepared_by: A function without arguments that loads and sets up what children share.
        is_mounting: Run where this user may mount; see `own_mounts`.
        **options: Its keyword arguments, as JSON.
    """
    # One for each thread: it answers one request at a time.
    return _forker(prepared_by, is_mounting, threading.get_ident()).call([function, arguments, options])


@lru_cache
def _forker(prepared_by: str, is_mounting: bool, thread: int) -> "_Forker":
    forker = _Forker([*((own_mounts() or []) if is_mounting else []), sys.executable, "-m", __name__, prepared_by])
    atexit.register(forker.end)
    return forker


class _Forker:
    """The process that forks, as seen by those that call functions in its children."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env={**os.environ, **ONE_THREAD}, cwd=ROOT)

    def call(self, request: list[Any]) -> Any:
        os.write(self._process.stdin.fileno(), json.dumps(request).encode() + b"\n")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{request[0]}: the process that forks has ended")
        result = json.loads(line)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["result"]

    def end(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _serve(prepared_by: str) -> None:
    """Answer requests on standard input, one line of JSON each, until it is closed."""
    # What children print must not be taken for a result.
    results = os.dup(1)
    os.dup2(2, 1)
    _function(prepared_by)()
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        try:
            function = _function(name)
            result = {"result": in_child(lambda: function(*arguments, **options), CALL_LIMIT_S)}  # noqa: B023
        except (RuntimeError, TimeoutError, ImportError) as err:
            result = {"error": str(err)}
        with os.fdopen(os.dup(results), "w") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    _serve(sys.argv[1])
