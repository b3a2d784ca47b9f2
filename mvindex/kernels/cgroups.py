"""Limits of the control groups that this process is in: Linux containers and services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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
