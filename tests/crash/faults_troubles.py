"""The kinds of trouble that trials know, each with its levels, from the worst upward."""

import contextlib
import itertools
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from faults_disk import PAGE_BYTES, SmallDisk
from faults_trials import Outcome, Trouble
from kill_checks import Fault

from mvindex.store.fsync import EVENT

DISK_BYTES = 12 << 20
# More than any of the operations writes; sweeps end long before.
_MOST_BYTES = 8 << 20
_MOST_STEPS = 1000
_INTERRUPTED = 130
# In seconds, of some day.
_NOON, _DAY = 1_700_000_000, 86_400
# What `mvindex ingest` says, which ends its chunk before it stops.
_STOPPED = "stopped before the end; the same command goes on from here"
_ANYTHING = re.compile("")
# Of a rename or a removal that was interrupted; no half-made copy of an index.
_SMALL_OR_OLD = re.compile(r"index\.mvx/(current\.json\.new$|(generation-N/)?gone-)")


class Levels(NamedTuple):
    """A trouble with its levels; enough: so many successes in a row end a sweep."""

    trouble: Trouble
    levels: Iterable[int]
    enough: int


def full_disk(disk: SmallDisk, step_bytes: int) -> Levels:
    """So many bytes are free on the disk."""
    judge = one_clear_error("No space left on device", "is full")
    trouble = Trouble(judge=judge, begin=disk.leave, end=disk.free_up)
    return Levels(trouble, range(0, _MOST_BYTES, step_bytes), _enough(step_bytes))


def file_size(step_bytes: int) -> Levels:
    """No file may be longer, as by `ulimit -f`: a write fails in the middle of a file, with room on the disk."""
    trouble = Trouble(judge=one_clear_error("File too large", "disk I/O error"), limit=_limit_file_size)
    return Levels(trouble, range(0, _MOST_BYTES, step_bytes), _enough(step_bytes))


def open_files(every: int = 1) -> Levels:
    """So many files may be opened beside those that are open. Without any, no directory can be removed."""
    judge = one_clear_error("Too many open files", "unable to open database file")
    return Levels(
        Trouble(judge=judge, limit=_limit_open_files, leaves=_ANYTHING), range(0, 64, every), max(2, 6 // every)
    )


def interrupted(every: int = 1) -> Levels:
    """A SIGINT (Ctrl-C) at durable steps so far apart: what was half made is gone, and the exit says so."""
    sent = _Signal(signal.SIGINT)
    trouble = Trouble(judge=_ends_interrupted, limit=sent.limit, ignored=sent.was_sent, leaves=_SMALL_OR_OLD)
    return Levels(trouble, range(0, _MOST_STEPS, every), 2)


def terminated(every: int = 1) -> Levels:
    """A SIGTERM there: the process ends where it is; the next run tidies up."""
    sent = _Signal(signal.SIGTERM)
    trouble = Trouble(judge=_ends_terminated, limit=sent.limit, ignored=sent.was_sent, leaves=_ANYTHING)
    return Levels(trouble, range(0, _MOST_STEPS, every), 2)


def clock(every: int = 1) -> Levels:
    """The clock runs wild, and with it the times of all files, at each durable step: that may change nothing."""
    return Levels(Trouble(judge=_must_not_fail, limit=_wild_clock), range(0, 4 * every, every), 4)


def one_clear_error(*phrases: str) -> Any:
    """A judge of errors: one of mvindex's, with the path and one of the phrases, and no word that all is well."""

    def judge(outcome: Outcome, folder: Path) -> Iterator[Fault]:
        message = outcome.error or ""
        if not outcome.is_ours:
            yield Fault("no error of ours", message)
        if outcome.status:
            yield from _wrong_words(outcome)
        if not any(phrase in message for phrase in phrases):
            yield Fault("unclear", message)
        if str(folder) not in message and not outcome.status:
            yield Fault("names no path", message)
        yield from (Fault("a second message", text) for text in outcome.warnings)

    return judge


def _wrong_words(outcome: Outcome) -> Iterator[Fault]:
    """What is wrong with what a command said: beside its notes it must be one line, and the status 1."""
    said = (outcome.error or "").splitlines()
    lines = [line for line in said if not line.startswith("reading ") and not line.endswith("; row rejected")]
    if outcome.status != 1:
        yield Fault("status", f"{outcome.status}")
    if len(lines) != 1 or not lines[0].startswith("mvindex: "):
        yield Fault("not one line", "\n".join(lines))


def _ends_interrupted(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    """What is wrong with the end: a call raises KeyboardInterrupt, a command has its status and no traceback."""
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


def _enough(step_bytes: int) -> int:
    return max(3, 16 * PAGE_BYTES // step_bytes)


def _limit_file_size(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def _limit_open_files(more: int) -> None:
    """Nothing; so many descriptors are free below the limit, which those above it do not feel."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
    free = (number for number in itertools.count() if number not in taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), most))


def _wild_clock(level: int) -> None:
    """Nothing; by the level, time goes backwards, stands still, leaps, or goes to and fro."""
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
    """A signal that comes to the process at a durable step."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._is_sent = False

    def limit(self, level: int) -> None:
        """Nothing; it comes at the step of that number."""
        steps = itertools.count()

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event == EVENT and next(steps) == level:
                # What has a handler of its own may end well.
                self._is_sent = signal.getsignal(self._number) in (signal.SIG_DFL, signal.default_int_handler)
                os.kill(os.getpid(), self._number)

        # A process started in the background may have been told to ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.addaudithook(hear)

    def was_sent(self) -> bool:
        """True when it came, and should have ended the operation."""
        return self._is_sent
