"""Child processes made by fork, which say what they do in lines of JSON, and kill themselves at a named step.

The process that forks them opens no index itself and runs one thread: nothing of it but modules is in its children.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from mvindex.store.fsync import EVENT

# A command that loads a model, on a machine that is busy with other things.
LIMIT_S = 900.0
KILLED = -signal.SIGKILL


@contextlib.contextmanager
def copied(start: Path, folder: Path) -> Iterator[None]:
    """Inside it, the folder holds a copy of the starting index."""
    shutil.copytree(start, folder)
    try:
        yield
    finally:
        shutil.rmtree(folder)


class Child:
    """A running child: its lines, and its end."""

    def __init__(self, work: Callable[["Parent"], None]) -> None:
        (self._lines, theirs), (mine, self._words) = os.pipe(), os.pipe()
        self._read, self._whole = b"", deque[bytes]()
        self.said: list[dict[str, Any]] = []
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._lines)
            os.close(self._words)
            _work(work, Parent(theirs, mine))
        os.close(theirs)
        os.close(mine)
        self._status: int | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing; whatever went wrong, the child has ended."""
        if self._status is None:
            self.kill()
            self.end()

    def tell(self) -> None:
        """Nothing; the child that waits for it goes on."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._words, b"\n")

    def lines(self, limit_s: float = LIMIT_S) -> Iterator[dict[str, Any]]:
        """What the child says, until it ends, also kept in said; TimeoutError when it says nothing for so long."""
        while True:
            while self._whole:
                self.said.append(json.loads(self._whole.popleft()))
                yield self.said[-1]
            if not select.select([self._lines], [], [], limit_s)[0]:
                raise TimeoutError(f"process {self.pid} is silent for {limit_s} s")
            more = os.read(self._lines, 1 << 16)
            if not more:
                return
            *whole, self._read = (self._read + more).split(b"\n")
            self._whole.extend(whole)

    def wait_for(self, key: str) -> dict[str, Any]:
        """The first line that has the key; RuntimeError with the child's words when it ends without one."""
        for line in self.lines():
            if "error" in line:
                raise RuntimeError(line["error"])
            if key in line:
                return line
        raise RuntimeError(f"process {self.pid} ended without {key!r}")

    def kill(self) -> None:
        """Nothing; the child gets SIGKILL, unless it has ended."""
        os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """True when the child runs no more; end() is still to be called."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """The exit status, minus the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        for handle in (self._lines, self._words):
            os.close(handle)
        self._status = os.waitstatus_to_exitcode(status)
        return self._status


class Parent:
    """A child's way to its parent."""

    def __init__(self, lines: int, words: int) -> None:
        self._lines, self._words = lines, words

    def say(self, **line: Any) -> None:
        """Nothing; the parent can read the line, whatever becomes of this process: it is in the pipe."""
        # Not by write(), which a test may have fail.
        os.writev(self._lines, [json.dumps(line).encode() + b"\n"])

    def is_waiting(self) -> bool:
        """True when the parent has told this process something."""
        return bool(select.select([self._words], [], [], 0)[0])


class Steps:
    """Counts a process's named steps: announced ones, and its acknowledgements. At one of them the process ends.

    is_sudden: it kills itself there; else it tells its parent that it is there, and goes on until it is killed.
    """

    def __init__(self, parent: Parent, end_at: int | None, is_sudden: bool) -> None:
        self._parent, self._end_at, self._is_sudden = parent, end_at, is_sudden
        self.taken: list[tuple[str, float]] = []

    def watch(self) -> None:
        """Nothing; from now on steps that are announced count."""
        sys.addaudithook(self._hear)

    def acknowledge(self, state: int) -> None:
        """Nothing; the parent knows that the state was reached."""
        self._parent.say(acknowledged=state)
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
        self._parent.say(there=True)


def asked(work: Callable[[], Any]) -> Any:
    """What the work gives in a process of its own, as JSON; RuntimeError with its traceback when it fails."""
    with Child(lambda parent: parent.say(answer=work())) as child:
        return child.wait_for("answer")["answer"]


def _work(work: Callable[[Parent], None], parent: Parent) -> NoReturn:
    status = 1
    try:
        work(parent)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent is told of whatever went wrong
        parent.say(error=traceback.format_exc())
    finally:
        os._exit(status)
