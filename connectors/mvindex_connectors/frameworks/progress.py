"""Progress of documents that are added to a store: a bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mvindex.records import CountCallback, no_progress

# Fewer documents show no bar unless it is asked for.
_LEAST = 50


@contextmanager
def show_added(total: int, is_wanted: bool | None) -> Iterator[CountCallback]:
    """Yield a callback that takes numbers of further documents done, and shows them on stderr.

    Args:
        total: Number of documents.
        is_wanted: None shows them on a terminal, for 50 documents or more.

    """
    is_terminal = sys.stderr.isatty()
    if is_wanted is None:
        is_wanted = is_terminal and total >= _LEAST
    if not is_wanted:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # A terminal is left as it was; elsewhere the last state is the one line that is written.
    with Progress(*columns, console=Console(stderr=True), transient=is_terminal) as progress:
        task = progress.add_task("adding documents", total=total)
        yield lambda count: progress.update(task, advance=count)
