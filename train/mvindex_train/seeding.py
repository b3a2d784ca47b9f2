"""Random numbers of a run, which depend on the seed and their purpose only, never on earlier draws.

A resumed run therefore needs no saved generator: step 700 draws the same numbers as after step 699.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The purpose of random numbers; two purposes have independent streams."""

    MODEL = 0
    STEP = 1
    WARM_UP = 2


def generator(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """Return a generator for this purpose and key."""
    return np.random.default_rng(np.random.SeedSequence([seed, int(purpose), *key]))


def seed_everything(seed: int, purpose: Purpose, *key: int) -> None:
    """Seed the global generators of torch (all devices), NumPy and Python by the key.

    Models draw from them (dropout, layer drop) and accept no generator. Call it inside preserve_random_state().
    """
    import torch

    words = np.random.SeedSequence([seed, int(purpose), *key]).generate_state(4)
    torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
    random.seed(int(words[2]))
    np.random.seed(int(words[3]))  # noqa: NPY002 - models draw from the global generator


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the state of the global generators at the end of the block."""
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - restored for the caller
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 - restored for the caller
