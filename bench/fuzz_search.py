"""Compare certified search with brute force on many random indexes: the cases of scan_cases.py and test_search.py.

    python bench/fuzz_search.py --cases 50000 --seed 1

A case is one query to one scan or ranking. Each seed makes an index of vectors of some kind, dim, block size and
batch, and searches it with every scan that this machine can run (NumPy, compiled with one and more threads, torch in
three types) by best view and by DRPQ's mean; then Faiss flat on the same documents, and all of them to fixed depths.
Ids, order and float32 scores must be those of brute force, candidates must contain the top_k, and no upper bound may be
below a score. Prints each difference with its seed (--seed N --cases 1 makes it again), then a summary; exits 1 if
there was any.
"""

import importlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import harness

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

sys.path.insert(0, str(Path(__file__).parents[1]))
_MODULES = ("tests.helpers.scan_vectors", "tests.helpers.scan_cases", "tests.unit.search.test_search")


def ask(module: ModuleType, seed: int, case: Any, path: Path) -> tuple[int, list[str]]:
    """Return the number of cases, and what was wrong with them."""
    try:
        count, faults = module.check_case(seed, case, path, module.runnable())
    except Exception as err:  # noqa: BLE001 - whatever a search raises is a fault of its seed
        return 0, [f"{type(err).__name__}, {err}"]
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return count, faults


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each index takes the next")
    options = harness.parse(parser, cases=40)
    warnings.simplefilter("error", RuntimeWarning)
    vectors, *checked = map(importlib.import_module, _MODULES)
    done, faults, kinds = 0, 0, Counter[str]()
    begin, seed = time.monotonic(), options.seed
    with tempfile.TemporaryDirectory() as folder:
        while done < options.cases:
            case = vectors.random_case(seed, most_queries=300)
            for module in checked:
                path = Path(folder) / f"{module.__name__}-{seed}.mvx"
                count, found = ask(module, seed, case, path)
                done += count
                faults += len(found)
                for fault in found:
                    kinds[fault.split(",")[0]] += 1
                    print(f"seed {seed}: {' '.join(fault.split())}", flush=True)
            seed += 1
    seconds = time.monotonic() - begin
    print(f"{done:,} cases of {seed - options.seed:,} indexes in {seconds:.0f} s; {faults} differences {dict(kinds)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
