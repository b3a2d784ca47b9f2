"""A training run from its settings to its checkpoint: what is read, trained, measured, kept and written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mvindex.checkpoint.settings import FILE_NAME as SETTINGS_NAME
from mvindex.errors import ConfigError, IndexLocked
from mvindex.plugins import require
from mvindex.store.locks import writer_lock
from mvindex_train.config import TrainConfig, check_has_train
from mvindex_train.config_cli import label
from mvindex_train.data import ExampleStore
from mvindex_train.evaluation import DevReport, DevSet, evaluate
from mvindex_train.fsync import refusing
from mvindex_train.history import History, OnRecord
from mvindex_train.loop import Run, Stage, run_stages
from mvindex_train.resume import Position, RunFolder, discard_other
from mvindex_train.seeding import own_random_state
from mvindex_train.sources import EXAMPLES, StoreBatches, fingerprints, read_dev, refresh_examples, write_examples
from mvindex_train.warm_up import WarmUpBatches, warm_up_loss

if TYPE_CHECKING:
    from mvindex_train.module import TrainableEncoder
    from mvindex_train.processes import Processes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """A run: its settings, the checkpoint's folder, and how to go about it.

    warm_up: a corpus file, for config.warm_up_epochs or warm_up_steps, whichever ends first. save_every: steps between
    states, beside the one at each epoch's end. force: an existing checkpoint, or another run's state, is replaced.
    on_record: called with what is logged; on_note: with lines to show; should_stop: asked after each step. The last
    three are for the main process; of the others only should_stop is asked.
    """

    config: TrainConfig
    out: Path
    warm_up: str | None = None
    warm_up_steps: int | None = None
    device: str | None = None
    save_every: int | None = None
    force: bool = False
    on_record: OnRecord | None = None
    on_note: Callable[[str], None] = lambda text: None
    should_stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        check_has_train(self.config)
        _check(self.save_every is None or self.save_every > 0, f"save_every is {self.save_every}; wanted 1 or more")
        _check(
            self.warm_up_steps is None or self.warm_up_steps > 0,
            f"warm_up_steps is {self.warm_up_steps}; wanted 1 or more",
        )
        epochs = self.config.warm_up_epochs
        _check(
            bool(self.warm_up) == bool(epochs),
            f"warm_up_epochs is {epochs}, the warm-up file {self.warm_up}; give both or neither",
        )
        hard = self.config.data.hard_negatives
        _check(
            self.config.refresh_epochs is None or hard > 0,
            f"refresh_epochs is {self.config.refresh_epochs} and data.hard_negatives {hard}; wanted 1 or more hard "
            "negatives, or nothing to refresh",
        )

    @property
    def run_folder(self) -> Path:
        """Where the state of the run lies: OUT.run, beside the checkpoint."""
        return self.out.with_name(self.out.name + ".run")


def train(job: TrainJob) -> dict[str, Any]:
    """The report of the run, whose checkpoint is written; an interrupted one goes on where it was.

    Torch's, NumPy's and Python's random numbers are as before afterwards. Raises ConfigError, CorpusError,
    CheckpointError, ExtraMissing; EncoderError when the loss is not finite; Interrupted when asked to stop.
    """
    require("torch", "train", "training")
    from mvindex_train.processes import Processes

    _check_out(job)
    started = time.monotonic()
    processes = Processes(job.device)
    with own_random_state(), _locked(job, processes):
        report = _Training(job, processes).run()
    return report | {"seconds": round(time.monotonic() - started, 2)}


class _Training:
    """A run in one process."""

    def __init__(self, job: TrainJob, processes: Processes) -> None:
        from mvindex_train.model import build_encoder

        self._job, self._config, self._processes = job, job.config, processes
        self._encoder: TrainableEncoder = build_encoder(job.config.encoder, job.config.optimiser.seed)
        self._encoder.to(processes.device)
        self._folder = self._open_folder()
        self._notes = self._in_main_first(lambda: write_examples(job.run_folder, job.config.data))
        self._dev = read_dev(job.config.data)

    def run(self) -> dict[str, Any]:
        """Nothing is left to do afterwards but to read the report."""
        job, position = self._job, self._folder.load(self._encoder)
        if self._processes.is_main:
            for note in self._notes:
                job.on_note(note)
            if position.total_step:
                job.on_note(f"going on after step {position.total_step:,}, from {job.run_folder}")
        batches = StoreBatches(ExampleStore.open(job.run_folder / (position.negatives or EXAMPLES)), self._config)
        history = None
        if self._processes.is_main:
            history = History(self._folder.history, position.history_bytes, position.total_step, job.on_record)
        try:
            run = Run(self._encoder, self._processes, self._folder, history, job.save_every, job.should_stop)
            position = self._measure_before(run, position)
            position = run_stages(run, self._stages(run, batches), position)
        finally:
            if history is not None:
                history.close()
        return self._finish(position)

    def _open_folder(self) -> RunFolder:
        job = self._job
        record = {
            "config": job.config.as_dict(),
            "inputs": fingerprints(job.config.data, job.warm_up),
            "base": self._encoder.base.fingerprint,
            "warm_up": job.warm_up,
            "warm_up_steps": job.warm_up_steps,
            "processes": self._processes.count,
        }
        if job.force and self._processes.is_main:
            discard_other(job.run_folder, record)
        return self._in_main_first(lambda: RunFolder(job.run_folder, record))

    def _in_main_first(self, make: Callable[[], T]) -> T:
        """What is made, by the main process before the others, which find its files."""
        if not self._processes.is_main:
            self._processes.wait()
        made = make()
        if self._processes.is_main:
            self._processes.wait()
        return made

    def _stages(self, run: Run, batches: StoreBatches) -> list[Stage]:
        job, config = self._job, self._config
        training = Stage(
            name="train",
            source=batches,
            loss=config.loss,
            optimiser=config.optimiser,
            epochs=config.optimiser.epochs,
            max_steps=config.optimiser.max_steps,
            at_end=lambda position, is_last: self._end_epoch(run, batches, (position, is_last)),
        )
        if job.warm_up is None:
            return [training]
        warm_up = Stage(
            name="warm-up",
            source=WarmUpBatches(job.warm_up, config.data.batch_passages, config.optimiser.seed),
            loss=warm_up_loss(config.loss),
            optimiser=config.optimiser,
            epochs=config.warm_up_epochs,
            max_steps=job.warm_up_steps,
        )
        return [warm_up, training]

    def _measure_before(self, run: Run, position: Position) -> Position:
        """The position with the dev figures of the encoder as it came, which no epoch is compared with."""
        if self._dev is None or position.before is not None:
            return position
        report = self._evaluate(self._dev).as_json()
        run.log({"kind": "dev", "stage": "train", "epoch": 0, "step": position.total_step} | report)
        return replace(position, before=report)

    def _end_epoch(self, run: Run, batches: StoreBatches, at: tuple[Position, bool]) -> Position:
        """The position after what happens between epochs: dev recall, the best weights kept, negatives mined anew."""
        position, is_last = at
        done, config = position.epoch + 1, self._config
        if self._dev is not None and (is_last or done % config.evaluation.every_epochs == 0):
            report = self._evaluate(self._dev)
            run.log({"kind": "dev", "stage": "train", "epoch": done, "step": position.total_step} | report.as_json())
            position = self._compare(position, report)
        if config.refresh_epochs and done % config.refresh_epochs == 0 and not (is_last or position.is_stopped):
            position = replace(position, negatives=self._refresh(batches, done))
        return position

    def _evaluate(self, dev: DevSet) -> DevReport:
        frozen = self._encoder.frozen_encoder()
        return evaluate(frozen, dev, self._config.loss, self._processes, self._config.evaluation.cutoff)

    def _compare(self, position: Position, report: DevReport) -> Position:
        """The position with this evaluation in it; its weights are kept when no earlier ones were as good."""
        score, patience = report.recall[self._config.evaluation.cutoff], self._config.evaluation.patience
        position = replace(position, dev=report.as_json())
        if position.best_score is None or score > position.best_score:
            if self._processes.is_main:
                self._folder.save_best(self._encoder, position.epoch + 1)
            epoch, figures = position.epoch + 1, report.as_json()
            return replace(position, worse_evaluations=0, best_score=score, best_epoch=epoch, best_dev=figures)
        worse = position.worse_evaluations + 1
        return replace(position, worse_evaluations=worse, is_stopped=patience is not None and worse >= patience)

    def _refresh(self, batches: StoreBatches, done: int) -> str:
        """The name of the store with negatives that the encoder of this moment finds; batches take them from now on."""
        name = f"{EXAMPLES}-{done:04d}"
        path = self._job.run_folder / name
        if self._processes.is_main:
            base = ExampleStore.open(self._job.run_folder / EXAMPLES)
            refresh_examples(self._encoder.frozen_encoder(), base, self._config, path)
        self._processes.wait()
        batches.store = ExampleStore.open(path)
        return name

    def _finish(self, position: Position) -> dict[str, Any]:
        """The report; the checkpoint holds the best epoch's weights, or without dev questions the last ones."""
        if position.best_epoch is not None:
            self._folder.load_best(self._encoder, position.best_epoch)
        report = {
            "checkpoint": str(self._job.out),
            "history": str(self._folder.history),
            "steps": position.total_step,
            "best_epoch": position.best_epoch,
            "stopped_early": position.is_stopped,
            "before": position.before,
            "dev": position.best_dev,
        }
        if self._processes.is_main:
            self._write(report)
        self._processes.wait()
        return report

    def _write(self, report: dict[str, Any]) -> None:
        from mvindex_train.card import write_card
        from mvindex_train.checkpoints import save_checkpoint

        job, replaced = self._job, self._job.run_folder / "replaced"
        if job.out.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            job.out.rename(replaced)
        record = {"config": self._config.as_dict(), **report}
        save_checkpoint(
            self._encoder, job.out, write_card(self._config, report), label=label(self._config), record=record
        )
        shutil.rmtree(replaced, ignore_errors=True)
        self._folder.remove_states()


def _check_out(job: TrainJob) -> None:
    """Nothing; the checkpoint may be written to where it should go."""
    if not job.out.exists():
        return
    if not job.force:
        raise ConfigError(f"{job.out}: is there already; give another --out, or --force to replace it")
    if not (job.out / SETTINGS_NAME).is_file():
        raise ConfigError(f"{job.out}: is no checkpoint (it has no {SETTINGS_NAME}), so --force does not replace it")


@contextmanager
def _locked(job: TrainJob, processes: Processes) -> Iterator[None]:
    """Inside it no other run writes to this run's folder."""
    if not processes.is_main:
        yield
        return
    with refusing(job.run_folder):
        job.run_folder.mkdir(parents=True, exist_ok=True)
    try:
        with writer_lock(job.run_folder):
            yield
    except IndexLocked as err:
        raise ConfigError(f"{job.run_folder}: another process trains here; wait for it, or give another --out") from err


def _check(is_right: bool, message: str) -> None:
    if not is_right:
        raise ConfigError(message)
