"""The form of what a command prints on stdout: --output and --json, and reports in each form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from mvindex.cli.terminal import print_json, print_tsv

OUTPUT_PANEL = "Output"


def option(
    help: str, heading: str | None = None, metavar: str | None = None, *, names: Sequence[str] = (), **others: Any
) -> Any:
    """Return an option with this help under a heading of the command's help; its names are made of the parameter's."""
    return typer.Option(*names, help=help, rich_help_panel=heading, metavar=metavar, **others)


class Output(Enum):
    """The form of the output of most commands."""

    TABLE = "table"
    JSON = "json"
    TSV = "tsv"


class ResultOutput(Enum):
    """The form of the output of `mvindex query`."""

    TABLE = "table"
    JSON = "json"
    TSV = "tsv"
    TREC = "trec"


_JSON = "mvindex.json"


def _remember_json(ctx: typer.Context, is_set: bool) -> None:
    ctx.meta[_JSON] = is_set


def _with_json(ctx: typer.Context, value: Any) -> Any:
    """Return the form of --output; JSON where --json is set."""
    kind = type(value)
    if not ctx.meta.get(_JSON):
        return value
    if value not in (kind.TABLE, kind.JSON):
        raise typer.BadParameter(f"--json is short for --output json; got --output {value.value} too")
    return kind.JSON


# Parsed before --output.
JsonOption = Annotated[
    bool,
    option(
        "Short for --output json: one line for each result.",
        OUTPUT_PANEL,
        names=("--json",),
        is_eager=True,
        expose_value=False,
        callback=_remember_json,
    ),
]
OutputOption = Annotated[
    Output,
    option(
        "Print a table for people, JSON, or tab-separated values.",
        OUTPUT_PANEL,
        names=("--output",),
        callback=_with_json,
    ),
]
ResultOutputOption = Annotated[
    ResultOutput,
    option(
        "Print text for people, JSON, tab-separated values, or a TREC run.",
        OUTPUT_PANEL,
        names=("--output",),
        callback=_with_json,
    ),
]


def print_report(title: str, report: Mapping[str, Any], output: Output, summary: Sequence[str] = ()) -> None:
    """Print a report to stdout.

    Args:
        title: Title of the table; "" for none.
        report: Names and values.
        output: Its form. A table leaves out what is not set. Tab-separated, each line is a name and a value; names in
            an object are joined by a dot.
        summary: Sentences for people, printed above the table.

    """
    if output is Output.JSON:
        print_json(report)
    elif output is Output.TSV:
        print_tsv(_flat(report))
    else:
        from mvindex.cli import terminal

        terminal.print_summary(summary)
        terminal.print_table(
            title, {name: value for name, value in report.items() if value not in (None, "", (), [], {})}
        )


def print_rows(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], output: Output, *, is_text: bool = False
) -> None:
    """Print rows of a report under a header to stdout, as a table or tab-separated; is_text: no cell is a number."""
    if output is Output.TSV:
        print_tsv([header, *rows])
    else:
        from mvindex.cli import terminal

        terminal.print_grid(title, header, rows, is_text=is_text)
        typer.echo()


def _flat(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
