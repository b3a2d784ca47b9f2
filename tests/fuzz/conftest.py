"""The fuzz harness on the path, and the process as it was after each test of it."""

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))


@pytest.fixture
def fuzz_folder():
    """A folder in memory for a target; it may change the working directory, and a watch the handlers of signals."""
    from fuzz_parts.target import scratch_folder

    alarms = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.getsignal(number) for number in alarms]
    home, limit = os.getcwd(), sys.getrecursionlimit()
    with scratch_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setenv("SQLITE_TMPDIR", str(folder))
        yield folder
    os.chdir(home)
    sys.setrecursionlimit(limit)
    for number, handler in zip(alarms, before, strict=True):
        signal.signal(number, handler)
