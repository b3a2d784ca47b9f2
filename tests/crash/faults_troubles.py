"""The kinds of trouble that trials know, each with its levels, from the worst upward."""

import itertools
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from faults_disk import PAGE_BYTES, SmallDisk
from faults_trials import Outcome, Trouble
from kill_checks import Fault

from mvindex.store.durable import EVENT

DISK_BYTES = 12 << 20
# More than any of the operations writes; sweeps end long before.
_MOST_BYTES = 8 << 20
_MOST_STEPS = 1000
_INTERRUPTED = 130


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


def open_files() -> Levels:
    """So many files may be opened beside those that are open. Without any, no directory can be removed."""
    judge = one_clear_error("Too many open files", "unable to open database file")
    return Levels(Trouble(judge=judge, limit=_limit_open_files, leaves=True), range(64), 6)


def interrupted() -> Levels:
    """A SIGINT (Ctrl-C) at so many durable steps: everything is tidied up, and the exit says so."""
    return Levels(Trouble(judge=_ends_interrupted, limit=_signal_at(signal.SIGINT)), range(_MOST_STEPS), 2)


def terminated() -> Levels:
    """A SIGTERM there: the process ends where it is; the next run tidies up."""
    trouble = Trouble(judge=_ends_terminated, limit=_signal_at(signal.SIGTERM), leaves=True)
    return Levels(trouble, range(_MOST_STEPS), 2)


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
    lines = [line for line in (outcome.error or "").splitlines() if not line.endswith("; row rejected")]
    if outcome.status != 1:
        yield Fault("status", f"{outcome.status}")
    if len(lines) != 1 or not lines[0].startswith("mvindex: "):
        yield Fault("not one line", "\n".join(lines))


def _ends_interrupted(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    message = outcome.error or ""
    if outcome.status != _INTERRUPTED:
        yield Fault("status", f"{outcome.status}: {message}")
    if "Traceback" in message or len(message.splitlines()) > 1:
        yield Fault("not one line", message)


def _ends_terminated(outcome: Outcome, folder: Path) -> Iterator[Fault]:
    if outcome.status != -signal.SIGTERM:
        yield Fault("status", f"{outcome.status}: {outcome.error}")


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


def _signal_at(number: signal.Signals) -> Any:
    """A limit: the signal comes to the process at the durable step of that number."""

    def limit(level: int) -> None:
        steps = itertools.count()

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event == EVENT and next(steps) == level:
                os.kill(os.getpid(), number)

        # A process started in the background may have been told to ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.addaudithook(hear)

    return limit
