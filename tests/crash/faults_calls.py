"""System calls that fail with EIO, as on a dying disk: strace attaches to the process and makes one call of them fail.

Steps are told to strace too, by calls that change nothing, so that its log says what a call was for.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from faults_trials import Trouble
from faults_troubles import Levels, one_clear_error

from mvindex.store.fsync import EVENT

CALLS = {"failing-sync": ("fsync", "fdatasync"), "failing-write": ("write", "pwrite64"), "failing-read": ("pread64",)}
_MOST_CALLS = 2000
# So many in a row that the calls of tidying up do not end a sweep.
_ENOUGH = 12
_MARK = "/mvindex-step/"
_STEPS = ("commit", "fsync")
_ATTACH_S = 30.0
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
_DIRECTORY = re.compile(r"generation-\d+>\)")
_MARKED = re.compile(re.escape(_MARK) + r"(before|after)-(\w+)")


def failing(trouble: str, every: int = 1) -> Levels:
    """The call of that number among the process's calls of the kind fails, once."""
    calls = _Failing(CALLS[trouble])
    # To SQLite a read that the disk refuses is damage.
    judge = one_clear_error(
        "Input/output error", "disk I/O error", "database disk image is malformed", "get page", "get the page"
    )
    known = Trouble(judge=judge, limit=calls.limit, ignored=calls.was_ignored)
    return Levels(known, range(1, _MOST_CALLS, every), max(2, _ENOUGH // every))


class _Failing:
    """One call that fails in this process."""

    def __init__(self, calls: tuple[str, ...]) -> None:
        self._calls = ",".join(calls)
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name, "log")

    def limit(self, level: int) -> None:
        """Nothing; the call of that number, from now on, fails."""
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        command = ["strace", "-f", "-qq", "-y", "-o", str(self._log), "-p", str(os.getpid())]
        # access() or faccessat(), by architecture, tells of steps.
        traced = ["-e", f"trace={self._calls},/^f?access", "-e", f"inject={self._calls}:error=EIO:when={level}"]
        subprocess.Popen([*command, *traced], stderr=subprocess.DEVNULL)
        limit = time.monotonic() + _ATTACH_S
        while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
            if time.monotonic() > limit:
                raise TimeoutError("strace does not attach")
            time.sleep(0.002)
        sys.addaudithook(_tell)

    def was_ignored(self) -> bool:
        """True when it was the sync of a commit or of what must be durable before one, and nobody said so."""
        inside = ""
        for line in self._log.read_text(errors="replace").splitlines():
            mark = _MARKED.search(line)
            if mark:
                inside = mark[2] if mark[1] == "before" else ""
            if "(INJECTED)" in line:
                # SQLite does not look at how the sync of a directory ends: test_failing_calls.py does.
                is_of_sqlite = inside == "commit" and _DIRECTORY.search(line) is not None
                return inside in _STEPS and "sync" in self._calls and not is_of_sqlite
        return False


def _tell(event: str, arguments: tuple[Any, ...]) -> None:
    if event == EVENT:
        moment, step, _ = arguments
        os.access(f"{_MARK}{moment}-{step}", os.F_OK)
