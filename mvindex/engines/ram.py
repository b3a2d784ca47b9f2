"""How much memory this process may use."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

# Where control groups are mounted, of the second version and of the first, and the file that holds a group's limit.
_GROUPS, _OLD_GROUPS = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
_LIMIT, _OLD_LIMIT = "memory.max", "memory.limit_in_bytes"


def memory_bytes() -> int:
    """Return the memory that the machine, control groups and `ulimit -d` leave to this process, in bytes."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_group_limits()]
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return min(limits if data == resource.RLIM_INFINITY else [*limits, data])


def _group_limits() -> Iterator[int]:
    for file in _limit_files():
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)


def _limit_files() -> Iterator[Path]:
    """Yield the control groups of this process, from the innermost out."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = ["0::/", "1:memory:/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (_OLD_GROUPS, _OLD_LIMIT) if controllers else (_GROUPS, _LIMIT)
        group = root / path.lstrip("/")
        yield from (above / name for above in (group, *group.parents) if above.is_relative_to(root))
