"""How much memory this process may use, and how much of it is left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from mvindex.kernels.cgroups import read_groups

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
