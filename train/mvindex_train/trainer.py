"""A training run from settings to checkpoint: read, train, evaluate, keep the best weights, write."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mvindex.durable import map_write_errors
from mvindex.encoder.checkpoint.settings import FILE_NAME as SETTINGS_NAME
from mvindex.encoder.device import memory_of, torch_threads
from mvindex.errors import ConfigError, IndexLocked
from mvindex.paths import user_path
from mvindex.plugins import require
from mvindex.store.files import writer_lock
from mvindex_train.callbacks import Callback, CallbackList, RunStart
from mvindex_train.config import TrainConfig, check_can_train
from mvindex_train.config_cli import label
from mvindex_train.data import ExampleStore
from mvindex_train.evaluation import DevReport, DevSet, evaluate
from mvindex_train.loop import Run, Stage, run_stages
from mvindex_train.resume import History, Position, RunFolder, discard_other_run
from mvindex_train.scaling import SCALES, Trial, choose_scale, judged_values, read_judged_set
from mvindex_train.seeding import preserve_random_state
from mvindex_train.sources import EXAMPLES, StoreBatches, fingerprints, read_dev, refresh_examples, write_examples
from mvindex_train.warm_up import WarmUpBatches, warm_up_loss

if TYPE_CHECKING:
    from mvindex_train.module import TrainableEncoder
    from mvindex_train.processes import Processes

T = TypeVar("T")


@dataclass(eq=False)
class Trainer:
    """Trains an encoder; an interrupted run is resumed by the same call.

    Args:
        config: Settings, such as `preset("snippets").with_settings({"data.train": ["questions.jsonl"]})`.
        out: The folder of the checkpoint. State and log of the run are in OUT.run beside it.
        callbacks: Called at the events of the run, in this order, in the main process only.
        warm_up: A corpus file, for config.warm_up_epochs or warm_up_steps, whichever ends first.
        warm_up_steps: Maximum number of warm-up steps.
        device: cpu or cuda; None takes the fastest available.
        save_every: Steps between states, besides those at the ends of epochs.
        force: Replace an existing checkpoint, or the state of another run.

    Raises:
        ConfigError: An argument is invalid, or they contradict each other.

    """

    config: TrainConfig
    out: Path | str
    _: KW_ONLY
    callbacks: Sequence[Callback] = ()
    warm_up: str | None = None
    warm_up_steps: int | None = None
    device: str | None = None
    save_every: int | None = None
    force: bool = False
    _is_stop_requested: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.out = user_path(self.out)
        check_can_train(self.config)
        wrong = [callback for callback in self.callbacks if not isinstance(callback, Callback)]
        _check(not wrong, f"callbacks: expected objects of subclasses of Callback, got {wrong}")
        _check(self.save_every is None or self.save_every > 0, f"save_every: expected 1 or more, got {self.save_every}")
        _check(
            self.warm_up_steps is None or self.warm_up_steps > 0,
            f"warm_up_steps: expected 1 or more, got {self.warm_up_steps}",
        )
        epochs = self.config.warm_up_epochs
        _check(
            bool(self.warm_up) == bool(epochs),
            f"expected both warm_up_epochs and a warm-up file or neither, got {epochs} and {self.warm_up}",
        )
        hard = self.config.data.hard_negatives
        _check(
            self.config.refresh_epochs is None or hard > 0,
            f"data.hard_negatives: expected 1 or more with refresh_epochs {self.config.refresh_epochs}, got {hard}",
        )

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return Path(self.out)

    @property
    def run_folder(self) -> Path:
        """The folder of the run's state: OUT.run, beside the checkpoint."""
        return self.checkpoint.with_name(self.checkpoint.name + ".run")

    def train(self) -> dict[str, Any]:
        """Train the encoder and write its checkpoint.

        The states of torch's, NumPy's and Python's random numbers are restored.

        Returns:
            The report: paths, steps, seconds, best epoch and dev figures, as JSON values.

        Raises:
            ConfigError: The settings are invalid, or a checkpoint or another run exists.
            CorpusError: A file of data is invalid.
            CheckpointError: The base or a saved state is invalid.
            ExtraMissing: A package of the extra `train` is not installed.
            EncoderError: The loss is not finite.
            Interrupted: A stop was requested; the state is saved.
            CallbackError: A callback raised an exception.

        """
        require("torch", "train", "training")
        from mvindex_train.processes import Processes

        _check_out(self.checkpoint, self.force)
        started = time.monotonic()
        try:
            processes = Processes(self.device)
            # One number for the whole run: sums of gradients depend on it in their last digits.
            with preserve_random_state(), _lock(self.run_folder, processes), torch_threads().limited():
                return _TrainingRun(self, processes).run(started)
        finally:
            self._is_stop_requested = False

    def stop(self) -> None:
        """Stop the run after the current step, with its state saved: `train()` raises Interrupted.

        It may be called from a callback, a signal handler or another thread.
        """
        self._is_stop_requested = True


