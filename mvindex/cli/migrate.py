"""The commands that take an index elsewhere: `mvindex migrate` and `mvindex export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mvindex.cli.options import IndexOption, JsonOption, open_chosen

_QUERIES = 100


def migrate(
    source: Annotated[str, typer.Argument(help="The index as it is: a directory or an address.")],
    target: Annotated[str, typer.Argument(help="A new directory or address; or the same as of an interrupted run.")],
    verify: Annotated[
        bool,
        typer.Option("--verify", help=f"Ask both for the same {_QUERIES} queries at the end; exit 1 if one differs."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move an index between a directory and Milvus, either way. Nothing is encoded again; answers stay the same.

    The source is only read. Interrupted, give the same command again to go on.

    Example: mvindex migrate corpus.mvx milvus://localhost:19530/corpus --verify
    """
    from mvindex.cli import render as display
    from mvindex.io.migrate import migrate as move

    with display.step_progress() as told:
        row = asdict(move(source, target, queries=_QUERIES if verify else 0, on_progress=told))
    display.print_json(row) if as_json else display.print_table("migrate", row)


def export(
    directory: Annotated[Path, typer.Argument(help="Where the files go; that of an interrupted run goes on.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="parquet (a row a view), parquet-documents, npy, jsonl, trec (texts), or milvus-bulk."
        ),
    ],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an index as files that others read. Interrupted, give the same command again to go on (docs/moving.md).

    All but trec hold the vectors, and mvindex import makes an equal index of them.

    Example: mvindex export --to parquet corpus-parquet/ --index corpus.mvx
    """
    from mvindex.cli import render as display
    from mvindex.io.export import find_exporter

    exporter = find_exporter(to)
    with open_chosen(index, None) as source, display.step_progress() as told:
        row = asdict(exporter(source, directory, told))
    display.print_json(row) if as_json else display.print_table("export", row)
