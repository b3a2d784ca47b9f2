"""Sweeps of operations that meet with trouble, as a program of its own that prints a line of JSON each.

    python tests/crash/faults_runner.py full-disk "replace" snapshot --step-bytes 4096

For a full disk it starts itself again where it may mount. Its process opens no index and runs one thread.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from kill_runner import prepare  # noqa: E402, I001 - it says how many threads libraries use, before they are loaded
from faults_disk import INSIDE, SmallDisk, own_mounts  # noqa: E402 - as above
from faults_calls import CALLS, failing  # noqa: E402 - as above
from faults_commands import command_operations, ingest_operation, load_modules  # noqa: E402 - as above
from faults_trials import Sweep, Tally  # noqa: E402 - as above
from faults_troubles import (  # noqa: E402 - as above
    DISK_BYTES,
    Levels,
    clock,
    file_size,
    full_disk,
    interrupted,
    open_files,
    terminated,
)
from kill_table import OPERATIONS  # noqa: E402 - as above

_OTHERS = {"open-files": open_files, "interrupted": interrupted, "terminated": terminated, "clock": clock}
_OTHERS |= {name: partial(failing, name) for name in CALLS}
TROUBLES = ("full-disk", "file-size", *_OTHERS)
INGEST = "mvindex ingest"
COMMANDS = command_operations()


def enter_own_mounts() -> None:
    """Nothing; this process may mount, where no other sees it. It is started again for that."""
    if os.environ.get(INSIDE) == "1":
        return
    command = own_mounts()
    if command is None:
        sys.exit("this user may not mount a tmpfs of its own")
    os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def sweep(name: str, levels: Levels, folder: Path, trial: Path) -> Tally:
    """What became of the operation's trials; what it starts from is made in the folder, each trial at the path."""
    own = folder / name.replace(" ", "-")
    own.mkdir()
    operation = ingest_operation(own) if name == INGEST else (OPERATIONS | COMMANDS)[name]
    found = Sweep(operation, levels.trouble, own / "start", trial)
    found.upward(levels.levels, levels.enough)
    return found.tally


class Steps(NamedTuple):
    """How far apart levels are: in bytes of room or of a file, in open files, durable steps or calls."""

    step_bytes: int = 4096
    every: int = 1


@contextmanager
def levels_of(trouble: str, steps: Steps, folder: Path) -> Iterator[tuple[Levels, Path]]:
    """Inside it, the levels of a trouble, and where its trials are."""
    if trouble == "full-disk":
        with SmallDisk(folder / "disk", DISK_BYTES) as disk:
            yield full_disk(disk, steps.step_bytes), disk.point / "trial"
    elif trouble == "file-size":
        yield file_size(steps.step_bytes), folder / "trial"
    else:
        yield _OTHERS[trouble](steps.every), folder / "trial"


def row_of(tally: Tally) -> dict:
    """The tally as JSON."""
    return asdict(tally) | {"faults": [(where, *fault) for where, fault in tally.faults]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trouble", choices=TROUBLES)
    parser.add_argument("operations", nargs="+", choices=[*OPERATIONS, *COMMANDS, INGEST])
    parser.add_argument("--step-bytes", type=int, default=4096)
    parser.add_argument("--every", type=int, default=1, help="of the open files, durable steps or calls")
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    options = parser.parse_args()
    if options.trouble == "full-disk":
        enter_own_mounts()
    prepare()
    load_modules()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        steps = Steps(options.step_bytes, options.every)
        with levels_of(options.trouble, steps, Path(folder)) as (levels, trial):
            for name in options.operations:
                row = row_of(sweep(name, levels, Path(folder), trial))
                print(json.dumps({"operation": name, **row}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
