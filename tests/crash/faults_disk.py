"""A disk of a few megabytes, mounted where no other process sees it, and how much of it is free."""

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

PAGE_BYTES = 4096
# Set to 1 in a process that was started by own_mounts().
INSIDE = "MVINDEX_TEST_OWN_MOUNTS"
_NAMESPACES = (["--mount"], ["--user", "--map-root-user", "--mount"])
_MOUNT = 'mount -t tmpfs -o size=64k none "$0"'


@lru_cache
def own_mounts() -> list[str] | None:
    """The command that runs another one where it may mount, as root or where users may make namespaces; or None."""
    if shutil.which("unshare") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for flags in _NAMESPACES:
            command = ["unshare", *flags, "sh", "-c", _MOUNT, folder]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return command[: 1 + len(flags)]
    return None


def mount(point: Path, *options: str) -> None:
    """Nothing; what the options say is mounted there."""
    subprocess.run(["mount", *options, str(point)], check=True, capture_output=True)


class SmallDisk:
    """A tmpfs at a new folder; a context, at the end of which it is gone."""

    def __init__(self, point: Path, size_bytes: int) -> None:
        point.mkdir(parents=True)
        mount(point, "-t", "tmpfs", "-o", f"size={size_bytes}", "none")
        self.point = point
        self._filler = point / "filler"

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.point)], check=True, capture_output=True)

    def leave(self, free_bytes: int) -> None:
        """Nothing; so much is free, the rest of it taken by one file."""
        self.free_up()
        with open(self._filler, "xb") as file:
            taken = self._free_bytes() - free_bytes
            if taken > 0:
                os.posix_fallocate(file.fileno(), 0, taken)
        if self._free_bytes() != free_bytes:
            raise RuntimeError(f"{self._free_bytes()} bytes are free, not {free_bytes}: the disk is too small")

    def free_up(self) -> None:
        """Nothing; that file is gone."""
        self._filler.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        found = os.statvfs(self.point)
        return found.f_bavail * found.f_frsize
