"""The learning rate as a function of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math

from mvindex_train.config import OptimiserConfig


def learning_rate_share(step: int, num_steps: int, config: OptimiserConfig) -> float:
    """Return the factor of the learning rates at a step (from 0), in (0, 1].

    It rises linearly over the first warmup_share of the steps, rounded up, and reaches 1 in the last of them. Then it
    is constant, or falls linearly or as (1 + cos(pi x)) / 2, to reach 0 one step after the last.
    """
    warm_up = math.ceil(config.warmup_share * num_steps)
    if step < warm_up:
        return (step + 1) / warm_up
    if config.schedule == "constant":
        return 1.0
    done = (step - warm_up) / max(num_steps - warm_up, 1)
    return 1.0 - done if config.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
