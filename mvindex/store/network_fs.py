"""Network file systems: SQLite's log in shared memory and flock do not hold between the hosts that share one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mvindex.errors import StoreError

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORKS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs"})
_ESCAPE = re.compile(r"\\([0-7]{3})")


def refuse_network(directory: Path) -> None:
    """Raise StoreError for a directory on a network file system, where two hosts could write."""
    found = network_of(directory, _read_mounts())
    if found is not None:
        raise StoreError(
            f"{directory} is on {found}: locks of several hosts do not exclude each other there, so nothing is "
            "written; keep the index on a local disk, and copy it with `mvindex snapshot` (reading works)"
        )


def network_of(directory: Path, mounts: str) -> str | None:
    """Return the type of the network file system that holds the directory, such as "nfs4"; None for a local one.

    mounts: lines as of /proc/self/mountinfo (proc(5)): the mount point is field 5, the type follows the hyphen.
    """
    found = ""
    path = os.path.realpath(directory)
    for line in mounts.splitlines():
        left, hyphen, right = line.partition(" - ")
        fields = left.split()
        if not hyphen or len(fields) < 5:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # A mount stands behind the one that it is mounted in; a later one above hides those below it.
        if os.path.commonpath([path, point]) == point:
            found = right.split()[0]
    return found if found in _NETWORKS else None


def _read_mounts() -> str:
    """Return the mounts that this process sees; an empty text where the system does not list them."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
