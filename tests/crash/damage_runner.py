"""Damages by the hundred, as a program of its own that prints JSON.

    python tests/crash/damage_runner.py --cases texts vectors --damages 300 --seed 1

Trials run in children of a process with one thread; one that crashes or hangs ends its child, and is named.
"""

import argparse
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any, NoReturn

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parent))

from damage_broken import BROKEN  # noqa: E402 - after the settings of threads
from damage_cases import Case, make_case  # noqa: E402 - as above
from damage_files import Role  # noqa: E402 - as above
from damage_kinds import KINDS, Damage, can_be_done  # noqa: E402 - as above
from damage_kits import KITS  # noqa: E402 - as above
from damage_promises import run as run_trial  # noqa: E402 - as above
from damage_trials import Outcome, Trial  # noqa: E402 - as above

from mvindex import engines, kernels  # noqa: E402 - as above
from mvindex.engines.scan_numpy import NumpyScan  # noqa: E402 - as above

# A trial takes a tenth of a second; of the index with blocks, a few.
LIMIT_S = 60
_TRIALS_A_CHILD = 50
_FINE = ("bit flipped", "byte changed")


def prepare() -> None:
    """Nothing; where the compiled scan does not run, it is NumPy's: torch's would take a second in each process."""
    if not kernels.has_int8_products():
        engines.open_scan = lambda *_: NumpyScan()
    engines.entry_points = lru_cache(engines.entry_points)


def planned(case: Case, count: int, seed: int) -> list[Damage]:
    """So many damages: in turn every kind to every file, and single bits and bytes, most of them of the catalog."""
    generator = random.Random(f"{case.kit.name} {seed}")
    grid = [(role, kind) for role in Role for kind in KINDS if can_be_done(case, role, kind)]
    generator.shuffle(grid)
    grid = in_turn(grid)
    weights = {Role.CATALOG: 8, Role.LOG: 8 if case.kit.has_log else 0, Role.VIEWS: 3}
    fine = [(role, kind) for role, kind in grid if kind in _FINE for _ in range(weights.get(role, 1))]
    drawn = [grid[number // 2 % len(grid)] if number % 2 else generator.choice(fine) for number in range(count)]
    return [Damage(role, kind, generator.randrange(2**32)) for role, kind in drawn]


def in_turn(grid: list[tuple[Role, str]]) -> list[tuple[Role, str]]:
    """The same, first one of each kind, then a second of each, and so on: few damages are of all kinds."""
    seen = Counter[str]()
    turns = []
    for _, kind in grid:
        turns.append(seen[kind])
        seen[kind] += 1
    return [cell for _, cell in sorted(zip(turns, grid, strict=True), key=lambda pair: pair[0])]


def run(case: Case, damages: Sequence[Damage], folder: Path, broken: str = "") -> Iterator[dict[str, Any]]:
    """The outcome of each, half of them with compiled loops, where there are any; broken: what is, on purpose."""
    left = list(damages)
    has_kernels = cycle((True, False))
    while left:
        done = 0
        for outcome in _child(case, left[:_TRIALS_A_CHILD], folder, (next(has_kernels), broken)):
            done += 1
            yield outcome
        left = left[done:]


def _child(case: Case, damages: Sequence[Damage], folder: Path, setting: tuple[bool, str]) -> Iterator[dict[str, Any]]:
    """The outcomes of trials in one process; of the one that ends it, the way it ended, and no more."""
    lines, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(lines)
        _work(lambda damage: Trial(case, damage, folder), damages, folder, (theirs, *setting))
    os.close(theirs)
    outcomes = 0
    with open(lines) as told:
        for line in told:
            outcomes += 1
            yield json.loads(line) | {"broken": setting[1]}
    _, status = os.waitpid(pid, 0)
    if outcomes < len(damages):
        shutil.rmtree(folder, ignore_errors=True)
        yield ended(case, damages[outcomes], os.waitstatus_to_exitcode(status)) | {"broken": setting[1]}


def ended(case: Case, damage: Damage, status: int) -> dict[str, Any]:
    """The outcome of a trial that ended its process."""
    name = signal.Signals(-status).name if status < 0 else f"exit {status}"
    found = Outcome(case.kit.name, damage.role.value, damage.kind, damage.seed)
    found.faults.append(("hangs" if name == "SIGALRM" else "crashes", name))
    return asdict(found)


def _work(
    trial: Callable[[Damage], Trial], damages: Sequence[Damage], folder: Path, given: tuple[int, bool, str]
) -> NoReturn:
    status = 1
    try:
        lines, has_kernels, broken = given
        os.environ["MVINDEX_KERNELS"] = "on" if has_kernels else "off"
        kernels.has_numba.cache_clear()
        kernels.has_int8_products.cache_clear()
        if broken:
            BROKEN[broken].do()
        for damage in damages:
            signal.alarm(LIMIT_S)
            faulthandler.dump_traceback_later(LIMIT_S - 1)
            folder.mkdir(parents=True, exist_ok=True)
            found = run_trial(trial(damage))
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
            os.write(lines, json.dumps(found).encode() + b"\n")
        status = 0
    except BaseException:  # noqa: BLE001 - a fault of the trial itself: the parent says that it ended so
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=KITS, default=list(KITS))
    parser.add_argument("--damages", type=int, default=100, help="of each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", metavar="FILE:KIND:SEED[:WRITE]", help="this damage alone")
    parser.add_argument("--broken", action="store_true", help="only stores that are broken on purpose: to be found out")
    options = parser.parse_args()
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.cases:
            case = make_case(KITS[name], Path(folder, name))
            gc.freeze()
            trial = Path(folder, "trial")
            if options.broken:
                show(outcome for name in BROKEN for outcome in run(case, [BROKEN[name].damage], trial, name))
            elif options.one:
                file, kind, seed, *write = options.one.split(":")
                show(run(case, [Damage(Role(file), kind, int(seed), *write)], trial))
            else:
                show(run(case, planned(case, options.damages, options.seed), trial))


def show(outcomes: Iterable[dict[str, Any]]) -> None:
    """Nothing; a line each."""
    for outcome in outcomes:
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
