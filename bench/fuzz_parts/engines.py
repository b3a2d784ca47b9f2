"""Makers of inputs: libFuzzer's coverage (atheris), Hypothesis, or only the seeded mutator."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

from fuzz_parts.mutating import MAX_BYTES, mutate
from fuzz_parts.watching import Watch

_MOST_KEPT, _MOST_KEPT_BYTES = 2000, 4096
# Inputs of the mutator beside libFuzzer's own, which knows nothing of tokens that belong together.
_OWN_SHARE = 0.5


def run_random(watch: Watch, seed: int, goes_on: Callable[[], bool]) -> None:
    """Run the target on its seeds and on mutations of them.

    An input that ends as none did before is kept and changed further: the errors' texts stand in for coverage.
    """
    draw, target = random.Random(seed).randrange, watch.target
    seeds = target.seeds()
    pool = list(seeds)
    ends = {watch.run(data) for data in seeds}
    while goes_on():
        # Half of them from the seeds: most of what is kept was refused.
        begin = seeds if draw(2) else pool
        data = mutate(begin[draw(len(begin))], pool, target.tokens, draw)
        end = watch.run(data)
        if end not in ends and len(pool) < _MOST_KEPT and len(data) < _MOST_KEPT_BYTES:
            ends.add(end)
            pool.append(data)


def run_hypothesis(watch: Watch, seed: int, goes_on: Callable[[], bool]) -> None:
    """Run as run_random does, every choice being Hypothesis'."""
    import hypothesis

    from fuzz_parts.strategies import mutated

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=1 << 30, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(mutated(watch.target))
    def run(data):
        watch.run(data)
        if not goes_on():
            raise KeyboardInterrupt

    try:
        run()
    except KeyboardInterrupt:
        return


def run_atheris(watch: Watch, seed: int, goes_on: Callable[[], bool], folder: Path, finish: Callable[[], None]) -> None:
    """Run libFuzzer, which ends the process after finish(); inputs that reach new code are kept in the folder."""
    import atheris

    target = watch.target
    seeds = target.seeds()
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(data)

    def run(data):
        watch.run(data)
        if not goes_on():
            finish()
            sys.stderr.flush()
            os._exit(0)

    def change(data, max_size, number):
        generator = random.Random(number)
        if generator.random() > _OWN_SHARE:
            return atheris.Mutate(data, max_size)
        return mutate(data, seeds, target.tokens, generator.randrange)[:max_size]

    options = [f"-max_len={MAX_BYTES}", f"-seed={seed + 1}", "-timeout=0", "-rss_limit_mb=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(folder)], run, custom_mutator=change)
    atheris.Fuzz()
