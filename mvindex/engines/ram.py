"""How much memory this process may use."""

from __future__ import annotations

import os
import resource

from mvindex.kernels.cgroups import group_limits


def memory_bytes() -> int:
    """Return the memory that the machine, control groups and `ulimit -d` leave to this process, in bytes."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [int(text) for text in group_limits("memory", "memory.max", "memory.limit_in_bytes") if text.isdecimal()]
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return min(limits if data == resource.RLIM_INFINITY else [*limits, data])
