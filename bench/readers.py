"""Run readers in other processes beside a writer: the rounds of tests/contract/test_second_process.py, longer.

    python bench/readers.py --seconds 300

One reader of each sort (one that refreshes, one that keeps its first state, one that opens the index each time, one of
several threads; --each N starts N of each) looks at one index while this process replaces the whole of a set by its
next version, adds and deletes others, changes metadata, builds flat and hnsw, and compacts. Every document carries its
version in text, title, metadata and views. Prints, for each reader, reads, versions seen, mixes (two versions in one
answer or one state), missing documents and errors; exits 1 if there was any of the last three.
"""

import os
import sys
import tempfile
from pathlib import Path

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

sys.path.insert(0, str(Path(__file__).parents[1]))
KINDS_OF_FAULT = ("mixes", "missing", "errors")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of writing, once all readers read")
    parser.add_argument("--each", type=int, default=1, help="readers of each sort")
    options = harness.parse(parser, seconds=1)
    from tests.contract.second_process import HOWS
    from tests.contract.second_process_rounds import watched

    hows = HOWS * options.each
    with tempfile.TemporaryDirectory() as folder:
        seen_by_reader, done = watched(Path(folder) / "watched.mvx", hows, options.seconds)
    print(f"{'reader':10}{'reads':>10}{'versions':>10}" + "".join(f"{kind:>10}" for kind in KINDS_OF_FAULT))
    for how, seen in zip(hows, seen_by_reader, strict=True):
        counts = (sum(seen["reads"].values()), len(seen["versions"]), *(len(seen[kind]) for kind in KINDS_OF_FAULT))
        print(f"{how:10}" + "".join(f"{count:10,}" for count in counts))
        for kind in KINDS_OF_FAULT:
            for what in seen[kind][:5]:
                print(f"    {kind}: {what}")
    print("written: " + ", ".join(f"{count:,} {name}" for name, count in done.items()))
    sys.exit(1 if any(seen[kind] for seen in seen_by_reader for kind in KINDS_OF_FAULT) else 0)


if __name__ == "__main__":
    main()
