"""The machine: how many cores and how much memory it leaves to the process, and the threads that compute."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from concurrent.futures import Future

# Where control groups are mounted, below the root of the file system.
_GROUPS = Path("sys/fs/cgroup")


def read_groups(
    controller: str, names: Sequence[str], old_names: Sequence[str], root: Path = Path("/")
) -> Iterator[list[str]]:
    """Yield the texts of files of this process' control groups, from the innermost group out.

    Args:
        controller: "cpu" or "memory".
        names: The files in groups of version 2, such as "memory.max".
        old_names: The files in groups of version 1, such as "memory.limit_in_bytes".
        root: The root of the file system.

    """
    for group, is_old in _groups(controller, root):
        try:
            yield [(group / name).read_text(encoding="ascii").strip() for name in (old_names if is_old else names)]
        except OSError:
            continue  # the root group has no limits


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the groups, and whether they are of version 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = ["0::/", f"1:{controller}:/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / _GROUPS / controller if controllers else root / _GROUPS
        group = top / path.lstrip("/")
        for above in (group, *group.parents):
            if above.is_relative_to(top):
                yield above, bool(controllers)


# A group's limit, what its processes use, and how that is made up; the last two also count cached files.
_FILES = ("memory.max", "memory.current", "memory.stat")
_OLD_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
# The cached files in memory.stat, of this group and those below it.
_CACHED, _OLD_CACHED = {"active_file", "inactive_file"}, {"total_active_file", "total_inactive_file"}


def memory_bytes() -> int:
    """Return the memory that the machine, control groups and `ulimit -d` leave to this process, in bytes."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [int(text) for (text,) in read_groups("memory", _FILES[:1], _OLD_FILES[:1]) if text.isdecimal()]
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return min(limits if data == resource.RLIM_INFINITY else [*limits, data])


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that could be taken now without swapping, in bytes; None where the kernel does not tell.

    Cached files count as available: they are dropped when memory is needed. root: the root of the file system.
    """
    return min([*_machine_available(root), *_groups_available(root)], default=None)


def private_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process has for itself, in bytes, without mapped files; 0 where it is not told."""
    try:
        lines = (root / "proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0  # not Linux, or hidden from a container
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def _machine_available(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return  # not Linux, or hidden from a container
    for name, value, *_ in map(str.split, lines):
        if name == "MemAvailable:":
            yield int(value) * 1024


def _groups_available(root: Path) -> Iterator[int]:
    for limit, used, stat in read_groups("memory", _FILES, _OLD_FILES, root):
        if limit.isdecimal() and used.isdecimal():
            values = {name: int(value) for name, value in map(str.split, stat.splitlines())}
            cached = _OLD_CACHED if _OLD_CACHED <= values.keys() else _CACHED
            yield max(0, int(limit) - int(used) + sum(values.get(name, 0) for name in cached))


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


T = TypeVar("T")
ItemT = TypeVar("ItemT")

_machine = Machine()
_given: int | None = None


def set_threads(count: int | None) -> None:
    """Set how many threads every operation of this process takes: encoding, scans, engines, training.

    Args:
        count: The number, from 1 on; None for the default again: OMP_NUM_THREADS where it is set, else as many as the
            machine leaves (docs/how-to/threads.md).

    Raises:
        ConfigError: For another value.

    """
    global _given
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ConfigError(f"threads: expected a whole number from 1 on, got {count!r:.40}")
    _given = count


def default_threads() -> int:
    """Return how many threads an operation takes that begins now; see choose_threads()."""
    return choose_threads().threads


def choose_threads() -> ThreadChoice:
    """Return how many threads an operation takes that begins now, and why.

    The number of set_threads(), else OMP_NUM_THREADS, as Faiss and torch read it, else what the machine leaves.
    """
    if _given is not None:
        return ThreadChoice(_given, "given by --threads or set_threads()")
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named) > 0:
        return ThreadChoice(int(named), "OMP_NUM_THREADS")
    return _machine.choose()


class LibraryThreads:
    """The threads of a library that has a number of its own for them, such as torch. Thread-safe."""

    def __init__(self, read: Callable[[], int], write: Callable[[int], None]) -> None:
        """Take the library's functions that return and set the number."""
        self._read, self._write = read, write
        self._lock, self._here = Lock(), local()
        self._num_inside = 0
        self._before = 0

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Make the library take as many threads as choose_threads() says; afterwards as many as before.

        A program that has set fewer itself keeps them, unless it has called set_threads(). An operation inside
        another keeps the threads of the outer one.
        """
        if getattr(self._here, "is_inside", False):
            yield
            return
        with self._lock:
            # A thread that begins now may inherit a lowered number: that of before any operation counts.
            if not self._num_inside:
                self._before = self._read()
            self._num_inside += 1
        count = default_threads()
        self._write(count if _given is not None else min(self._before, count))
        self._here.is_inside = True
        try:
            yield
        finally:
            self._here.is_inside = False
            self._write(self._before)
            with self._lock:
                self._num_inside -= 1


def run_in_threads(call: Callable[[], T], num_threads: int) -> list[T]:
    """Call in so many threads at once, and return the results; raise the first error when all have ended.

    The threads end with the call: a forked child has none of a pool's, and starting them takes some microseconds.
    """
    if num_threads <= 1:
        return [call() for _ in range(num_threads)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads - 1) as pool:
        others = [pool.submit(call) for _ in range(num_threads - 1)]
        mine = call()
    return [mine, *(other.result() for other in others)]


def map_in_threads(call: Callable[[ItemT], T], items: Iterable[ItemT], num_threads: int) -> Iterator[T]:
    """Yield the result of each item, in their order, computed in so many threads; at most two wait for each thread."""
    if num_threads <= 1:
        yield from map(call, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 2 * num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def taken_from(items: deque[T]) -> Iterator[T]:
    """Yield the items, each to one of the threads that iterate over the same deque."""
    while True:
        try:
            yield items.popleft()
        except IndexError:
            return
