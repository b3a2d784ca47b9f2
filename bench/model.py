"""Compare random sequences of all public operations with a plain in-memory model: tests/contract/test_model.py, longer.

    python bench/model.py --examples 500 --seed 1

Makes so many sequences of up to --steps operations, half of them on an index of given vectors, half on one with an
encoder, in rounds of 20; each round has a seed of its own, counted up from --seed. Every answer, and after each
operation every open handle, must be what the model says. A round that finds a difference prints the smallest sequence
that shows it, and counts as one failure (making it small repeats operations, which are counted too). Prints sequences,
steps by operation and failures; exits 1 if there was any.
"""

import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import harness
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

sys.path.insert(0, str(Path(__file__).parents[1]))
ROUND = 20


def run_round(machine, number, chosen):
    """Run a round of sequences; return whether it agreed with the model, and print what did not."""
    try:
        run_state_machine_as_test(seed(number)(machine), settings=chosen)
    except BaseException as err:
        if isinstance(err, KeyboardInterrupt):
            raise
        print(f"seed {number}, {machine.__name__}:")
        traceback.print_exception(err)
        return False
    return True


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--examples", type=int, default=200, help="sequences")
    parser.add_argument("--steps", type=int, default=40, help="operations of a sequence, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    options = harness.parse(parser, examples=2, steps=6)
    warnings.simplefilter("error", RuntimeWarning)
    import numba  # noqa: F401 - a thread would import it while Hypothesis goes through all modules

    from tests.contract.model.machine import EncodingMachine, IndexMachine

    begin, failures, done = time.monotonic(), 0, 0
    while done < options.examples:
        count = min(ROUND, options.examples - done)
        chosen = settings(
            max_examples=count,
            stateful_step_count=options.steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        number = options.seed + done // ROUND
        failures += not run_round((IndexMachine, EncodingMachine)[number % 2], number, chosen)
        done += count
        print(f"{done} sequences, {IndexMachine.steps.total():,} steps", file=sys.stderr, flush=True)
    seconds, steps = time.monotonic() - begin, IndexMachine.steps
    print(f"{sum(IndexMachine.sequences.values()):,} sequences, {steps.total():,} steps in {seconds:.0f} s")
    for name, count in steps.most_common():
        print(f"{count:8,}  {name.replace('_', ' ')}")
    print(f"failures: {failures}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
