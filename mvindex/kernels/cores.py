"""How many threads the machine leaves to this process: the cores it may use, less what other processes use of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from mvindex.kernels.cgroups import read_groups

# The load is looked at again after so long, in seconds.
_LOOK_EVERY_S = 1.0
# The time between two looks tells the load where it is no shorter (the kernel counts in hundredths) and no longer.
_SHORTEST_S, _LONGEST_S = 0.1, 60.0
# Fields of a line of /proc/stat: idle, and idle while a disk is waited for.
_IDLE = slice(4, 6)


class ThreadChoice(NamedTuple):
    """A number of threads, and why it is that."""

    threads: int
    why: str


class _Look(NamedTuple):
    """Times so far, in seconds: idle_s of the cores together, own_s of this process."""

    cores: frozenset[int]
    at_s: float
    idle_s: float
    own_s: float


def usable_cores() -> frozenset[int]:
    """Return the numbers of the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


class Machine:
    """The cores of a machine, as /proc and /sys describe them. Thread-safe.

    Threads are no more than the cores of the process' affinity and of the CPU quotas of its control groups, and no more
    than other processes leave of these cores: the time in which cores were idle or ran this process since the last
    look. Where that is too short or too long ago, tasks that run now count as a core each. Where the kernel tells
    nothing of that, nothing is subtracted.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        cores: Callable[[], frozenset[int]] = usable_cores,
        clock: Callable[[], float] = time.monotonic,
        own_time: Callable[[], float] = time.process_time,
    ) -> None:
        """Take a first look.

        Args:
            root: The root of the file system.
            cores: Returns the cores on which this process may run.
            clock: Returns seconds since any time.
            own_time: Returns the CPU seconds of this process.

        """
        self._root, self._cores, self._clock, self._own_time = root, cores, clock, own_time
        self._lock = Lock()
        self._last = self._look(cores())
        self._choice: ThreadChoice | None = None

    def choose(self) -> ThreadChoice:
        """Return the number of threads, looked at again after a second; a call in between takes under a microsecond."""
        with self._lock:
            if self._choice is None or self._clock() - self._last.at_s >= _LOOK_EVERY_S:
                self._choice = self._chosen()
            return self._choice

    def _chosen(self) -> ThreadChoice:
        cores = self._cores()
        ceiling, why = float(len(cores)), f"{_cores(len(cores))}"
        quota = min(self._quotas(), default=ceiling)
        if quota < ceiling:
            ceiling, why = quota, f"{_cores(quota)} of the control group's CPU quota"
        left = self._left(cores)
        if left is None:
            return ThreadChoice(max(1, int(ceiling)), why)
        why += f"; other processes leave {max(left, 0.0):.1f} of {len(cores)}"
        return ThreadChoice(max(1, min(int(ceiling), int(left + 0.5))), why)

    def _quotas(self) -> list[float]:
        """Return the CPU quotas of the control groups, in cores."""
        files = read_groups("cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"], self._root)
        limits = [" ".join(texts).split() for texts in files]
        return [int(quota) / int(period) for quota, period in limits if quota.isdecimal() and int(period)]

    def _left(self, cores: frozenset[int]) -> float | None:
        """Return how many of the cores others leave to this process; None where the kernel does not tell."""
        before, now = self._last, self._look(cores)
        self._last = now
        passed = now.at_s - before.at_s
        if now.idle_s > 0 and now.cores == before.cores and _SHORTEST_S <= passed <= _LONGEST_S:
            own = max(now.own_s - before.own_s, 0.0)  # less than before in a forked child
            return (now.idle_s - before.idle_s + own) / passed
        return self._left_now(len(cores))

    def _look(self, cores: frozenset[int]) -> _Look:
        idle = 0
        names = {f"cpu{core}" for core in cores}
        for fields in map(str.split, self._read("proc/stat").splitlines()):
            if fields and fields[0] in names:
                idle += sum(map(int, fields[_IDLE]))
        return _Look(cores, self._clock(), idle / os.sysconf("SC_CLK_TCK"), self._own_time())

    def _left_now(self, num_cores: int) -> float | None:
        """Return the cores less the tasks that run now, but for the one that asks."""
        fields = self._read("proc/loadavg").split()
        running = fields[3].partition("/")[0] if len(fields) > 3 else ""
        return num_cores - (int(running) - 1) if running.isdecimal() and int(running) else None

    def _read(self, name: str) -> str:
        try:
            return (self._root / name).read_text(encoding="ascii")
        except OSError:
            return ""  # not Linux, or hidden from a container


def _cores(count: float) -> str:
    return f"{count:g} core{'s' if count != 1 else ''}"
