"""The command `mvindex migrate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mvindex.cli.output import JsonOption, Output, OutputOption, print_report

_QUERIES = 200


def migrate(
    source: Annotated[str, typer.Argument(help="The index to copy: a directory or an address.")],
    target: Annotated[str, typer.Argument(help="A new directory or address, or that of an interrupted run.")],
    verify: Annotated[
        bool,
        typer.Option("--verify", help=f"Search both with {_QUERIES} queries at the end; exit 1 if a result differs."),
    ] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Copy an index between a directory and Milvus, either way, without encoding; results stay the same.

    The source is only read. After an interruption, the same command continues.

    Example: mvindex migrate corpus.mvx milvus://localhost:19530/corpus --verify
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.io.migrate import migrate as move

    with show_step_progress() as on_progress:
        row = asdict(move(source, target, queries=_QUERIES if verify else 0, on_progress=on_progress))
    print_report("migrate", row, output)
