"""Cut the power at every write of every operation: writes are recorded with strace, and the disk ends at one of them.

    python bench/power_cut.py [--operation NAME ...] [--seeds 3] [--positions 0] [--again 0] [--json]

Needs strace. An operation runs once for real; every byte that Python, SQLite and Faiss write is in the log. At every
call (--positions: at so many, drawn by chance) the directory is built as a power cut there would leave it: strictly
what was fsynced; all names and no other bytes, with lengths grown or not; and, once a seed, any of the unsynced pages
and names. What was not seen before is opened, compared with what had to be there, searched against brute force,
verified, and the operation run again to its end. --again: after so many of the cuts that run is recorded as well, and
cut. Prints a row for each operation; exits 1 if anything was wrong.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.durability.power.cuts import Case, as_recorded, cuts, record_again, record_cases, tally_of  # noqa: E402 - after the settings above
from tests.durability.power.operations import LIVES, OPERATIONS  # noqa: E402 - as above
from tests.durability.power.order import order_faults  # noqa: E402 - as above

MEMORY = Path("/dev/shm")


def row_of(name, options, scratch):
    """Cut an operation; return the result as JSON."""
    started, row = time.monotonic(), Counter()
    [recording] = record_cases([Case(name)], scratch / "recorded")
    recordings = [recording, *again(name, recording, options, scratch / "again")]
    kinds, what = Counter(), []
    for number, recorded in enumerate(recordings):
        tally = tally_of(recorded, sampled(recorded, options.positions, options), scratch / "cut")
        disorder = list(order_faults(recorded))
        row.update(cuts=tally.cuts, distinct=tally.distinct, faults=len(tally.faults), disorder=len(disorder))
        kinds.update(fault.kind for _, fault in tally.faults)
        what += disorder
        for cut, fault in tally.faults:
            what.append(f"run {number}, after {cut.position} calls, {cut.model}: {fault.kind}: {fault.what}")
    seconds = round(time.monotonic() - started, 1)
    calls, what = len(recording.calls), what[:20]
    return {"operation": name, "calls": calls, **row, "kinds": dict(kinds), "seconds": seconds, "what": what}


def again(name, recording, options, scratch):
    """Record the run that goes on after some of the cuts, where the operation can go on from any state."""
    if not options.again or name not in LIVES:
        return []
    found = list(sampled(recording, options.again, options))
    return record_again(name, random.Random(options.seed).sample(found, options.again), scratch)


def sampled(recording, positions, options):
    """Return the cuts at so many calls (0: all), by every model."""
    length = len(recording.calls) + 1
    chosen = random.Random(options.seed).sample(range(length), min(positions or length, length))
    return cuts(recording, range(options.seed, options.seed + options.seeds), set(chosen))


def main():
    parser = harness.parser(__doc__, json=False)
    parser.add_argument("--operation", action="append", choices=list(OPERATIONS), help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="scattered cuts at each call")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--positions", type=int, default=0, help="cut at so many calls of an operation; 0: at all")
    parser.add_argument("--again", type=int, default=0, help="cut the run that goes on after so many cuts, too")
    options = harness.parse(parser, operation=["delete by id"], seeds=1, positions=2)
    if not shutil.which("strace"):
        parser.error("strace is not installed (Debian: strace)")
    rows = []
    if not options.json:
        print(f"{'operation':28}{'calls':>7}{'cuts':>8}{'distinct':>10}{'disorder':>10}{'faults':>8}{'seconds':>9}")
    for name in options.operation or OPERATIONS:
        # In memory: thousands of indexes are made and removed.
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder, as_recorded():
            row = row_of(name, options, Path(folder))
        rows.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        numbers = f"{row['calls']:7,}{row['cuts']:8,}{row['distinct']:10,}{row['disorder']:10,}{row['faults']:8,}"
        print(f"{name:28}{numbers}{row['seconds']:9.1f}", flush=True)
        for what in row["what"]:
            print(f"    {what}")
    sys.exit(1 if any(row["faults"] or row["disorder"] for row in rows) else 0)


if __name__ == "__main__":
    main()
