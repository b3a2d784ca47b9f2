"""The training loop: stages of epochs of steps, resumable after any step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from mvindex.encoder.arranging import Arranging
from mvindex.errors import ConfigError, MvindexError
from mvindex.records import Document
from mvindex_train.callbacks import CallbackList
from mvindex_train.config import LossConfig, OptimiserConfig
from mvindex_train.resume import History, Position, RunFolder
from mvindex_train.step import StepContext, StepFigures, Stepper, learning_rate_share, read_figures

if TYPE_CHECKING:
    from mvindex_train.batches import TrainBatch
    from mvindex_train.module import TrainableEncoder
    from mvindex_train.processes import Processes


# Steps whose figures are read from a GPU at once: each time it is waited for.
_CUDA_STEPS_READ = 16


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

    save_every: steps between saved states; None saves at the end of epochs only. should_stop: called when figures are
    read: after each step, or on a GPU after 16. steps_read: after how many; None for these.
    """

    encoder: TrainableEncoder
    processes: Processes
    folder: RunFolder
    history: History | None
    callbacks: CallbackList = field(default_factory=CallbackList)
    save_every: int | None = None
    should_stop: Callable[[], bool] = lambda: False
    steps_read: int | None = None

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
        is_cuda = run.processes.device.type == "cuda"
        self._arranging = Arranging(run.encoder.inputs, share=run.processes.local_count) if is_cuda else None
        self._steps_read = run.steps_read or (_CUDA_STEPS_READ if is_cuda else 1)
        # Steps whose figures are not read yet, since when, and their places in the log.
        self._unread: list[tuple[dict[str, Any], StepFigures]] = []
        self._since = 0.0

    def train(self, position: Position) -> Position:
        """Train all epochs of the stage; return the position after the last one, saved."""
        try:
            return self._train(position)
        finally:
            if self._arranging is not None:
                self._arranging.close()

    def _train(self, position: Position) -> Position:
        stage = self._stage
        while position.epoch < stage.epochs and position.stage_step < self._num_steps and not position.is_stopped:
            for batch in self._batches(position):
                position = self._step(batch, position)
                if position.stage_step == self._num_steps:
                    break
            self._read(position)
            is_last = position.epoch + 1 == stage.epochs or position.stage_step == self._num_steps
            if stage.at_end is not None:
                position = stage.at_end(position, is_last)
            position = replace(position, epoch=position.epoch + 1, step=0)
            self._run.save(position, self._stepper)
        return position

    def _batches(self, position: Position) -> Iterator[TrainBatch]:
        """Yield the rest of an epoch's batches; for a GPU other processes arrange the documents of the next ones."""
        batches = self._stage.source.batches(position.epoch, position.step)
        if self._arranging is None:
            return batches
        return arranged_ahead(batches, self._arranging, self._run.processes.share)

    def _step(self, batch: TrainBatch, position: Position) -> Position:
        if not self._unread:
            self._since = time.monotonic()
        rate = learning_rate_share(position.stage_step, self._num_steps, self._stage.optimiser)
        at = StepContext(number=position.total_step, epoch=position.epoch, rate=rate)
        figures = self._stepper.step(batch, self._stage.loss, at)
        position = position.after_step()
        place = {"kind": "step", "stage": self._stage.name, "epoch": position.epoch + 1, "step": position.total_step}
        progress = {"stage_step": position.stage_step, "stage_steps": self._num_steps}
        self._unread.append((place | progress, figures))
        is_saved = bool(self._run.save_every and position.stage_step % self._run.save_every == 0)
        if is_saved or len(self._unread) == self._steps_read:
            self._read(position, is_saved)
        return position

    def _read(self, position: Position, is_saved: bool = False) -> None:
        """Log the steps since the last time; save the state if wanted; save and raise Interrupted on request."""
        places, figures = [place for place, _ in self._unread], [each for _, each in self._unread]
        self._unread = []
        if not places:
            return
        read = read_figures(figures)
        seconds = {"seconds": round((time.monotonic() - self._since) / len(places), 3)}
        for place, each in zip(places, read, strict=True):
            self._run.log(place | each | seconds)
        is_stop_requested = self._run.processes.any(self._run.should_stop())
        if is_stop_requested or is_saved:
            self._run.save(position, self._stepper)
        if is_stop_requested:
            raise Interrupted(f"stopped after step {position.total_step}, saved in {self._run.folder.path}")


def arranged_ahead(
    batches: Iterator[TrainBatch], arranging: Arranging, share: Callable[[int], slice]
) -> Iterator[TrainBatch]:
    """Yield the batches with the windows of the documents that this process encodes, arranged by other processes."""
    taken: deque[TrainBatch] = deque()

    def documents() -> Iterator[list[Document]]:
        for batch in batches:
            taken.append(batch)
            yield batch.documents[share(len(batch.documents))]

    for arranged in arranging.arrange(documents()):
        yield replace(taken.popleft(), arranged=arranged)
