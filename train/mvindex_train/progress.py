"""A callback that shows the progress of a run on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mvindex.cli.progress import open_stderr
from mvindex.measure.planning.units import format_seconds
from mvindex_train.callbacks import Callback, RunStart

_LINE_EVERY_S = 30.0
# Weight of the previous mean in the loss shown: that of a single batch is noisy.
_SMOOTHING = 0.9


class ProgressBar(Callback):
    """Shows notes, steps and evaluations on stderr.

    A terminal, and a notebook with ipywidgets, get a bar with loss and time left; elsewhere a line every 30 seconds.
    """

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description} epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        console = open_stderr()
        has_bar = find_spec("ipywidgets") is not None if console.is_jupyter else sys.stderr.isatty()
        self._bar = Progress(*columns, console=console, disable=not has_bar)
        self._tasks: dict[str, Any] = {}
        self._loss: float | None = None
        self._reported = time.monotonic()
        self._seconds = 0.0
        self._steps = 0

    def on_start(self, run: RunStart) -> None:
        """Show the bar."""
        self._bar.start()

    def on_note(self, text: str) -> None:
        """Show the line."""
        self._bar.console.print(text, soft_wrap=True, markup=False)

    def on_evaluation(self, record: Mapping[str, Any]) -> None:
        """Show the figures as a line."""
        self.on_note(dev_line(record))

    def on_end(self, report: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Leave the bar as it is."""
        self._bar.stop()

    def on_step(self, record: Mapping[str, Any]) -> None:
        """Move the bar, or show a line when one is due."""
        loss = record["loss"]
        self._loss = loss if self._loss is None else _SMOOTHING * self._loss + (1 - _SMOOTHING) * loss
        self._seconds, self._steps = self._seconds + record["seconds"], self._steps + 1
        stage = record["stage"]
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=record["stage_steps"], epoch=0, loss=0.0)
        place = {"completed": record["stage_step"], "epoch": record["epoch"], "loss": self._loss}
        self._bar.update(self._tasks[stage], **place)
        is_due = time.monotonic() - self._reported >= _LINE_EVERY_S
        if self._bar.disable and (is_due or record["stage_step"] == record["stage_steps"]):
            self._reported = time.monotonic()
            self.on_note(self._line(record))

    def _line(self, record: Mapping[str, Any]) -> str:
        left_s = (record["stage_steps"] - record["stage_step"]) * self._seconds / self._steps
        left = f", about {format_seconds(left_s)} left" if left_s >= 1 else ""
        return (
            f"{record['stage']}: step {record['stage_step']:,} of {record['stage_steps']:,}, epoch {record['epoch']}, "
            f"loss {self._loss:.4f}{left}"
        )


def dev_line(record: Mapping[str, Any]) -> str:
    """Return an evaluation as one line."""
    recall = ", ".join(f"{name} {100 * value:.2f} %" for name, value in record.items() if name.startswith("R@"))
    when = f"after epoch {record['epoch']}" if record["epoch"] else "before training"
    spread = record["view_cosine"]
    views = "" if spread is None else f", LV {record['local_variation'] or 0:.4f}, view cosine {spread:.4f}"
    return f"dev {when}: {recall} of {record['questions']:,} questions over {record['documents']:,} documents{views}"