class _TrainingRun:
    """A run in one process."""

    def __init__(self, job: Trainer, processes: Processes) -> None:
        from mvindex_train.model import build_encoder

        self._job, self._config, self._processes = job, job.config, processes
        self._callbacks = CallbackList(job.callbacks if processes.is_main else ())
        self._encoder: TrainableEncoder = build_encoder(job.config.encoder, job.config.optimiser.seed)
        with memory_of(processes.device, "the model"):
            self._encoder.to(processes.device)
        self._folder = self._open_folder()
        self._notes = self._in_main_first(lambda: write_examples(job.run_folder, job.config.data))
        self._dev = read_dev(job.config.data)
        self._judged = [read_judged_set(path) for path in job.config.evaluation.keep]

    def run(self, started: float) -> dict[str, Any]:
        """Run all stages and write the checkpoint; return the report. started: by the monotonic clock."""
        job, position, callbacks = self._job, self._folder.load(self._encoder), self._callbacks
        try:
            callbacks.start(
                RunStart(
                    config=self._config,
                    checkpoint=job.checkpoint,
                    run_folder=job.run_folder,
                    step=position.total_step,
                    stop=job.stop,
                )
            )
            report = self._train(position) | {"seconds": round(time.monotonic() - started, 2)}
        except BaseException as err:
            callbacks.end(None, err)
            raise
        callbacks.end(report, None)
        return report

    def _train(self, position: Position) -> dict[str, Any]:
        job = self._job
        for note in self._notes:
            self._callbacks.note(note)
        if position.total_step:
            self._callbacks.note(f"resuming after step {position.total_step:,}, from {job.run_folder}")
        batches = StoreBatches(ExampleStore.open(job.run_folder / (position.negatives or EXAMPLES)), self._config)
        history = History(self._folder.history, position.history_bytes) if self._processes.is_main else None
        try:
            run = Run(
                encoder=self._encoder,
                processes=self._processes,
                folder=self._folder,
                history=history,
                callbacks=self._callbacks,
                save_every=job.save_every,
                should_stop=lambda: job._is_stop_requested,
            )
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
            discard_other_run(job.run_folder, record)
        return self._in_main_first(lambda: RunFolder(job.run_folder, record))

    def _in_main_first(self, make: Callable[[], T]) -> T:
        """Call make() in the main process, then in the others, which find its files."""
        if not self._processes.is_main:
            self._processes.wait()
        result = make()
        if self._processes.is_main:
            self._processes.wait()
        return result

    def _stages(self, run: Run, batches: StoreBatches) -> list[Stage]:
        job, config = self._job, self._config
        training = Stage(
            name="train",
            source=batches,
            loss=config.loss,
            optimiser=config.optimiser,
            epochs=config.optimiser.epochs,
            max_steps=config.optimiser.max_steps,
            at_end=partial(self._end_epoch, run, batches),
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
        """Add the dev figures before training to the position; no epoch is compared with them."""
        if self._dev is None or position.before is not None:
            return position
        report = self._evaluate(self._dev).as_json()
        run.log({"kind": "dev", "stage": "train", "epoch": 0, "step": position.total_step} | report)
        return replace(position, before=report)

    def _end_epoch(self, run: Run, batches: StoreBatches, position: Position, is_last: bool) -> Position:
        """Evaluate, save the best weights and refresh the negatives after an epoch; return the new position."""
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
        """Add the evaluation to the position; save the weights when they are better than all before."""
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
        """Mine negatives with the current encoder and use them from now on; return the name of their store."""
        name = f"{EXAMPLES}-{done:04d}"
        path = self._job.run_folder / name
        if self._processes.is_main:
            base = ExampleStore.open(self._job.run_folder / EXAMPLES)
            refresh_examples(self._encoder.frozen_encoder(), base, self._config, path)
        self._processes.wait()
        batches.store = ExampleStore.open(path)
        return name

    def _finish(self, position: Position) -> dict[str, Any]:
        """Write the checkpoint of the best epoch, or of the last without dev questions; return the report."""
        if position.best_epoch is not None:
            self._folder.load_best(self._encoder, position.best_epoch)
        report = {
            "checkpoint": str(self._job.checkpoint),
            "history": str(self._folder.history),
            "steps": position.total_step,
            "best_epoch": position.best_epoch,
            "stopped_early": position.is_stopped,
            "before": position.before,
            "dev": position.best_dev,
            "scale": self._set_scale(),
        }
        if self._processes.is_main:
            self._write(report)
        self._processes.wait()
        return report

    def _set_scale(self) -> dict[str, Any]:
        """Set the factor of what LoRA learnt, chosen where the settings say so; return it and the trials."""
        scale, trials = self._config.evaluation.scale, []
        if scale is None and self._dev is not None:
            trials = [self._try_scale(each, self._dev) for each in (0.0, *SCALES)]
            scale, is_kept = choose_scale(trials)
            if not is_kept:
                self._callbacks.note(f"no scale keeps the judged sets: the smallest, {scale:g}, is taken")
        self._encoder.set_scale(1.0 if scale is None else scale)
        return {"chosen": scale, "trials": [trial.as_json() for trial in trials]}

    def _try_scale(self, scale: float, dev: DevSet) -> Trial:
        """Evaluate a factor; the main process alone, which writes the checkpoint, asks the judged sets."""
        self._encoder.set_scale(scale)
        recall = self._evaluate(dev).recall[self._config.evaluation.cutoff]
        judged = self._judged if self._processes.is_main else []
        frozen = self._encoder.frozen_encoder()
        trial = Trial(scale, recall, {one.name: judged_values(frozen, one, self._job.run_folder) for one in judged})
        self._callbacks.note(str(trial))
        return trial

    def _write(self, report: dict[str, Any]) -> None:
        from mvindex_train.checkpoints import save_checkpoint, write_card

        out, replaced = self._job.checkpoint, self._job.run_folder / "replaced"
        if out.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            out.rename(replaced)
        record = {"config": self._config.as_dict(), **report}
        save_checkpoint(self._encoder, out, write_card(self._config, report), label=label(self._config), record=record)
        shutil.rmtree(replaced, ignore_errors=True)
        self._folder.remove_states()
        self._callbacks.checkpoint(out, report["steps"])


def _check_out(out: Path, force: bool) -> None:
    """Check that the checkpoint may be written; raise ConfigError if not."""
    if not out.exists():
        return
    if not force:
        raise ConfigError(f"{out}: exists already. Give another --out, or --force to replace it")
    if not (out / SETTINGS_NAME).is_file():
        raise ConfigError(f"{out}: not a checkpoint (it has no {SETTINGS_NAME}), so --force does not replace it")


@contextmanager
def _lock(run_folder: Path, processes: Processes) -> Iterator[None]:
    """Lock the run's folder against other runs."""
    if not processes.is_main:
        yield
        return
    with map_write_errors(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
    try:
        with writer_lock(run_folder):
            yield
    except IndexLocked as err:
        raise ConfigError(
            f"{run_folder}: locked by another training process. Wait for it, or give another --out"
        ) from err


def _check(is_valid: bool, message: str) -> None:
    if not is_valid:
        raise ConfigError(message)
