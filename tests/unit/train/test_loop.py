"""The loop: stages and their ends, how the learning rate goes, what is logged."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from mvindex.errors import ConfigError  # noqa: E402
from mvindex_train.config import LossConfig, OptimiserConfig  # noqa: E402
from mvindex_train.loop import Interrupted, Run, Stage, run_stages  # noqa: E402
from mvindex_train.processes import Processes  # noqa: E402
from mvindex_train.resume import (  # noqa: E402
    History,  # noqa: E402
    Position,
    RunFolder,
)
from mvindex_train.seeding import Purpose, preserve_random_state, seed_everything  # noqa: E402
from mvindex_train.step import learning_rate_share  # noqa: E402
from tests.helpers.tiny_training import TinyBatches, TinyEncoder  # noqa: E402

pytestmark = pytest.mark.usefixtures("preserve_random_state")

LOSS = LossConfig(scale=10.0, local_weight=0.1, answer_view=True)
CONFIG = OptimiserConfig(learning_rate=1e-2, epochs=3, seed=5)


@pytest.fixture
def run_of():
    """Makes runs whose histories are closed after the test."""
    histories = []

    def make(folder, encoder, **options):
        histories.append(History(folder.history, 0))
        return Run(encoder, Processes("cpu"), folder, histories[-1], **options)

    yield make
    for history in histories:
        history.close()


def steps_of(folder):
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"]


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("cosine", [0.5, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
    ],
)
def test_the_rate_rises_over_the_warm_up_and_then_follows_its_schedule(schedule, wanted):
    config = OptimiserConfig(schedule=schedule, warmup_share=0.3)
    assert [learning_rate_share(step, 6, config) for step in range(6)] == pytest.approx(wanted)


@given(st.integers(1, 300), st.sampled_from(["linear", "constant", "cosine"]), st.floats(0, 0.9))
def test_every_step_has_a_rate_above_zero_up_to_one(num_steps, schedule, share):
    config = OptimiserConfig(schedule=schedule, warmup_share=share)
    assert all(0 < learning_rate_share(step, num_steps, config) <= 1 for step in range(num_steps))


def test_training_lowers_the_loss_and_logs_every_step(tmp_path, run_of):
    encoder = TinyEncoder()
    run = run_of(RunFolder(tmp_path, {}), encoder)
    stage = Stage(name="train", source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=8)
    position = run_stages(run, [stage], Position())
    run.history.flush()
    steps = steps_of(tmp_path)
    assert (position.total_step, position.stage, len(steps)) == (32, 1, 32)
    assert [step["step"] for step in steps] == list(range(1, 33))
    assert [step["epoch"] for step in steps] == [1 + number // 4 for number in range(32)]
    assert np.mean([step["loss"] for step in steps[-4:]]) < 0.7 * np.mean([step["loss"] for step in steps[:4]])
    assert {"loss", "contrastive", "local", "distillation", "tau", "learning_rate", "answer_share", "seconds"} <= set(
        steps[0]
    )


def test_figures_that_are_read_some_steps_at_once_are_those_of_each_step(tmp_path, run_of):
    found = []
    for steps_read in (1, 3):
        folder = tmp_path / str(steps_read)
        run = run_of(RunFolder(folder, {}), TinyEncoder(), steps_read=steps_read, save_every=5)
        run_stages(run, [Stage(name="train", source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=2)], Position())
        run.history.flush()
        found.append([{**step, "seconds": None} for step in steps_of(folder)])
    assert len(found[0]) == 8 and found[0] == found[1]


def test_max_steps_end_a_stage_within_an_epoch_and_its_end_is_called_once_as_the_last(tmp_path, run_of):
    calls = []
    stage = Stage(
        name="train",
        source=TinyBatches(),
        loss=LOSS,
        optimiser=CONFIG,
        epochs=3,
        max_steps=6,
        at_end=lambda position, is_last: calls.append((position.total_step, is_last)) or position,
    )
    position = run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position())
    assert position.total_step == 6
    assert calls == [(4, False), (6, True)]


def test_a_stage_stops_when_its_end_says_so(tmp_path, run_of):
    stage = Stage(
        name="train",
        source=TinyBatches(),
        loss=LOSS,
        optimiser=CONFIG,
        epochs=9,
        at_end=lambda position, is_last: replace(position, is_stopped=position.epoch == 1),
    )
    assert run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position()).total_step == 8


def test_stages_follow_each_other_and_count_their_steps_together(tmp_path, run_of):
    stages = [
        Stage(name=name, source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=1, max_steps=steps)
        for name, steps in (("warm-up", 2), ("train", 3))
    ]
    run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), stages, Position())
    found = [(step["stage"], step["step"], step["stage_step"]) for step in steps_of(tmp_path)]
    assert found == [("warm-up", 1, 1), ("warm-up", 2, 2), ("train", 3, 1), ("train", 4, 2), ("train", 5, 3)]


def test_a_stage_without_a_batch_is_refused(tmp_path, run_of):
    stage = Stage(name="train", source=TinyBatches(count=3), loss=LOSS, optimiser=CONFIG, epochs=2)
    with pytest.raises(ConfigError, match="stage train: expected one batch or more"):
        run_stages(run_of(RunFolder(tmp_path, {}), TinyEncoder()), [stage], Position())


def test_asked_to_stop_it_saves_after_the_step_and_says_where(tmp_path, run_of):
    folder = RunFolder(tmp_path, {})
    run = run_of(folder, TinyEncoder(), should_stop=lambda: len(asked) >= 3 or asked.append(1))
    asked = []
    stage = Stage(name="train", source=TinyBatches(), loss=LOSS, optimiser=CONFIG, epochs=3)
    with pytest.raises(Interrupted, match="stopped after step 4, saved in"):
        run_stages(run, [stage], Position())
    assert folder.load(TinyEncoder()).total_step == 4


def test_random_numbers_follow_from_their_key_and_leave_the_callers_generators_alone():
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    drawn = []
    for key in ((1, 2), (1, 3), (1, 2)):
        with preserve_random_state():
            seed_everything(9, Purpose.STEP, *key)
            drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))  # noqa: NPY002
    assert drawn[0] == drawn[2]
    assert all(one != other for one, other in zip(drawn[0], drawn[1], strict=True))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002
