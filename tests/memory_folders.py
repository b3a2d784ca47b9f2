"""Folders of tests in memory, for tests that write the same small indexes again and again.

On a disk they would wait for fsync half of their time. What they look for does not depend on the file system: a kill
keeps what was written, synced or not, and cuts of power are replayed from a log of calls. The other tests use a disk.
"""

import re
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
# What all of these tests together may take at one time, many times over.
ROOM_BYTES = 2 << 30


def memory():
    """A folder in memory where there is one with room; None for the usual temporary one."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        return MEMORY
    return None


class Folders:
    """New folders under one, by pytest's own names for that."""

    def __init__(self, folder):
        self._folder = folder

    def getbasetemp(self):
        return self._folder

    def mktemp(self, name, numbered=True):
        prefix = re.sub(r"\W", "_", name)[:40]
        if numbered:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=self._folder))
        (self._folder / prefix).mkdir(mode=0o700)
        return self._folder / prefix


@pytest.fixture(scope="session")
def tmp_path_factory():
    """As pytest's own, in memory."""
    with tempfile.TemporaryDirectory(prefix="mvindex-tests-", dir=memory(), ignore_cleanup_errors=True) as folder:
        yield Folders(Path(folder).resolve())


@pytest.fixture
def tmp_path(tmp_path_factory, request):
    """As pytest's own, in memory; gone when the test is over."""
    path = tmp_path_factory.mktemp(request.node.name)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def temporary_folders_in_memory():
    """Put temporary folders of this process and its children in memory, where the machine has such a folder."""
    with pytest.MonkeyPatch.context() as patch:
        if memory() is not None:
            patch.setattr(tempfile, "tempdir", str(MEMORY))
            patch.setenv("TMPDIR", str(MEMORY))
        yield
