"""Limits of the control groups that this process is in: Linux containers and services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Where control groups are mounted, below the root of the file system.
_GROUPS = Path("sys/fs/cgroup")


def group_limits(controller: str, name: str, old_name: str, root: Path = Path("/")) -> Iterator[str]:
    """Yield the limits of this process' control groups, from the innermost out, as the kernel writes them.

    Args:
        controller: "cpu" or "memory".
        name: The file of the limit in groups of version 2, such as "memory.max".
        old_name: The file in groups of version 1, such as "memory.limit_in_bytes".
        root: The root of the file system.

    """
    for group, name_there in _groups(controller, name, old_name, root):
        try:
            yield (group / name_there).read_text(encoding="ascii").strip()
        except OSError:
            continue  # the root group has no limits


def _groups(controller: str, name: str, old_name: str, root: Path) -> Iterator[tuple[Path, str]]:
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
                yield above, old_name if controllers else name
