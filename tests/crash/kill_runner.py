"""Kills of operations at every named step, and at random moments, as a program of its own: a line of JSON for each.

    python tests/crash/kill_runner.py replace compact --random 20 --seed 1 --folder /tmp/kills

Its process opens no index and runs one thread, so that it can fork at will.
"""

import argparse
import gc
import json
import os
import random
import re
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
# The scan is NumPy's: all scans give the same, and this one needs no second of imports in each process.
os.environ["MVINDEX_KERNELS"] = "off"
sys.path.insert(0, str(Path(__file__).parent))

from kill_broken import BROKEN  # noqa: E402 - after the settings of threads
from kill_checks import held_by, wrong_answers  # noqa: E402 - as above
from kill_operations import INDEX, small_chunks  # noqa: E402 - as above
from kill_table import OPERATIONS  # noqa: E402 - as above
from kill_trials import Bench, Tally  # noqa: E402 - as above

import mvindex  # noqa: E402 - as above
from mvindex import engines  # noqa: E402 - as above
from mvindex.engines.scan_numpy import NumpyScan  # noqa: E402 - as above


@lru_cache
def prepare() -> None:
    """Nothing; processes forked from this one work in small chunks, with all modules that they need loaded."""
    small_chunks()
    engines.open_scan = lambda *_: NumpyScan()
    engines.entry_points = lru_cache(engines.entry_points)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("replace", "build hnsw over flat"):
            operation, path = OPERATIONS[name], Path(folder, name)
            path.mkdir()
            operation.start(path)
            operation.run(path, lambda state: None)
            with mvindex.open(path / INDEX) as index:
                if list(wrong_answers(index, held_by(index))):
                    raise RuntimeError("searches are wrong without any kill")
    gc.freeze()  # children share its pages


def kill_at_steps(bench: Bench, count: int, generator: random.Random) -> None:
    """Nothing; each named step of the operation was its last once, or so many of them."""
    kills = list(bench.at_every_step())
    for kill in generator.sample(kills, min(count, len(kills))):
        bench.kill(kill)


def kill_at_each_name(bench: Bench, generator: random.Random) -> None:
    """Nothing; of all steps of one name, numbers left out, one was the operation's last: of each batch's write, say."""
    named = defaultdict(list)
    for name, kill in zip(bench.steps, bench.at_every_step(), strict=True):
        named[re.sub(r"\d+", "N", name)].append(kill)
    for kills in named.values():
        bench.kill(generator.choice(kills))


def kill_at_random(bench: Bench, count: int, generator: random.Random) -> None:
    """Nothing; so many runs were killed, up to three of them one after the other before one may end."""
    left = count
    while left:
        in_a_row = min(left, generator.choice((1, 1, 2, 3)))
        bench.kill(*(bench.at_random(generator) for _ in range(in_a_row)))
        left -= in_a_row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="+", choices=OPERATIONS)
    parser.add_argument("--steps", type=int, default=1_000_000, metavar="COUNT", help="named steps; by default all")
    parser.add_argument("--each-name", action="store_true", help="of the steps of one name one only")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="kills at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the indexes are; a temporary folder")
    parser.add_argument("--break", dest="broken", choices=BROKEN, help="a fault in the killed processes: to be found")
    options = parser.parse_args()
    prepare()
    for name in options.operations:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            bench = Bench(OPERATIONS[name], Path(folder), BROKEN.get(options.broken))
            generator = random.Random(options.seed)
            if options.each_name:
                kill_at_each_name(bench, generator)
            else:
                kill_at_steps(bench, options.steps, generator)
            kill_at_random(bench, options.random, generator)
        line = {"operation": name, **row_of(bench.tally), "steps": bench.steps, "duration_s": bench.duration_s}
        print(json.dumps(line, ensure_ascii=False), flush=True)


def row_of(tally: Tally) -> dict:
    """The tally as JSON."""
    return asdict(tally) | {"faults": [(where, *fault) for where, fault in tally.faults]}


if __name__ == "__main__":
    main()
