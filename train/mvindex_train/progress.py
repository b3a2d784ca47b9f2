"""Progress of a run on stderr: a bar with loss and time left on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mvindex.cli.render import open_stderr

_LINE_EVERY_S = 30.0
# Weight of the previous mean in the loss shown: that of a single batch is noisy.
_SMOOTHING = 0.9


class TrainingDisplay:
    """Shows the records of a run as they are logged."""

    def __init__(self, is_shown: bool = True) -> None:
        self._is_shown = is_shown
        columns = (
            TextColumn("{task.description} epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=open_stderr(), disable=not (is_shown and sys.stderr.isatty()))
        self._tasks: dict[str, Any] = {}
        self._loss: float | None = None
        self._reported = time.monotonic()
        self._seconds = 0.0
        self._steps = 0

    def __enter__(self) -> TrainingDisplay:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def show(self, record: Mapping[str, Any]) -> None:
        """Show a record."""
        if not self._is_shown:
            return
        if record["kind"] == "step":
            self._show_step(record)
        elif record["kind"] == "dev":
            self._note(dev_line(record))

    def _show_step(self, record: Mapping[str, Any]) -> None:
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
            self._note(self._line(record))

    def _line(self, record: Mapping[str, Any]) -> str:
        left_s = (record["stage_steps"] - record["stage_step"]) * self._seconds / self._steps
        return (
            f"{record['stage']}: step {record['stage_step']:,} of {record['stage_steps']:,}, epoch {record['epoch']}, "
            f"loss {self._loss:.4f}, about {left_s / 60:,.0f} min left"
        )

    def _note(self, text: str) -> None:
        self._bar.console.print(text, soft_wrap=True, markup=False)


def dev_line(record: Mapping[str, Any]) -> str:
    """Return an evaluation as one line."""
    recall = ", ".join(f"{name} {100 * value:.2f} %" for name, value in record.items() if name.startswith("R@"))
    when = f"after epoch {record['epoch']}" if record["epoch"] else "before training"
    spread = record["view_cosine"]
    views = "" if spread is None else f", LV {record['local_variation'] or 0:.4f}, view cosine {spread:.4f}"
    return f"dev {when}: {recall} of {record['questions']:,} questions over {record['documents']:,} documents{views}"
