"""Random sequences of all public operations, with re-opening in between, agree with a plain in-memory model."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.model.machine import DIM, EncodingMachine, IndexMachine
from tests.contract.model.state import Settings

# Always the same sequences; bench/model.py runs others, for as long as asked.
SHORT = settings(
    max_examples=2,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MADE = [Settings(DIM), Settings(DIM, prune_views=0.0, temperature=0.3), Settings(DIM, "fp32", prune_views=1.0)]


@pytest.mark.parametrize("made", MADE, ids=lambda made: f"{made.dtype}-pruned-{made.prune_views}")
@pytest.mark.parametrize("machine", [IndexMachine, EncodingMachine])
def test_an_index_is_what_the_model_says(machine, made):
    run_state_machine_as_test(type("Made", (machine,), {"made": made}), settings=SHORT)
