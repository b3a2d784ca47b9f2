"""Cases that need a process of their own: mounts, another user, limits, nothing else open. Prints what was found.

    python tests/crash/faults_cases.py rights read_by_another_user /tmp/folder

Runs a function of faults_case_NAME on the folder and prints what it gives, as JSON. Its process has all modules loaded
that an index needs, so that its children may be of users who cannot read them.
"""

import importlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402 - the folder of helpers first
import warm  # noqa: E402 - as above
from faults_disk import own_mounts  # noqa: E402 - as above


def found_by(module: str, name: str, folder: str | Path, is_mounting: bool = False) -> dict:
    """What the case finds, in a process of its own; skips the test where that may not mount and must."""
    if is_mounting and own_mounts() is None:
        pytest.skip("NOT RUN: needs a user who may mount a tmpfs (root, or user namespaces) and unshare (util-linux)")
    done = warm.run("faults_cases", module, name, str(folder), is_mounting=is_mounting)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    from kill_runner import prepare

    module, name, folder = sys.argv[1:]
    case = getattr(importlib.import_module(f"faults_case_{module}"), name)
    prepare()
    print(json.dumps(case(Path(folder)), ensure_ascii=False))


if __name__ == "__main__":
    main()
