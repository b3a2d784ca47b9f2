"""Progress of commands on stderr: bars on a terminal, else lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mvindex.measure.planning.units import format_seconds
from mvindex.records import CountCallback, ProgressCallback

_LINE_EVERY_S = 30.0


def open_stderr() -> Console:
    """Return a console on stderr for notes and progress."""
    return Console(stderr=True, highlight=False)


class DocumentProgress:
    """Progress of documents on stderr, with rate and time left: a bar on a terminal, else a line every half minute.

    Args:
        total_bytes: Bytes of the input; None when unknown, and then no time left is shown.

    """

    def __init__(self, total_bytes: int | None) -> None:
        self._total_bytes = total_bytes
        self._documents = 0
        self._started = self._reported = time.monotonic()
        columns = (
            TextColumn("{task.fields[documents]:,} documents"),
            BarColumn(),
            TextColumn("{task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=open_stderr(), disable=not sys.stderr.isatty())
        self._task = self._bar.add_task("ingest", total=total_bytes, documents=0, rate=0.0)

    def __enter__(self) -> DocumentProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, documents: int, bytes_read: int, documents_read: int = 0) -> None:
        """Count further documents.

        Args:
            documents: How many are stored, or encoded, since the last call.
            bytes_read: Bytes of the input that were read, all together.
            documents_read: Documents in these bytes; they are read ahead of those that are done. 0: as many.

        """
        self._documents += documents
        if documents_read > self._documents:
            bytes_read = bytes_read * self._documents // documents_read
        now = time.monotonic()
        rate = self._documents / max(now - self._started, 1e-9)
        self._bar.update(self._task, completed=bytes_read, documents=self._documents, rate=rate)
        if self._bar.disable and now - self._reported >= _LINE_EVERY_S:
            self._reported = now
            open_stderr().print(self._line(rate, bytes_read, now), soft_wrap=True)

    def _line(self, rate: float, bytes_done: int, now: float) -> str:
        line = f"{self._documents:,} documents, {rate:,.0f}/s"
        if not self._total_bytes or not bytes_done:
            return line
        left_s = (now - self._started) * (self._total_bytes - bytes_done) / bytes_done
        left = f", about {format_seconds(left_s)} left" if left_s >= 1 else ""
        return f"{line}, {100 * bytes_done / self._total_bytes:.0f} % done{left}"


class _StepLines:
    """Progress of steps as lines on stderr: one for each step that takes longer than half a minute, and so on."""

    def __init__(self) -> None:
        self._reported = time.monotonic()

    def __call__(self, step: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._reported >= _LINE_EVERY_S:
            self._reported = now
            sys.stderr.write(f"{step}: {done:,}" + (f" of {total:,}\n" if total else "\n"))


@contextmanager
def show_step_progress() -> Iterator[ProgressCallback]:
    """Yield a callback for the progress of each step: bars on a terminal, else a line every half minute."""
    if not sys.stderr.isatty():
        yield _StepLines()
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=open_stderr()) as progress:
        tasks: dict[str, TaskID] = {}

        def finish() -> None:
            for task in progress.tasks:
                progress.update(task.id, completed=task.total)

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                finish()  # a step ends where the next one begins
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield show
        finish()


@contextmanager
def show_count_progress(step: str, total: int | None) -> Iterator[CountCallback]:
    """Yield a callback that takes the number of further units done in one step, shown on stderr."""
    done = 0
    with show_step_progress() as show:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(step, done, total)

        yield advance
