"""A run's state on disk: whole or not there, exact when taken up again, refused under other settings."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from mvindex.durable import (  # noqa: E402
    atomic_file,
    remove_unfinished,
    whole_folder,  # noqa: E402
)
from mvindex.errors import CheckpointError, ConfigError, StoreError  # noqa: E402
from mvindex_train.config import LossConfig, OptimiserConfig  # noqa: E402
from mvindex_train.loop import Interrupted, Run, Stage, run_stages  # noqa: E402
from mvindex_train.processes import Processes  # noqa: E402
from mvindex_train.resume import (  # noqa: E402
    History,  # noqa: E402
    Position,
    RunFolder,
    collect_trained_weights,
    discard_other_run,
    load_weights,
)
from mvindex_train.seeding import preserve_random_state  # noqa: E402
from mvindex_train.step import StepContext, Stepper  # noqa: E402
from tests.helpers.marks import full  # noqa: E402
from tests.helpers.tiny_training import PATH, TinyBatches, TinyEncoder  # noqa: E402

CONFIG = OptimiserConfig(learning_rate=1e-2, epochs=4, seed=5, chunk_documents=3)


@pytest.fixture(autouse=True)
def unchanged_random_state():
    with preserve_random_state():
        yield


def train(path, stop_after=None, save_every=None):
    """A run of 16 steps in the folder, from wherever it stands; its steps as logged, without their seconds."""
    folder, encoder = RunFolder(path, {"seed": 5}), TinyEncoder(dropout=0.3)
    position = folder.load(encoder)
    steps = iter(range(1, 100))
    history = History(folder.history, position.history_bytes)
    run = Run(
        encoder, Processes("cpu"), folder, history, save_every=save_every, should_stop=lambda: next(steps) == stop_after
    )
    stages = [
        Stage(name=name, source=TinyBatches(), loss=LossConfig(scale=10.0), optimiser=CONFIG, epochs=epochs)
        for name, epochs in (("warm-up", 1), ("train", 3))
    ]
    try:
        run_stages(run, stages, position)
    except Interrupted:
        if stop_after is None:
            raise
    finally:
        history.close()
    return read_steps(path)


def read_steps(path):
    lines = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    with preserve_random_state():
        return train(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("stop_after", [4, *map(full, (1, 6, 11))])
def test_an_interrupted_run_goes_on_to_exactly_the_same_losses(tmp_path, uninterrupted, stop_after):
    assert train(tmp_path, stop_after) == uninterrupted[:stop_after]
    # What the caller has drawn in between makes no difference.
    torch.manual_seed(stop_after)
    random.seed(stop_after)
    assert train(tmp_path) == uninterrupted
    assert len(uninterrupted) == 16


def test_what_was_logged_after_the_last_state_is_cut_off(tmp_path, uninterrupted):
    train(tmp_path, stop_after=5)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 6, "lo')
    assert train(tmp_path) == uninterrupted


KILLED = """
import sys
from pathlib import Path
from tests.unit.train import test_resume
test_resume.train(Path(sys.argv[1]), save_every=2)
"""


def start(path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PATH), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", KILLED, str(path)], env=environment)


def test_a_killed_run_goes_on_to_exactly_the_same_losses(tmp_path, uninterrupted):
    process, wanted = start(tmp_path), random.Random(os.getpid()).randrange(2, 12)
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("state-*[0-9]")) or _last_step(tmp_path) < wanted:
        assert time.monotonic() < deadline
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert train(tmp_path) == uninterrupted, f"killed after step {wanted}"


def _last_step(path):
    return max((int(folder.name[6:15]) for folder in path.glob("state-*") if folder.suffix == ""), default=0)


def test_the_state_is_safetensors_and_json_alone(tmp_path):
    train(tmp_path, stop_after=3)
    [folder] = tmp_path.glob("state-*")
    assert sorted(file.name for file in folder.iterdir()) == [
        "optimiser.safetensors",
        "state.json",
        "weights.safetensors",
    ]
    from safetensors.torch import load_file

    assert sorted(load_file(folder / "weights.safetensors")) == ["mix", "unused", "words"]
    # The unused weight has no gradient, hence no state; the frozen one is no business of the run.
    assert sorted(load_file(folder / "optimiser.safetensors")) == sorted(
        f"{kind}/{name}" for kind in ("exp_avg", "exp_avg_sq", "step") for name in ("mix", "words")
    )


def test_the_optimiser_comes_back_as_it_was(tmp_path):
    encoder = TinyEncoder().train()
    stepper = Stepper(encoder, CONFIG, Processes("cpu"))
    for number in range(3):
        stepper.step(TinyBatches().batch([1, 2, 3]), LossConfig(), StepContext(number=number, epoch=0, rate=1.0))
    folder = RunFolder(tmp_path, {})
    folder.save(Position(total_step=3), encoder, stepper.optimiser)
    other = TinyEncoder(seed=9).train()
    again = Stepper(other, CONFIG, Processes("cpu"))
    assert folder.load(other).total_step == 3
    folder.load_optimiser(other, again.optimiser)
    for mine, theirs in ((encoder.words, other.words), (encoder.mix, other.mix)):
        assert torch.equal(mine, theirs)
        had, has = stepper.optimiser.state[mine], again.optimiser.state[theirs]
        assert had.keys() == has.keys()
        assert all(torch.equal(had[key], has[key]) for key in had)


def test_only_the_last_state_and_the_best_weights_are_kept(tmp_path):
    folder, encoder = RunFolder(tmp_path, {}), TinyEncoder()
    optimiser = torch.optim.AdamW(encoder.parameters())
    folder.save_best(encoder, 1)
    folder.save(Position(total_step=4, best_epoch=1), encoder, optimiser)
    kept = collect_trained_weights(encoder)
    with torch.no_grad():
        encoder.words += 1
    folder.save_best(encoder, 2)
    assert sorted(file.name for file in tmp_path.glob("best-*")) == ["best-0001.safetensors", "best-0002.safetensors"]
    folder.save(Position(total_step=4, best_epoch=1), encoder, optimiser)
    assert [file.name for file in tmp_path.glob("best-*")] == ["best-0001.safetensors"]
    assert [file.name for file in tmp_path.glob("state-*")] == ["state-000000004a"]
    folder.load_best(encoder, 1)
    assert torch.equal(encoder.words, kept["words"])
    folder.remove_states()
    assert folder.load(encoder) == Position()


def test_another_setting_is_refused_by_name(tmp_path):
    record = {"config": {"preset": "mvr", "loss": {"tau": 1.0}}, "inputs": {"a.tsv": "3 bytes"}}
    RunFolder(tmp_path, record).history.write_text("{}\n")
    RunFolder(tmp_path, record | {"config": {"preset": "other", "loss": {"tau": 1.0}}})
    with pytest.raises(ConfigError, match=r"expected a run with config\.loss\.tau = 0\.5, got 1\.0"):
        RunFolder(tmp_path, record | {"config": {"preset": "mvr", "loss": {"tau": 0.5}}})
    with pytest.raises(ConfigError, match=r'expected a run with inputs\.a\.tsv = "4 bytes", got "3 bytes"'):
        RunFolder(tmp_path, record | {"inputs": {"a.tsv": "4 bytes"}})


def test_a_run_that_never_took_a_step_gives_way_to_other_settings(tmp_path):
    RunFolder(tmp_path, {"seed": 1})
    (tmp_path / "examples").mkdir()
    RunFolder(tmp_path, {"seed": 2})
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 2


def test_only_another_runs_state_is_thrown_away(tmp_path):
    RunFolder(tmp_path, {"seed": 1})
    (tmp_path / "state-000000001").mkdir()
    discard_other_run(tmp_path, {"seed": 1})
    assert (tmp_path / "state-000000001").exists()
    discard_other_run(tmp_path, {"seed": 2})
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_was_cut_short_leaves_nothing_and_is_cleared_away(tmp_path):
    with pytest.raises(KeyError), whole_folder(tmp_path / "state") as folder:
        (folder / "half").write_text("a")
        raise KeyError
    with pytest.raises(KeyError), atomic_file(tmp_path / "file") as file:
        file.write_text("a")
        raise KeyError
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file.unfinished", "state.unfinished"]
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_named(tmp_path, monkeypatch):
    folder, encoder = RunFolder(tmp_path, {}), TinyEncoder()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"best-0001\.safetensors: cannot be written: No space left on device"):
        folder.save_best(encoder, 1)
    with pytest.raises(StoreError, match=r"state-000000001: cannot be written: No space left on device"):
        folder.save(Position(total_step=1), encoder, torch.optim.AdamW(encoder.parameters()))
    monkeypatch.undo()
    assert RunFolder(tmp_path, {}).load(encoder) == Position()


def test_damaged_or_other_weights_are_named(tmp_path):
    encoder = TinyEncoder()
    folder = RunFolder(tmp_path, {})
    folder.save_best(encoder, 1)
    path = tmp_path / "best-0001.safetensors"
    frozen = TinyEncoder()
    frozen.mix.requires_grad_(False)
    with pytest.raises(CheckpointError, match="'mix' is in the file or the encoder, but not in both"):
        load_weights(frozen, path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="best-0001.safetensors: cannot be read"):
        load_weights(encoder, path)


def test_a_position_counts_a_step_in_epoch_stage_and_run():
    position = replace(Position(), epoch=2, step=1, stage_step=9, total_step=12)
    assert position.after_step() == replace(position, step=2, stage_step=10, total_step=13)
