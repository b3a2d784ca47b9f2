"""Output of the command line: tables on stdout, progress on stderr. Results are in results.py, without rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mvindex.cli.terminal import escape_controls
from mvindex.cli.terminal import print_json as print_json  # for commands that print tables otherwise
from mvindex.records import CountCallback, ProgressCallback

_LINE_EVERY_S = 30.0


def open_stderr() -> Console:
    """Return a console on stderr for notes and progress."""
    return Console(stderr=True, highlight=False)


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """Print names and values to stdout as a table of two columns."""
    console = Console(highlight=False, emoji=False)
    # Printed above the table: a title of the table would be wrapped to its width.
    console.print(Text(escape_controls(title), style="table.title"))
    table = Table(show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(escape(escape_controls(str(name))), escape(escape_controls(str(value))))
    console.print(table)


def print_grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a header to stdout, the first column aligned left, the others right."""
    console = Console(highlight=False, emoji=False)
    console.print(Text(escape_controls(title), style="table.title"))
    table = Table()
    for number, name in enumerate(header):
        table.add_column(escape(escape_controls(name)), overflow="fold", justify="right" if number else "left")
    for row in rows:
        table.add_row(*(escape(escape_controls(cell)) for cell in row))
    console.print(table)


def print_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without borders or line breaks to stdout, the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for cells in (header, *rows):
        first, *others = zip(map(escape_controls, cells), widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def print_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts to stdout, wrapping long ones."""
    table = Table()
    for name in header:
        table.add_column(escape(escape_controls(name)), overflow="fold")
    for row in rows:
        table.add_row(*(escape(escape_controls(cell)) for cell in row))
    Console(highlight=False, emoji=False).print(table)


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

    def advance(self, documents: int, bytes_read: int) -> None:
        """Count further documents; bytes_read is the total so far."""
        self._documents += documents
        now = time.monotonic()
        rate = self._documents / max(now - self._started, 1e-9)
        self._bar.update(self._task, completed=bytes_read, documents=self._documents, rate=rate)
        if self._bar.disable and now - self._reported >= _LINE_EVERY_S:
            self._reported = now
            open_stderr().print(self._line(rate, bytes_read, now), soft_wrap=True)

    def _line(self, rate: float, bytes_read: int, now: float) -> str:
        line = f"{self._documents:,} documents, {rate:,.0f}/s"
        if not self._total_bytes or not bytes_read:
            return line
        left_s = (now - self._started) * (self._total_bytes - bytes_read) / bytes_read
        return f"{line}, {100 * bytes_read / self._total_bytes:.0f} % read, about {left_s / 60:,.0f} min left"


@contextmanager
def show_question_progress(total: int | None) -> Iterator[Progress]:
    """Yield a progress display on stderr that counts questions."""
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=open_stderr(), disable=not sys.stderr.isatty()) as progress:
        progress.add_task("questions", total=total)
        yield progress


@contextmanager
def show_step_progress() -> Iterator[ProgressCallback]:
    """Yield a callback for the progress of each step, shown on stderr."""
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=open_stderr(), disable=not sys.stderr.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done)

        yield show


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
