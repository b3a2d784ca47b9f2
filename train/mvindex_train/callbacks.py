"""Calls to objects of a user at the events of a training run. Imports no torch.

The calls are made in the main process only, in the order of the list, between the steps: a slow callback slows the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.errors import MvindexError
from mvindex_train.config import TrainConfig

logger = logging.getLogger(__name__)


class CallbackError(MvindexError):
    """A callback raised an exception, which is the cause; the message names class and method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The run that begins.

    Attributes:
        config: The settings.
        checkpoint: The folder that the encoder will be written to.
        run_folder: The folder of the run's state; a callback may add files to it.
        step: The steps done before: above 0 when an interrupted run is resumed.
        stop: Stops the run after the current step, as `Trainer.stop()` does.

    """

    config: TrainConfig
    checkpoint: Path
    run_folder: Path
    step: int
    stop: Callable[[], None]


class Callback:
    """Base of callbacks, whose methods do nothing: override those of the events that you need.

    An exception in a method ends the run with a `CallbackError`; training again resumes it from the last state.
    """

    def on_start(self, run: RunStart) -> None:
        """Receive the run before its first step or evaluation."""

    def on_note(self, text: str) -> None:
        """Receive a line for the user, such as the number of examples."""

    def on_step(self, record: Mapping[str, Any]) -> None:
        """Receive the record of a step, as in history.jsonl.

        Args:
            record: "stage" (train or warm-up), "epoch" of the stage and "step" of the run, from 1; "stage_step" of
                "stage_steps"; "loss" and its terms, "learning_rate", "seconds".

        """

    def on_evaluation(self, record: Mapping[str, Any]) -> None:
        """Receive the figures of an evaluation on the dev questions, as in history.jsonl.

        Args:
            record: "epoch" (0 before training), "step", "questions", "documents", "R@1" to "R@100" and "MRR" as shares
                of 1, "local_variation" and "view_cosine", None without documents of two views.

        """

    def on_checkpoint(self, folder: Path, step: int) -> None:
        """Receive a folder that was written: a state that resumes the run, or at the end the checkpoint.

        Args:
            folder: RUN_FOLDER/state-N, deleted once the next one is written, or the checkpoint.
            step: The steps done.

        """

    def on_end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Receive the end of the run; called if on_start() returned.

        Args:
            report: What `Trainer.train()` returns, None if the run did not end by itself.
            error: The exception that ended it, such as `Interrupted`; None otherwise.

        """


class CallbackList:
    """The callbacks of a run, called in order."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)
        self._started: list[Callback] = []

    def start(self, run: RunStart) -> None:
        """Call on_start() of each."""
        for callback in self._callbacks:
            _call(callback, "on_start", run)
            self._started.append(callback)

    def note(self, text: str) -> None:
        """Call on_note() of each."""
        for callback in self._callbacks:
            _call(callback, "on_note", text)

    def record(self, record: Mapping[str, Any]) -> None:
        """Call on_step() or on_evaluation() of each, by the record's kind, with a copy of the record."""
        for callback in self._callbacks:
            _call(callback, "on_step" if record["kind"] == "step" else "on_evaluation", dict(record))

    def checkpoint(self, folder: Path, step: int) -> None:
        """Call on_checkpoint() of each."""
        for callback in self._callbacks:
            _call(callback, "on_checkpoint", folder, step)

    def end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Call on_end() of each that was started, also after one has failed.

        Raises:
            CallbackError: The first failure of a run that ended without error; other failures are logged.

        """
        first: CallbackError | None = None
        for callback in self._started:
            try:
                _call(callback, "on_end", report, error)
            except CallbackError as err:
                if error is not None or first is not None:
                    logger.error("%s", err, exc_info=err.__cause__)
                first = first or err
        if first is not None and error is None:
            raise first


def figures_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a record by "train/loss" or "dev/R@1", without its step, epoch and progress."""
    group = record["stage"] if record["kind"] == "step" else record["kind"]
    places = ("step", "epoch", "stage_step", "stage_steps")
    figures = {name: value for name, value in record.items() if isinstance(value, int | float) and name not in places}
    return {f"{group}/{name}": float(value) for name, value in figures.items()}


def _call(callback: Callback, method: str, *args: object) -> None:
    try:
        getattr(callback, method)(*args)
    except Exception as err:
        raise CallbackError(f"callback {type(callback).__qualname__}.{method}(): {type(err).__name__}: {err}") from err
