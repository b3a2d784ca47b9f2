"""A disk of a few megabytes, mounted where no other process sees it, with a chosen amount of free room."""

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

PAGE_BYTES = 4096
_NAMESPACES = (["--mount"], ["--user", "--map-root-user", "--mount"])
_MOUNT = 'mount -t tmpfs -o size=64k none "$0"'


@lru_cache
def own_mounts() -> list[str] | None:
    """Return the command that runs another one where it may mount (as root, or in user namespaces), or None."""
    if shutil.which("unshare") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for flags in _NAMESPACES:
            command = ["unshare", *flags, "sh", "-c", _MOUNT, folder]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return command[: 1 + len(flags)]
    return None


def mount(point: Path, *options: str) -> None:
    """Mount what the options say at `point`."""
    subprocess.run(["mount", *options, str(point)], check=True, capture_output=True)


class SmallDisk:
    """A tmpfs at a new folder, unmounted at the end of the context."""

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
        """Leave that much room free and fill the rest with one file."""
        self.free_up()
        with open(self._filler, "xb") as file:
            taken = self._free_bytes() - free_bytes
            if taken > 0:
                os.posix_fallocate(file.fileno(), 0, taken)
        if self._free_bytes() != free_bytes:
            raise RuntimeError(f"{self.point}: expected {free_bytes} bytes free, got {self._free_bytes()}")

    def free_up(self) -> None:
        """Remove the file that fills the disk."""
        self._filler.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        found = os.statvfs(self.point)
        return found.f_bavail * found.f_frsize
