"""The table of troubles: each is a kind of fault with its levels, from the worst upward."""

import contextlib
import ctypes
import functools
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mvindex.durable import EVENT
from tests.durability.checks import Fault
from tests.durability.mounts import PAGE_BYTES, SmallDisk

DISK_BYTES = 12 << 20
# More than any of the operations writes; sweeps end long before.
_MOST_BYTES = 8 << 20
_MOST_STEPS = 1000
_INTERRUPTED = 130
# In seconds, of some day.
_NOON, _DAY = 1_700_000_000, 86_400
# Printed by `mvindex ingest`, which ends its chunk before it stops.
_STOPPED = "stopped before the end; the same command continues from here"
_ANYTHING = re.compile("")
# Left by a rename or a removal that was interrupted; never a half-made copy of an index.
_SMALL_OR_OLD = re.compile(r"index\.mvx/(current\.json\.new$|(generation-N/)?gone-)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended. error: its message, None for success; status: of a command, or minus a signal.

    is_ours: the error is one of mvindex's; warnings: what was logged beside it since the last acknowledgement.
    """

    error: str | None = None
    status: int = 0
    is_ours: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One kind of trouble of many levels. begin, end: called before and after the operation; limit: in its process.

    judge: yields what is wrong with how it ended, from the outcome and the path that an error should name. ignored:
    returns in that process whether the trouble has come and the operation must not succeed. leaves: matches the names
    of new files that may be left until the operation is run again.
    """

    judge: Callable[[Outcome, Path], Iterator[Fault]]
    begin: Callable[[int], None] = lambda level: None
    limit: Callable[[int], None] = lambda level: None
    end: Callable[[], None] = lambda: None
    ignored: Callable[[], bool] = lambda: False
    leaves: re.Pattern[str] = re.compile("(?!)")


class Levels(NamedTuple):
    """A trouble with its levels. enough: the number of successes in a row that end a sweep."""

    trouble: Trouble
    levels: Iterable[int]
    enough: int


def full_disk(disk: SmallDisk, step_bytes: int) -> Levels:
    """Leave so many bytes free on the disk."""
    judge = one_clear_error("No space left on device", "is full")
    trouble = Trouble(judge=judge, begin=disk.leave, end=disk.free_up)
    return Levels(trouble, range(0, _MOST_BYTES, step_bytes), _enough(step_bytes))


def file_size(step_bytes: int) -> Levels:
    """Limit the size of files, as `ulimit -f` does: a write fails in the middle of a file, with room on the disk."""
    trouble = Trouble(judge=one_clear_error("File too large", "disk I/O error"), limit=_limit_file_size)
    return Levels(trouble, range(0, _MOST_BYTES, step_bytes), _enough(step_bytes))


def open_files(every: int = 1) -> Levels:
    """Limit how many more files may be opened. Without any, no directory can be removed."""
    judge = one_clear_error("Too many open files", "unable to open database file")
    return Levels(
        Trouble(judge=judge, limit=_limit_open_files, leaves=_ANYTHING), range(0, 64, every), max(2, 6 // every)
    )


def memory(every: int = 1) -> Levels:
    """Limit the memory beyond what is in use, by so many steps of 256 KB; allocations fail wherever they are."""
    trouble = Trouble(judge=_ends_without_memory, limit=_limit_memory, leaves=_ANYTHING)
    return Levels(trouble, range(0, _MOST_STEPS, every), max(2, 8 // every))


def interrupted(every: int = 1) -> Levels:
    """Send SIGINT (Ctrl-C) at every n-th durable step: nothing half-made is left, and the exit status says so."""
    sent = _Signal(signal.SIGINT)
    trouble = Trouble(judge=_ends_interrupted, limit=sent.limit, ignored=sent.was_sent, leaves=_SMALL_OR_OLD)
    return Levels(trouble, range(0, _MOST_STEPS, every), 2)


def terminated(every: int = 1) -> Levels:
    """Send SIGTERM there: the process ends where it is; the next run tidies up."""
    sent = _Signal(signal.SIGTERM)
    trouble = Trouble(judge=_ends_terminated, limit=sent.limit, ignored=sent.was_sent, leaves=_ANYTHING)
    return Levels(trouble, range(0, _MOST_STEPS, every), 2)


def clock(every: int = 1) -> Levels:
    """Change the clock and the times of all files at each durable step: this must change no result."""
    return Levels(Trouble(judge=_must_not_fail, limit=_wild_clock), range(0, 4 * every, every), 4)


def one_clear_error(*phrases: str) -> Any:
    """Return a judge: one error of mvindex's, with the path and one of the phrases, and no other message."""

    def judge(outcome: Outcome, folder: Path) -> Iterator[Fault]:
        message = outcome.error or ""
        if not outcome.is_ours:
            yield Fault("no error of ours", message)
        if outcome.status:
            yield from _wrong_output(outcome)
        if not any(phrase in message for phrase in phrases):
            yield Fault("unclear", message)
        if str(folder) not in message and not outcome.status:
            yield Fault("names no path", message)
        yield from (Fault("a second message", text) for text in outcome.warnings)

    return judge


def _wrong_output(outcome: Outcome) -> Iterator[Fault]:
    """Yield what is wrong with the output of a command: apart from its notes it must be one line, with status 1."""
    said = (outcome.error or "").splitlines()
    lines = [line for line in said if not line.startswith("reading ") and not line.endswith("; row rejected")]
    if outcome.status != 1:
        yield Fault("status", f"{outcome.status}")
    if len(lines) != 1 or not lines[0].startswith("mvindex: "):
        yield Fault("not one line", "\n".join(lines))


def _ends_interrupted(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    """Yield what is wrong: a call must raise KeyboardInterrupt, a command end with its status and no traceback."""
    message = outcome.error or ""
    if outcome.status == 0 and not message.endswith("KeyboardInterrupt\n"):
        yield Fault("no interrupt", message)
    if outcome.status not in (0, _INTERRUPTED) and not (outcome.status == 1 and _STOPPED in message):
        yield Fault("status", f"{outcome.status}: {message}")
    if outcome.status == _INTERRUPTED and len(message.splitlines()) > 1:
        yield Fault("not one line", message)
    if outcome.status and "Traceback" in message:
        yield Fault("a traceback", message)
    yield from (Fault("a second message", text) for text in outcome.warnings)


def _ends_terminated(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    if outcome.status != -signal.SIGTERM:
        yield Fault("status", f"{outcome.status}: {outcome.error}")


def _must_not_fail(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    yield Fault("failed", str(outcome.error))


def _ends_without_memory(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    """Yield what is wrong: an error of ours, MemoryError, or the end of a library that has no other way."""
    message = outcome.error or ""
    if not outcome.is_ours and outcome.status != -signal.SIGABRT and "MemoryError" not in message:
        yield Fault("unclear", message)


def _enough(step_bytes: int) -> int:
    return max(3, 16 * PAGE_BYTES // step_bytes)


def _limit_file_size(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def _limit_open_files(more: int) -> None:
    """Leave so many descriptors free below the limit; open ones above it are not affected."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
    free = (number for number in itertools.count() if number not in taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), most))


def _limit_memory(level: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (level << 18), used + (level << 18)))


def _wild_clock(level: int) -> None:
    """Let time go backwards, stand still, leap, or go to and fro, by the level."""
    steps = itertools.count(1)
    now = [_NOON]

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == EVENT:
            step = next(steps)
            now[0] = _NOON + (-_DAY * step, 0, _DAY * 365 * step, _DAY * (-step) ** 3)[level % 4]
            path = Path(arguments[2])
            for file in {path, path.parent, *path.parent.glob("*"), *path.parent.parent.glob("*")}:
                with contextlib.suppress(OSError):  # the step may be its removal
                    os.utime(file, (now[0], now[0]), follow_symlinks=False)

    time.time, time.time_ns = lambda: float(now[0]), lambda: now[0] * 10**9
    sys.addaudithook(hear)


class _Signal:
    """A signal that the process sends to itself at a durable step."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._is_sent = False

    def limit(self, level: int) -> None:
        """Send the signal at the step of that number."""
        steps = itertools.count()

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event == EVENT and next(steps) == level:
                # A handler of the command may let it end well.
                self._is_sent = signal.getsignal(self._number) in (signal.SIG_DFL, signal.default_int_handler)
                os.kill(os.getpid(), self._number)

        # A process started in the background may ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.addaudithook(hear)

    def was_sent(self) -> bool:
        """Return whether it was sent and should have ended the operation."""
        return self._is_sent


CALLS = {"failing-sync": ("fsync", "fdatasync"), "failing-write": ("write", "pwrite64"), "failing-read": ("pread64",)}
_MOST_CALLS = 2000
# So many in a row that the calls of tidying up do not end a sweep.
_ENOUGH_CALLS = 12
_MARK = "/mvindex-step/"
_STEPS = ("commit", "fsync")
_ATTACH_S = 30.0
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
_DIRECTORY = re.compile(r"generation-\d+>\)")
_MARKED = re.compile(re.escape(_MARK) + r"(before|after)-(\w+)")


def failing(trouble: str, every: int = 1) -> Levels:
    """Let one call of the kind fail with EIO, as on a dying disk: strace attaches to the process and injects it."""
    calls = _Failing(CALLS[trouble])
    # SQLite takes a read that fails for damage.
    judge = one_clear_error(
        "Input/output error", "disk I/O error", "database disk image is malformed", "get page", "get the page"
    )
    known = Trouble(judge=judge, limit=calls.limit, ignored=calls.was_ignored)
    return Levels(known, range(1, _MOST_CALLS, every), max(2, _ENOUGH_CALLS // every))


class _Failing:
    """One call that fails in this process.

    Steps are marked for strace by calls that change nothing, so that its log shows what a call was for.
    """

    def __init__(self, calls: tuple[str, ...]) -> None:
        self._calls = ",".join(calls)
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name, "log")

    def limit(self, level: int) -> None:
        """Let the call of that number, counted from now on, fail."""
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        command = ["strace", "-f", "-qq", "-y", "-o", str(self._log), "-p", str(os.getpid())]
        # access() or faccessat(), by architecture, marks steps.
        traced = ["-e", f"trace={self._calls},/^f?access", "-e", f"inject={self._calls}:error=EIO:when={level}"]
        subprocess.Popen([*command, *traced], stderr=subprocess.DEVNULL)
        limit = time.monotonic() + _ATTACH_S
        while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
            if time.monotonic() > limit:
                raise TimeoutError(f"expected strace to attach in {_ATTACH_S} s")
            time.sleep(0.002)
        sys.addaudithook(_mark_step)

    def was_ignored(self) -> bool:
        """Return whether it was the sync of a commit or of what must precede one, and no error was raised."""
        inside = ""
        for line in self._log.read_text(errors="replace").splitlines():
            mark = _MARKED.search(line)
            if mark:
                inside = mark[2] if mark[1] == "before" else ""
            if "(INJECTED)" in line:
                # SQLite ignores how the sync of a directory ends: test_faults.py checks that mvindex does not.
                is_of_sqlite = inside == "commit" and _DIRECTORY.search(line) is not None
                return inside in _STEPS and "sync" in self._calls and not is_of_sqlite
        return False


def _mark_step(event: str, arguments: tuple[Any, ...]) -> None:
    if event == EVENT:
        moment, step, _ = arguments
        os.access(f"{_MARK}{moment}-{step}", os.F_OK)


# Troubles whose levels are numbers of open files, durable steps or calls.
_COUNTED = {"open-files": open_files, "interrupted": interrupted, "terminated": terminated, "clock": clock}
_COUNTED["memory"] = memory
_COUNTED |= {name: functools.partial(failing, name) for name in CALLS}
TROUBLES = ("full-disk", "file-size", *_COUNTED)


@contextlib.contextmanager
def levels_of(trouble: str, step_bytes: int, every: int, folder: Path) -> Iterator[tuple[Levels, Path]]:
    """Yield the levels of a trouble and where its trials are run."""
    if trouble == "full-disk":
        with SmallDisk(folder / "disk", DISK_BYTES) as disk:
            yield full_disk(disk, step_bytes), disk.point / "trial"
    elif trouble == "file-size":
        yield file_size(step_bytes), folder / "trial"
    else:
        yield _COUNTED[trouble](every), folder / "trial"
