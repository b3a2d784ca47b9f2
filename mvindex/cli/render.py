"""Output of the command line: results and tables on stdout, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any, TypeAlias

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
from mvindex.records import Component, CountCallback, Hit, ProgressCallback, SearchResult, ViewScore

_MAX_TEXT_CHARS = 600
_LINE_EVERY_S = 30.0
# Control characters that JSON allows unescaped, and characters that some readers take for the end of a line.
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")


# By document id, the views with their scores, best first.
Explained: TypeAlias = Mapping[str, Sequence[ViewScore]]


def open_stderr() -> Console:
    """Return a console on stderr for notes and progress."""
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print one line of JSON to stdout, with control characters escaped."""
    line = json.dumps(value, ensure_ascii=False)
    sys.stdout.write(_RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line) + "\n")


def result_as_json(
    query: str, result: SearchResult, options: Mapping[str, Any], explained: Explained | None = None
) -> dict[str, Any]:
    """Return a result as the JSON object of `query --json` (schemas/records/query_result.schema.json).

    Args:
        query: The text of the query.
        result: Its result.
        options: The search options to name, see SearchOptions.as_json().
        explained: Adds to each hit its views, best first, and the margin of the best over the second.

    """
    hits = [asdict(hit) for hit in result.hits]
    for hit in hits:
        hit["components"] = list(hit["components"])
        if not hit["components"]:
            del hit["components"]
    for hit in hits if explained is not None else []:
        # A document that was deleted since the search has none.
        views = (explained or {}).get(hit["id"], ())
        hit["margin"] = views[0].score - views[1].score if len(views) > 1 else None
        hit["views"] = [
            {"slot": view.slot, "score": view.score, "weight": view.weight, "snippet": view.snippet} for view in views
        ]
    state: dict[str, Any] = {"exact": result.exact, "short_by": result.short_by, "rounds": result.rounds}
    if result.missing_shards:
        state["missing_shards"] = list(result.missing_shards)
    return {"query": query, **options, **state, "hits": hits}


def print_result(
    query: str, result: SearchResult, options: Mapping[str, Any], explained: Explained | None = None
) -> None:
    """Print the hits of a query to stdout, each text with its best snippet highlighted; see result_as_json()."""
    console = Console(highlight=False, emoji=False)
    state = "exact" if result.exact else "approximate"
    shown_options = ", ".join(f"{name} {value}" for name, value in options.items())
    if result.missing_shards:
        state = f"WITHOUT shards {', '.join(map(str, result.missing_shards))}"
    console.print(
        Text.assemble((escape_controls(query), "bold"), f"  ({len(result.hits)} documents, {state}; {shown_options})")
    )
    for rank, hit in enumerate(result.hits, start=1):
        head = f"{rank:3d}. {hit.score:.4f}  "
        title = f"  {escape_controls(hit.title)}" if hit.title else ""
        console.print(Text.assemble(head, (escape_controls(hit.id), "bold cyan"), title))
        console.print(_text_with_snippet(hit), soft_wrap=False)
        for component in hit.components if explained is not None else ():
            console.print(_component_line(component), no_wrap=True, overflow="ellipsis")
        for line in _view_lines((explained or {}).get(hit.id, ()), has_weights="temperature" in options):
            console.print(line, no_wrap=True, overflow="ellipsis")
    console.print()


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


def _text_with_snippet(hit: Hit) -> Text:
    """Return the text, cut to a readable length around the best snippet, which is highlighted."""
    if hit.span is None:
        return Text("     " + escape_controls(hit.snippet or hit.text[:_MAX_TEXT_CHARS]))
    begin, end = hit.span
    first = max(0, begin - _MAX_TEXT_CHARS // 3)
    last = min(len(hit.text), max(end, first + _MAX_TEXT_CHARS))
    lead, tail = "..." if first else "", "..." if last < len(hit.text) else ""
    text = escape_controls(hit.text)
    return Text.assemble("     ", lead, text[first:begin], (text[begin:end], "bold green"), text[end:last], tail)


def _component_line(component: Component) -> Text:
    """Return the line of one ranking: rank and score of the hit, and the contribution to its final score."""
    rank = "not ranked" if component.rank is None else f"rank {component.rank}"
    return Text(
        f"       {component.name}  {rank}  score {component.score:.4f}  contribution {component.contribution:.4f}",
        style="dim",
    )


def _view_lines(views: Sequence[ViewScore], has_weights: bool) -> Iterator[Text]:
    """Yield one line per view, best first, with its distance from the best and its weight, if any."""
    for view in views:
        margin = views[0].score - view.score
        mark = "best" if view is views[0] else f"-{margin:.4f}"
        weight = f"  weight {view.weight:.4f}" if has_weights else ""
        snippet = escape_controls(" ".join((view.snippet or "").split())[:90])
        yield Text(f"       slot {view.slot}  {view.score:.4f}  {mark:>8}{weight}  {snippet}", style="dim")
