"""Random numbers of a run: each follows from the seed and from what it is drawn for, never from what was drawn before.

So nothing of a generator has to be kept for a resumed run: step 700 draws what it would have drawn after step 699.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What numbers are drawn for; two purposes share no number."""

    MODEL = 0
    STEP = 1
    WARM_UP = 2


def generator(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """A generator of its own for this purpose and key."""
    return np.random.default_rng(np.random.SeedSequence([seed, int(purpose), *key]))


def seed_everything(seed: int, purpose: Purpose, *key: int) -> None:
    """Nothing; the global generators of torch (all devices), NumPy and Python are seeded by the key afterwards.

    Models draw from them (dropout, layer drop) and take no generator. Call it inside own_random_state().
    """
    import torch

    words = np.random.SeedSequence([seed, int(purpose), *key]).generate_state(4)
    torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
    random.seed(int(words[2]))
    np.random.seed(int(words[3]))  # noqa: NPY002 - what models draw from is the global generator


@contextmanager
def own_random_state() -> Iterator[None]:
    """Inside it the global generators may be seeded and used; afterwards they are as they were."""
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - to put back what the caller had
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 - to put back what the caller had
