"""Run trials of damage in children of a process with one thread; one that crashes or hangs is named."""

import faulthandler
import gc
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

from mvindex import engines, kernels
from mvindex.engines.scan_numpy import NumpyScan
from tests.durability.damage.broken import BROKEN
from tests.durability.damage.cases import Case, make_case
from tests.durability.damage.files import Role
from tests.durability.damage.kinds import KINDS, Damage, can_be_done
from tests.durability.damage.kits import KITS
from tests.durability.damage.trials import Outcome, Trial
from tests.durability.processes import Child, Parent

# A trial takes a tenth of a second; of the index with blocks, a few.
LIMIT_S = 60
_TRIALS_A_CHILD = 50
_FINE = ("bit flipped", "byte changed")


def prepare() -> None:
    """Set up the process that forks."""
    kernels.expect_work()
    # Where the compiled scan does not run, NumPy's does: torch's would take a second in each process.
    if not kernels.has_int8_products():
        engines.open_scan = lambda *_: NumpyScan()
    engines.entry_points = lru_cache(engines.entry_points)


def tried(names: list[str], folder: str, *, damages: int, seed: int) -> list[dict[str, Any]]:
    """Try so many damages of each case; return the outcomes as JSON."""
    outcomes = []
    for name in names:
        case = make_case(KITS[name], Path(folder, name))
        gc.freeze()
        outcomes += run(case, planned(case, damages, seed), Path(folder, "trial"))
    return outcomes


def tried_on_broken_stores(name: str, folder: str) -> dict[str, list[str]]:
    """Try each broken store with the damage that shows it; return the kinds of faults that were found."""
    case = make_case(KITS[name], Path(folder, name))
    found = {}
    for broken in BROKEN:
        outcomes = run(case, [BROKEN[broken].damage], Path(folder, "trial"), broken)
        found[broken] = [kind for each in outcomes for kind, _ in each["faults"]]
    return found


def tried_again(name: str, folder: str, damages: list[list[Any]]) -> list[dict[str, Any]]:
    """Try the damages (file, kind, seed, write) of one case; return the outcomes as JSON."""
    case = make_case(KITS[name], Path(folder, name))
    again = [Damage(Role(file), *others) for file, *others in damages]
    return list(run(case, again, Path(folder, "trial")))


def planned(case: Case, count: int, seed: int) -> list[Damage]:
    """Return so many damages: every kind to every file in turn, and single bits and bytes, mostly of the catalog."""
    generator = random.Random(f"{case.kit.name} {seed}")
    grid = [(role, kind) for role in Role for kind in KINDS if can_be_done(case, role, kind)]
    generator.shuffle(grid)
    grid = _in_turn(grid)
    weights = {Role.CATALOG: 8, Role.LOG: 8 if case.kit.has_log else 0, Role.VIEWS: 3}
    fine = [(role, kind) for role, kind in grid if kind in _FINE for _ in range(weights.get(role, 1))]
    drawn = [grid[number // 2 % len(grid)] if number % 2 else generator.choice(fine) for number in range(count)]
    return [Damage(role, kind, generator.randrange(2**32)) for role, kind in drawn]


def _in_turn(grid: list[tuple[Role, str]]) -> list[tuple[Role, str]]:
    """Sort the grid so that one of each kind comes first, then a second of each: a few damages are of all kinds."""
    seen = Counter[str]()
    turns = []
    for _, kind in grid:
        turns.append(seen[kind])
        seen[kind] += 1
    return [cell for _, cell in sorted(zip(turns, grid, strict=True), key=lambda pair: pair[0])]


def run(case: Case, damages: Sequence[Damage], folder: Path, broken: str = "") -> Iterator[dict[str, Any]]:
    """Yield the outcome of each damage, half of them with compiled loops. broken: a name of BROKEN, or empty."""
    left = list(damages)
    has_kernels = cycle((True, False))
    while left:
        batch, is_on = left[:_TRIALS_A_CHILD], next(has_kernels)
        done = 0
        with Child(lambda parent: _try(parent, case, batch, folder, is_on, broken)) as child:  # noqa: B023 - used at once
            for line in child.lines():
                if "error" in line:
                    raise RuntimeError(line["error"])
                done += 1
                yield line["outcome"]
            status = child.end()
        if done < len(batch):
            shutil.rmtree(folder, ignore_errors=True)
            yield _ended(case, batch[done], status)
            done += 1
        left = left[done:]


def _ended(case: Case, damage: Damage, status: int) -> dict[str, Any]:
    """Return the outcome of a trial that ended its process."""
    name = signal.Signals(-status).name if status < 0 else f"exit {status}"
    found = Outcome(case.kit.name, damage.role.value, damage.kind, damage.seed)
    found.faults.append(("hangs" if name == "SIGALRM" else "crashes", name))
    return asdict(found)


def _try(parent: Parent, case: Case, damages: Sequence[Damage], folder: Path, has_kernels: bool, broken: str) -> None:
    os.environ["MVINDEX_KERNELS"] = "on" if has_kernels else "off"
    kernels.has_numba.cache_clear()
    kernels.has_int8_products.cache_clear()
    if broken:
        BROKEN[broken].do()
    for damage in damages:
        signal.alarm(LIMIT_S)
        faulthandler.dump_traceback_later(LIMIT_S - 1)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = Trial(case, damage, folder).run()
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        parent.report(outcome=outcome)
