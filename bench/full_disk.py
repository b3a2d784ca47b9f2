"""Try trouble at every level in every operation: no room, few open files, signals, a wild clock, calls that fail.

    nice python bench/full_disk.py [--trouble full-disk ...] [--only replace ...] [--every 1] [--json]

By default all troubles: every 4 KiB of room or of file size, every number of open files, Ctrl-C and SIGTERM at every
durable step, a clock that runs wild, and each fsync, write or read of a file failing once (that needs strace); in all
operations of the library and commands of the program, the ingest of files among them where torch is installed. After
each trial the index is looked at: what was acknowledged is there whole, searches give what brute force gives, nothing
new lies around, and what failed has said so in one clear error. Then the operation is run again without trouble, and
must end as if there had been none. Prints a row for each trouble and operation, and each fault with its level; exits 1
if there was any. Levels end where the operation has succeeded several times in a row. full-disk mounts disks of its
own: root, or user namespaces. The short form is tests/durability/test_faults.py.
"""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import print_table  # noqa: E402 - after the settings above

from tests.durability.commands import COMMANDS, INGEST  # noqa: E402 - after the settings above
from tests.durability.faults.trials import swept  # noqa: E402 - as above
from tests.durability.faults.troubles import TROUBLES  # noqa: E402 - as above
from tests.durability.mounts import own_mounts  # noqa: E402 - as above
from tests.durability.operations import OPERATIONS as TABLE  # noqa: E402 - as above

COLUMNS = ("trouble", "operation", "trials", "failed", "succeeded", "messages", "faults", "seconds")
OPERATIONS = [*TABLE, *COMMANDS, INGEST]


def chosen(options):
    """Return the pairs of trouble and operation to be tried."""
    troubles, operations = options.trouble or list(TROUBLES), options.only or list(OPERATIONS)
    if INGEST in operations and importlib.util.find_spec("torch") is None:
        note(f"{INGEST} is left out: it needs torch")
        operations.remove(INGEST)
    if "full-disk" in troubles and own_mounts() is None:
        note("full-disk is left out: this user may not mount a tmpfs of its own")
        troubles.remove("full-disk")
    if shutil.which("strace") is None:
        note("calls that fail are left out: they need strace")
        troubles = [trouble for trouble in troubles if not trouble.startswith("failing")]
    return [(trouble, operation) for trouble in troubles for operation in operations]


def tried(trouble, operation, options):
    """Return the row of one operation, its faults and its messages. A sweep that cannot go on is a fault too."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        try:
            (found,) = swept(trouble, [operation], Path(folder), options.step_bytes, options.every)
        except RuntimeError as err:
            found = {"done": 0, "failed": 0, "messages": {}, "faults": [("", "no end", str(err))]}
    row = {
        "trouble": trouble,
        "operation": operation,
        "trials": found["done"] + found["failed"],
        "failed": found["failed"],
        "succeeded": found["done"],
        "messages": len(found["messages"]),
        "faults": len(found["faults"]),
        "seconds": round(time.monotonic() - started),
    }
    note(", ".join(f"{column} {row[column]}" for column in COLUMNS if column not in ("messages",)))
    return row, [(trouble, operation, *fault) for fault in found["faults"]], found["messages"]


def total(rows):
    sums = {column: sum(row[column] for row in rows) for column in COLUMNS[2:]}
    return {"trouble": "all", "operation": "", **sums}


def note(text):
    print(text, file=sys.stderr, flush=True)


def main():
    parser = harness.parser(__doc__, json=False)
    parser.add_argument("--trouble", action="append", choices=TROUBLES, help="repeatable; by default all")
    parser.add_argument("--only", action="append", choices=OPERATIONS, help="repeatable; by default all")
    parser.add_argument("--step-bytes", type=int, default=4096, help="between levels of room and of file size")
    parser.add_argument("--every", type=int, default=1, help="of the open files, durable steps and calls")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="sweeps at a time")
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    parser.add_argument("--messages", action="store_true", help="show what the failures said, and how often")
    options = harness.parse(parser, step_bytes=1 << 18, every=50, jobs=1, only=["ingest more"], trouble=["file-size"])
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda pair: tried(*pair, options), chosen(options)))
    rows, faults = [row for row, _, _ in found], [fault for _, each, _ in found for fault in each]
    if options.json:
        said = [messages for _, _, messages in found]
        rows_said = [row | {"said": messages} for row, messages in zip(rows, said, strict=True)]
        print(json.dumps({"rows": rows_said, "all": total(rows), "faults": faults}, ensure_ascii=False))
    else:
        print_table(COLUMNS, [*rows, total(rows)])
        if options.messages:
            print(*(f"{count:6} {text}" for _, _, messages in found for text, count in messages.items()), sep="\n")
        print(*(": ".join(fault) for fault in faults), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
