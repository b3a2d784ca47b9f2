"""The training loop: stages of epochs of steps, resumable after any step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from mvindex.errors import ConfigError, MvindexError
from mvindex_train.callbacks import CallbackList
from mvindex_train.config import LossConfig, OptimiserConfig
from mvindex_train.history import History
from mvindex_train.resume import Position, RunFolder
from mvindex_train.schedule import learning_rate_share
from mvindex_train.step import StepContext, Stepper

if TYPE_CHECKING:
    from mvindex_train.batches import TrainBatch
    from mvindex_train.module import TrainableEncoder
    from mvindex_train.processes import Processes


class Interrupted(MvindexError):
    """The run was stopped on request; its state is saved, and the same command resumes it."""


class BatchSource(Protocol):
    """The batches of a stage: the same for the same epoch, in every process."""

    def num_steps(self, epoch: int) -> int:
        """Return the number of batches of an epoch, counted from 0."""
        ...

    def batches(self, epoch: int, first: int) -> Iterator[TrainBatch]:
        """Yield the epoch's batches from batch `first` on."""
        ...


# Called between epochs with the position at the end of an epoch and whether it is the last of the stage.
EpochEnd = Callable[[Position, bool], Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Epochs over one source with one loss. at_end: called after each epoch; it may end the stage."""

    name: str
    source: BatchSource
    loss: LossConfig
    optimiser: OptimiserConfig
    epochs: int
    max_steps: int | None = None
    at_end: EpochEnd | None = None

    def num_steps(self) -> int:
        """Return the number of steps of all epochs; raise ConfigError when there is none."""
        steps = sum(self.source.num_steps(epoch) for epoch in range(self.epochs))
        if not steps:
            raise ConfigError(
                f"stage {self.name}: expected one batch or more, got none. Give more data or a smaller "
                f"data.batch_passages"
            )
        return steps if self.max_steps is None else min(steps, self.max_steps)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The state that all stages share. history: None except in the main process, which alone calls the callbacks.

    save_every: steps between saved states; None saves at the end of epochs only. should_stop: called after each step.
    """

    encoder: TrainableEncoder
    processes: Processes
    folder: RunFolder
    history: History | None
    callbacks: CallbackList = field(default_factory=CallbackList)
    save_every: int | None = None
    should_stop: Callable[[], bool] = lambda: False

    def log(self, record: dict[str, Any]) -> None:
        """Add the record to the history, and pass it to the callbacks."""
        if self.history is not None:
            self.history.add(record)
            self.callbacks.record(record)

    def save(self, position: Position, stepper: Stepper) -> None:
        """Save the state, so that the run can be resumed at this position."""
        if self.history is not None:
            position = replace(position, history_bytes=self.history.flush())
            self.callbacks.checkpoint(self.folder.save(position, self.encoder, stepper.optimiser), position.total_step)
        self.processes.wait()


def run_stages(run: Run, stages: list[Stage], position: Position) -> Position:
    """Run all stages; return the last position. Raise Interrupted, with the state saved, when a stop is requested."""
    for number in range(position.stage, len(stages)):
        position = replace(position, stage=number)
        position = _StageRun(run, stages[number], position).train(position)
        position = replace(position, stage=number + 1, epoch=0, step=0, stage_step=0)
    return position


class _StageRun:
    """A stage in one process, with its optimiser in the state of the position."""

    def __init__(self, run: Run, stage: Stage, position: Position) -> None:
        self._run = run
        self._stage = stage
        self._num_steps = stage.num_steps()
        self._stepper = Stepper(run.encoder, stage.optimiser, run.processes)
        if position.stage_step:
            run.folder.load_optimiser(run.encoder, self._stepper.optimiser)

    def train(self, position: Position) -> Position:
        """Train all epochs of the stage; return the position after the last one, saved."""
        stage = self._stage
        while position.epoch < stage.epochs and position.stage_step < self._num_steps and not position.is_stopped:
            for batch in stage.source.batches(position.epoch, position.step):
                position = self._step(batch, position)
                if position.stage_step == self._num_steps:
                    break
            is_last = position.epoch + 1 == stage.epochs or position.stage_step == self._num_steps
            if stage.at_end is not None:
                position = stage.at_end(position, is_last)
            position = replace(position, epoch=position.epoch + 1, step=0)
            self._run.save(position, self._stepper)
        return position

    def _step(self, batch: TrainBatch, position: Position) -> Position:
        started = time.monotonic()
        rate = learning_rate_share(position.stage_step, self._num_steps, self._stage.optimiser)
        at = StepContext(number=position.total_step, epoch=position.epoch, rate=rate)
        figures = self._stepper.step(batch, self._stage.loss, at)
        position = position.after_step()
        place = {"kind": "step", "stage": self._stage.name, "epoch": position.epoch + 1, "step": position.total_step}
        progress = {"stage_step": position.stage_step, "stage_steps": self._num_steps}
        self._run.log(place | figures | {"seconds": round(time.monotonic() - started, 3)} | progress)
        is_stop_requested = self._run.processes.any(self._run.should_stop())
        if is_stop_requested or (self._run.save_every and position.stage_step % self._run.save_every == 0):
            self._run.save(position, self._stepper)
        if is_stop_requested:
            raise Interrupted(f"stopped after step {position.total_step}, saved in {self._run.folder.path}")
        return position
